//! Tests images with random damage: every operation ends without a panic and within limits of time
//! and memory.
//!
//! Half of the damage is done to arbitrary bytes, the other half to fields of the structures.
//! Fields get plausible values: the number of a block in use, of a metadata block, or of a block
//! near the end. A separate process with at most [`MEMORY_MAX`] bytes of memory does the work;
//! exceeding the limit kills it. For a long run:
//!
//! ```text
//! FSLAB_EXT2_DAMAGES=100000 nice -n 15 IT damaged_images --nocapture
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fslab_ext2::check::{check, repair};
use fslab_ext2::testing::{check_damaged, look_at, use_image};
use fslab_ext2::{Ext2, Group, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::{BlockDevice, FileSystem, Ino, MemoryDevice, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::{number, seed};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::time::{ClockId, clock_gettime};

use crate::script::Script;
use crate::support::{NOW, in_memory, options, ran_within};

const IMAGE_BYTES: u64 = 4 << 20;
/// Default number of damaged images; the environment variable `FSLAB_EXT2_DAMAGES` overrides it.
const CASES: u64 = 150;
/// Maximum memory of the process in bytes, including images, caches and stacks.
const MEMORY_MAX: u64 = 256 << 20;
/// Seeds that failed in earlier versions. With the first, an indexed directory has no blocks; the
/// checker tried to read its root. With the second, a file has very many bad pointers.
const FAILED_ONCE: [u64; 2] = [5_006_657, 192_289_837_198_697];
/// Maximum processor time for one image. Unlike wall-clock time, it does not depend on the
/// machine's load.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Returns the processor time that this thread has used.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the bytes of an image that contains files of all kinds.
fn sample(options: &MkfsOptions) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    mkfs(&*device, options).unwrap();
    let ext2 = Ext2::open(device.clone(), VolumeOptions::default()).unwrap();
    let model = in_memory(IMAGE_BYTES * 4, options);
    {
        let (client, model) = (Client::new(&ext2), Client::new(&model));
        // The largest writes of a full script do not fit in such a small image. A few steps are
        // enough.
        Script::new(7).run_small(&client, &model, 60);
    }
    ext2.shutdown().unwrap();
    let mut bytes = vec![0; IMAGE_BYTES as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// An undamaged image and the addresses of its structures.
struct Sample {
    bytes: Vec<u8>,
    block: usize,
    inode: usize,
    groups: Vec<Group>,
    inodes_per_group: usize,
    /// Offsets of 64-byte pieces that are not all zeros.
    used: Vec<usize>,
}

impl Sample {
    fn new(options: &MkfsOptions) -> Self {
        let bytes = sample(options);
        let device = MemoryDevice::new(IMAGE_BYTES);
        device.write_at(0, &bytes).unwrap();
        let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        let ext2 = Ext2::open(Arc::new(device), read_only).unwrap();
        let used =
            (0..bytes.len()).step_by(64).filter(|at| bytes[*at..at + 64] != [0; 64]).collect();
        Self {
            used,
            block: options.block_size.bytes(),
            inode: options.inode_size as usize,
            groups: ext2.groups(),
            inodes_per_group: ext2.superblock().geometry().inodes_per_group as usize,
            bytes,
        }
    }

    fn damaged(&self, random: &mut Pcg64) -> Arc<MemoryDevice> {
        let mut bytes = self.bytes.clone();
        for _ in 0..random.random_range(1..40) {
            match random.random_range(0..2) {
                0 => self.damage_a_byte(&mut bytes, random),
                _ => self.damage_a_field(&mut bytes, random),
            }
        }
        let device = MemoryDevice::new(IMAGE_BYTES);
        device.write_at(0, &bytes).unwrap();
        Arc::new(device)
    }

    fn damage_a_byte(&self, bytes: &mut [u8], random: &mut Pcg64) {
        let at = self.used.choose(random).unwrap() + random.random_range(0..64);
        match random.random_range(0..4) {
            0 => bytes[at] = 0xff,
            1 => bytes[at] = 0,
            2 => bytes[at] ^= 1 << random.random_range(0..8),
            _ => bytes[at] = random.random_range(0..=255),
        }
    }

    fn damage_a_field(&self, bytes: &mut [u8], random: &mut Pcg64) {
        let at = self.field(random);
        let value = self.value(random);
        match random.random_range(0..3) {
            0 => bytes[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes()),
            _ => bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()),
        }
    }

    /// Returns the offset of a random field of some structure.
    fn field(&self, random: &mut Pcg64) -> usize {
        let group = self.groups.choose(random).unwrap();
        let at_block = |block: u32| block as usize * self.block;
        match random.random_range(0..12) {
            0 => 1024 + 4 * random.random_range(0..100),
            1 => 2048.max(self.block) + 4 * random.random_range(0..8 * self.groups.len()),
            2 => at_block(group.block_bitmap.0) + 4 * random.random_range(0..self.block / 4),
            3 => at_block(group.inode_bitmap.0) + 4 * random.random_range(0..8),
            4..8 => {
                let inode = random.random_range(1..self.inodes_per_group.min(200));
                let field = 2 * random.random_range(0..self.inode / 2 - 1);
                at_block(group.inode_table.0) + inode * self.inode + field
            }
            // The first words of a block: the start of a directory, index, attribute block or map.
            8 | 9 => {
                let used = self.used.choose(random).unwrap();
                used / self.block * self.block + 4 * random.random_range(0..12)
            }
            _ => self.used.choose(random).unwrap() + 4 * random.random_range(0..16),
        }
    }

    /// Returns a random value that is plausible for some field.
    fn value(&self, random: &mut Pcg64) -> u32 {
        let blocks = self.bytes.len() / self.block;
        match random.random_range(0..8) {
            0 => random.random_range(0..16),
            1 => blocks as u32 - random.random_range(0..2),
            2 => self.groups.choose(random).unwrap().inode_table.0,
            3 => u32::MAX >> random.random_range(0..32),
            4 => self.block as u32 - 4 * random.random_range(0..4),
            5 => random.random_range(0..blocks as u32),
            6 => random.random(),
            _ => (*self.used.choose(random).unwrap() / self.block) as u32,
        }
    }
}

#[test]
fn damaged_images_end_in_errors_and_not_in_panics() {
    if ran_within(MEMORY_MAX, "damage::damaged_images_end_in_errors_and_not_in_panics") {
        return;
    }
    let first = seed();
    let cases = number("FSLAB_EXT2_DAMAGES").unwrap_or(CASES);
    let samples = [options(1024), MkfsOptions { inode_size: 128, ..options(4096) }]
        .map(|options| Sample::new(&options));
    for seed in FAILED_ONCE.into_iter().chain(first..first + cases) {
        ends_well(&samples[(seed % 2) as usize], seed);
        if seed > first && (seed - first).is_multiple_of(10_000) {
            eprintln!("{} images", seed - first);
        }
    }
}

fn ends_well(sample: &Sample, seed: u64) {
    let device = sample.damaged(&mut Pcg64::seed_from_u64(seed));
    let start = spent();
    let answer = catch_unwind(AssertUnwindSafe(|| match seed % 8 {
        // Repair the image before or after using it, if it can be repaired.
        0 => {
            drop(repair(&(device.clone() as Arc<dyn BlockDevice>), NOW));
            use_image(device);
        }
        1 => {
            use_image(device.clone());
            drop(repair(&(device as Arc<dyn BlockDevice>), NOW));
        }
        2 => drop(check(device)),
        _ => use_image(device),
    }));
    assert!(answer.is_ok(), "a panic with FSLAB_SEED={seed}");
    let time = spent() - start;
    assert!(time < TIME_MAX, "FSLAB_SEED={seed} took {time:?}");
}

/// Does the same as the fuzz target, with random bytes.
#[test]
fn random_bytes_never_cause_a_panic_or_a_hang() {
    let mut random = Pcg64::seed_from_u64(seed());
    for _ in 0..CASES / 3 {
        let mut bytes = vec![0; random.random_range(0..150)];
        random.fill(bytes.as_mut_slice());
        check_damaged(&bytes).unwrap();
    }
}

/// Every pointer of a file refers to the same block, which contains only pointers to itself.
#[test]
fn a_map_that_leads_to_itself_ends() {
    if ran_within(MEMORY_MAX, "damage::a_map_that_leads_to_itself_ends") {
        return;
    }
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
    let start = spent();
    let ext2 = Ext2::open(device, VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    look_at(&client, ino);
    drop(client.truncate(ino, 0));
    drop(client.unlink(Ino::ROOT, "file"));
    let time = spent() - start;
    assert!(time < TIME_MAX, "{time:?}");
}

/// Bytes that another program left past the end of a file must read as zeros when the file grows.
#[test]
fn stale_bytes_past_the_end_read_as_zeros_after_growth() {
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
