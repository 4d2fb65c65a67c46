//! Tests clustering in the engine. Files written into gaps become contiguous and keep their
//! content, and no space is lost.

use fslab_ext2::alloc::{Clustering, POLICIES, PolicySpec};
use fslab_ext2::{Ext2, MkfsOptions, Reuse, VolumeOptions};
use fslab_vfs::{Errno, FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::Client;

use crate::support::{Fault, FaultyDevice, Image, has, options};

/// Number of blocks in the tested file; more than the inode and one indirect block can map.
const BLOCKS: usize = 400;
const BLOCK: usize = 1024;

fn bytes_of(block: usize) -> Vec<u8> {
    (0..BLOCK).map(|at| (at * 7 + block * 31) as u8).collect()
}

/// Creates gaps of one to three blocks throughout the image.
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

/// Writes a file block by block; returns its number of contiguous pieces.
fn write(ext2: &Ext2, client: &Client<'_>, name: &str) -> usize {
    let (entry, file) = client.create(Ino::ROOT, name, 0o600, OpenMode::EXCLUSIVE).unwrap();
    for block in 0..BLOCKS {
        file.write_all((block * BLOCK) as u64, &bytes_of(block)).unwrap();
    }
    // Overwrite existing blocks, several in one write.
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
            // `ffs-noswitch` places the indirect block between data blocks, and the blocks around
            // it are not moved.
            let in_line = usize::from(policy.name == "ffs-noswitch");
            let told = format!("{}, {reuse:?}: {smart} and {dumb} pieces", policy.name);
            assert!((smart - in_line) * 2 < dumb, "{told}");
        }
    }
}

/// If a cluster can't be copied, it is not moved, and the blocks allocated for it are freed.
#[test]
fn a_cluster_that_can_not_be_copied_stays() {
    let small = MkfsOptions { bytes_per_inode: 4096, ..options(BLOCK as u32) };
    let device = FaultyDevice::new(8 << 20, &small);
    let made = VolumeOptions { clustering: Clustering::Smart, ..VolumeOptions::default() };
    let ext2 = device.open(made);
    let client = Client::new(&ext2);
    riddle(&client);
    let (entry, file) = client.create(Ino::ROOT, "file", 0o600, OpenMode::EXCLUSIVE).unwrap();
    device.fail_after(Fault::DataRead, 0);
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
    device.mend(Fault::DataRead);
    assert!(failed > 0 && written > 0, "{written} written, {failed} failed");
    let expected: Vec<u8> = (0..written).flat_map(bytes_of).collect();
    assert!(client.contents(entry.ino).unwrap() == expected);
    drop(file);
    drop(client);
    ext2.shutdown().unwrap();
    let report = fslab_ext2::check::check(device).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}
