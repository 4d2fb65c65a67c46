//! A file system that refuses every change of the one below it.

use std::ffi::OsStr;
use std::sync::Arc;

use crate::error::{Errno, Result};
use crate::file_attr::FileAttr;
use crate::file_system::FileSystem;
use crate::types::{
    Attr, Claim, Entry, FallocateMode, Handle, Ino, Name, OpenMode, Opened, RenameMode, Request,
    SetAttr, WriteOptions, XattrMode,
};

/// Shows a file system and answers each change with `EROFS`.
///
/// It lies over the leaf of a stack that is mounted read-only. The kernel refuses what programs
/// ask of such a mount; this refuses what the layers would write of their own accord. Files are
/// opened without changing their access times where the process has the right to do so.
///
/// Syncing is passed on: it changes no content.
pub struct ReadOnly {
    inner: Arc<dyn FileSystem>,
}

impl ReadOnly {
    /// Shows `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn FileSystem>) -> Self {
        Self { inner }
    }
}

/// The answer to each change.
fn refused<T>() -> Result<T> {
    Err(Errno::ROFS.into())
}

impl FileSystem for ReadOnly {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    /// Nothing is made below to claim the tree.
    fn claim_tree(&self, _: Claim) -> Result<()> {
        self.inner.claim_tree(Claim::ReadOnly)
    }

    fn setattr(&self, _: &Request, _: Ino, _: Option<Handle>, _: &SetAttr) -> Result<Attr> {
        refused()
    }

    fn mknod(&self, _: &Request, _: Ino, _: Name<'_>, _: u32, _: u32) -> Result<Entry> {
        refused()
    }

    fn mkdir(&self, _: &Request, _: Ino, _: Name<'_>, _: u32) -> Result<Entry> {
        refused()
    }

    fn symlink(&self, _: &Request, _: Ino, _: Name<'_>, _: &OsStr) -> Result<Entry> {
        refused()
    }

    fn unlink(&self, _: &Request, _: Ino, _: Name<'_>) -> Result<()> {
        refused()
    }

    fn rmdir(&self, _: &Request, _: Ino, _: Name<'_>) -> Result<()> {
        refused()
    }

    fn rename(
        &self,
        _: &Request,
        _: Ino,
        _: Name<'_>,
        _: Ino,
        _: Name<'_>,
        _: RenameMode,
    ) -> Result<()> {
        refused()
    }

    fn link(&self, _: &Request, _: Ino, _: Ino, _: Name<'_>) -> Result<Entry> {
        refused()
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        if mode.writes() || mode.contains(OpenMode::TRUNCATE) {
            return refused();
        }
        match self.inner.open(request, ino, mode | OpenMode::NO_ACCESS_TIME) {
            // Only the owner of a file may do that.
            Err(error) if error.errno() == Errno::PERM => self.inner.open(request, ino, mode),
            opened => opened,
        }
    }

    fn create(
        &self,
        _: &Request,
        _: Ino,
        _: Name<'_>,
        _: u32,
        _: OpenMode,
    ) -> Result<(Entry, Opened)> {
        refused()
    }

    fn tmpfile(&self, _: &Request, _: Ino, _: u32, _: OpenMode) -> Result<(Entry, Opened)> {
        refused()
    }

    fn write(
        &self,
        _: &Request,
        _: Ino,
        _: Handle,
        _: u64,
        _: &[u8],
        _: WriteOptions,
    ) -> Result<usize> {
        refused()
    }

    fn setxattr(&self, _: &Request, _: Ino, _: &OsStr, _: &[u8], _: XattrMode) -> Result<()> {
        refused()
    }

    fn removexattr(&self, _: &Request, _: Ino, _: &OsStr) -> Result<()> {
        refused()
    }

    fn fileattr_set(&self, _: &Request, _: Ino, _: &FileAttr) -> Result<()> {
        refused()
    }

    fn fallocate(
        &self,
        _: &Request,
        _: Ino,
        _: Handle,
        _: u64,
        _: u64,
        _: FallocateMode,
    ) -> Result<()> {
        refused()
    }

    fn clone_range(&self, _: (Ino, Handle, u64), _: (Ino, Handle, u64), _: u64) -> Result<()> {
        refused()
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: (Ino, Handle, u64),
        _: (Ino, Handle, u64),
        _: u64,
    ) -> Result<u64> {
        refused()
    }
}

#[cfg(test)]
mod tests {
    use crate::operation::Operation;

    /// Operations that change nothing, and `open`, which is refused for writing only.
    const ALLOWED: [&str; 18] = [
        "lookup",
        "forget",
        "getattr",
        "readlink",
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

    /// An operation that the trait gets later is forwarded until it is decided here.
    #[test]
    fn every_operation_is_either_allowed_or_refused() {
        let source = include_str!("read_only.rs");
        let (_, methods) = source.split_once("fn fallback(").unwrap();
        let (methods, _) = methods.split_once("#[cfg(test)]").unwrap();
        let refused = methods.lines().filter_map(|line| {
            line.strip_prefix("    fn ")?.split_once('(').map(|(name, _)| name.to_owned())
        });
        let refused = refused.filter(|name| !matches!(name.as_str(), "claim_tree" | "clone_range"));
        let mut decided: Vec<_> = refused.chain(ALLOWED.map(str::to_owned)).collect();
        decided.sort_unstable();
        let mut all: Vec<_> = Operation::ALL.iter().map(|one| one.name().to_owned()).collect();
        all.sort_unstable();
        assert_eq!(decided, all);
    }
}
