//! Readers beside a sync: they do not wait for the device. The test fails where a sync keeps the
//! volume to itself while the device is flushed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fslab_ext2::{Ext2, VolumeOptions, mkfs};
use fslab_vfs::testing::client::Client;
use fslab_vfs::{BlockDevice, Ino, MemoryDevice, OpenMode};
use parking_lot::{Condvar, Mutex};

use crate::support::options;

/// A device in memory whose flush takes as long as it is told to.
struct SlowDevice {
    memory: MemoryDevice,
    flush: Box<dyn Fn() + Send + Sync>,
}

impl BlockDevice for SlowDevice {
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> fslab_vfs::Result<()> {
        self.memory.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> fslab_vfs::Result<()> {
        self.memory.write_at(offset, data)
    }
    fn discard(&self, offset: u64, length: u64) -> fslab_vfs::Result<()> {
        self.memory.discard(offset, length)
    }
    fn flush(&self) -> fslab_vfs::Result<()> {
        (self.flush)();
        self.memory.flush()
    }
}

fn on_device(flush: impl Fn() + Send + Sync + 'static) -> Ext2 {
    let memory = MemoryDevice::new(1 << 30);
    mkfs(&memory, &options(4096)).unwrap();
    let device = Arc::new(SlowDevice { memory, flush: Box::new(flush) });
    let volume = VolumeOptions { dirty_bytes_max: 512 << 20, ..VolumeOptions::default() };
    Ext2::open(device, volume).unwrap()
}

/// What a flush of the device and a reader have to do with each other.
#[derive(Default)]
struct Meeting {
    /// The flush waits for the reader.
    is_armed: bool,
    is_flushing: bool,
    has_read: bool,
    /// The flush did not wait in vain.
    has_met: bool,
}

#[test]
fn reads_are_answered_while_the_device_is_flushed() {
    let state = Arc::new((Mutex::new(Meeting::default()), Condvar::new()));
    let of_device = Arc::clone(&state);
    let ext2 = on_device(move || {
        let (meeting, changed) = &*of_device;
        let mut meeting = meeting.lock();
        if !std::mem::take(&mut meeting.is_armed) {
            return;
        }
        meeting.is_flushing = true;
        changed.notify_all();
        // A reader that waits for the flush never ends this wait.
        let limit = Duration::from_secs(20);
        changed.wait_while_for(&mut meeting, |meeting| !meeting.has_read, limit);
        meeting.has_met = meeting.has_read;
    });
    let client = Client::new(&ext2);
    let ino = client.file(Ino::ROOT, "read", &[7; 9000]).unwrap();
    let other = client.file(Ino::ROOT, "written", b"").unwrap();
    let (reader, writer) = (
        client.open(ino, OpenMode::empty()).unwrap(),
        client.open(other, OpenMode::READ_WRITE).unwrap(),
    );
    // The first read of a new file changes its access time.
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
    assert!(meeting.lock().has_met, "the reader was answered behind the flush");
}

/// The 99th percentile and the 999th permille of the times of reads, with a flush of 2 ms and so
/// many other files dirty. The writer changes a hundredth of them before each fsync.
fn slow_reads(with_writer: bool, others: u32) -> [Duration; 2] {
    let ext2 = on_device(|| std::thread::sleep(Duration::from_millis(2)));
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
    let (ends, mut syncs) = (AtomicBool::new(false), 0);
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        if with_writer {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    for ino in others.iter().step_by(100) {
                        client.chmod(*ino, 0o600 + (syncs & 1)).unwrap();
                    }
                    writer.write_all(0, &[8; 4096]).unwrap();
                    writer.fsync(false).unwrap();
                    syncs += 1;
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
    println!("{syncs} fsyncs");
    [times[times.len() * 99 / 100], times[times.len() * 999 / 1000]]
}

#[test]
#[ignore = "a measurement: wants a quiet machine and an optimised build"]
fn reads_beside_a_writer_that_syncs_in_a_loop() {
    for others in [0, 50_000] {
        let (alone, beside) = (slow_reads(false, others), slow_reads(true, others));
        println!(
            "{others} other files dirty: 99 % and 99.9 % of reads take up to {alone:?} alone, \
             {beside:?} beside a writer that syncs"
        );
    }
}
