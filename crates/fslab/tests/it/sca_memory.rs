//! Compares the memory of codec layers with the limits in the guide (layers.md, "Memory"): cached
//! pages, and the memory of the daemon.
//!
//! The short forms run with all tests. The long forms print a figure for each case; the guide
//! (test-fslab.md) describes how to run them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fslab_sys::page_cache::resident_pages;
use fslab_vfs_testing::skip::skip;
use rustix::fs::Advice;

use crate::support::{Place, fslab, require_mounting};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Returns a mebibyte of data. One half compresses well, the other half does not compress.
/// Different numbers give different data.
fn block(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut block = Vec::with_capacity(MIB as usize);
    while block.len() < MIB as usize {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let is_random = block.len() / 4096 % 2 == 0;
        block.extend(if is_random { state.to_le_bytes() } else { *b"eight of" });
    }
    block
}

fn write_blocks(path: &Path, mebibytes: u64) {
    let file = File::create_new(path).unwrap();
    for number in 0..mebibytes {
        file.write_all_at(&block(number), number * MIB).unwrap();
    }
}

/// Reads a file sequentially, `request` bytes at a time, and checks every byte.
fn read_blocks(file: &File, mebibytes: u64, request: u64) {
    let mut found = vec![0; MIB as usize];
    for number in 0..mebibytes {
        for (index, part) in found.chunks_mut(request as usize).enumerate() {
            file.read_exact_at(part, number * MIB + index as u64 * request).unwrap();
        }
        assert!(found == block(number), "block {number}");
    }
}

/// Maximum size of the cached pages after reading, as a share of the file's size.
const PAGES_MAX: f64 = 1.05;

#[test]
fn read_data_is_cached_only_once() {
    require_mounting!();
    for layer in ["zstd", "gzip:level=1", "lz4:chunk=64KiB", "copy"] {
        pages_after_reading(layer, 48);
    }
}

#[test]
#[ignore = "a measurement: files of 1 GiB; wants an optimised build"]
fn read_data_of_a_gibibyte_is_cached_only_once() {
    require_mounting!();
    ["gzip", "zstd", "lz4", "copy"].into_iter().for_each(|layer| pages_after_reading(layer, 1024));
}

fn pages_after_reading(layer: &str, mebibytes: u64) {
    let place = Place::on_disk();
    place.mount(&["-l", layer]);
    write_blocks(&place.point.join("file"), mebibytes);
    place.umount();
    for request in [MIB, 128 * KIB] {
        let stored = File::open(place.lower.join("file")).unwrap();
        if let Some(reason) = pages_stay(&stored) {
            skip("pages cached after reading", &reason);
            return;
        }
        place.mount(&["-l", layer]);
        let file = File::open(place.point.join("file")).unwrap();
        read_blocks(&file, mebibytes, request);
        let (above, below) = (resident(&file), resident(&stored));
        let logical = mebibytes * MIB / rustix::param::page_size() as u64;
        let part = (above + below) as f64 / logical as f64;
        eprintln!(
            "{layer}, {mebibytes} MiB read by {} KiB: {above} pages of the mount and {below} of \
             the lower file, {part:.4} of the logical size",
            request / KIB
        );
        assert!(part <= PAGES_MAX, "{layer}, by {request} bytes: {part}");
        assert!(above * 2 > logical, "{layer}: the data is not cached at all");
        drop(file);
        place.umount();
    }
}

fn resident(file: &File) -> u64 {
    resident_pages(file, file.metadata().unwrap().len()).unwrap()
}

/// Drops a file's pages from memory. If that is impossible, returns the reason.
fn pages_stay(file: &File) -> Option<String> {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
    let stay = resident(file);
    (stay > 0).then(|| format!("{stay} pages of the lower file can't be dropped here"))
}

/// The work of a mount, and the parameters of its memory limit.
struct Load {
    layer: &'static str,
    chunk: u64,
    cache: u64,
    /// Bytes that the codec keeps for each thread.
    context: u64,
    mebibytes: u64,
}

const SERVING: u64 = 8;
const WORKERS: u64 = 2;
/// Number of files that are written at the same time, and of files that are read. Each file has a
/// thread.
const FILES: u64 = 8;

impl Load {
    /// Returns the memory limit that the guide states, in bytes.
    fn bound(&self) -> u64 {
        let Self { chunk, cache, context, .. } = *self;
        let (files, handles) = (2 * FILES, 2 * FILES);
        let serving = SERVING * (4 * MIB + 2 * chunk + context);
        let workers = WORKERS * (3 * chunk + context);
        let read_in_sequence = handles * (WORKERS + 2) * chunk;
        PROGRAM + cache + serving + workers + read_in_sequence + files * a_file(chunk)
    }
}

/// Memory of the program itself, including stacks, in bytes.
const PROGRAM: u64 = 16 * MIB;

