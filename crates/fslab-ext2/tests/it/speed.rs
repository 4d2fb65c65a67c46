//! Measurements that do not pass or fail. Run with `--release -- --ignored --nocapture speed`.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fslab_ext2::alloc::volume::{Grown, Volume};
use fslab_ext2::alloc::{Clustering, InodeRequest, MemorySpace, POLICIES};
use fslab_ext2::dir::{
    DirectoryBlocks, EntryKind, Form, HashVersion, Hasher, Rules, Search, VectorBlocks, find,
    give_back, insert, remove,
};
use fslab_ext2::{
    BlockSize, Ext2, Geometry, InodeNo, MkfsOptions, Superblock, VolumeOptions, mkfs,
};
use fslab_vfs::{FileSystem, Ino, MemoryDevice, Name};
use fslab_vfs_testing::environment::number;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::mounted::{Mounted, can_mount};
use crate::support::{Image, options};

fn each(label: &str, count: usize, time: Duration) {
    println!("{label:<58} {:>9.0} ns each", time.as_nanos() as f64 / count as f64);
}

/// Wall-clock time and processor time of this thread; on a busy machine they differ.
struct Clock {
    start: Instant,
    processor: Duration,
}

impl Clock {
    fn start() -> Self {
        Self { start: Instant::now(), processor: spent() }
    }

    fn each(self, label: &str, count: usize) {
        let each = |time: Duration| time.as_nanos() as f64 / count as f64;
        let (wall, processor) = (each(self.start.elapsed()), each(spent() - self.processor));
        println!("{label:<58} {wall:>9.0} ns each, {processor:>9.0} ns of processor");
    }
}

/// Returns the processor time that this thread has used.
fn spent() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn names(count: u32, shuffled: bool) -> Vec<String> {
    let mut names: Vec<_> = (0..count).map(|number| format!("file{number:08}")).collect();
    if shuffled {
        names.shuffle(&mut Pcg64::seed_from_u64(1));
    }
    names
}

#[test]
#[ignore = "a measurement: wants a quiet machine and an optimised build"]
fn speed_of_a_directory_alone() {
    let hasher = Hasher::new(HashVersion::HalfMd4, true, [1, 2, 3, 4]);
    let rules = Rules { hasher, form: Form::Indexed, levels: 3, shrink: true, kinds: true };
    let size = BlockSize::KERNEL_MAX;
    for count in [10_000, 100_000, 1_000_000] {
        for shuffled in [false, true] {
            let names = names(count, shuffled);
            let label = |what| format!("{what}, {count} names, shuffled: {shuffled}");
            let mut blocks = VectorBlocks::new(size, &rules, InodeNo(12), InodeNo::ROOT);
            let start = Instant::now();
            for name in &names {
                let Search::Absent(vacancy) = find(&blocks, name.as_bytes()).unwrap() else {
                    panic!("{name} is there already")
                };
                let (inode, kind) = (InodeNo(99), EntryKind::REGULAR);
                insert(&mut blocks, &vacancy, name.as_bytes(), inode, kind).unwrap();
            }
            each(&label("find and insert"), names.len(), start.elapsed());
            let start = Instant::now();
            for name in &names {
                assert!(matches!(find(&blocks, name.as_bytes()).unwrap(), Search::Found(_)));
            }
            each(&label("find"), names.len(), start.elapsed());
            let full = blocks.count();
            let start = Instant::now();
            for name in &names {
                let Search::Found(found) = find(&blocks, name.as_bytes()).unwrap() else {
                    panic!("{name} is missing")
                };
                let removed = remove(&mut blocks, &found).unwrap();
                give_back(&mut blocks, &found, removed).unwrap();
            }
            each(&label("find and remove"), names.len(), start.elapsed());
            println!("{full} blocks, and {} once empty", blocks.count());
        }
    }
}

fn engine(bytes: u64, options: &MkfsOptions) -> Ext2 {
    let device = Arc::new(MemoryDevice::new(bytes));
    mkfs(&*device, options).unwrap();
    Ext2::open(device, VolumeOptions::default()).unwrap()
}

