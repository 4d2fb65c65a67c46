//! Tests mounts served over io_uring. Also runs the other tests of mounts over io_uring.

use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fslab_fuse::{MountOptions, TransportChoice};
use fslab_sys::processors;
use fslab_vfs::{Attr, FileSystem, Handle, Ino, MemFs, OpenMode, Opened, Request, Result};
use fslab_vfs_testing::skip::{obstacle_to_mounting, skip};
use parking_lot::{Condvar, Mutex};
use rustix::fs::FlockOperation;

use crate::support::{Mounted, TRANSPORT, soon};

/// The kernel parameter that allows FUSE over io_uring.
const ALLOWED: &str = "/sys/module/fuse/parameters/enable_uring";

/// Sets [`ALLOWED`] while other tests are locked out, and restores it when this is dropped.
struct Permission {
    before: String,
    _lock: File,
}

impl Permission {
    fn hold(test: &str, value: &str) -> Option<Self> {
        let obstacle = match obstacle_to_mounting() {
            None if !Path::new(ALLOWED).exists() => Some("no FUSE over io_uring in this kernel"),
            obstacle => obstacle,
        };
        if let Some(obstacle) = obstacle {
            skip(test, obstacle);
            return None;
        }
        let lock = File::create("/run/lock/fslab-test-enable-uring").unwrap();
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
        let before = std::fs::read_to_string(ALLOWED).unwrap();
        std::fs::write(ALLOWED, value).unwrap();
        Some(Self { before, _lock: lock })
    }
}

impl Drop for Permission {
    fn drop(&mut self) {
        std::fs::write(ALLOWED, &self.before).unwrap();
    }
}

fn over_uring() -> MountOptions {
    MountOptions { transport: TransportChoice::Uring, ..MountOptions::default() }
}

/// A file system that records on which processors it serves getattr.
#[derive(Default)]
struct Asked {
    inner: MemFs,
    processors: Mutex<Vec<usize>>,
}

impl FileSystem for Asked {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn getattr(&self, request: &Request, ino: Ino, open: Option<Handle>) -> Result<Attr> {
        self.processors.lock().push(rustix::thread::sched_getcpu());
        self.inner.getattr(request, ino, open)
    }
}

#[test]
fn requests_are_served_on_the_processor_that_makes_them() {
    let test = "uring::requests_are_served_on_the_processor_that_makes_them";
    let Some(_permission) = Permission::hold(test, "Y") else { return };
    let asked = Arc::new(Asked::default());
    let shared: Arc<dyn FileSystem> = asked.clone();
    let options = MountOptions { attr_timeout: std::time::Duration::ZERO, ..over_uring() };
    let Some(mounted) = Mounted::new(test, shared, &options) else { return };
    assert!(mounted.session().granted().uring());
    for processor in processors::online().unwrap() {
        asked.processors.lock().clear();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                processors::run_on(processor).unwrap();
                (0..50).for_each(|_| assert!(mounted.path().metadata().is_ok()));
            });
        });
        let served = asked.processors.lock().clone();
        assert!(served.len() >= 50, "{served:?}");
        assert!(served.iter().all(|other| *other == processor), "{processor}: {served:?}");
    }
    mounted.end();
}

/// A file system whose reads block until the test opens the gate.
#[derive(Default)]
struct Gate {
    inner: MemFs,
    begun: AtomicUsize,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl FileSystem for Gate {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        Ok(Opened { direct: true, ..self.inner.open(request, ino, mode)? })
    }

    fn read(&self, _: &Request, _: Ino, _: Handle, _: u64, _: &mut [u8]) -> Result<usize> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
        Ok(0)
    }
}

/// The requests arrive together, and each may take any time. So the kernel must deliver all of them
/// without waiting for the end of another one.
#[test]
fn many_waiting_requests_of_one_processor_all_begin() {
    const READERS: usize = 16;
    let test = "uring::many_waiting_requests_of_one_processor_all_begin";
    let Some(_permission) = Permission::hold(test, "Y") else { return };
    for _round in 0..2 {
        let gate = Arc::new(Gate::default());
        let shared: Arc<dyn FileSystem> = gate.clone();
        let Some(mounted) = Mounted::new(test, shared, &over_uring()) else { return };
        let path = |number: usize| mounted.path().join(number.to_string());
        (0..READERS).for_each(|number| std::fs::write(path(number), "x").unwrap());
        std::thread::scope(|scope| {
            for number in 0..READERS {
                let path = path(number);
                scope.spawn(move || {
                    processors::run_on(0).unwrap();
                    assert_eq!(std::fs::read(path).unwrap(), b"");
                });
            }
            let all_wait = std::panic::catch_unwind(AssertUnwindSafe(|| {
                soon("all wait", || gate.begun.load(Ordering::SeqCst) == READERS);
                let list = || {
                    processors::run_on(0).unwrap();
                    std::fs::read_dir(mounted.path()).unwrap().count()
                };
                assert_eq!(scope.spawn(list).join().unwrap(), READERS);
            }));
            *gate.is_open.lock() = true;
            gate.opened.notify_all();
            all_wait.unwrap();
        });
        mounted.end();
    }
}

#[test]
fn without_permission_a_mount_is_refused_or_served_by_the_device() {
    let test = "uring::without_permission_a_mount_is_refused_or_served_by_the_device";
    let Some(_permission) = Permission::hold(test, "N") else { return };
    let point = tempfile::tempdir().unwrap();
    let refused = fslab_fuse::mount(Arc::new(MemFs::default()), point.path(), &over_uring());
    let error = refused.err().map(|error| format!("{error:#?}")).unwrap();
    assert!(error.contains("enable_uring"), "{error}");
    assert_eq!(fslab_sys::mounts::mounted_on(point.path()).unwrap(), None);
    let options = MountOptions::default();
    let Some(mounted) = Mounted::new(test, Arc::new(MemFs::default()), &options) else { return };
    assert!(!mounted.session().granted().uring());
    mounted.end();
}

#[test]
fn every_test_of_a_mount_passes_over_io_uring() {
    let test = "uring::every_test_of_a_mount_passes_over_io_uring";
    let Some(_permission) = Permission::hold(test, "Y") else { return };
    let tests = Command::new(std::env::current_exe().unwrap())
        // Over io_uring, each waiting request needs a thread.
        .args(["--skip", "uring::", "--skip", "deferring::", "--test-threads", "4"])
        .env(TRANSPORT, "uring")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&tests.stdout);
    assert!(tests.status.success(), "{output}\n{}", String::from_utf8_lossy(&tests.stderr));
    // The count shows that no test was omitted by mistake.
    let passed = output.matches("... ok").count();
    assert!(passed >= 30, "{passed} tests: {output}");
}
