//! Tests mounts served over io_uring. Also runs the other tests of mounts over io_uring.

use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fslab_fuse::{MountOptions, TransportChoice};
use fslab_sys::processors;
use fslab_vfs::{Attr, FileSystem, Handle, Ino, MemFs, OpenMode, Opened, Request, Result};
use fslab_vfs_testing::skip::skip;
use fslab_vfs_testing::uring_switch::{UringSwitch, obstacle_to_uring};
use parking_lot::{Condvar, Mutex};

use crate::support::{Mounted, TRANSPORT, soon};

/// Allows or forbids io_uring until the result is dropped. If this kernel does not support it,
/// prints this and returns `None`.
fn hold(test: &str, is_allowed: bool) -> Option<UringSwitch> {
    match obstacle_to_uring() {
        None => Some(UringSwitch::set(is_allowed)),
        Some(obstacle) => {
            skip(test, obstacle);
            None
        }
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
    let Some(_switch) = hold(test, true) else { return };
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
    let Some(_switch) = hold(test, true) else { return };
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
    let Some(_switch) = hold(test, false) else { return };
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
    let Some(_switch) = hold(test, true) else { return };
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
