//! Requests that wait for recalls without a thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fslab_tier::command::{Command, Event, execute};
use fslab_tier::{Settings, own_request};
use fslab_vfs::{
    Cancellation, Clock, Deferral, Deferrer, Errno, Error, FileSystem, Handle, Ino, MemFs, Memory,
    MonotonicClock, OpenMode, Request, WriteOptions,
};
use parking_lot::Mutex;

use crate::support::{Bench, Hands, MIB, TIER, noise, until};

/// A sender of requests. The test decides when a deferred request is performed again.
#[derive(Default)]
struct Sender {
    refuses: AtomicBool,
    accepted: AtomicUsize,
    memory: Mutex<HashMap<u64, (Memory, Option<Duration>)>>,
    woken: Mutex<Vec<u64>>,
}

impl Deferrer for Sender {
    fn accept(&self, _: u64) -> bool {
        self.accepted.fetch_add(1, Ordering::SeqCst);
        !self.refuses.load(Ordering::SeqCst)
    }

    fn keep(&self, number: u64, memory: Memory, at_most: Option<Duration>) {
        self.memory.lock().insert(number, (memory, at_most));
    }

    fn wake(&self, number: u64) {
        self.woken.lock().push(number);
    }
}

impl Sender {
    /// Makes a request for the first time.
    fn first(self: &Arc<Self>, number: u64) -> Request {
        let deferral = Deferral::new(Arc::<Self>::clone(self), number);
        Request { pid: number as u32, deferral, ..own_request() }
    }

    /// Makes a request that is performed again.
    fn again(self: &Arc<Self>, number: u64) -> Request {
        let memory = self.memory.lock().remove(&number).map(|(memory, _)| memory);
        let deferral = Deferral::resumed(Arc::<Self>::clone(self), number, memory);
        Request { pid: number as u32, deferral, ..own_request() }
    }

    fn at_most(&self, number: u64) -> Option<Duration> {
        self.memory.lock()[&number].1
    }

    /// Waits until a request is woken.
    fn next_woken(&self) -> u64 {
        until(|| !self.woken.lock().is_empty());
        self.woken.lock().remove(0)
    }
}

/// A tier at the top of its stack, with a stalled archive and offline files.
struct Stalled {
    bench: Bench,
    sender: Arc<Sender>,
    files: Vec<(Ino, Handle, Vec<u8>)>,
}

impl Stalled {
    fn new(settings: Settings, files: u64, clock: Arc<dyn Clock>) -> Self {
        let settings = Settings { movers: 2, ..settings };
        let bench = Bench::by_clock(Arc::new(MemFs::default()), settings, 1, clock);
        let files = (0..files).map(|number| {
            let data = noise(number + 1, 2 * MIB);
            let ino = bench.offline(&bench.client(), &format!("file{number}"), &data);
            let mode = OpenMode::READ_WRITE;
            (ino, bench.fs.open(&own_request(), ino, mode).unwrap().handle, data)
        });
        let files = files.collect();
        *bench.archives[0].faults().stalled.lock() = true;
        assert!(bench.fs.can_defer());
        Self { bench, sender: Arc::default(), files }
    }

    fn simple() -> Self {
        let settings = Settings { ahead: 0, ..Settings::of(TIER) };
        Self::new(settings, 1, Arc::new(MonotonicClock))
    }

    /// Reads 16 bytes; returns whether they are right.
    fn read(&self, file: usize, offset: usize, request: &Request) -> Result<bool, Error> {
        let (ino, handle, data) = &self.files[file];
        let mut buffer = [0; 16];
        let count = self.bench.fs.read(request, *ino, *handle, offset as u64, &mut buffer)?;
        Ok(count == 16 && buffer == data[offset..offset + 16])
    }

    #[track_caller]
    fn defer(&self, number: u64) {
        let error = self.read(0, 5, &self.sender.first(number)).unwrap_err();
        assert!(matches!(error, Error::Deferred), "{error:?}");
    }

    fn again(&self, number: u64) -> Result<bool, Errno> {
        self.read(0, 5, &self.sender.again(number)).map_err(|error| error.errno())
    }

    fn resume(&self) {
        self.bench.archives[0].faults().resume();
    }