/// Returns the memory for an open file in bytes: the pages of its index, and two chunks. In these
/// tests, no file has many changed index pages.
fn a_file(chunk: u64) -> u64 {
    MIB / 2 + 2 * chunk
}

const SHORT: &[Load] = &[
    Load {
        layer: "zstd:threads=2,cache=2MiB",
        chunk: 128 * KIB,
        cache: 2 * MIB,
        context: 2 * MIB,
        mebibytes: 12,
    },
    Load {
        layer: "gzip:threads=2,level=1,cache=0,chunk=16KiB",
        chunk: 16 * KIB,
        cache: 0,
        context: MIB,
        mebibytes: 12,
    },
];

const LONG: &[Load] = &[
    Load {
        layer: "gzip:level=9,threads=2",
        chunk: 128 * KIB,
        cache: 32 * MIB,
        context: MIB,
        mebibytes: 64,
    },
    Load {
        layer: "gzip:level=12,threads=2",
        chunk: 128 * KIB,
        cache: 32 * MIB,
        context: 10 * MIB,
        mebibytes: 8,
    },
    Load {
        layer: "zstd:threads=2",
        chunk: 128 * KIB,
        cache: 32 * MIB,
        context: 2 * MIB,
        mebibytes: 128,
    },
    Load {
        layer: "zstd:level=19,chunk=1MiB,threads=2",
        chunk: MIB,
        cache: 32 * MIB,
        context: 16 * MIB,
        mebibytes: 8,
    },
    Load {
        layer: "copy:chunk=4KiB,threads=2",
        chunk: 4 * KIB,
        cache: 32 * MIB,
        context: 0,
        mebibytes: 128,
    },
];

#[test]
fn busy_daemon_stays_within_its_memory_bound() {
    require_mounting!();
    SHORT.iter().for_each(peak_under_load);
}

#[test]
#[ignore = "a measurement: eight writers and readers of larger files; wants an optimised build"]
fn busy_daemons_of_all_kinds_stay_within_their_memory_bounds() {
    require_mounting!();
    LONG.iter().for_each(peak_under_load);
}

fn peak_under_load(load: &Load) {
    let place = Place::on_disk();
    place.mount(&["-l", load.layer, "-o", &format!("threads={SERVING}")]);
    let path = |kind: &str, number: u64| place.point.join(format!("{kind}-{number}"));
    std::thread::scope(|scope| {
        for number in 0..FILES {
            let path = path("read", number);
            scope.spawn(move || write_blocks(&path, load.mebibytes));
        }
    });
    std::thread::scope(|scope| {
        for number in 0..FILES {
            let (written, read) = (path("written", number), path("read", number));
            scope.spawn(move || {
                write_blocks(&written, load.mebibytes);
                change_here_and_there(&written, load.mebibytes);
            });
            let request = if number % 2 == 0 { MIB } else { 128 * KIB };
            scope.spawn(move || read_blocks(&File::open(read).unwrap(), load.mebibytes, request));
        }
    });
    let (peak, bound) = (status(place.daemon(), "VmHWM").unwrap(), load.bound());
    eprintln!(
        "{}: {FILES} writers and {FILES} readers of {} MiB: at most {} MiB, bound {} MiB",
        load.layer,
        load.mebibytes,
        peak / MIB,
        bound / MIB
    );
    assert!(peak <= bound, "{}: {peak} bytes", load.layer);
    place.umount();
}

fn change_here_and_there(path: &Path, mebibytes: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    for number in 0..64 {
        let place = number * 7919 * 4096 % (mebibytes * MIB - 4096);
        file.write_all_at(&block(number)[..4096], place).unwrap();
    }
}

/// Returns the bytes in a line of /proc/PID/status; `None` if the process has exited.
fn status(pid: u32, line: &str) -> Option<u64> {
    kib_of(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, line)
}

fn kib_of(text: &str, line: &str) -> Option<u64> {
    let line = text.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().unwrap() * KIB)
}

/// Size of the sparse file. Its content is spread over the whole file, which makes the index large.
const SPARSE_BYTES: u64 = 1 << 40;

#[test]
fn a_tebibyte_takes_no_more_memory_than_a_small_file() {
    require_mounting!();
    extra_of_a_sparse_file("zstd:threads=1", 2048, 1);
}

#[test]
#[ignore = "a measurement: 8 thousand places of a file of 1 TiB; wants an optimised build"]
fn a_tebibyte_with_a_large_index_takes_no_more_memory_than_a_small_file() {
    require_mounting!();
    for layer in ["gzip:threads=1", "zstd:threads=1", "copy:chunk=4KiB,threads=1"] {
        extra_of_a_sparse_file(layer, 8192, 4);
    }
}

