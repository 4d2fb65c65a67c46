//! Tests that a signalled caller stops waiting for an operation that may take forever.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fslab_fuse::MountOptions;
use fslab_vfs::{FileSystem, Handle, Ino, MemFs, OpenMode, Opened, Request, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Mounted, soon};

/// Default number of signals; `FSLAB_INTERRUPTS` changes it.
const INTERRUPTS: usize = 60;

/// A file system whose reads wait until they are cancelled, as if for a tape that is never mounted.
#[derive(Default)]
struct Waiting {
    inner: MemFs,
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl FileSystem for Waiting {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    /// Requests of the kernel's read-ahead have no caller and are never interrupted. So a file on
    /// which readers may wait is opened for direct I/O, without read-ahead.
    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        let opened = self.inner.open(request, ino, mode)?;
        Ok(Opened { direct: true, ..opened })
    }

    fn read(&self, request: &Request, _: Ino, _: Handle, _: u64, _: &mut [u8]) -> Result<usize> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        loop {
            std::thread::sleep(Duration::from_millis(2));
            if let Err(error) = request.cancellation.check() {
                self.ended.fetch_add(1, Ordering::SeqCst);
                return Err(error.into());
            }
        }
    }
}

#[test]
fn blocked_read_ends_when_its_reader_is_signalled() {
    let waiting = Arc::new(Waiting::default());
    let shared: Arc<dyn FileSystem> = waiting.clone();
    let test = "interrupts::blocked_read_ends_when_its_reader_is_signalled";
    let Some(mounted) = Mounted::new(test, shared, &MountOptions::default()) else { return };
    std::fs::write(mounted.path().join("tape"), "far away").unwrap();
    let times = std::env::var("FSLAB_INTERRUPTS").ok().and_then(|text| text.parse().ok());
    let mut slowest = Duration::ZERO;
    for number in 0..times.unwrap_or(INTERRUPTS) {
        let signal = [Signal::INT, Signal::KILL][number % 2];
        slowest = slowest.max(signalled_once(&mounted, &waiting, number, signal));
    }
    eprintln!("slowest end after a signal: {slowest:?}");
    // A lost signal would block the reader forever; a busy machine may be slow.
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
    assert_eq!(waiting.begun.load(Ordering::SeqCst), waiting.ended.load(Ordering::SeqCst));
    mounted.end();
}

/// Returns how long the reader took to end after the signal.
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

/// Readers may have to wait for hours. So even if more readers wait than the mount has threads,
/// other requests and signals must be served.
#[test]
fn waiting_requests_do_not_block_other_requests_or_signals() {
    const READERS: usize = 6;
    let waiting = Arc::new(Waiting::default());
    let shared: Arc<dyn FileSystem> = waiting.clone();
    let test = "interrupts::waiting_requests_do_not_block_other_requests_or_signals";
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
