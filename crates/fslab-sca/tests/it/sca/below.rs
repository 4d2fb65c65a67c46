//! Helpers of the tests: a lower directory in memory, and test contents.

use std::sync::Arc;

use fslab_layers::observe::fault::{Fault, Program};
use fslab_vfs::{Errno, FileSystem, Ino, MemFs, OpenMode};
use fslab_vfs_testing::client::Client;

pub const CODECS: [&str; 5] = ["copy", "uuencode", "gzip", "zstd", "lz4"];

/// A directory in memory, over which layers can be mounted.
pub struct Below {
    pub fs: Arc<dyn FileSystem>,
}

impl Below {
    pub fn new() -> Self {
        Self::of(MemFs::default())
    }

    pub fn of(fs: MemFs) -> Self {
        Self { fs: Arc::new(fs) }
    }

    /// Mounts a layer over the directory. Dropping it without `shutdown` simulates a kill.
    pub fn mount(&self, layer: &str) -> Arc<dyn FileSystem> {
        let layer = crate::layer(layer);
        layer.build(Arc::clone(&self.fs)).unwrap()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let client = Client::new(&*self.fs);
        let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
        client.contents(ino).unwrap()
    }

    /// Changes bytes of a file in place. Its length does not change, so its size xattr may still be
    /// trusted.
    pub fn overwrite(&self, name: &str, offset: usize, bytes: &[u8]) {
        let client = Client::new(&*self.fs);
        let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(offset as u64, bytes).unwrap();
        file.close().unwrap();
    }

    /// Returns the bytes allocated to a lower file.
    pub fn allocated(&self, name: &str) -> u64 {
        Client::new(&*self.fs).lookup(Ino::ROOT, name).unwrap().blocks * 512
    }

    pub fn replace(&self, name: &str, bytes: &[u8]) {
        let client = Client::new(&*self.fs);
        let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.truncate(0).unwrap();
        file.write_all(0, bytes).unwrap();
        file.close().unwrap();
    }
}

/// A layer over a directory whose calls can be made to fail. Dropping it simulates a kill.
pub struct Failing {
    fault: Arc<Fault>,
    pub fs: Arc<dyn FileSystem>,
}

impl Failing {
    /// Makes a layer whose lower calls fail by these rules from the start.
    pub fn over(below: &Below, layer: &str, rules: &str) -> Self {
        let layer = crate::layer(layer);
        let memory = Arc::clone(&below.fs);
        let fault = Arc::new(Fault::new(memory, program(rules), Box::new(|_, _| Ok(()))));
        let lower: Arc<dyn FileSystem> = fault.clone();
        Self { fs: layer.build(lower).unwrap(), fault }
    }

    /// Makes calls fail by these rules from now on.
    pub fn by(&self, rules: &str) {
        self.fault.replace(program(rules));
    }
}

fn program(rules: &str) -> Program {
    Program::parse("rules", rules, 0).unwrap()
}

pub fn text(length: usize) -> Vec<u8> {
    b"It was the age of wisdom, it was the age of foolishness. "
        .iter()
        .copied()
        .cycle()
        .take(length)
        .collect()
}

pub fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    })
    .take(length)
    .collect()
}

/// Writes a file sequentially, in pieces of a mebibyte, and closes it.
pub fn write_file(fs: &dyn FileSystem, name: &str, data: &[u8]) {
    write_file_in_pieces(fs, name, data, 1 << 20);
}

/// Writes a file sequentially, in pieces of `piece_bytes`, and closes it.
pub fn write_file_in_pieces(fs: &dyn FileSystem, name: &str, data: &[u8], piece_bytes: usize) {
    let client = Client::new(fs);
    let (_, file) = client.create(Ino::ROOT, name, 0o644, OpenMode::EXCLUSIVE).unwrap();
    for (index, piece) in data.chunks(piece_bytes).enumerate() {
        file.write_all((index * piece_bytes) as u64, piece).unwrap();
    }
    client.subject().flush(&client.request(), file.ino, file.handle).unwrap();
    file.close().unwrap();
}

/// Writes to an existing file and closes it.
pub fn write_at(
    fs: &dyn FileSystem,
    name: &str,
    offset: u64,
    bytes: &[u8],
) -> fslab_vfs::Result<()> {
    let client = Client::new(fs);
    let ino = client.lookup(Ino::ROOT, name)?.ino;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    file.write_all(offset, bytes)?;
    file.close()
}

/// Truncates an existing file, writes it again and closes it.
pub fn rewrite_file(fs: &dyn FileSystem, name: &str, bytes: &[u8]) -> fslab_vfs::Result<()> {
    let client = Client::new(fs);
    let ino = client.lookup(Ino::ROOT, name)?.ino;
    let file = client.open(ino, OpenMode::READ_WRITE | OpenMode::TRUNCATE)?;
    file.write_all(0, bytes)?;
    file.close()
}

pub fn read_file(fs: &dyn FileSystem, name: &str) -> Result<Vec<u8>, Errno> {
    let client = Client::new(fs);
    let attr = client.lookup(Ino::ROOT, name).map_err(|error| error.errno())?;
    let file = client.open(attr.ino, OpenMode::empty()).map_err(|error| error.errno())?;
    let mut all = Vec::new();
    while (all.len() as u64) < attr.size {
        let piece = file.read(all.len() as u64, 1 << 20).map_err(|error| error.errno())?;
        assert!(!piece.is_empty(), "the file ends at {} of {}", all.len(), attr.size);
        all.extend(piece);
    }
    file.close().map_err(|error| error.errno())?;
    Ok(all)
}

pub fn mixed(length: usize) -> Vec<u8> {
    let mut data = text(length / 3);
    data.extend(random(7, length / 3));
    data.extend(vec![0; length - data.len()]);
    data
}