#[test]
#[ignore = "a measurement: wants a quiet machine and an optimised build"]
fn speed_of_creates_against_the_kernel() {
    const COUNT: u32 = 100_000;
    if !can_mount("speed_of_creates_against_the_kernel") {
        return;
    }
    let names = names(COUNT, false);
    for round in 0..3 {
        let options = MkfsOptions { bytes_per_inode: 4096, ..options(4096) };
        let ext2 = engine(1 << 30, &options);
        let client = fslab_vfs_testing::client::Client::new(&ext2);
        let directory = client.mkdir(Ino::ROOT, "names").unwrap();
        let request = client.request();
        let start = Instant::now();
        for name in &names {
            let name = Name::new(name.as_ref()).unwrap();
            let entry = ext2.mknod(&request, directory, name, 0o100_644, 0).unwrap();
            ext2.forget(entry.attr.ino, 1);
        }
        each(&format!("round {round}: engine in process, create"), names.len(), start.elapsed());
        let start = Instant::now();
        for name in &names {
            ext2.unlink(&request, directory, Name::new(name.as_ref()).unwrap()).unwrap();
        }
        each(&format!("round {round}: engine in process, unlink"), names.len(), start.elapsed());
        let image = Image::empty(1 << 30);
        make_ext4(&image.path());
        let mounted = Mounted::with_kind(&image.path(), "ext4");
        let directory = mounted.path().join("names");
        std::fs::create_dir(&directory).unwrap();
        let start = Instant::now();
        for name in &names {
            let path = directory.join(name);
            let (file, mode) = (rustix::fs::FileType::RegularFile, 0o644.into());
            rustix::fs::mknodat(rustix::fs::CWD, &path, file, mode, 0).unwrap();
        }
        each(&format!("round {round}: kernel ext4 on loop, create"), names.len(), start.elapsed());
        let start = Instant::now();
        for name in &names {
            std::fs::remove_file(directory.join(name)).unwrap();
        }
        each(&format!("round {round}: kernel ext4 on loop, unlink"), names.len(), start.elapsed());
        mounted.unmount();
    }
}

/// Measures creating, looking up and unlinking names in directories of 10 thousand, 100 thousand
/// and 10 million names. Names are created in numeric order but stored in hash order. With millions
/// of names, each create therefore accesses a different block. A cache that is too small then reads
/// and writes a block each time. `FSLAB_EXT2_BLOCK` sets the block size. A leaf of 1 KiB contains a
/// quarter as many names as a leaf of 4 KiB. `FSLAB_EXT2_CACHE` sets the cache size in MiB.
#[test]
#[ignore = "a measurement: wants a quiet machine and an optimised build"]
fn speed_of_ten_million_names() {
    const CASES: [(u32, u64); 3] = [(10_000, 1 << 30), (100_000, 2 << 30), (10_000_000, 42 << 30)];
    let cache_mib = number("FSLAB_EXT2_CACHE").unwrap_or(1024) as usize;
    let block = number("FSLAB_EXT2_BLOCK").unwrap_or(4096) as u32;
    for (count, bytes) in CASES {
        let small = MkfsOptions {
            bytes_per_inode: 4096,
            inode_size: 128,
            large_directories: block < 4096,
            ..options(block)
        };
        let device = Arc::new(MemoryDevice::of_metadata(bytes));
        mkfs(&*device, &small).unwrap();
        let (dirty_bytes_max, clean_bytes_max) = (cache_mib << 19, cache_mib << 19);
        let options =
            VolumeOptions { dirty_bytes_max, clean_bytes_max, ..VolumeOptions::default() };
        let ext2 = Ext2::open(device, options).unwrap();
        let client = fslab_vfs_testing::client::Client::new(&ext2);
        let directory = client.mkdir(Ino::ROOT, "names").unwrap();
        let request = client.request();
        let name = |number: u32| format!("file{number:08}");
        let label = |what| format!("{what}, {count} names, {cache_mib} MiB of cache");
        let clock = Clock::start();
        for number in 0..count {
            let name = name(number);
            let name = Name::new(name.as_ref()).unwrap();
            let entry = ext2.mknod(&request, directory, name, 0o100_644, 0).unwrap();
            ext2.forget(entry.attr.ino, 1);
        }
        clock.each(&label("create"), count as usize);
        let mut random = Pcg64::seed_from_u64(3);
        const SOME: usize = 100_000;
        let clock = Clock::start();
        for _ in 0..SOME {
            let name = name(random.random_range(0..count));
            let entry =
                ext2.lookup(&request, directory, Name::new(name.as_ref()).unwrap()).unwrap();
            ext2.forget(entry.attr.ino, 1);
        }
        clock.each(&label("look up at random"), SOME);
        let removed = (count as usize).min(SOME);
        let clock = Clock::start();
        for number in 0..removed as u32 {
            let name = name(number);
            ext2.unlink(&request, directory, Name::new(name.as_ref()).unwrap()).unwrap();
        }
        clock.each(&label("unlink"), removed);
    }
}

