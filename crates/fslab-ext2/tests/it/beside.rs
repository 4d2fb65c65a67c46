//! Tests that readers do not wait for the device during a sync. A test fails if a sync holds the
//! volume exclusively during a flush of the device, or if an fsync holds it exclusively during its
//! writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fslab_ext2::{Ext2, VolumeOptions, mkfs};
use fslab_vfs::{Ino, MemoryDevice, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::overtaking::Verdict;
use parking_lot::{Condvar, Mutex};

use crate::support::{Access, Watch, Watched, options};

/// The functions that a device calls for each write and each flush, to delay them.
struct Delays {
    write: Box<dyn Fn() + Send + Sync>,
    flush: Box<dyn Fn() + Send + Sync>,
}

impl Watch for Delays {
    fn see(&self, access: Access<'_>) -> fslab_vfs::Result<Verdict> {
        match access {
            Access::Write { .. } => (self.write)(),
            Access::Flush => (self.flush)(),
            _ => {}
        }
        Ok(Verdict::Do)
    }
}

fn on_device(
    write: impl Fn() + Send + Sync + 'static,
    flush: impl Fn() + Send + Sync + 'static,
) -> Ext2 {
    let memory = MemoryDevice::new(1 << 30);
    mkfs(&memory, &options(4096)).unwrap();
    let watch = Delays { write: Box::new(write), flush: Box::new(flush) };
    let device = Arc::new(Watched { memory, watch });
    let volume = VolumeOptions { dirty_bytes_max: 512 << 20, ..VolumeOptions::default() };
    Ext2::open(device, volume).unwrap()
}

/// The state that a flush of the device shares with a reader.
#[derive(Default)]
struct Meeting {
    /// Whether the flush must wait for the reader.
    is_armed: bool,
    is_flushing: bool,
    has_read: bool,
    /// Whether the reader finished during the flush.
    has_met: bool,
}

#[test]
fn reads_are_answered_while_the_device_is_flushed() {
    let state = Arc::new((Mutex::new(Meeting::default()), Condvar::new()));
    let of_device = Arc::clone(&state);
    let flush = move || {
        let (meeting, changed) = &*of_device;
        let mut meeting = meeting.lock();
        if !std::mem::take(&mut meeting.is_armed) {
            return;
        }
        meeting.is_flushing = true;
        changed.notify_all();
        // If the reader waited for the flush, this wait would time out.
        let limit = Duration::from_secs(20);
        changed.wait_while_for(&mut meeting, |meeting| !meeting.has_read, limit);
        meeting.has_met = meeting.has_read;
    };
    let ext2 = on_device(|| {}, flush);
    let client = Client::new(&ext2);
    let ino = client.file(Ino::ROOT, "read", &[7; 9000]).unwrap();
    let other = client.file(Ino::ROOT, "written", b"").unwrap();
    let (reader, writer) = (
        client.open(ino, OpenMode::empty()).unwrap(),
        client.open(other, OpenMode::READ_WRITE).unwrap(),
    );
    // The first read of a new file updates the access time, and this update would wait for the
    // flush.
    reader.read(0, 1).unwrap();
    writer.write_all(0, &[8; 9000]).unwrap();
    let (meeting, changed) = &*state;
    meeting.lock().is_armed = true;
    std::thread::scope(|scope| {
        scope.spawn(|| writer.fsync(false).unwrap());
        changed.wait_while(&mut meeting.lock(), |meeting| !meeting.is_flushing);
        assert!(reader.read(0, 9000).unwrap() == [7; 9000]);
        assert_eq!(client.lookup(Ino::ROOT, "read").unwrap().size, 9000);
        meeting.lock().has_read = true;
        changed.notify_all();
    });
    assert!(meeting.lock().has_met, "the reader was answered only after the flush");
}

/// Waits for a read that begins and ends after the call. Returns whether one did within five
/// seconds.
fn is_read_meanwhile(reads: &AtomicU64) -> bool {
    // The next read that ends may have begun before the call.
    let (wanted, start) = (reads.load(Ordering::SeqCst) + 2, Instant::now());
    while reads.load(Ordering::SeqCst) < wanted {
        if start.elapsed() > Duration::from_secs(5) {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// The device delays every write and every flush of an fsync until a read has completed. The synced
/// file and its directory are new, so that each step of the closure writes something.
#[test]
fn reads_are_answered_during_each_write_of_an_fsync() {
    #[derive(Default)]
    struct State {
        is_armed: AtomicBool,
        reads: AtomicU64,
        met: AtomicU64,
        missed: AtomicU64,
    }
    let state = Arc::new(State::default());
    let hook = |state: &Arc<State>| {
        let state = Arc::clone(state);
        move || {
            if state.is_armed.load(Ordering::SeqCst) {
                let met = is_read_meanwhile(&state.reads);
                let count = if met { &state.met } else { &state.missed };
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    let ext2 = on_device(hook(&state), hook(&state));
    let client = Client::new(&ext2);
    let ino = client.file(Ino::ROOT, "read", &[7; 9000]).unwrap();
    let reader = client.open(ino, OpenMode::empty()).unwrap();
    reader.read(0, 1).unwrap();
    ext2.sync().unwrap();
    let above = client.mkdir(Ino::ROOT, "above").unwrap();
    let other = client.file(above, "written", &[8; 100_000]).unwrap();
    client.file(above, "not synced", b"").unwrap();
    let writer = client.open(other, OpenMode::READ_WRITE).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                assert!(reader.read(0, 9000).unwrap() == [7; 9000]);
                state.reads.fetch_add(1, Ordering::SeqCst);
            }
        });
        state.is_armed.store(true, Ordering::SeqCst);
        writer.fsync(false).unwrap();
        state.is_armed.store(false, Ordering::SeqCst);
        ends.store(true, Ordering::SeqCst);
    });
    let (met, missed) = (state.met.load(Ordering::SeqCst), state.missed.load(Ordering::SeqCst));
    assert_eq!(missed, 0, "writes or flushes that kept readers waiting; {met} did not");
    assert!(met >= 8, "{met} writes and flushes: superblock, map, inodes, names");
}

/// The activity of a writer that runs at the same time as the reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Absent,
    /// Changes a hundredth of the other files and its own file, then syncs only its own file.
    Syncs,
    /// Makes the same changes, but sleeps for the duration of the device's flushes instead of
    /// syncing.
    Changes,
    /// Changes only its own file and syncs it.
    SyncsOnly,
}

/// Duration of one flush of the device.
const FLUSH: Duration = Duration::from_millis(2);
/// The median, the 99th percentile and the 99.9th percentile, in permille.
const RANKS: [usize; 3] = [500, 990, 999];
const ROUNDS: usize = 5;

/// Returns the percentiles [`RANKS`] of the times of reads, in microseconds. `others` is the number
/// of other dirty files.
fn slow_reads(kind: Writer, others: u32) -> [f64; 3] {
    let flushes = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&flushes);
    let flush = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(FLUSH);
    };
    let ext2 = on_device(|| {}, flush);
    let client = Client::new(&ext2);
    let ino = client.file(Ino::ROOT, "read", &[7; 65_536]).unwrap();
    let other = client.file(Ino::ROOT, "written", b"").unwrap();
    let reader = client.open(ino, OpenMode::empty()).unwrap();
    let writer = client.open(other, OpenMode::READ_WRITE).unwrap();
    reader.read(0, 1).unwrap();
    let beside = client.mkdir(Ino::ROOT, "others").unwrap();
    ext2.sync().unwrap();
    let others: Vec<Ino> = (0..others)
        .map(|number| client.file(beside, format!("other{number}"), b"").unwrap())
        .collect();
    let sync = || {
        writer.write_all(0, &[8; 4096]).unwrap();
        let before = flushes.load(Ordering::Relaxed);
        writer.fsync(false).unwrap();
        flushes.load(Ordering::Relaxed) - before
    };
    // The first sync also writes the superblock, so it is excluded.
    sync();
    let pause = FLUSH * sync() as u32;
    let (ends, mut rounds) = (AtomicBool::new(false), 0);
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        if kind != Writer::Absent {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    if kind != Writer::SyncsOnly {
                        for ino in others.iter().step_by(100) {
                            client.chmod(*ino, 0o600 + (rounds & 1)).unwrap();
                        }
                    }
                    if kind == Writer::Changes {
                        writer.write_all(0, &[8; 4096]).unwrap();
                        std::thread::sleep(pause);
                    } else {
                        sync();
                    }
                    rounds += 1;
                }
            });
        }
        for _ in 0..20_000 {
            let start = Instant::now();
            reader.read(0, 4096).unwrap();
            times.push(start.elapsed());
            std::thread::sleep(Duration::from_micros(50));
        }
        ends.store(true, Ordering::Relaxed);
    });
    times.sort_unstable();
    RANKS.map(|rank| times[times.len() * rank / 1000].as_secs_f64() * 1e6)
}