    /// Returns the number of programs that are listed as waiting.
    fn listed(&self) -> u64 {
        let mut listed = 0;
        let mut tell = |event| {
            if let Event::Waiting { waiters, .. } = event {
                listed += waiters;
            }
            true
        };
        execute(&self.bench.tier, &Command::Queue, &own_request(), &mut tell).unwrap();
        listed
    }
}

/// Lets the archive answer, so that the engine ends.
impl Drop for Stalled {
    fn drop(&mut self) {
        self.resume();
    }
}

#[test]
fn hundred_thousand_deferred_reads_are_listed_and_get_the_right_bytes() {
    const READS: u64 = 100_000;
    const FILES: u64 = 16;
    let settings = Settings { ahead: 0, ..Settings::of(TIER) };
    let stalled = Stalled::new(settings, FILES, Arc::new(MonotonicClock));
    let read = |number: u64, request: &Request| {
        let offset = number.wrapping_mul(0x9e37_79b9) % (2 * MIB - 16);
        stalled.read((number % FILES) as usize, offset as usize, request)
    };
    std::thread::scope(|scope| {
        for odd in 0..2 {
            let (read, sender) = (&read, &stalled.sender);
            scope.spawn(move || {
                for number in (0..READS).filter(|number| number % 2 == odd) {
                    let error = read(number, &sender.first(number)).unwrap_err();
                    assert!(matches!(error, Error::Deferred), "{error:?}");
                }
            });
        }
    });
    assert_eq!(stalled.listed(), READS);
    assert!(stalled.sender.woken.lock().is_empty());
    stalled.resume();
    let mut done = 0;
    while done < READS {
        let woken = std::mem::take(&mut *stalled.sender.woken.lock());
        for number in woken {
            match read(number, &stalled.sender.again(number)) {
                Ok(is_right) => {
                    assert!(is_right, "read {number}");
                    done += 1;
                }
                // The read overlaps two blocks, and the second one is not resident yet.
                Err(Error::Deferred) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(stalled.listed(), 0);
    assert!(stalled.sender.memory.lock().is_empty());
}

#[test]
fn deferred_read_fails_once_if_its_recall_fails() {
    let stalled = Stalled::simple();
    stalled.defer(1);
    stalled.bench.archives[0].faults().reads_fail.store(true, Ordering::SeqCst);
    stalled.resume();
    assert_eq!(stalled.sender.next_woken(), 1);
    assert_eq!(stalled.again(1), Err(Errno::IO));
    assert_eq!(stalled.sender.accepted.load(Ordering::SeqCst), 1, "it did not wait again");
    assert_eq!(stalled.listed(), 0);
}

#[test]
fn signalled_deferred_read_fails_and_is_no_longer_listed() {
    let stalled = Stalled::simple();
    stalled.defer(1);
    stalled.defer(2);
    assert_eq!(stalled.listed(), 2);
    let cancellation = Cancellation::new(Arc::new(AtomicU64::new(1)), 1);
    let request = Request { cancellation, ..stalled.sender.again(1) };
    assert_eq!(stalled.read(0, 5, &request).unwrap_err().errno(), Errno::INTR);
    drop(request);
    assert_eq!(stalled.listed(), 1);
    stalled.resume();
    assert_eq!((stalled.sender.next_woken(), stalled.again(2)), (2, Ok(true)));
}

#[test]
fn deferred_read_fails_when_its_time_is_over() {
    let hands = Arc::new(Hands::default());
    let patience = Some(Duration::from_secs(60));
    let settings = Settings { patience, ahead: 0, ..Settings::of(TIER) };
    let stalled = Stalled::new(settings, 1, hands.clone());
    stalled.defer(1);
    assert_eq!(stalled.sender.at_most(1), patience);
    hands.turn(Duration::from_secs(20));
    assert_eq!(stalled.again(1), Err(Error::Deferred.errno()), "it was called early");
    assert_eq!(stalled.sender.at_most(1), Some(Duration::from_secs(40)));
    assert_eq!(stalled.listed(), 1);
    hands.turn(Duration::from_secs(40));
    assert_eq!(stalled.again(1), Err(stalled.bench.tier.settings().late));
    assert_eq!(stalled.listed(), 0);
}

#[test]
fn end_of_the_tier_fails_deferred_reads() {
    let settings = Settings { ahead: 0, ..Settings::of(TIER) };
    let stalled = Stalled::new(settings, 2, Arc::new(MonotonicClock));
    // Recalls of one file wait for its object to be opened by the first of them. So the first two
    // reads are of different files.
    let places = [(0, 5), (1, 5), (0, MIB as usize + 5)];
    for (number, (file, offset)) in places.into_iter().enumerate() {
        let request = stalled.sender.first(number as u64);
        let error = stalled.read(file, offset, &request).unwrap_err();
        assert!(matches!(error, Error::Deferred));
        // The two recalling threads are busy with the first two reads.
        let busy = || stalled.bench.archives[0].faults().blocked.load(Ordering::SeqCst);
        until(|| busy() == (number as u64 + 1).min(2));
    }
    stalled.bench.tier.shutdown().unwrap();
    assert_eq!(stalled.sender.next_woken(), 2);
    let error = stalled.read(0, MIB as usize + 5, &stalled.sender.again(2)).unwrap_err();
    assert_eq!(error.errno(), Errno::INTR);
}

#[test]
fn request_that_cannot_be_deferred_blocks_its_thread() {
    let stalled = Stalled::simple();
    stalled.sender.refuses.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| stalled.read(0, 5, &stalled.sender.first(1)));
        until(|| stalled.listed() == 1);
        assert!(!reader.is_finished());
        stalled.resume();
        assert!(reader.join().unwrap().unwrap());
    });
    assert!(stalled.sender.memory.lock().is_empty());
}

