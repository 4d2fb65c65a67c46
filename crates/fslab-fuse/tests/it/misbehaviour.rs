//! Tests file systems that panic or are slow: only the affected requests fail or wait; the mount
//! and other requests continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use fslab_fuse::MountOptions;
use fslab_sys::mounts::{Mount, mounted_on};
use fslab_vfs::{Errno, FileSystem, Handle, Ino, MemFs, Request, Result, SeekTo};
use parking_lot::Mutex;

use crate::support::{Mounted, PATIENCE};
use crate::watched::{Meeting, Watched};

/// A file system that panics when listing extended attributes. Every second search for data and
/// holes panics; the others find nothing.
#[derive(Default)]
struct Panicking {
    inner: MemFs,
    /// Number of searches.
    seeks: AtomicU64,
}

impl FileSystem for Panicking {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn listxattr(&self, _: &Request, _: Ino) -> Result<Vec<u8>> {
        panic!("planted")
    }

    fn lseek(&self, _: &Request, _: Ino, _: Handle, _: u64, _: SeekTo) -> Result<u64> {
        let number = self.seeks.fetch_add(1, Ordering::SeqCst);
        assert!(number.is_multiple_of(2), "planted");
        Err(Errno::NXIO.into())
    }
}

#[test]
fn a_panic_fails_one_request() {
    let shared = Arc::new(Panicking::default());
    let test = "misbehaviour::a_panic_fails_one_request";
    let Some(mounted) = Mounted::new(test, shared, &MountOptions::default()) else { return };
    let path = mounted.path().join("file");
    std::fs::write(&path, "x").unwrap();
    for _ in 0..20 {
        let error = rustix::fs::listxattr(&path, &mut [0_u8; 100][..]).unwrap_err();
        assert_eq!(error, rustix::io::Errno::IO);
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "x");
    mounted.end();
}

#[test]
fn panic_in_a_delayed_reply_fails_one_request() {
    let shared = Arc::new(Panicking::default());
    let test = "misbehaviour::panic_in_a_delayed_reply_fails_one_request";
    let options = MountOptions { writeback: true, ..MountOptions::default() };
    let panicking = Arc::clone(&shared);
    let Some(mounted) = Mounted::new(test, shared, &options) else { return };
    let path = mounted.path().join("file");
    std::fs::write(&path, "x").unwrap();
    // The kernel's cache may contain changes of a file that is open for writing. So if the first
    // search finds nothing, another thread of the server waits until they are written, and searches
    // again.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for _ in 0..2 {
        let error = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap_err();
        assert_eq!(error, rustix::io::Errno::IO);
    }
    assert_eq!(panicking.seeks.load(Ordering::SeqCst), 4, "two searches for each request");
    drop(file);
    mounted.end();
}

/// A file system in which removexattr blocks until the test lets it end, and fsync blocks until
/// another fsync arrives.
struct Slow {
    inner: MemFs,
    syncs_meet: Meeting,
    begun: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Slow {
    fn new(begun: SyncSender<()>, let_go: Receiver<()>) -> Self {
        let (inner, syncs_meet) = (MemFs::default(), Meeting::default());
        Self { inner, syncs_meet, begun, go_on: Mutex::new(let_go) }
    }
}

impl FileSystem for Slow {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn removexattr(&self, _: &Request, _: Ino, _: &std::ffi::OsStr) -> Result<()> {
        self.begun.send(()).unwrap();
        self.go_on.lock().recv().unwrap();
        Ok(())
    }

