//! Clusters in the engine: files written among gaps lie together afterwards, with the bytes they
//! were given, and nothing is lost of the space.

use fslab_ext2::alloc::{Clustering, POLICIES, PolicySpec};
use fslab_ext2::{Ext2, MkfsOptions, Reuse, VolumeOptions};
use fslab_vfs::testing::client::Client;
use fslab_vfs::{FileSystem, Ino, OpenMode};

use crate::support::{Image, has, options};

/// Blocks of the file that is looked at; more than the inode and one indirect block map.
const BLOCKS: usize = 400;
const BLOCK: usize = 1024;

fn bytes_of(block: usize) -> Vec<u8> {
    (0..BLOCK).map(|at| (at * 7 + block * 31) as u8).collect()
}

/// Leaves gaps of one to three blocks all over the image.
fn riddle(client: &Client<'_>) {
    let directory = client.mkdir(Ino::ROOT, "gaps").unwrap();
    for number in 0..1500 {
        let file = vec![1; BLOCK * (1 + number % 3)];
        client.file(directory, format!("{number}"), &file).unwrap();
    }
    for number in (0..1500).step_by(2) {
        client.unlink(directory, format!("{number}")).unwrap();
    }
}

/// Writes a file a block at a time; answers in how many pieces it lies.
fn write(ext2: &Ext2, client: &Client<'_>, name: &str) -> usize {
    let (entry, file) = client.create(Ino::ROOT, name, 0o600, OpenMode::EXCLUSIVE).unwrap();
    for block in 0..BLOCKS {
        file.write_all((block * BLOCK) as u64, &bytes_of(block)).unwrap();
    }
    // Over what is there, and over more than one block at once.
    let again: Vec<u8> = (20..60).flat_map(bytes_of).collect();
    file.write_all(20 * BLOCK as u64, &again).unwrap();
    let expected: Vec<u8> = (0..BLOCKS).flat_map(bytes_of).collect();
    assert!(file.read(0, expected.len()).unwrap() == expected, "{name}");
    drop(file);
    ext2.layout().unwrap().extents(entry.ino).unwrap().len()
}

fn pieces(policy: &'static PolicySpec, clustering: Clustering, reuse: Reuse) -> usize {
    let small = MkfsOptions { bytes_per_inode: 4096, ..options(BLOCK as u32) };
    let image = Image::new(8 << 20, &small);
    let made = VolumeOptions { policy, clustering, reuse, ..VolumeOptions::default() };
    let ext2 = image.open_with(made.clone());
    let client = Client::new(&ext2);
    riddle(&client);
    ext2.sync().unwrap();
    let pieces = write(&ext2, &client, "file");
    drop(client);
    ext2.shutdown().unwrap();
    drop(ext2);
    let when = format!("{} {} {reuse:?}", policy.name, clustering.name());
    if has("e2fsck") {
        image.check(&when);
    }
    let ext2 = image.open_with(made);
    let client = Client::new(&ext2);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let expected: Vec<u8> = (0..BLOCKS).flat_map(bytes_of).collect();
    assert!(client.contents(ino).unwrap() == expected, "{when}, opened again");
    pieces
}

#[test]
fn clusters_are_moved_together_and_keep_their_bytes() {
    for policy in POLICIES {
        for reuse in [Reuse::AfterFlush, Reuse::AtOnce] {
            let [smart, dumb] = Clustering::ALL.map(|one| pieces(policy, one, reuse));
            // Not moved is what lies around an indirect block in line.
            let in_line = usize::from(policy.name == "ffs-noswitch");
            let told = format!("{}, {reuse:?}: {smart} and {dumb} pieces", policy.name);
            assert!((smart - in_line) * 2 < dumb, "{told}");
        }
    }
}

/// A cluster that can't be copied stays, and what was taken for it is free again.
#[test]
fn a_cluster_that_can_not_be_copied_stays() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use fslab_vfs::{BlockDevice, Errno, MemoryDevice, Result};

    /// Fails to read bytes of files on demand.
    struct Failing(MemoryDevice, AtomicBool);

    impl BlockDevice for Failing {
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.0.read_at(offset, buffer)
        }
        fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
            self.0.write_at(offset, data)
        }
        fn read_data_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            match self.1.load(Ordering::Relaxed) {
                true => Err(Errno::IO.into()),
                false => self.0.read_at(offset, buffer),
            }
        }
        fn discard(&self, offset: u64, length: u64) -> Result<()> {
            self.0.discard(offset, length)
        }
        fn flush(&self) -> Result<()> {
            self.0.flush()
        }
    }

    let device = Arc::new(Failing(MemoryDevice::new(8 << 20), AtomicBool::new(false)));
    let small = MkfsOptions { bytes_per_inode: 4096, ..options(BLOCK as u32) };
    fslab_ext2::mkfs(&*device, &small).unwrap();
    let made = VolumeOptions { clustering: Clustering::Smart, ..VolumeOptions::default() };
    let ext2 = Ext2::open(device.clone(), made).unwrap();
    let client = Client::new(&ext2);
    riddle(&client);
    let (entry, file) = client.create(Ino::ROOT, "file", 0o600, OpenMode::EXCLUSIVE).unwrap();
    device.1.store(true, Ordering::Relaxed);
    let (mut written, mut failed) = (0, 0);
    for _ in 0..200 {
        match file.write_all((written * BLOCK) as u64, &bytes_of(written)) {
            Ok(()) => written += 1,
            Err(error) => {
                assert_eq!(error.errno(), Errno::IO);
                failed += 1;
            }
        }
    }
    device.1.store(false, Ordering::Relaxed);
    assert!(failed > 0 && written > 0, "{written} written, {failed} failed");
    let expected: Vec<u8> = (0..written).flat_map(bytes_of).collect();
    assert!(client.contents(entry.ino).unwrap() == expected);
    drop(file);
    drop(client);
    ext2.shutdown().unwrap();
    let report = fslab_ext2::check::check(device).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}