/// Formats the median of five values with the lowest and the highest, which form its 94 %
/// confidence interval.
fn told(mut values: [f64; ROUNDS]) -> String {
    values.sort_unstable_by(f64::total_cmp);
    format!("{:.2} [{:.2}, {:.2}]", values[ROUNDS / 2], values[0], values[ROUNDS - 1])
}

#[test]
#[ignore = "a measurement: wants a quiet machine and an optimised build"]
fn reads_beside_a_writer_that_syncs_in_a_loop() {
    let kinds = [
        (Writer::Absent, "alone"),
        (Writer::Changes, "changes without fsync"),
        (Writer::Syncs, "the same changes and fsync"),
        (Writer::SyncsOnly, "fsync without the changes of others"),
    ];
    for others in [0, 50_000] {
        println!("{others} other files dirty; {ROUNDS} rounds in turns: median [lowest, highest]");
        let rounds: [_; ROUNDS] =
            std::array::from_fn(|_| kinds.map(|(kind, _)| slow_reads(kind, others)));
        let ratios = |kind: usize, to: usize, rank: usize| {
            told(rounds.map(|round: [[f64; RANKS.len()]; 4]| round[kind][rank] / round[to][rank]))
        };
        for (kind, (_, name)) in kinds.iter().enumerate() {
            println!("  {name}");
            for (rank, permille) in RANKS.iter().enumerate() {
                let times = told(rounds.map(|round| round[kind][rank]));
                let (alone, percent) = (ratios(kind, 0, rank), *permille as f64 / 10.0);
                println!("    {percent:5.1} %: {times} us, {alone} times alone");
            }
        }
        let goal = ratios(2, 1, 1);
        println!("  99 % with fsync, the goal is twice: {goal} times that without");
    }
}