    fn fsync(&self, _: &Request, _: Ino, _: Handle, _: bool) -> Result<()> {
        self.syncs_meet.attend();
        Ok(())
    }
}

/// A mount usually has one reader thread, which must not limit it to one request at a time.
#[test]
fn slow_requests_do_not_block_other_requests() {
    const SLOW: usize = 5;
    let ((begun, has_begun), (go_on, let_go)) = (sync_channel(SLOW), sync_channel(SLOW));
    let shared = Arc::new(Slow::new(begun, let_go));
    let test = "misbehaviour::slow_requests_do_not_block_other_requests";
    let Some(mounted) = Mounted::new(test, shared, &MountOptions::default()) else { return };
    std::thread::scope(|scope| {
        for number in 0..SLOW {
            // Each thread has its own file, because the kernel serialises changes of the same file.
            let path = mounted.path().join(format!("slow-{number}"));
            std::fs::write(&path, "x").unwrap();
            scope.spawn(move || rustix::fs::removexattr(&path, "user.slow").unwrap());
            has_begun.recv_timeout(PATIENCE).unwrap();
        }
        let (done, is_done) = sync_channel(1);
        let directory = mounted.path();
        scope.spawn(move || {
            for number in 0..50 {
                std::fs::write(directory.join(number.to_string()), "y").unwrap();
            }
            done.send(()).unwrap();
        });
        let others = is_done.recv_timeout(PATIENCE);
        for _ in 0..SLOW {
            go_on.send(()).unwrap();
        }
        assert_eq!(others, Ok(()), "held up by the slow ones");
    });
    mounted.end();
}

#[test]
fn syncs_run_in_parallel() {
    let (begun, _keep) = sync_channel(1);
    let (_never, let_go) = sync_channel(1);
    let shared = Arc::new(Slow::new(begun, let_go));
    let slow: Arc<dyn FileSystem> = shared.clone();
    let test = "misbehaviour::syncs_run_in_parallel";
    let Some(mounted) = Mounted::new(test, slow, &MountOptions::default()) else { return };
    std::thread::scope(|scope| {
        for number in 0..6 {
            let path = mounted.path().join(number.to_string());
            scope.spawn(move || std::fs::File::create(path).unwrap().sync_all().unwrap());
        }
    });
    assert!(shared.syncs_meet.has_met(), "the syncs did not run in parallel");
    mounted.end();
}

/// Long copies are split, because a copy can be interrupted only between two requests.
#[test]
fn long_copy_is_split_into_pieces() {
    const PIECE_BYTES_MAX: u64 = 64 << 20;
    let watched = Arc::new(Watched::default());
    let shared: Arc<dyn FileSystem> = watched.clone();
    let test = "misbehaviour::long_copy_is_split_into_pieces";
    let Some(mounted) = Mounted::new(test, shared, &MountOptions::default()) else { return };
    let path = mounted.path().join("source");
    std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let source = std::fs::File::open(&path).unwrap();
    let target = std::fs::File::create(mounted.path().join("target")).unwrap();
    let copied = rustix::fs::copy_file_range(&source, None, &target, None, 1 << 30).unwrap();
    assert!(copied as u64 <= PIECE_BYTES_MAX);
    assert_eq!(*watched.copies.lock(), [PIECE_BYTES_MAX]);
    drop((source, target));
    mounted.end();
}

/// A child process with a descriptor of /dev/fuse would keep the mount alive.
#[test]
fn children_get_no_descriptor_of_the_device() {
    let test = "misbehaviour::children_get_no_descriptor_of_the_device";
    let memory = Arc::new(MemFs::default());
    let Some(mounted) = Mounted::new(test, memory, &MountOptions::default()) else { return };
    std::fs::write(mounted.path().join("file"), "x").unwrap();
    let listed = std::process::Command::new("ls").args(["-l", "/proc/self/fd/"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("/dev/null") || listed.contains("pipe:"), "{listed}");
    assert!(!listed.contains("fuse"), "{listed}");
    mounted.end();
}

/// Aborts the connection of the mount, like `echo 1 >/sys/fs/fuse/connections/N/abort`.
#[test]
fn aborted_connection_ends_the_session() {
    let test = "misbehaviour::aborted_connection_ends_the_session";
    let memory = Arc::new(MemFs::default());
    let Some(mounted) = Mounted::new(test, memory, &MountOptions::default()) else { return };
    let path = mounted.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let (_, connection) = mounted_on(mounted.path()).unwrap().unwrap().device;
    let control = tempfile::tempdir().unwrap();
    let control = Mount::new("none".as_ref(), control.path(), "fusectl", "").unwrap();
    std::fs::write(control.target().join(connection.to_string()).join("abort"), "1").unwrap();
    let error = std::fs::read(&path).unwrap_err().raw_os_error();
    assert_eq!(error, Some(rustix::io::Errno::NOTCONN.raw_os_error()));
    control.unmount().unwrap();
    mounted.wait();
}

/// A file system that records whether `shutdown` was called.
struct Ending {
    inner: MemFs,
    has_ended: AtomicBool,
}

impl FileSystem for Ending {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn shutdown(&self) -> Result<()> {
        self.has_ended.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// Writing back may take long, and the device number may be reused meanwhile. So the unmount must
/// be reported first.
#[test]
fn unmount_is_reported_before_writeback_ends() {
    let inner = MemFs::default();
    let shared = Arc::new(Ending { inner, has_ended: AtomicBool::new(false) });
    let ending: Arc<dyn FileSystem> = shared.clone();
    let test = "misbehaviour::unmount_is_reported_before_writeback_ends";
    let Some(mounted) = Mounted::new(test, ending, &MountOptions::default()) else { return };
    let mut told = None;
    mounted.end_and_then(|| told = Some(shared.has_ended.load(Ordering::SeqCst)));
    assert_eq!(told, Some(false), "the unmount is reported before the shutdown");
    assert!(shared.has_ended.load(Ordering::SeqCst));
}
