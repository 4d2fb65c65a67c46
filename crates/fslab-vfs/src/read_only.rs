//! A file system that refuses every change to the lower one.

use std::sync::Arc;

use crate::call::Reply;
use crate::error::{Errno, Result};
use crate::file_system::FileSystem;
use crate::interceptor::{Intercepted, Interceptor};
use crate::operation::Call;
use crate::types::{Handle, Ino, LockMode, OpenMode, Opened, Request};

/// Wraps a file system and fails each change with `EROFS`.
///
/// The wrapper is placed over the leaf of a stack that is mounted read-only. The kernel refuses
/// changes by programs; this wrapper refuses changes that layers make on their own. Files are
/// opened without updating their access times, if the process has the right.
///
/// Syncing is forwarded, because it changes no content.
pub struct ReadOnly(Intercepted<Refusal>);

impl ReadOnly {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn FileSystem>) -> Self {
        Self(Intercepted { inner, interceptor: Refusal })
    }
}

impl FileSystem for ReadOnly {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.0)
    }

    /// Locks the tree without creating a lock file in it.
    fn lock_tree(&self, _: LockMode) -> Result<()> {
        self.0.lock_tree(LockMode::ReadOnly)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        if mode.writes() || mode.contains(OpenMode::TRUNCATE) {
            return Err(Errno::ROFS.into());
        }
        match self.0.open(request, ino, mode | OpenMode::NO_ACCESS_TIME) {
            // Only the owner of a file may open it without updating the access time.
            Err(error) if error.errno() == Errno::PERM => self.0.open(request, ino, mode),
            opened => opened,
        }
    }

    fn clone_range(&self, _: (Ino, Handle, u64), _: (Ino, Handle, u64), _: u64) -> Result<()> {
        Err(Errno::ROFS.into())
    }
}

struct Refusal;

impl Interceptor for Refusal {
    fn around<T: Reply>(
        &self,
        _: &dyn FileSystem,
        _: Option<&Request>,
        call: Call<'_>,
        perform: impl FnOnce(&Call<'_>) -> Result<T>,
    ) -> Result<T> {
        if call.operation().changes() { Err(Errno::ROFS.into()) } else { perform(&call) }
    }

    fn opened(&self, _: &mut Opened) {}
}

#[cfg(test)]
mod tests {
    use crate::operation::Operation;

    /// Operations that change nothing, and `open`, which is refused for writing only.
    const ALLOWED: [&str; 19] = [
        "lookup",
        "forget",
        "getattr",
        "readlink",
        "open",
        "read",
        "flush",
        "release",
        "fsync",
        "opendir",
        "readdir",
        "releasedir",
        "fsyncdir",
        "syncfs",
        "statfs",
        "getxattr",
        "listxattr",
        "fileattr_get",
        "lseek",
    ];

    #[test]
    fn every_operation_is_either_allowed_or_refused() {
        let allowed = Operation::ALL.iter().filter(|one| !one.changes());
        assert_eq!(allowed.map(|one| one.name()).collect::<Vec<_>>(), ALLOWED);
    }
}