/// Repeats one operation, for a profiler. `FSLAB_PROFILE` selects it: `create`, `lookup` or
/// `unlink`.
#[test]
#[ignore = "a measurement: for a profiler that counts instructions"]
fn profile_of_one_operation() {
    let operation = std::env::var("FSLAB_PROFILE").unwrap_or_default();
    let names = names(20_000, false);
    let small = MkfsOptions { bytes_per_inode: 4096, ..options(4096) };
    let ext2 = engine(1 << 30, &small);
    let client = fslab_vfs_testing::client::Client::new(&ext2);
    let directory = client.mkdir(Ino::ROOT, "names").unwrap();
    let request = client.request();
    for name in &names {
        let name = Name::new(name.as_ref()).unwrap();
        let entry = ext2.mknod(&request, directory, name, 0o100_644, 0).unwrap();
        ext2.forget(entry.attr.ino, 1);
    }
    for name in &names {
        let name = Name::new(name.as_ref()).unwrap();
        match operation.as_str() {
            "lookup" => {
                let entry = ext2.lookup(&request, directory, name).unwrap();
                ext2.forget(entry.attr.ino, 1);
            }
            "unlink" => ext2.unlink(&request, directory, name).unwrap(),
            _ => {}
        }
    }
}

fn make_ext4(image: &Path) {
    let output =
        Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-i", "4096"]).arg(image).output();
    assert!(output.unwrap().status.success());
}

/// The geometry of the file system in the ageing paper: 1 GB in blocks of 8 KiB.
fn paper() -> Geometry {
    let device = MemoryDevice::new(1 << 30);
    let options = MkfsOptions { bytes_per_inode: 4096, ..options(8192) };
    mkfs(&device, &options).unwrap();
    *Superblock::read(&device).unwrap().geometry()
}

#[test]
#[ignore = "a measurement: wants a quiet machine and an optimised build"]
fn speed_of_simulating_the_seven_months_of_the_paper() {
    const OPERATIONS: u32 = 1_300_000;
    const BLOCKS: u64 = 87_300_000_000 / 8192;
    let geometry = paper();
    for spec in POLICIES {
        for clustering in Clustering::ALL {
            let mut random = Pcg64::seed_from_u64(5);
            let space = MemorySpace::new(geometry, geometry.overhead(fslab_ext2::GroupNo(1)), 11);
            let mut volume = Volume::new(space, (spec.build)(&geometry, 1), clustering);
            let mut live: Vec<InodeNo> = Vec::new();
            let (mut written, mut used, start) = (0_u64, 0_u64, Instant::now());
            // Only half of the operations create files, so each file gets twice the average bytes
            // per operation.
            let target = u64::from(geometry.blocks) * 63 / 100;
            for _ in 0..OPERATIONS / 2 {
                let size = (random.random_range(0.0_f64..8.7)).exp() as u32 / 32 + 1;
                let parent = InodeNo(1 + random.random_range(0..geometry.inodes()));
                let request = InodeRequest { parent, directory: false, top_level: false };
                let inode = volume.create(&request).unwrap().unwrap();
                assert_eq!(volume.append(inode, size, false).unwrap(), Grown::Whole);
                volume.close(inode);
                live.push(inode);
                (written, used) = (written + u64::from(size), used + u64::from(size));
                while used > target {
                    let gone = live.swap_remove(random.random_range(0..live.len()));
                    used -= volume.blocks(gone).len() as u64;
                    volume.remove(gone);
                }
            }
            let time = start.elapsed();
            let score = {
                let pairs = live.iter().flat_map(|inode| volume.blocks(*inode).windows(2));
                let (all, good) = pairs.fold((0_u32, 0_u32), |(all, good), pair| {
                    (all + 1, good + u32::from(pair[1].0 == pair[0].0 + 1))
                });
                f64::from(good) / f64::from(all)
            };
            println!(
                "{:<14} {:<6} {:>6.2} s for {written} blocks (paper: {BLOCKS}), \
                 layout score {score:.4}",
                spec.name,
                clustering.name(),
                time.as_secs_f64(),
            );
        }
    }
}
