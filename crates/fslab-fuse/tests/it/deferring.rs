//! Tests that programs can wait for data of a mount without occupying threads of the server.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fslab_fuse::MountOptions;
use fslab_sys::mounts::Mount;
use fslab_vfs::{
    Errno, Error, FileSystem, Handle, Ino, MemFs, OpenMode, Opened, Request, Result, Waker,
};
use fslab_vfs_testing::environment::number;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Mounted, soon};

/// Default number of programs; the environment variable `FSLAB_TIER_READERS` overrides it.
const READERS: u64 = 1500;

/// A file system in which reads of files of three bytes wait until the test calls `arrive`.
#[derive(Default)]
struct Tape {
    inner: MemFs,
    is_here: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
    /// Number of waiting requests.
    waiting: Arc<AtomicUsize>,
}

/// The `Memory` of a deferred request. Dropping it subtracts one from the number of waiting
/// requests.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Tape {
    fn arrive(&self) {
        self.is_here.store(true, Ordering::SeqCst);
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.iter().for_each(Waker::wake);
    }
}

impl FileSystem for Tape {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn can_defer(&self) -> bool {
        true
    }

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
        let _before = request.deferral.take::<Counted>();
        request.cancellation.check()?;
        let size = self.inner.getattr(request, ino, None)?.size;
        let mut wakers = self.wakers.lock();
        // Only files of three bytes are on the tape.
        if size != 3 || self.is_here.load(Ordering::SeqCst) {
            drop(wakers);
            return self.inner.read(request, ino, handle, offset, buffer);
        }
        let waker = request.deferral.accept().ok_or(Errno::NOMEM)?;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        wakers.push(waker);
        request.deferral.defer(Box::new(Counted(Arc::clone(&self.waiting))), None);
        Err(Error::Deferred)
    }
}

/// Starts a program that reads a file and fails unless its content is as expected.
fn reader(mounted: &Mounted, number: u64, expected: &Path) -> Child {
    let mut compare = Command::new("cmp");
    compare.arg("-s").arg(mounted.path().join(number.to_string())).arg(expected);
    compare.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn kill(mut reader: Child) {
    kill_process(Pid::from_child(&reader), Signal::KILL).unwrap();
    assert!(!reader.wait().unwrap().success());
}

/// Number of threads of this process that serve requests.
fn serving_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
    let names = tasks.filter_map(|task| name(task.ok()?).ok());
    names.filter(|name| name.starts_with("fslab-")).count()
}

#[test]
fn waiting_programs_need_no_threads_and_block_no_other_program() {
    let tape = Arc::new(Tape::default());
    let shared: Arc<dyn FileSystem> = tape.clone();
    let test = "deferring::waiting_programs_need_no_threads_and_block_no_other_program";
    let Some(mounted) = Mounted::new(test, shared, &MountOptions::default()) else { return };
    let count = number("FSLAB_TIER_READERS").unwrap_or(READERS);
    for number in 0..count {
        fs::write(mounted.path().join(number.to_string()), "far").unwrap();
    }
    let expected = tempfile::NamedTempFile::new().unwrap();
    fs::write(expected.path(), "far").unwrap();
    let mut readers: Vec<_> =
        (0..count).map(|number| reader(&mounted, number, expected.path())).collect();
    let waiting = |number: usize| tape.waiting.load(Ordering::SeqCst) == number;
    soon("all wait", || waiting(readers.len()));
    let threads = serving_threads();
    assert!(threads <= 16, "{threads} threads");
    kill(readers.swap_remove(readers.len() / 2));
    kill(readers.pop().unwrap());
    soon("the killed ones do not wait", || waiting(readers.len()));
    fs::write(mounted.path().join("near"), "written").unwrap();
    assert_eq!(fs::read(mounted.path().join("near")).unwrap(), b"written");
    tape.arrive();
    for reader in &mut readers {
        assert!(reader.wait().unwrap().success(), "wrong bytes or an error");
    }
    assert!(waiting(0));
    mounted.end();
}

/// Mounts a tape and starts five readers that wait for it; `None` if nothing can be mounted here.
fn waiting_readers(test: &str, tape: &Arc<Tape>, expected: &Path) -> Option<(Mounted, Vec<Child>)> {
    let shared: Arc<dyn FileSystem> = tape.clone();
    let mounted = Mounted::new(test, shared, &MountOptions::default())?;
    fs::write(mounted.path().join("0"), "far").unwrap();
    fs::write(expected, "far").unwrap();
    let readers = (0..5).map(|_| reader(&mounted, 0, expected)).collect();
    soon("all wait", || tape.waiting.load(Ordering::SeqCst) == 5);
    Some((mounted, readers))
}

/// If a mount is detached, its readers still wait. The mount ends after the last one.
#[test]
fn detached_mount_ends_after_its_waiting_programs() {
    let tape = Arc::new(Tape::default());
    let expected = tempfile::NamedTempFile::new().unwrap();
    let test = "deferring::detached_mount_ends_after_its_waiting_programs";
    let Some((mounted, mut readers)) = waiting_readers(test, &tape, expected.path()) else {
        return;
    };
    mounted.session().unmounter().detach().unwrap();
    kill(readers.pop().unwrap());
    tape.arrive();
    for reader in &mut readers {
        assert!(reader.wait().unwrap().success());
    }
    mounted.wait_detached();
}

/// Aborts the connection of a mount.
fn abort(mounted: &Mounted) {
    let (_, connection) = mounted.session().device();
    let control = tempfile::tempdir().unwrap();
    let control = Mount::new("none".as_ref(), control.path(), "fusectl", "").unwrap();
    fs::write(control.target().join(connection.to_string()).join("abort"), "1").unwrap();
    control.unmount().unwrap();
}

/// All requests are answered with an error, and the session ends.
#[test]
fn aborted_connection_ends_waiting_programs() {
    let tape = Arc::new(Tape::default());
    let expected = tempfile::NamedTempFile::new().unwrap();
    let test = "deferring::aborted_connection_ends_waiting_programs";
    let Some((mounted, mut readers)) = waiting_readers(test, &tape, expected.path()) else {
        return;
    };
    abort(&mounted);
    for reader in &mut readers {
        assert!(!reader.wait().unwrap().success());
    }
    mounted.wait();
    soon("nothing is remembered", || tape.waiting.load(Ordering::SeqCst) == 0);
}
