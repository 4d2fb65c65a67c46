//! Code that tests share with the fuzz target for damaged images.

use std::sync::{Arc, OnceLock};

use fslab_vfs::{
    BlockDevice, FileKind, FileSystem, Ino, MemoryDevice, OpenMode, SeekTo, Timestamp,
};
use fslab_vfs_testing::client::Client;

use crate::check::{check, repair};
use crate::{BlockSize, Ext2, MkfsOptions, VolumeOptions, mkfs};

/// Maximum number of files visited in one image; damage can make the tree cyclic.
const VISITS_MAX: u32 = 400;
/// Maximum number of changes by one fuzz input.
const DAMAGES_MAX: usize = 40;
const SAMPLE_BYTES: u64 = 2 << 20;
/// Size in bytes of the pieces into which an image is divided. Only pieces that are not all zeros
/// are damaged.
const PIECE_BYTES: usize = 64;

/// Reads all files of an image and changes some; errors are permitted.
pub fn use_image(device: Arc<dyn BlockDevice>) {
    let Ok(ext2) = Ext2::open(device, VolumeOptions::default()) else { return };
    let client = Client::new(&ext2);
    let mut todo = vec![Ino::ROOT];
    let mut visits = 0;
    while let Some(directory) = todo.pop() {
        let Ok(names) = client.list(directory) else { continue };
        for listed in names {
            visits += 1;
            if visits > VISITS_MAX {
                break;
            }
            let Ok(attr) = client.lookup(directory, &listed.name) else { continue };
            if attr.kind == FileKind::Directory && todo.len() < 50 {
                todo.push(attr.ino);
            }
            look_at(&client, attr.ino);
        }
        change(&client, directory);
    }
    drop(client);
    drop(ext2.shutdown());
}

/// Reads a file in all possible ways and changes it; errors are permitted.
pub fn look_at(client: &Client<'_>, ino: Ino) {
    drop(client.readlink(ino));
    drop(client.listxattr(ino));
    drop(client.getxattr(ino, "user.1"));
    drop(client.subject().layout().map(|layout| layout.extents(ino)));
    let Ok(file) = client.open(ino, OpenMode::READ_WRITE) else { return };
    drop(file.read(0, 100_000));
    drop(file.seek(0, SeekTo::Hole));
    drop(file.seek(1, SeekTo::Data));
    drop(file.write(5000, b"changed"));
    drop(file.truncate(3000));
    drop(client.setxattr(ino, "user.new", b"value"));
}

fn change(client: &Client<'_>, directory: Ino) {
    drop(client.file(directory, "new", &[1; 9000]));
    drop(client.mkdir(directory, "new directory"));
    drop(client.rename(directory, "new", directory, "renamed"));
    drop(client.unlink(directory, "renamed"));
    drop(client.rmdir(directory, "new directory"));
}

/// An image that contains files of all kinds, and the offsets of its nonzero pieces.
struct Sample {
    bytes: Vec<u8>,
    used: Vec<usize>,
}

impl Sample {
    fn new(block_bytes: u32) -> fslab_vfs::Result<Self> {
        let device = Arc::new(MemoryDevice::new(SAMPLE_BYTES));
        let size = BlockSize::new(block_bytes).unwrap_or(BlockSize::MIN);
        let options = MkfsOptions { block_size: size, bytes_per_inode: 4096, ..Default::default() };
        mkfs(&*device, &options)?;
        let ext2 = Ext2::open(device.clone(), VolumeOptions::default())?;
        furnish(&Client::new(&ext2))?;
        ext2.shutdown()?;
        let mut bytes = vec![0; SAMPLE_BYTES as usize];
        device.read_at(0, &mut bytes)?;
        let pieces = bytes.chunks(PIECE_BYTES).enumerate();
        let used = pieces.filter(|(_, piece)| piece.iter().any(|byte| *byte != 0));
        Ok(Self { used: used.map(|(index, _)| index * PIECE_BYTES).collect(), bytes })
    }

    /// Returns a damaged copy of the image. Every eight bytes of the input specify the position and
    /// the new value of four bytes.
    fn damaged(&self, input: &[u8]) -> Arc<MemoryDevice> {
        let mut bytes = self.bytes.clone();
        for [a, b, c, within, value @ ..] in input.as_chunks::<8>().0.iter().take(DAMAGES_MAX) {
            let piece = u32::from_le_bytes([*a, *b, *c, 0]) as usize % self.used.len();
            let at = self.used[piece] + usize::from(*within) % (PIECE_BYTES / 4) * 4;
            bytes[at..at + 4].copy_from_slice(value);
        }
        let device = MemoryDevice::new(SAMPLE_BYTES);
        // The image has the size of the device, so this cannot fail.
        drop(device.write_at(0, &bytes));
        Arc::new(device)
    }
}

fn furnish(client: &Client<'_>) -> fslab_vfs::Result<()> {
    let many = client.mkdir(Ino::ROOT, "many")?;
    for number in 0..60 {
        client.file(many, format!("{number}-{}", "x".repeat(100)), b"")?;
    }
    let deep = client.mkdir(many, "deep")?;
    let file = client.file(deep, "file", &[7; 300_000])?;
    client.link(file, Ino::ROOT, "link")?;
    client.symlink(deep, "fast", "target")?;
    client.symlink(deep, "slow", "t".repeat(200))?;
    client.setxattr(file, "user.small", b"value")?;
    client.setxattr(file, "user.block", &[1; 400])?;
    client.mknod(deep, "pipe", 0o010_644, 0)?;
    client.file(Ino::ROOT, "hollow", b"")?;
    let hollow = client.lookup(Ino::ROOT, "hollow")?.ino;
    let file = client.open(hollow, OpenMode::READ_WRITE)?;
    file.write_all(80_000_000, b"far behind")?;
    file.close()
}

/// Damages an image as the input specifies, and uses it. Every operation must terminate.
///
/// # Errors
/// Fails if the sample image can't be made.
pub fn check_damaged(input: &[u8]) -> fslab_vfs::Result<()> {
    static SAMPLES: OnceLock<[Sample; 2]> = OnceLock::new();
    let Some((kind, damage)) = input.split_first() else { return Ok(()) };
    if SAMPLES.get().is_none() {
        drop(SAMPLES.set([Sample::new(1024)?, Sample::new(4096)?]));
    }
    let Some(samples) = SAMPLES.get() else { return Ok(()) };
    let device: Arc<dyn BlockDevice> = samples[usize::from(kind % 2)].damaged(damage);
    let now = Timestamp { seconds: 1_600_000_000, nanoseconds: 0 };
    match kind / 2 % 4 {
        0 => drop(check(device)),
        1 => {
            drop(repair(&device, now));
            use_image(device);
        }
        2 => {
            use_image(device.clone());
            drop(repair(&device, now));
        }
        _ => use_image(device),
    }
    Ok(())
}
