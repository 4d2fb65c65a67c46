//! Compares repair with e2fsck. Repair never worsens the exit status of `e2fsck -fn`, and e2fsck
//! agrees if repair reports an image as clean.
//!
//! Images are damaged in three ways: bits of metadata are flipped, writes of a recorded run are
//! lost or torn, or blocks are exchanged. Only images that `e2fsck -fy` repairs completely are
//! counted. For a long run:
//!
//! ```text
//! FSLAB_EXT2_VERDICTS=3000 nice -n 15 IT verdicts:: --nocapture
//! ```

use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;

use fslab_ext2::check::repair;
use fslab_ext2::{Ext2, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::{BlockDevice, FileSystem, Ino, MemoryDevice, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::overtaking::Verdict;
use fslab_vfs_testing::environment::{number, seed};
use parking_lot::Mutex;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::support::{Access, Image, NOW, Watch, Watched, add_every_kind, has, options};

const IMAGE_BYTES: usize = 3 << 20;
/// Default number of repairable images; the environment variable `FSLAB_EXT2_VERDICTS` overrides
/// it.
const CASES: u64 = 40;
const SECTOR: usize = 512;

/// One write of metadata or of file content.
struct Write {
    offset: usize,
    bytes: Vec<u8>,
    is_metadata: bool,
}

type Record = Mutex<Vec<Write>>;

impl Watch for Record {
    fn see(&self, access: Access<'_>) -> fslab_vfs::Result<Verdict> {
        let (offset, bytes, is_metadata) = match access {
            Access::Write { offset, bytes, is_metadata } => (offset, bytes.to_vec(), is_metadata),
            Access::Discard { offset, length } => (offset, vec![0; length as usize], false),
            _ => return Ok(Verdict::Do),
        };
        self.lock().push(Write { offset: offset as usize, bytes, is_metadata });
        Ok(Verdict::Do)
    }
}

/// A recorded run that fills an image with files of all kinds and changes them.
struct Sample {
    block: usize,
    writes: Vec<Write>,
    /// The index of the first write after the file system was made.
    begin: usize,
    whole: Vec<u8>,
    /// Metadata blocks that are in use at the end.
    metadata: Vec<usize>,
}

impl Sample {
    fn new(options: &MkfsOptions) -> Self {
        let memory = MemoryDevice::new(IMAGE_BYTES as u64);
        let device = Arc::new(Watched { memory, watch: Record::default() });
        mkfs(&*device, options).unwrap();
        let begin = device.watch.lock().len();
        let ext2 = Ext2::open(device.clone(), VolumeOptions::default()).unwrap();
        work(&Client::new(&ext2));
        ext2.shutdown().unwrap();
        drop(ext2);
        let writes = std::mem::take(&mut *device.watch.lock());
        let block = options.block_size.bytes();
        let mut sample = Self { block, writes, begin, whole: Vec::new(), metadata: Vec::new() };
        sample.whole = sample.replayed(sample.writes.len(), &mut |_| None);
        sample.metadata = sample.metadata_in_use();
        sample
    }

    /// Returns the image after the first `count` writes. For a lost or torn write, `torn` returns
    /// the number of bytes that reached the device.
    fn replayed(&self, count: usize, torn: &mut dyn FnMut(usize) -> Option<usize>) -> Vec<u8> {
        let mut image = vec![0; IMAGE_BYTES];
        for (index, write) in self.writes[..count].iter().enumerate() {
            let length = torn(index).unwrap_or(write.bytes.len());
            image[write.offset..][..length].copy_from_slice(&write.bytes[..length]);
        }
        image
    }

    fn metadata_in_use(&self) -> Vec<usize> {
        let mut blocks = BTreeSet::new();
        for write in &self.writes {
            let end = write.offset + write.bytes.len();
            let of_write = write.offset / self.block..end.div_ceil(self.block);
            match write.is_metadata {
                true => blocks.extend(of_write),
                false => blocks.retain(|block| !of_write.contains(block)),
            }
        }
        let is_used = |block: &usize| self.at(*block).iter().any(|byte| *byte != 0);
        blocks.into_iter().filter(is_used).collect()
    }

    fn at(&self, block: usize) -> &[u8] {
        &self.whole[block * self.block..][..self.block]
    }

    fn damaged(&self, seed: u64) -> Vec<u8> {
        let mut random = Pcg64::seed_from_u64(seed);
        match seed % 3 {
            0 => self.with_flipped_bits(&mut random),
            1 => self.with_lost_writes(&mut random),
            _ => self.with_exchanged_blocks(&mut random),
        }
    }

    fn with_flipped_bits(&self, random: &mut Pcg64) -> Vec<u8> {
        let mut image = self.whole.clone();
        for _ in 0..random.random_range(1..6) {
            let block = *self.metadata.choose(random).unwrap();
            // Flip bits mostly near nonzero bytes, because all blocks except bitmaps are mostly
            // zeros.
            let used: Vec<usize> = (0..self.block).filter(|at| self.at(block)[*at] != 0).collect();
            let near = *used.choose(random).unwrap() / 16 * 16 + random.random_range(0..16);
            image[block * self.block + near] ^= 1 << random.random_range(0..8);
        }
        image
    }

    /// Cuts the power at some write; some of the writes before it are lost and some are torn.
    fn with_lost_writes(&self, random: &mut Pcg64) -> Vec<u8> {
        let count = random.random_range(self.begin..=self.writes.len());
        let unsafe_from = count - random.random_range(0..=count - self.begin).min(60);
        let lost_share = random.random_range(0.0..0.5);
        self.replayed(count, &mut |index| {
            if index < unsafe_from || !random.random_bool(lost_share) {
                return None;
            }
            let sectors = self.writes[index].bytes.len() / SECTOR;
            Some(SECTOR * random.random_range(0..=sectors) * usize::from(random.random::<bool>()))
        })
    }

    fn with_exchanged_blocks(&self, random: &mut Pcg64) -> Vec<u8> {
        let mut image = self.whole.clone();
        for _ in 0..random.random_range(1..3) {
            let one = *self.metadata.choose(random).unwrap();
            let other = match random.random_range(0..4) {
                0 => random.random_range(1..IMAGE_BYTES / self.block),
                _ => *self.metadata.choose(random).unwrap(),
            };
            let (low, high) = (one.min(other) * self.block, one.max(other) * self.block);
            if low != high {
                let (before, behind) = image.split_at_mut(high);
                before[low..][..self.block].swap_with_slice(&mut behind[..self.block]);
            }
        }
        image
    }
}

/// Makes files of all kinds, changes some and removes some, with occasional syncs.
fn work(client: &Client<'_>) {
    let many = client.mkdir(Ino::ROOT, "many").unwrap();
    for number in 0..120 {
        let name = format!("{number}-{}", "x".repeat(60));
        client.file(many, name, &vec![number; usize::from(number) * 30]).unwrap();
    }
    let deep = client.mkdir(many, "deep").unwrap();
    let file = client.file(deep, "file", &vec![7; 300_000]).unwrap();
    let open = client.open(file, OpenMode::READ_WRITE).unwrap();
    open.fsync(false).unwrap();
    open.write_all(2_000_000, b"far behind").unwrap();
    open.close().unwrap();
    add_every_kind(client, deep, file);
    for number in 0..8 {
        let at = client.mkdir(deep, format!("d{number}")).unwrap();
        let file = client.file(at, "inner", &vec![number; 20_000]).unwrap();
        client.open(file, OpenMode::READ_WRITE).unwrap().fsync(false).unwrap();
    }
    for number in (0..120).step_by(3) {
        client.unlink(many, format!("{number}-{}", "x".repeat(60))).unwrap();
    }
    client.rename(deep, "d3", Ino::ROOT, "moved").unwrap();
    client.truncate(file, 100_000).unwrap();
    let last = client.file(deep, "last", &vec![8; 90_000]).unwrap();
    client.open(last, OpenMode::READ_WRITE).unwrap().fsync(false).unwrap();
}

/// Returns the exit status and output of e2fsck. For some damage, e2fsck prints one message
/// endlessly; it is killed after 1 MiB of output.
fn verdict(image: &Image, mode: &str) -> (i32, String) {
    const WORDS_MAX: u64 = 1 << 20;
    let mut command = Command::new("e2fsck");
    command.arg(mode).arg(image.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    let mut words = Vec::new();
    let output = running.stdout.take().unwrap();
    output.take(WORDS_MAX).read_to_end(&mut words).unwrap();
    let status = running.wait().unwrap();
    (status.code().unwrap_or(i32::MAX), String::from_utf8_lossy(&words).into_owned())
}

#[derive(Debug, Default)]
struct Counts {
    repairable: u64,
    /// Number of repairable images that are clean after a repair.
    repaired: u64,
    /// Number of images that repair refuses because the file system can't be read.
    refused: u64,
    faults: Vec<String>,
}

impl Counts {
    /// Damages one image, repairs it and compares the verdicts.
    fn try_one(&mut self, sample: &Sample, image: &Image, seed: u64) {
        let damaged = sample.damaged(seed);
        std::fs::write(image.path(), &damaged).unwrap();
        let (before, _) = verdict(image, "-fn");
        if !matches!(before, 4..=12) || !matches!(verdict(image, "-fy"), (0 | 1, _)) {
            return;
        }
        self.repairable += 1;
        let memory = MemoryDevice::new(IMAGE_BYTES as u64);
        memory.write_at(0, &damaged).unwrap();
        let device: Arc<dyn BlockDevice> = Arc::new(memory);
        let answer = repair(&device, NOW);
        let mut bytes = vec![0; IMAGE_BYTES];
        device.read_at(0, &mut bytes).unwrap();
        std::fs::write(image.path(), &bytes).unwrap();
        let (after, text) = verdict(image, "-fn");
        self.repaired += u64::from(after == 0);
        let fault = match &answer {
            Err(_) if bytes == damaged => {
                self.refused += 1;
                return;
            }
            Err(error) => format!("changed and refused: {error}"),
            Ok(repaired) if repaired.left.is_clean() && after != 0 => "not clean".to_owned(),
            Ok(repaired) if !repaired.left.is_clean() && after == 0 => {
                format!("clean, but left: {:?}", repaired.left.findings)
            }
            _ if after > before => "worse".to_owned(),
            _ if !matches!(verdict(image, "-fy"), (0 | 1, _)) => "e2fsck can't repair it".into(),
            _ => return,
        };
        image.keep(&format!("FSLAB_SEED={seed}"));
        let words: Vec<&str> = text.lines().filter(|line| !line.is_empty()).take(8).collect();
        let words = words.join("\n  ");
        self.faults.push(format!("FSLAB_SEED={seed}: {before} to {after}: {fault}\n  {words}"));
    }
}

#[test]
fn repair_never_makes_the_verdict_of_e2fsck_worse() {
    if !has("e2fsck") {
        return;
    }
    let samples = [
        MkfsOptions { blocks_per_group: Some(1024), bytes_per_inode: 4096, ..options(1024) },
        MkfsOptions { inode_size: 128, ..options(4096) },
    ]
    .map(|options| Sample::new(&options));
    let image = Image::empty(IMAGE_BYTES as u64);
    let wanted = number("FSLAB_EXT2_VERDICTS").unwrap_or(CASES);
    let (first, mut counts) = (seed(), Counts::default());
    let mut seed = first;
    while counts.repairable < wanted {
        counts.try_one(&samples[(seed / 3 % 2) as usize], &image, seed);
        seed += 1;
        assert!(seed - first < wanted * 10 + 100, "too few can be repaired: {counts:?}");
    }
    let Counts { repairable, repaired, refused, faults } = counts;
    println!("{repairable} of {} repairable, {repaired} repaired, {refused} refused", seed - first);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(repaired > repairable / 5, "{repaired} of {repairable} repaired");
}
