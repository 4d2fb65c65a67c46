//! [`MemFs`]: a file system in memory with the semantics of ext4; other file systems are tested
//! against it.
//!
//! Every operation locks the whole tree, so each one is atomic and changes are ordered by the lock.
//! Read operations share the lock. Writes can't run in parallel, which keeps this model simple.
//! Entries of a listing are copied in batches, because a sink may call the file system again.
//!
//! It does not check permissions (see [`FileSystem`]), persist data, limit the length of a
//! directory, or collapse and insert ranges (`EOPNOTSUPP`).

use std::ffi::{OsStr, OsString};

use parking_lot::RwLock;

use crate::access_times::AccessTimes;
use crate::error::{Errno, Result};
use crate::file_system::{DirectorySink, FileSystem};
use crate::types::{
    Attr, DirectoryEntry, Entry, FallocateMode, Handle, Ino, LockMode, Name, OpenMode, Opened,
    RenameMode, Request, SeekTo, SetAttr, StatFs, WriteOptions, XattrMode,
};

mod attributes;
mod data;
mod directory;
mod files;
mod handles;
mod naming;
mod node;
mod rename;
mod space;
mod tree;
mod xattr;

pub(crate) use data::Data;
use handles::Open;
pub use space::Capacity;
pub(crate) use space::{PAGE_BYTES, Space};
use tree::Tree;

/// Maximum number of directory entries copied each time the lock is taken.
const LISTING_PIECE: usize = 64;

/// A file system in memory.
///
/// Access times follow [`AccessTimes::Relative`] by default. Files end at 2^63 - 1 bytes (`EFBIG`)
/// and have at most 65,000 names (`EMLINK`). Holes consist of whole 4 KiB pages. Times come from
/// the requests.
#[derive(Debug)]
pub struct MemFs {
    tree: RwLock<Tree>,
}

impl Default for MemFs {
    fn default() -> Self {
        Self::new(Capacity::default())
    }
}

impl MemFs {
    /// Makes an empty file system whose root belongs to root, with mode 0755 and times at the
    /// epoch.
    #[must_use]
    pub fn new(capacity: Capacity) -> Self {
        Self { tree: RwLock::new(Tree::new(capacity)) }
    }

    /// Makes an empty file system that reuses the number of a removed inode for the next new one,
    /// as disk file systems do. By default no number is reused.
    #[must_use]
    pub fn reusing_numbers() -> Self {
        let memory = Self::default();
        memory.tree.write().freed = Some(Vec::new());
        memory
    }

    /// Returns this file system with another choice of access times.
    #[must_use]
    pub fn with_access_times(self, choice: AccessTimes) -> Self {
        self.tree.write().access_times = choice;
        self
    }

    /// Number of inodes with unreleased lookups, without the root.
    #[must_use]
    pub fn remembered(&self) -> usize {
        let tree = self.tree.read();
        tree.nodes.iter().filter(|(ino, node)| **ino != Ino::ROOT && node.lookups > 0).count()
    }

    /// Number of open handles.
    #[must_use]
    pub fn open_handles(&self) -> usize {
        self.tree.read().handles.len()
    }

    /// Number of inodes, including the root.
    #[must_use]
    pub fn inodes(&self) -> usize {
        self.tree.read().nodes.len()
    }
}

/// Declares operations that the tree performs under its lock.
macro_rules! by_tree {
    ($($lock:ident: $method:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $method(&self, request: &Request, $($argument: $type),*) -> Result<$answer> {
            self.tree.$lock().$method(request, $($argument),*)
        }
    )*};
}

