//! A caller that is signalled does not wait for an operation that may take for ever.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fslab_fuse::MountOptions;
use fslab_vfs::testing::client::Client;
use fslab_vfs::{FileSystem, Handle, Ino, MemFs, OpenMode, Opened, Request, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Mounted, soon};

/// How often a reader is signalled; `FSLAB_INTERRUPTS` asks for more.
const INTERRUPTS: usize = 60;

/// What files that are far away begin with.
const FAR: &[u8] = b"far away";

/// Reading what is far away waits until the reader gives up, as for a tape that nobody mounts, or
/// until it has come.
#[derive(Default)]
struct Waiting {
    inner: MemFs,
    has_come: AtomicBool,
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl FileSystem for Waiting {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    /// Pages that the kernel reads ahead are asked for by nobody, and their requests are never
    /// interrupted; a file that may make its readers wait is opened for direct reading.
    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let opened = self.inner.open(request, ino, mode)?;
        Ok(Opened { direct: true, ..opened })
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let count = self.inner.read(request, ino, handle, offset, buffer)?;
        let is_far = || buffer[..count].starts_with(FAR) && !self.has_come.load(Ordering::SeqCst);
        if !is_far() {
            return Ok(count);
        }
        request.cancellation.check()?;
        self.begun.fetch_add(1, Ordering::SeqCst);
        while is_far() {
            std::thread::sleep(Duration::from_millis(2));
            if let Err(error) = request.cancellation.check() {
                self.ended.fetch_add(1, Ordering::SeqCst);
                return Err(error.into());
            }
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        Ok(count)
    }
}

#[test]
fn a_blocked_read_ends_with_its_reader() {
    let waiting = Arc::new(Waiting::default());
    let shared: Arc<dyn FileSystem> = waiting.clone();
    let test = "interrupts::a_blocked_read_ends_with_its_reader";
    let Some(mounted) = Mounted::new(test, shared, &MountOptions::default()) else { return };
    std::fs::write(mounted.path().join("tape"), "far away").unwrap();
    let times = std::env::var("FSLAB_INTERRUPTS").ok().and_then(|text| text.parse().ok());
    let mut slowest = Duration::ZERO;
    for number in 0..times.unwrap_or(INTERRUPTS) {
        let signal = [Signal::INT, Signal::KILL][number % 2];
        slowest = slowest.max(signalled_once(&mounted, &waiting, number, signal));
    }
    eprintln!("slowest end after a signal: {slowest:?}");
    // Whoever is not heard waits for ever; a busy machine takes its time.
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
    assert_eq!(waiting.begun.load(Ordering::SeqCst), waiting.ended.load(Ordering::SeqCst));
    mounted.end();
}

/// Answers how long the reader took to end after the signal.
fn signalled_once(mounted: &Mounted, waiting: &Waiting, number: usize, signal: Signal) -> Duration {
    let mut reader = start_reading(&mounted.path().join("tape"));
    soon("the reader waits", || waiting.begun.load(Ordering::SeqCst) > number);
    let start = Instant::now();
    kill_process(Pid::from_child(&reader), signal).unwrap();
    assert!(!reader.wait().unwrap().success());
    start.elapsed()
}

fn start_reading(path: &Path) -> Child {
    let (mut reader, none) = (Command::new("cat"), Stdio::null);
    reader.arg(path).stdout(none()).stderr(none()).spawn().unwrap()
}

/// More readers wait than threads serve: what they wait for may take hours.
#[test]
fn waits_of_all_threads_hold_up_neither_others_nor_signals() {
    const READERS: usize = 6;
    let waiting = Arc::new(Waiting::default());
    let shared: Arc<dyn FileSystem> = waiting.clone();
    let test = "interrupts::waits_of_all_threads_hold_up_neither_others_nor_signals";
    let options = MountOptions { threads: Some(2), ..MountOptions::default() };
    let Some(mounted) = Mounted::new(test, shared, &options) else { return };
    let path = |number: usize| mounted.path().join(number.to_string());
    (0..READERS).for_each(|number| std::fs::write(path(number), "far away").unwrap());
    let mut readers: Vec<_> = (0..READERS).map(|number| start_reading(&path(number))).collect();
    soon("all wait", || waiting.begun.load(Ordering::SeqCst) == READERS);
    std::fs::write(mounted.path().join("near"), "x").unwrap();
    assert_eq!(std::fs::read_dir(mounted.path()).unwrap().count(), READERS + 1);
    for reader in &mut readers {
        kill_process(Pid::from_child(reader), Signal::INT).unwrap();
        assert!(!reader.wait().unwrap().success());
    }
    soon("nobody waits", || waiting.ended.load(Ordering::SeqCst) == READERS);
    mounted.end();
}

/// More readers wait than there may be threads: the last one waits for nothing.
#[test]
fn waits_of_as_many_as_there_may_be_threads_hold_up_nobody_else() {
    const READERS: usize = 9;
    const THREADS: usize = 4;
    let waiting = Arc::new(Waiting::default());
    let shared: Arc<dyn FileSystem> = waiting.clone();
    let test = "interrupts::waits_of_as_many_as_there_may_be_threads_hold_up_nobody_else";
    let options =
        MountOptions { threads: Some(2), waiting_threads: THREADS, ..MountOptions::default() };
    let Some(mounted) = Mounted::new(test, shared, &options) else { return };
    let path = |number: usize| mounted.path().join(number.to_string());
    (0..READERS).for_each(|number| std::fs::write(path(number), "far away").unwrap());
    std::fs::write(mounted.path().join("near"), "x").unwrap();
    let mut readers: Vec<_> = (0..READERS).map(|number| start_reading(&path(number))).collect();
    soon("all threads but one wait", || waiting.begun.load(Ordering::SeqCst) == THREADS - 1);
    assert_eq!(std::fs::read_dir(mounted.path()).unwrap().count(), READERS + 1);
    assert_eq!(std::fs::read(mounted.path().join("near")).unwrap(), b"x");
    // Of some a thread waits, of others none: each hears of its signal.
    for reader in &mut readers[..READERS - 2] {
        kill_process(Pid::from_child(reader), Signal::INT).unwrap();
        assert!(!reader.wait().unwrap().success());
        assert_eq!(std::fs::read(mounted.path().join("near")).unwrap(), b"x");
    }
    waiting.has_come.store(true, Ordering::SeqCst);
    for reader in &mut readers[READERS - 2..] {
        assert!(reader.wait().unwrap().success());
    }
    assert_eq!(waiting.begun.load(Ordering::SeqCst), waiting.ended.load(Ordering::SeqCst));
    mounted.end();
}

/// What all the others wait for may be another tape.
#[test]
fn what_need_not_wait_any_more_is_served_though_no_thread_is_free() {
    const THREADS: usize = 3;
    let waiting = Arc::new(Waiting::default());
    let shared: Arc<dyn FileSystem> = waiting.clone();
    let test = "interrupts::what_need_not_wait_any_more_is_served_though_no_thread_is_free";
    let options =
        MountOptions { threads: Some(1), waiting_threads: THREADS, ..MountOptions::default() };
    let Some(mounted) = Mounted::new(test, shared, &options) else { return };
    let path = |number: usize| mounted.path().join(number.to_string());
    (0..THREADS).for_each(|number| std::fs::write(path(number), "far away").unwrap());
    let mut readers: Vec<_> = (0..THREADS - 1).map(|number| start_reading(&path(number))).collect();
    soon("all threads but one wait", || waiting.begun.load(Ordering::SeqCst) == THREADS - 1);
    let mut last = start_reading(&path(THREADS - 1));
    std::thread::sleep(Duration::from_millis(200));
    assert!(last.try_wait().unwrap().is_none(), "it waits");
    let client = Client::new(&waiting.inner);
    let ino = client.lookup(Ino::ROOT, (THREADS - 1).to_string()).unwrap().ino;
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"it is here").unwrap();
    assert!(last.wait().unwrap().success());
    file.close().unwrap();
    for reader in &mut readers {
        kill_process(Pid::from_child(reader), Signal::INT).unwrap();
        assert!(!reader.wait().unwrap().success());
    }
    mounted.end();
}
