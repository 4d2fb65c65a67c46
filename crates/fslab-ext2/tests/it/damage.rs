//! Images with random damage: whatever is done with them ends, without a panic, and within bounds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fslab_ext2::{Ext2, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::testing::client::Client;
use fslab_vfs::{BlockDevice, FileKind, FileSystem, Ino, MemoryDevice, OpenMode, SeekTo};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::script::{Script, seed};
use crate::support::{in_memory, options};

const IMAGE_BYTES: u64 = 4 << 20;
/// Damaged images, unless the environment says otherwise.
const CASES: u64 = 150;
/// Files looked at in one image; damage can make a tree a circle.
const VISITS_MAX: u32 = 400;
const TIME_MAX: Duration = Duration::from_secs(20);

/// An image with some of everything, as bytes.
fn sample(options: &MkfsOptions) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    mkfs(&*device, options).unwrap();
    let ext2 = Ext2::open(device.clone(), VolumeOptions::default()).unwrap();
    let model = in_memory(IMAGE_BYTES * 4, options);
    {
        let (client, model) = (Client::new(&ext2), Client::new(&model));
        // The largest writes don't fit an image this small; some steps are enough.
        Script::new(7).run_small(&client, &model, 60);
    }
    ext2.shutdown().unwrap();
    let mut bytes = vec![0; IMAGE_BYTES as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Looks at everything and changes some; errors are fine.
fn use_it(device: Arc<MemoryDevice>) {
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

fn look_at(client: &Client<'_>, ino: Ino) {
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

fn damaged(sample: &[u8], random: &mut Pcg64) -> Arc<MemoryDevice> {
    let mut bytes = sample.to_vec();
    // Mostly where something is.
    let used: Vec<usize> =
        (0..bytes.len()).step_by(64).filter(|at| bytes[*at..at + 64] != [0; 64]).collect();
    for _ in 0..random.random_range(1..40) {
        let at = used[random.random_range(0..used.len())] + random.random_range(0..64);
        match random.random_range(0..4) {
            0 => bytes[at] = 0xff,
            1 => bytes[at] = 0,
            2 => bytes[at] ^= 1 << random.random_range(0..8),
            _ => bytes[at] = random.random_range(0..=255),
        }
    }
    let device = MemoryDevice::new(IMAGE_BYTES);
    device.write_at(0, &bytes).unwrap();
    Arc::new(device)
}

#[test]
fn damaged_images_end_in_errors_and_not_in_panics() {
    let first = seed();
    eprintln!("FSLAB_SEED={first}");
    let cases = std::env::var("FSLAB_EXT2_DAMAGES").map_or(CASES, |text| text.parse().unwrap());
    let samples = [options(1024), MkfsOptions { inode_size: 128, ..options(4096) }]
        .map(|options| sample(&options));
    for seed in first..first + cases {
        let mut random = Pcg64::seed_from_u64(seed);
        let device = damaged(&samples[(seed % 2) as usize], &mut random);
        let start = Instant::now();
        let answer = catch_unwind(AssertUnwindSafe(|| use_it(device)));
        assert!(answer.is_ok(), "a panic with FSLAB_SEED={seed}");
        assert!(start.elapsed() < TIME_MAX, "FSLAB_SEED={seed} took {:?}", start.elapsed());
    }
}

/// Every pointer of a file leads to one block, which holds pointers to itself.
#[test]
fn a_map_that_leads_to_itself_ends() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs(&*device, &options(4096)).unwrap();
    let ext2 = Ext2::open(device.clone(), VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    let ino = client.file(Ino::ROOT, "file", &vec![1; 100 << 12]).unwrap();
    client.truncate(ino, 1 << 40).unwrap();
    drop(client);
    ext2.shutdown().unwrap();
    let groups = ext2.groups();
    let table = u64::from(groups[0].inode_table.0) * 4096;
    let index = ino.0 - 1;
    let per_group = u64::from(ext2.superblock().geometry().inodes_per_group);
    assert!(index < per_group, "the file is in group 0");
    let at = table + index * 256 + 40;
    let mut map = [0; 60];
    device.read_at(at, &mut map).unwrap();
    let indirect = [map[48], map[49], map[50], map[51]];
    let block = u64::from(u32::from_le_bytes(indirect)) * 4096;
    device.write_at(block, &indirect.repeat(1024)).unwrap();
    device.write_at(at, &indirect.repeat(15)).unwrap();
    let start = Instant::now();
    let ext2 = Ext2::open(device, VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    look_at(&client, ino);
    drop(client.truncate(ino, 0));
    drop(client.unlink(Ino::ROOT, "file"));
    assert!(start.elapsed() < TIME_MAX, "{:?}", start.elapsed());
}

/// What another program left behind the end of a file does not come to light when the file grows.
#[test]
fn bytes_behind_the_end_are_zeros_when_the_file_grows() {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    mkfs(&*device, &options(4096)).unwrap();
    let ext2 = Ext2::open(device.clone(), VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    for (name, grow) in [("written", true), ("truncated", false)] {
        let ino = client.file(Ino::ROOT, name, &[1; 100]).unwrap();
        let extents = ext2.layout().unwrap().extents(ino).unwrap();
        device.write_at(extents[0].physical + 100, &[0xee; 3000]).unwrap();
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        if grow {
            file.write_all(2000, b"end").unwrap();
        } else {
            file.truncate(2003).unwrap();
        }
        let mut expected = [vec![1; 100], vec![0; 1900], b"end".to_vec()].concat();
        expected.truncate(if grow { 2003 } else { 2000 });
        assert_eq!(file.read(0, expected.len()).unwrap(), expected, "{name}");
    }
}