/// A layer above the tier forwards requests, but can't perform a deferred one again. So the tier
/// must not defer requests below another layer.
#[test]
fn tier_below_another_layer_defers_no_requests() {
    let settings = Settings { ahead: 0, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 1);
    let data = noise(7, MIB);
    let ino = bench.offline(&bench.client(), "file", &data);
    let sender = Arc::new(Sender::default());
    let handle = bench.fs.open(&own_request(), ino, OpenMode::empty()).unwrap().handle;
    let mut buffer = vec![0; MIB as usize];
    bench.fs.read(&sender.first(1), ino, handle, 0, &mut buffer).unwrap();
    assert!(buffer == data);
    assert_eq!(sender.accepted.load(Ordering::SeqCst), 0);
}

#[test]
fn deferred_writes_take_effect_once() {
    let stalled = Stalled::simple();
    let (ino, handle, data) = &stalled.files[0];
    let write = |request: &Request, offset, options| {
        stalled.bench.fs.write(request, *ino, *handle, offset, b"written", options)
    };
    let append = WriteOptions { append: true, ..WriteOptions::default() };
    let places = WriteOptions::default();
    let error = write(&stalled.sender.first(1), 100, places).unwrap_err();
    assert!(matches!(error, Error::Deferred));
    // The file ends at a block border, so appending recalls nothing.
    assert_eq!(write(&stalled.sender.first(2), 0, append).unwrap(), 7);
    stalled.resume();
    assert_eq!(stalled.sender.next_woken(), 1);
    assert_eq!(write(&stalled.sender.again(1), 100, places).unwrap(), 7);
    let mut expected = [&data[..], b"written"].concat();
    expected[100..107].copy_from_slice(b"written");
    assert!(stalled.bench.client().contents(*ino).unwrap() == expected);
}

#[test]
fn resumed_read_is_noted_once_for_read_ahead() {
    let settings = Settings { ahead: 1, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 1);
    let ino = bench.offline(&bench.client(), "file", &noise(8, 8 * MIB));
    let sender = Arc::new(Sender::default());
    assert!(bench.fs.can_defer());
    let handle = bench.fs.open(&own_request(), ino, OpenMode::empty()).unwrap().handle;
    let mut buffer = vec![0; 4 * MIB as usize];
    let mut done = bench.fs.read(&sender.first(1), ino, handle, 0, &mut buffer);
    while let Err(Error::Deferred) = done {
        assert_eq!(sender.next_woken(), 1);
        done = bench.fs.read(&sender.again(1), ino, handle, 0, &mut buffer);
    }
    assert_eq!(done.unwrap(), 4 * MIB as usize);
    // This read skips 1 MiB but still counts as sequential. If it did not, no blocks would be
    // recalled ahead.
    let next = bench.fs.read(&own_request(), ino, handle, 5 * MIB, &mut buffer[..1000]);
    assert_eq!(next.unwrap(), 1000);
    until(|| bench.counted("tier_recalled_bytes") == 7 * MIB);
}
