//! Helpers for tests: a mount that is removed even if its test fails, and requests to a file system
//! without its mount.

use fslab_vfs_testing::scratch;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fslab_fuse::{MountOptions, Session, TransportChoice, Unmounter};
use fslab_vfs::{
    Cancellation, Creation, Credentials, Deferral, FileSystem, Ino, MemFs, Name, OpenMode, Opened,
    Request, Result, WriteOptions,
};
use fslab_vfs_testing::skip::{obstacle_to_mounting, skip};
use tempfile::TempDir;

/// Maximum waiting time for events that must happen soon, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The environment variable that selects the transport of mounts. The only value is `uring`.
pub const TRANSPORT: &str = "FSLAB_TEST_TRANSPORT";

/// A mounted file system.
pub struct Mounted {
    point: TempDir,
    session: Option<Session>,
    unmounter: Unmounter,
}

impl Mounted {
    /// Mounts a file system. If mounting is not possible here, prints the reason and returns
    /// `None`.
    pub fn new(
        test: &str,
        file_system: Arc<dyn FileSystem>,
        options: &MountOptions,
    ) -> Option<Self> {
        if let Some(obstacle) = obstacle_to_mounting() {
            skip(test, obstacle);
            return None;
        }
        let point = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let mut options = options.clone();
        if std::env::var_os(TRANSPORT).is_some_and(|transport| transport == "uring") {
            options.transport = TransportChoice::Uring;
        }
        let session = fslab_fuse::mount(file_system, point.path(), &options).unwrap();
        let unmounter = session.unmounter();
        Some(Self { point, session: Some(session), unmounter })
    }

    pub fn path(&self) -> &Path {
        self.point.path()
    }

    pub fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    /// Unmounts and waits for the last thread. Every request must have been answered.
    pub fn end(self) {
        self.end_and_then(|| ());
    }

    /// Like [`Self::end`]; calls `unmounted` after the unmount.
    pub fn end_and_then(mut self, unmounted: impl FnOnce()) {
        // A child process that another test is starting holds copies of all descriptors until it
        // calls exec. So the mount may be in use a little longer.
        soon("it is in use no more", || self.unmounter.unmount_if_unused().unwrap());
        self.session.take().unwrap().wait_and_then(unmounted).unwrap();
    }
}

impl Mounted {
    /// Waits for the session's threads, after the connection ended by itself. Then removes the dead
    /// mount.
    pub fn wait(mut self) {
        self.session.take().unwrap().wait().unwrap();
        // The session does not remove a dead mount itself.
        rustix::mount::unmount(self.point.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }

    /// Waits for a connection whose mount was detached.
    pub fn wait_detached(mut self) {
        self.session.take().unwrap().wait().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() {
            self.unmounter.detach().unwrap();
        }
    }
}

/// A request by root.
pub fn root() -> Request {
    Request {
        credentials: Credentials { uid: 0, gid: 0 },
        pid: 0,
        creation: Creation::default(),
        umask: 0,
        now: std::time::SystemTime::now().into(),
        cancellation: Cancellation::default(),
        deferral: Deferral::default(),
    }
}

/// Returns the inode of a file in the root directory.
pub fn find(file_system: &dyn FileSystem, name: &str) -> Ino {
    file_system.lookup(&root(), Ino::ROOT, Name::new(name.as_ref()).unwrap()).unwrap().attr.ino
}

/// Options with which the kernel caches names and attributes for an hour.
pub fn believing() -> MountOptions {
    let hour = Duration::from_secs(3600);
    MountOptions { entry_timeout: hour, attr_timeout: hour, ..MountOptions::default() }
}

/// Waits for a condition that must hold soon.
pub fn soon(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Writes to a file directly in the file system, not through the mount.
pub fn rewrite(file_system: &MemFs, ino: Ino, data: &[u8]) -> Result<()> {
    let opened = file_system.open(&root(), ino, OpenMode::WRITE_ONLY)?;
    write_and_close(file_system, ino, opened, data)
}

/// Creates a file directly in the file system, not through the mount.
pub fn make(file_system: &MemFs, parent: Ino, name: &str, data: &[u8]) -> Result<()> {
    let (name, mode) = (Name::new(name.as_ref())?, OpenMode::WRITE_ONLY);
    let (entry, opened) = file_system.create(&root(), parent, name, 0o644, mode)?;
    write_and_close(file_system, entry.attr.ino, opened, data)
}

fn write_and_close(file_system: &MemFs, ino: Ino, opened: Opened, data: &[u8]) -> Result<()> {
    let (handle, options) = (opened.handle, WriteOptions::default());
    file_system.write(&root(), ino, handle, 0, data, options)?;
    file_system.release(&root(), ino, handle)
}
