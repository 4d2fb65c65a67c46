//! The one trait that every leaf, layer and stack implements.

use std::ffi::OsString;
use std::sync::Arc;

use crate::error::{Errno, Error, Result};
use crate::file_attr::{FileAttr, FileAttrForm};
use crate::layout::Layout;
use crate::types::{
    Attr, DirectoryEntry, Entry, FallocateMode, Handle, Ino, LockMode, Name, OpenMode, Opened,
    RenameMode, Request, SeekTo, SetAttr, StatFs, WriteOptions, XattrMode,
};

/// Forwards an operation to another file system, by default the fallback, or fails if there is
/// none.
macro_rules! forward {
    ($self:ident . $operation:ident ( $($argument:expr),* )) => {
        forward!($self.$operation($($argument),*), $self.fallback())
    };
    ($self:ident . $operation:ident ( $($argument:expr),* ), $inner:expr) => {
        match $inner {
            Some(inner) => inner.$operation($($argument),*),
            None => Err(Error::NotImplemented { operation: stringify!($operation) }),
        }
    };
}

/// Declares operations that are forwarded to the file system returned by the given method, or by
/// [`FileSystem::fallback`].
macro_rules! passed_on {
    ($($(#[$doc:meta])* $operation:ident($($argument:ident: $type:ty),*) -> $answer:ty
        $(, $below:ident)?;)*) => {$(
        $(#[$doc])*
        fn $operation(&self, request: &Request, $($argument: $type),*) -> Result<$answer> {
            forward!(self.$operation(request, $($argument),*) $(, self.$below())?)
        }
    )*};
}

/// Receives the entries of a directory; returns `false` if it has no room for an entry.
///
/// A refused entry is not delivered, so the next `readdir` starts with it.
pub type DirectorySink<'a> = dyn FnMut(DirectoryEntry<'_>) -> bool + 'a;

/// Notifies a cache in front of the file system (for a mount, the kernel's).
///
/// Calls return immediately, because the adapter sends notifications from a separate thread.
/// Sending can block: the kernel may need a lock that an in-flight request holds until its reply.
pub trait KernelCache: Send + Sync {
    /// Invalidates the cached pages and attributes of the inode.
    fn invalidate_inode(&self, ino: Ino);
    /// Invalidates the cached entry of a name.
    fn invalidate_entry(&self, parent: Ino, name: &std::ffi::OsStr);
}

/// A file system: a leaf that stores files, a layer over another file system, or a stack of them.
///
/// It is synchronous, uses `&self`, and addresses files by inode. Its operations may be called from
/// many threads at once.
///
/// **Forwarding.** The default of every operation calls [`fallback`](Self::fallback), or fails with
/// [`Error::NotImplemented`] without one. An observer, which changes no results, returns the file
/// system it watches. A leaf and a transformer (which changes stored data) return `None`. A missing
/// operation then fails instead of bypassing the transformer's encoding. A transformer that
/// preserves names returns the lower file system from [`tree_fallback`](Self::tree_fallback).
///
/// **Permissions** are checked by the sender of a request, which for a mount is the kernel. File
/// systems do not check them again.
///
/// **Errors** are [`Error`]s whose errno is that of POSIX, or that of ext4 if POSIX allows several.
/// Each method lists only its particular errors.
#[allow(clippy::too_many_arguments, reason = "the operations have the kernel's arguments")]
pub trait FileSystem: Send + Sync {
    /// The file system to which unimplemented operations are forwarded.
    fn fallback(&self) -> Option<&dyn FileSystem> {
        None
    }

    /// The file system to which unimplemented operations on names and inodes are forwarded. These
    /// operations involve neither bytes, sizes nor attributes, so a transformer can forward them to
    /// the lower tree.
    fn tree_fallback(&self) -> Option<&dyn FileSystem> {
        self.fallback()
    }

    /// Whether syncfs makes all files of the tree durable, and reports every failed write once.
    /// Returns `false` if this is unknown: for a lower tree that contains FUSE file systems, or
    /// file systems without file handles.
    fn syncs_whole_tree(&self) -> bool {
        self.tree_fallback().is_some_and(|inner| inner.syncs_whole_tree())
    }

    /// The locations of files on the device, if the file system knows them.
    fn layout(&self) -> Option<&dyn Layout> {
        self.fallback().and_then(|inner| inner.layout())
    }

    /// The path of a file on the host, if it is known. For messages only, never to open the file.
    fn path_below(&self, ino: Ino) -> Option<std::path::PathBuf> {
        self.tree_fallback().and_then(|inner| inner.path_below(ino))
    }

    /// Gives the file system a handle to the cache in front of it. The file system must notify this
    /// cache of changes that were not made through the mount. Called at most once, before the first
    /// request.
    fn attach(&self, cache: Arc<dyn KernelCache>) {
        if let Some(inner) = self.tree_fallback() {
            inner.attach(cache);
        }
    }

    /// Whether operations may fail with [`Error::Deferred`] if their request carries an offer (see
    /// [`Deferral`](crate::Deferral)). Called at most once, before the first request, by the sender
    /// of requests itself. It is not forwarded by default, because a layer may pass offers on only
    /// if the layer can be called twice for one request.
    fn can_defer(&self) -> bool {
        false
    }

    /// Whether [`Self::resolve`] finds every inode that was looked up and then forgotten, as long
    /// as the inode has a name. Inodes of file systems mounted inside the tree may be exceptions.
    fn can_resolve(&self) -> bool {
        self.tree_fallback().is_some_and(|inner| inner.can_resolve())
    }

    /// Finds an inode by its number only. A success counts as one lookup of the inode.
    ///
    /// The caller must compare the entry's generation, because the number may have been reused.
    ///
    /// # Errors
    /// `ESTALE` if no inode below the root has the number, or this can't be verified.
    fn resolve(&self, request: &Request, ino: Ino) -> Result<Entry> {
        forward!(self.resolve(request, ino))
    }

    /// Finds the parent of a directory. A success counts as one lookup.
    ///
    /// # Errors
    /// `ESTALE` for the root, and for a directory that is no longer below it.
    fn parent_of(&self, request: &Request, ino: Ino) -> Result<Entry> {
        forward!(self.parent_of(request, ino))
    }

    /// Reads until the buffer is full or the file ends.
    ///
    /// # Errors
    /// Errors of [`Self::read`].
    fn read_fully(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let place = offset + done as u64;
            match self.read(request, ino, handle, place, &mut buffer[done..])? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// Errors of [`Self::write`]; `EIO` if a write returns 0.
    fn write_all(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let place = offset + done as u64;
            match self.write(request, ino, handle, place, &data[done..], options)? {
                0 => return Err(Errno::IO.into()),
                count => done += count,
            }
        }
        Ok(())
    }

    /// Called once after the last request; writes back all pending data.
    ///
    /// # Errors
    /// All remaining write errors are reported here.
    fn shutdown(&self) -> Result<()> {
        self.fallback().map_or(Ok(()), |inner| inner.shutdown())
    }

    /// Locks the whole tree on behalf of the file system above this one. The lock ends when this
    /// file system is dropped. Repeated calls have no effect.
    ///
    /// # Errors
    /// `EBUSY` if another program has locked the tree, a part of it, or a tree around it.
    fn lock_tree(&self, mode: LockMode) -> Result<()> {
        forward!(self.lock_tree(mode), self.tree_fallback())
    }

    /// Takes an exclusive lease of an open regular file, until [`Self::end_lease`] or the release
    /// of the handle. Meanwhile, other processes that open the file wait.
    ///
    /// # Errors
    /// `EAGAIN` if the file is open or mapped elsewhere, even directly in the lower file system.
    /// `EINVAL` or `EOPNOTSUPP` if files can't be leased. `EACCES` if this user can't lease this
    /// file.
    fn take_lease(&self, ino: Ino, handle: Handle) -> Result<()> {
        forward!(self.take_lease(ino, handle))
    }

    /// Ends a lease, so that others can open the file.
    fn end_lease(&self, ino: Ino, handle: Handle) {
        if let Some(inner) = self.fallback() {
            inner.end_lease(ino, handle);
        }
    }

    /// Makes a range of one open file share the blocks of a range of another. Both ranges then have
    /// the same bytes and share their space. Offsets and length are whole blocks of the file
    /// system.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `ENOSYS`, `ENOTTY` or `EINVAL` if these files can't share blocks; `EXDEV` if
    /// they are in different file systems. In these cases nothing is changed.
    fn clone_range(
        &self,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        length: u64,
    ) -> Result<()> {
        forward!(self.clone_range(source, target, length))
    }

    /// Hints that a range of an open file will not be read again soon, because its content is
    /// cached in another form. The pages of the range can be dropped from memory. The hint may be
    /// ignored.
    fn drop_pages(&self, ino: Ino, handle: Handle, range: std::ops::Range<u64>) {
        if let Some(inner) = self.fallback() {
            inner.drop_pages(ino, handle, range);
        }
    }

    passed_on! {
        /// Finds a name in a directory. A success counts as one lookup of the inode.
        ///
        /// # Errors
        /// `ENOENT` if there is no such name.
        lookup(parent: Ino, name: Name<'_>) -> Entry;
    }

    /// Releases `lookups` lookups of an inode. Without lookups, the number may be reused for
    /// another file. Never fails, and has no effect on the root.
    fn forget(&self, ino: Ino, lookups: u64) {
        if let Some(inner) = self.tree_fallback() {
            inner.forget(ino, lookups);
        }
    }

    /// Keeps an inode that has lookups in use until [`Self::let_go`], so that its number is not
    /// reused. Releasing all lookups before that call does not end the hold. Each hold must be
    /// released separately.
    ///
    /// # Errors
    /// `ESTALE` if the inode has no lookups.
    fn hold(&self, ino: Ino) -> Result<()> {
        forward!(self.hold(ino), self.tree_fallback())
    }

    /// Releases one hold of an inode. Never fails.
    fn let_go(&self, ino: Ino) {
        if let Some(inner) = self.tree_fallback() {
            inner.let_go(ino);
        }
    }

    passed_on! {
        /// Returns the attributes of an inode, through an open file if given.
        getattr(ino: Ino, handle: Option<Handle>) -> Attr;

        /// Changes attributes and returns the new ones.
        setattr(ino: Ino, handle: Option<Handle>, changes: &SetAttr) -> Attr;

        /// Returns the target of a symbolic link.
        readlink(ino: Ino) -> OsString, tree_fallback;

        /// Creates a file of any kind except directory and symbolic link. `mode` is as in
        /// `st_mode`, before the umask; `device` is used for device nodes.
        mknod(parent: Ino, name: Name<'_>, mode: u32, device: u32) -> Entry;

        /// Creates a directory; `mode` is before the umask.
        mkdir(parent: Ino, name: Name<'_>, mode: u32) -> Entry, tree_fallback;

        /// Creates a symbolic link.
        symlink(parent: Ino, name: Name<'_>, target: &std::ffi::OsStr) -> Entry, tree_fallback;

        /// Removes a name of anything except a directory.
        unlink(parent: Ino, name: Name<'_>) -> (), tree_fallback;

        /// Removes an empty directory.
        rmdir(parent: Ino, name: Name<'_>) -> (), tree_fallback;

        /// Renames a file or directory. `mode` selects whether an existing target is replaced,
        /// exchanged or refused.
        rename(
            parent: Ino, name: Name<'_>, new_parent: Ino, new_name: Name<'_>, mode: RenameMode
        ) -> (), tree_fallback;

        /// Adds a name to an inode. Counts as one lookup of the inode.
        link(ino: Ino, new_parent: Ino, new_name: Name<'_>) -> Entry;

        /// Opens a file. [`OpenMode::TRUNCATE`] truncates it.
        open(ino: Ino, mode: OpenMode) -> Opened;

        /// Creates and opens a regular file, or opens an existing one unless `flags` contain
        /// [`OpenMode::EXCLUSIVE`]. Counts as one lookup.
        create(parent: Ino, name: Name<'_>, mode: u32, flags: OpenMode) -> (Entry, Opened);

        /// Creates and opens a regular file without a name. Counts as one lookup.
        tmpfile(parent: Ino, mode: u32, flags: OpenMode) -> (Entry, Opened);

        /// Reads at an offset. Returns fewer bytes than requested only at the end of the file.
        read(ino: Ino, handle: Handle, offset: u64, buffer: &mut [u8]) -> usize;

        /// Writes at an offset, or at the end with [`WriteOptions::append`]. Returns the number of
        /// bytes written, at least one unless `data` is empty.
        write(ino: Ino, handle: Handle, offset: u64, data: &[u8], options: WriteOptions) -> usize;

        /// Called at each close(2) of a descriptor; reports errors that must not be delayed.
        flush(ino: Ino, handle: Handle) -> ();

        /// Called once when an open file is no longer used. Its handle is released even on error.
        release(ino: Ino, handle: Handle) -> ();

        /// Makes a file durable; with `data_only`, only its data and the metadata needed to read
        /// it.
        fsync(ino: Ino, handle: Handle, data_only: bool) -> ();

        /// Opens a directory.
        opendir(ino: Ino) -> Handle, tree_fallback;

        /// Lists a directory from `offset` (0 for the start, otherwise the `next_offset` of an
        /// entry) until the sink refuses an entry or the directory ends. An entry that exists
        /// during the whole listing is delivered exactly once, even if others are created or
        /// removed meanwhile.
        readdir(
            ino: Ino, handle: Handle, offset: u64, sink: &mut DirectorySink<'_>
        ) -> (), tree_fallback;

        /// Called once when an open directory is no longer used.
        releasedir(ino: Ino, handle: Handle) -> (), tree_fallback;

        /// Makes a directory durable.
        fsyncdir(ino: Ino, handle: Handle, data_only: bool) -> (), tree_fallback;

        /// Makes everything acknowledged before the call durable.
        syncfs(ino: Ino) -> (), tree_fallback;

        /// Returns the total and free space and inodes of the file system.
        statfs(ino: Ino) -> StatFs, tree_fallback;

        /// Returns the value of an extended attribute.
        ///
        /// # Errors
        /// `ENODATA` if there is no attribute with this name.
        getxattr(ino: Ino, name: &std::ffi::OsStr) -> Vec<u8>;

        /// Sets an extended attribute.
        setxattr(ino: Ino, name: &std::ffi::OsStr, value: &[u8], mode: XattrMode) -> ();

        /// Returns the names of all extended attributes, each followed by a zero byte.
        listxattr(ino: Ino) -> Vec<u8>;

        /// Removes an extended attribute.
        removexattr(ino: Ino, name: &std::ffi::OsStr) -> ();

        /// Returns the inode flags of a file or directory.
        ///
        /// # Errors
        /// `ENOTTY` or `EOPNOTSUPP` if there are none, and for special files and symbolic links.
        fileattr_get(ino: Ino, form: FileAttrForm) -> FileAttr;

        /// Sets the inode flags of a file or directory. The sender has checked the caller's right
        /// to do so (the owner, and CAP_LINUX_IMMUTABLE for some flags).
        ///
        /// # Errors
        /// `EOPNOTSUPP` for flags that the file system does not support.
        fileattr_set(ino: Ino, attr: &FileAttr) -> ();

        /// Reserves, punches, zeroes or moves a range.
        ///
        /// # Errors
        /// `EOPNOTSUPP` for a mode that the file system does not support.
        fallocate(ino: Ino, handle: Handle, offset: u64, length: u64, mode: FallocateMode) -> ();

        /// Finds the next data or hole at or after `offset`.
        ///
        /// # Errors
        /// `ENXIO` if `offset` is at or past the end, or if data is wanted and only a hole follows.
        lseek(ino: Ino, handle: Handle, offset: u64, to: SeekTo) -> u64;

        /// Copies between two open files and returns the number of bytes copied. The caller must
        /// refuse a target that is open for appending, because only the caller knows the current
        /// flags.
        copy_file_range(source: (Ino, Handle, u64), target: (Ino, Handle, u64), length: u64) -> u64;
    }
}

/// A shared file system forwards all operations.
impl FileSystem for Arc<dyn FileSystem> {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&**self)
    }
}