impl FileSystem for MemFs {
    by_tree! {
        write: setattr(ino: Ino, handle: Option<Handle>, changes: &SetAttr) -> Attr;
        write: mknod(parent: Ino, name: Name<'_>, mode: u32, device: u32) -> Entry;
        write: mkdir(parent: Ino, name: Name<'_>, mode: u32) -> Entry;
        write: symlink(parent: Ino, name: Name<'_>, target: &OsStr) -> Entry;
        write: create(
            parent: Ino, name: Name<'_>, mode: u32, flags: OpenMode
        ) -> (Entry, Opened);
        write: tmpfile(parent: Ino, mode: u32, flags: OpenMode) -> (Entry, Opened);
        write: unlink(parent: Ino, name: Name<'_>) -> ();
        write: rmdir(parent: Ino, name: Name<'_>) -> ();
        write: rename(
            parent: Ino, name: Name<'_>, new_parent: Ino, new_name: Name<'_>, mode: RenameMode
        ) -> ();
        write: link(ino: Ino, new_parent: Ino, new_name: Name<'_>) -> Entry;
        write: open(ino: Ino, mode: OpenMode) -> Opened;
        write: write(
            ino: Ino, handle: Handle, offset: u64, data: &[u8], options: WriteOptions
        ) -> usize;
        read: getxattr(ino: Ino, name: &OsStr) -> Vec<u8>;
        write: setxattr(ino: Ino, name: &OsStr, value: &[u8], mode: XattrMode) -> ();
        read: listxattr(ino: Ino) -> Vec<u8>;
        write: removexattr(ino: Ino, name: &OsStr) -> ();
        write: fallocate(
            ino: Ino, handle: Handle, offset: u64, length: u64, mode: FallocateMode
        ) -> ();
        read: lseek(ino: Ino, handle: Handle, offset: u64, to: SeekTo) -> u64;
        write: copy_file_range(
            source: (Ino, Handle, u64), target: (Ino, Handle, u64), length: u64
        ) -> u64;
    }

    fn shutdown(&self) -> Result<()> {
        Ok(())
    }

    /// Does nothing, because no other program can reach this memory.
    fn lock_tree(&self, _: LockMode) -> Result<()> {
        Ok(())
    }

    fn take_lease(&self, _: Ino, _: Handle) -> Result<()> {
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        let mut tree = self.tree.write();
        let ino = tree.child(parent, name)?.ino;
        tree.enter(ino)
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        self.tree.write().forget(ino, lookups);
    }

    fn syncs_whole_tree(&self) -> bool {
        true
    }

    /// A hold is counted as a lookup.
    fn hold(&self, ino: Ino) -> Result<()> {
        self.tree.write().enter(ino).map(drop)
    }

    fn let_go(&self, ino: Ino) {
        self.forget(ino, 1);
    }

    fn getattr(&self, _: &Request, ino: Ino, _: Option<Handle>) -> Result<Attr> {
        self.tree.read().attr(ino)
    }

    fn readlink(&self, request: &Request, ino: Ino) -> Result<OsString> {
        let mut tree = self.tree.write();
        tree.touch_access(ino, request.now);
        tree.readlink(ino)
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let (length, access_is_due) = self.tree.read().read(request, handle, offset, buffer)?;
        if access_is_due {
            self.tree.write().touch_access(ino, request.now);
        }
        Ok(length)
    }

    fn flush(&self, _: &Request, _: Ino, handle: Handle) -> Result<()> {
        self.tree.read().check_handle(handle)
    }

    fn release(&self, _: &Request, _: Ino, handle: Handle) -> Result<()> {
        self.tree.write().release(handle)
    }

    fn fsync(&self, _: &Request, _: Ino, handle: Handle, _: bool) -> Result<()> {
        self.tree.read().check_handle(handle)
    }

    fn opendir(&self, _: &Request, ino: Ino) -> Result<Handle> {
        let mut tree = self.tree.write();
        let end = tree.node(ino)?.directory()?.end();
        tree.add_handle(Open::Directory { ino, end })
    }

    fn readdir(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        if offset == 0 {
            let mut tree = self.tree.write();
            let end = tree.node(ino)?.directory()?.end();
            tree.handles.set_end(handle, end);
            tree.touch_access(ino, request.now);
        }
        let mut next_offset = offset;
        loop {
            let piece = self.list(handle, next_offset)?;
            if piece.is_empty() {
                return Ok(());
            }
            for (position, slot) in piece {
                next_offset = position + 1;
                let (ino, kind, name) = (slot.ino, Some(slot.kind), &*slot.name);
                if !sink(DirectoryEntry { ino, kind, next_offset, name }) {
                    return Ok(());
                }
            }
        }
    }

    fn releasedir(&self, _: &Request, _: Ino, handle: Handle) -> Result<()> {
        self.tree.write().release(handle)
    }

    fn fsyncdir(&self, _: &Request, _: Ino, handle: Handle, _: bool) -> Result<()> {
        self.tree.read().check_handle(handle)
    }

    fn syncfs(&self, _: &Request, _: Ino) -> Result<()> {
        Ok(())
    }

    fn statfs(&self, _: &Request, _: Ino) -> Result<StatFs> {
        let tree = self.tree.read();
        let inodes = tree.space.inodes_all();
        Ok(StatFs {
            blocks: tree.space.pages_all(),
            blocks_free: tree.space.pages_free(),
            blocks_available: tree.space.pages_free(),
            files: inodes,
            files_free: inodes - tree.nodes.len() as u64,
            block_size: space::PAGE_BYTES as u32,
            fragment_size: space::PAGE_BYTES as u32,
            name_max: Name::MAX_LEN as u32,
        })
    }
}

impl MemFs {
    /// Returns the next entries of a listing. Fails with `ENOENT` for a removed directory, which
    /// does not even have `.`.
    fn list(&self, handle: Handle, offset: u64) -> Result<Vec<(u64, directory::Slot)>> {
        let tree = self.tree.read();
        let (ino, end) = tree.handles.directory(handle)?;
        let node = tree.node(ino)?;
        if node.links == 0 {
            return Err(Errno::NOENT.into());
        }
        Ok(node.directory()?.list(ino, offset, end, LISTING_PIECE))
    }
}