/// Checks the additional memory for a sparse file. The file has `blocks` incompressible blocks of
/// content at each of `places` offsets.
fn extra_of_a_sparse_file(layer: &str, places: u64, blocks: usize) {
    let place = Place::on_disk();
    place.mount(&["-l", layer]);
    let (small, sparse) = (place.point.join("small"), place.point.join("sparse"));
    write_blocks(&small, 1);
    let file = File::create_new(&sparse).unwrap();
    let step = SPARSE_BYTES / places;
    // Take only the even blocks of 4 KiB from `block`, because only these are random.
    let even = block(1);
    let random: Vec<u8> = even.chunks(4096).step_by(2).take(blocks).flatten().copied().collect();
    for number in 1..=places {
        file.write_all_at(&random, number * step - random.len() as u64).unwrap();
    }
    drop(file);
    place.umount();
    // With these settings the process keeps freed memory, so its final memory is its maximum.
    let mut mount = place.mount_command(&["-l", layer, "-o", "threads=1"]);
    mount.env("MALLOC_TRIM_THRESHOLD_", GIB.to_string());
    mount.env("MALLOC_MMAP_THRESHOLD_", (32 * MIB).to_string());
    assert!(mount.output().unwrap().status.success());
    let daemon = place.daemon();
    (0..3).for_each(|_| visit_the_end(&small));
    let (before, start) = (anonymous(daemon), Instant::now());
    visit_the_end(&sparse);
    let (elapsed, extra) = (start.elapsed(), anonymous(daemon).saturating_sub(before));
    eprintln!(
        "{layer}: 1 TiB with content at {places} places: opened, read at the end and appended to \
         in {:.2} ms, {} KiB of memory more than for 1 MiB",
        elapsed.as_secs_f64() * 1e3,
        extra / KIB
    );
    assert!(extra < MIB, "{layer}: {extra} bytes");
    place.umount();
}

fn visit_the_end(path: &Path) {
    let file = OpenOptions::new().read(true).append(true).open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let mut found = [0; 4096];
    file.read_exact_at(&mut found, size - 4096).unwrap();
    assert!(found.iter().any(|byte| *byte != 0), "the end is a hole");
    std::io::Write::write_all(&mut &file, b"appended").unwrap();
}

/// Returns the anonymous memory of a process, in bytes, exact to the page.
fn anonymous(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    kib_of(&text, "Anonymous").unwrap()
}

/// Number of threads that convert files in these tests.
const CONVERTING: u64 = 2;

/// Returns the memory limit of a conversion in bytes. In addition to what a mount needs, each
/// thread needs 32 MiB of buffers, for comparing, reading and encoding.
fn bound_of_conversion(chunk: u64, cache: u64, context: u64) -> u64 {
    let converting = CONVERTING * (32 * MIB + 2 * chunk + context + a_file(chunk));
    PROGRAM + cache + converting + WORKERS * (3 * chunk + context)
}

#[test]
fn memory_of_a_conversion_is_bounded() {
    peak_of_conversion(24, 40);
}

#[test]
#[ignore = "a measurement: a tree of 4 GiB; wants an optimised build"]
fn memory_of_a_conversion_of_gibibytes_is_bounded() {
    peak_of_conversion(1024, 1024);
}

/// Encodes and decodes two files of `large` MiB and `small` files of 1 MiB, and checks the peak
/// memory.
fn peak_of_conversion(large: u64, small: u64) {
    let place = Place::on_disk();
    let tree = place.lower.to_str().unwrap();
    ["first", "second"].iter().for_each(|name| write_blocks(&place.lower.join(name), large));
    for number in 0..small {
        write_blocks(&place.lower.join(format!("small-{number}")), 1);
    }
    let bound = bound_of_conversion(128 * KIB, 2 * MIB, 2 * MIB);
    let threads = CONVERTING.to_string();
    let encode = ["-l", "zstd:threads=2,cache=2MiB"];
    watch(&[&["sca", "encode", tree, "--threads", &threads], &encode[..]].concat(), bound);
    // For decoding, the layers have their default cache and one worker per processor.
    watch(&["sca", "decode", tree, "--threads", &threads], bound + 30 * MIB);
    for name in ["first", "second"] {
        read_blocks(&File::open(place.lower.join(name)).unwrap(), large, MIB);
    }
}

/// Runs the program, and checks that its memory never exceeds `bound`.
fn watch(arguments: &[&str], bound: u64) {
    let mut child = fslab(arguments).stdout(Stdio::null()).spawn().unwrap();
    let (mut peak, mut seen) = (0, Vec::new());
    while child.try_wait().unwrap().is_none() {
        let both = (status(child.id(), "VmHWM"), status(child.id(), "VmRSS"));
        if let (Some(most), Some(now)) = both {
            (peak, _) = (most, seen.push(now));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(child.wait().unwrap().success(), "{arguments:?}");
    seen.sort_unstable();
    let usual = seen.get(seen.len() / 2).copied().unwrap_or(0);
    eprintln!(
        "fslab {} {}: at most {} MiB, usually {} MiB, bound {} MiB",
        arguments[0],
        arguments[1],
        peak / MIB,
        usual / MIB,
        bound / MIB
    );
    assert!(peak > 0 && peak <= bound, "{arguments:?}: {peak} bytes");
}
