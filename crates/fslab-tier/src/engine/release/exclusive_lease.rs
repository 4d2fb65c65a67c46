//! An exclusive lease on a lower file while its bytes are freed. The mount does not see programs
//! that opened or mapped the file before the mount started. Without the lease, such a program could
//! read zeros. The kernel grants the lease only if no other process has the file open or mapped. A
//! mapping outlasts the descriptor from which it was made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use fslab_vfs::{Errno, FileSystem, Handle, Ino, OpenMode, Request};
use parking_lot::MutexGuard;

use crate::engine::Tier;
use crate::engine::files::{FileState, TieredFile};
use crate::error::{Error, Result};
use crate::id::Id;

/// Number of pauses to wait for others to close the file. The first is 1 ms and each is twice as
/// long as the one before, 63 ms in total. Two kinds of short use end within this time. First, the
/// kernel may release a file shortly after `close` has returned. Second, a process that is being
/// started shares its parent's open files for a moment.
const PAUSES: u32 = 6;

/// Whether the lower file system supports leases, as far as that is known.
#[derive(Default)]
pub(super) struct LeaseSupport {
    /// Whether a lease was granted.
    has_leased: AtomicBool,
    /// Whether the lack of leases was logged.
    lacks_leases: AtomicBool,
}

/// An exclusive lease: the file is not open elsewhere, and can't be opened until the lease is
/// dropped. The kernel revokes a contested lease after `/proc/sys/fs/lease-break-time`.
pub(super) struct ExclusiveLease {
    fs: Arc<dyn FileSystem>,
    ino: Ino,
    handle: Handle,
}

impl Drop for ExclusiveLease {
    fn drop(&mut self) {
        self.fs.end_lease(self.ino, self.handle);
    }
}

impl Tier {
    /// Locks a file that may be released, checks that its version is `object`, and takes an
    /// exclusive lease. If the lower file system has no leases, returns `None` instead of a lease,
    /// and logs this once.
    ///
    /// # Errors
    /// If the file is open elsewhere, or may no longer be released.
    pub(super) fn lock_exclusively<'a>(
        &self,
        file: &'a TieredFile,
        path: &[u8],
        object: Id,
    ) -> Result<(MutexGuard<'a, FileState>, Option<ExclusiveLease>)> {
        let mut pauses = (0..PAUSES).map(|times| Duration::from_millis(1 << times));
        loop {
            let mut state = self.state(file).map_err(Error::below(path))?;
            self.check_open()?;
            let alone = self.lease(&mut state);
            // From here on the lease and the lock keep the file unchanged.
            if self.may_release(&state, path)?.object != object {
                return Err(Error::busy(path, "was archived again while its copies were checked"));
            }
            let error = match alone {
                Ok(alone) => {
                    self.releases.leases.has_leased.store(true, Ordering::Relaxed);
                    return Ok((state, Some(alone)));
                }
                Err(error) => error,
            };
            match (error.errno(), pauses.next()) {
                (Errno::AGAIN, Some(pause)) => {
                    drop(state);
                    sleep(pause);
                }
                (Errno::AGAIN, None) if self.can_lease() => {
                    return Err(Error::busy(path, "is open in the lower directory"));
                }
                (Errno::TXTBSY, _) => return Err(Error::busy(path, "is being executed")),
                (errno, _) if is_lack(errno) => {
                    self.tell_of_no_leases(&error);
                    return Ok((state, None));
                }
                _ => return Err(Error::below(path)(error)),
            }
        }
    }

    fn lease(&self, state: &mut FileState) -> fslab_vfs::Result<ExclusiveLease> {
        let (fs, ino, handle) = state.own(self)?.place();
        fs.take_lease(ino, handle)?;
        Ok(ExclusiveLease { fs: Arc::clone(fs), ino, handle })
    }

    /// Returns whether the lower file system grants leases on files that are not open elsewhere.
    /// Some network file systems grant them only with the consent of the server. If leases can't be
    /// tested now, the result is `true`.
    fn can_lease(&self) -> bool {
        self.releases.leases.has_leased.load(Ordering::Relaxed) || {
            let leased = lease_of_new_file(&*self.lower, &self.request());
            leased.inspect_err(|error| tracing::info!(%error, "can't lease a new file")).is_ok()
        }
    }

    fn tell_of_no_leases(&self, error: &fslab_vfs::Error) {
        if !self.releases.leases.lacks_leases.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %error,
                "can't take leases on some lower files. Programs that opened or mapped such a file \
                 before the mount started will read zeros after the file is released"
            );
        }
    }
}

/// Returns whether an error means that leases are not supported, or not permitted to this user.
fn is_lack(errno: Errno) -> bool {
    use Errno as E;
    matches!(errno, E::INVAL | E::OPNOTSUPP | E::NOSYS | E::NOLCK | E::ACCESS | E::AGAIN)
}

/// Tests leases with a new unnamed file. If such a file can't be created for a temporary reason,
/// the test succeeds.
///
/// # Errors
/// If new files can't be leased, or can't be created without a name.
fn lease_of_new_file(lower: &dyn FileSystem, request: &Request) -> fslab_vfs::Result<()> {
    use Errno as E;
    let (entry, opened) = match lower.tmpfile(request, Ino::ROOT, 0o600, OpenMode::READ_WRITE) {
        Err(error) => {
            let is_never = matches!(error.errno(), E::OPNOTSUPP | E::INVAL | E::NOSYS | E::ISDIR);
            return if is_never { Err(error) } else { Ok(()) };
        }
        made => made?,
    };
    let ino = entry.attr.ino;
    let leased = lower.take_lease(ino, opened.handle);
    // Releasing the handle ends the lease.
    let closed = lower.release(request, ino, opened.handle);
    lower.forget(ino, 1);
    closed.and(leased)
}
