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

/// Asks the file system that an observer watches, or answers that there is none.
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

/// Operations that are passed on to the file system that the method named behind them answers, or
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

/// Receives the entries of a directory; answers `false` when it has no room for one.
///
/// An entry that was refused has not been delivered: the next `readdir` starts with it.
pub type DirectorySink<'a> = dyn FnMut(DirectoryEntry<'_>) -> bool + 'a;

/// What a file system may tell whoever caches on its behalf (the kernel, for a mount).
///
/// Calls return at once: the adapter delivers from a thread of its own, because the kernel may
/// answer a notice only after requests that are still being served.
pub trait KernelCache: Send + Sync {
    /// Pages and attributes of the inode are no longer right.
    fn invalidate_inode(&self, ino: Ino);
    /// The name no longer stands for what it stood for.
    fn invalidate_entry(&self, parent: Ino, name: &std::ffi::OsStr);
}

/// A file system: a leaf that stores, a layer over another, or a stack of them.
///
/// Synchronous, `&self`, by inode. Operations of one file system are called from many threads at
/// once.
///
/// **Forwarding.** Every operation's default asks [`fallback`](Self::fallback) and otherwise fails
/// with [`Error::NotImplemented`]. An observer (which changes no meaning) returns the file system
/// it watches. A leaf and a transformer (which changes what is stored) leave `None`, so that an
/// operation they forgot fails loudly instead of reaching unencoded bytes below. A transformer
/// that leaves names as they are has [`tree_fallback`](Self::tree_fallback).
///
/// **Permissions** are checked by the sender of a request, which for a mount is the kernel. File
/// systems do not check them again.
///
/// **Errors** are [`Error`]s whose errno is what POSIX (and ext4, where POSIX leaves a choice)
/// answers; each method lists only what is particular to it.
#[allow(clippy::too_many_arguments, reason = "the operations have the kernel's arguments")]
pub trait FileSystem: Send + Sync {
    /// The file system that answers what this one does not implement.
    fn fallback(&self) -> Option<&dyn FileSystem> {
        None
    }

    /// The file system that answers, of what this one does not implement, the operations that see
    /// names and inodes but neither bytes, sizes nor attributes: those of a transformer's tree are
    /// the tree's below.
    fn tree_fallback(&self) -> Option<&dyn FileSystem> {
        self.fallback()
    }

    /// Where files lie, for whoever can tell.
    fn layout(&self) -> Option<&dyn Layout> {
        self.fallback().and_then(|inner| inner.layout())
    }

    /// Where a file lies on the host, as far as somebody knows: for messages, never to open it.
    fn path_below(&self, ino: Ino) -> Option<std::path::PathBuf> {
        self.tree_fallback().and_then(|inner| inner.path_below(ino))
    }

    /// Hands over the cache to be told of changes made behind the mount; called at most once,
    /// before the first request.
    fn attach(&self, cache: Arc<dyn KernelCache>) {
        if let Some(inner) = self.tree_fallback() {
            inner.attach(cache);
        }
    }

    /// Whether [`Self::resolve`] finds every inode that was looked up and then forgotten, for as
    /// long as the inode has a name. Inodes of file systems mounted below may be excepted.
    fn can_resolve(&self) -> bool {
        self.tree_fallback().is_some_and(|inner| inner.can_resolve())
    }

    /// Finds an inode by its number alone. A success counts as one lookup of the inode.
    ///
    /// The generation of the entry tells whether it is the inode that the caller means: the number
    /// may have been used again.
    ///
    /// # Errors
    /// `ESTALE` where no inode below the root has the number, or where that can't be proved.
    fn resolve(&self, request: &Request, ino: Ino) -> Result<Entry> {
        forward!(self.resolve(request, ino))
    }

    /// Finds the directory above a directory. A success counts as one lookup.
    ///
    /// # Errors
    /// `ESTALE` for the root, and for a directory that no longer lies below it.
    fn parent_of(&self, request: &Request, ino: Ino) -> Result<Entry> {
        forward!(self.parent_of(request, ino))
    }

    /// Reads until the buffer is full or the file ends.
    ///
    /// # Errors
    /// Those of [`Self::read`].
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
    /// Those of [`Self::write`]; `EIO` where nothing is written.
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

    /// Called once after the last request; writes back what is still held.
    ///
    /// # Errors
    /// What could not be written is reported here at the latest.
    fn shutdown(&self) -> Result<()> {
        self.fallback().map_or(Ok(()), |inner| inner.shutdown())
    }

    /// Locks the whole tree for the file system over this one, for as long as it lives.
    /// Calling it again changes nothing.
    ///
    /// # Errors
    /// `EBUSY` where another program has locked it, a part of it, or a tree around it.
    fn lock_tree(&self, mode: LockMode) -> Result<()> {
        forward!(self.lock_tree(mode), self.tree_fallback())
    }

    /// Has an open regular file for its handle alone, until [`Self::end_lease`] or its release:
    /// whoever else opens it waits.
    ///
    /// # Errors
    /// `EAGAIN` where somebody else has it open or mapped, also behind the mount; `EINVAL` or
    /// `EOPNOTSUPP` where files can't be leased, `EACCES` where this one can't be by this user.
    fn take_lease(&self, ino: Ino, handle: Handle) -> Result<()> {
        forward!(self.take_lease(ino, handle))
    }

    /// Lets others open a file that was leased.
    fn end_lease(&self, ino: Ino, handle: Handle) {
        if let Some(inner) = self.fallback() {
            inner.end_lease(ino, handle);
        }
    }

    /// Has a range of one open file share the blocks of a range of another, so that both have the
    /// same bytes and take the space once. Offsets and length are whole blocks of the file system.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `ENOSYS`, `ENOTTY` or `EINVAL` where these files can't share blocks, `EXDEV`
    /// where they lie in different file systems: nothing is changed then.
    fn clone_range(
        &self,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        length: u64,
    ) -> Result<()> {
        forward!(self.clone_range(source, target, length))
    }

    /// Says that a range of an open file will not be read again soon, because what it holds is kept
    /// in another form: pages of it need not stay in memory. A hint: nothing depends on it.
    fn drop_pages(&self, ino: Ino, handle: Handle, range: std::ops::Range<u64>) {
        if let Some(inner) = self.fallback() {
            inner.drop_pages(ino, handle, range);
        }
    }

    passed_on! {
        /// Finds a name in a directory. A success counts as one lookup of the inode.
        ///
        /// # Errors
        /// `ENOENT` where there is no such name.
        lookup(parent: Ino, name: Name<'_>) -> Entry;
    }

    /// Gives back `lookups` lookups of an inode. When all are returned, the inode number may
    /// mean another file. Never fails, and for the root does nothing.
    fn forget(&self, ino: Ino, lookups: u64) {
        if let Some(inner) = self.tree_fallback() {
            inner.forget(ino, lookups);
        }
    }

    /// Keeps an inode that somebody remembers for whoever works on it longer than that: until
    /// [`Self::let_go`], its number means no other file, whatever is forgotten meanwhile. Counted.
    ///
    /// # Errors
    /// `ESTALE` where nobody remembers it any more.
    fn hold(&self, ino: Ino) -> Result<()> {
        forward!(self.hold(ino), self.tree_fallback())
    }

    /// Ends one hold of an inode. Never fails.
    fn let_go(&self, ino: Ino) {
        if let Some(inner) = self.tree_fallback() {
            inner.let_go(ino);
        }
    }

    passed_on! {
        /// The attributes of an inode, through an open file where there is one.
        getattr(ino: Ino, handle: Option<Handle>) -> Attr;

        /// Changes attributes and answers the new ones.
        setattr(ino: Ino, handle: Option<Handle>, changes: &SetAttr) -> Attr;

        /// The target of a symbolic link.
        readlink(ino: Ino) -> OsString, tree_fallback;

        /// Creates a file of any kind but directory and link. `mode` is as in `st_mode`, before the
        /// umask; `device` is used for device nodes.
        mknod(parent: Ino, name: Name<'_>, mode: u32, device: u32) -> Entry;

        /// Creates a directory; `mode` is before the umask.
        mkdir(parent: Ino, name: Name<'_>, mode: u32) -> Entry, tree_fallback;

        /// Creates a symbolic link.
        symlink(parent: Ino, name: Name<'_>, target: &std::ffi::OsStr) -> Entry, tree_fallback;

        /// Removes the name of anything but a directory.
        unlink(parent: Ino, name: Name<'_>) -> (), tree_fallback;

        /// Removes an empty directory.
        rmdir(parent: Ino, name: Name<'_>) -> (), tree_fallback;

        /// Moves a name, replacing or exchanging as `mode` says.
        rename(
            parent: Ino, name: Name<'_>, new_parent: Ino, new_name: Name<'_>, mode: RenameMode
        ) -> (), tree_fallback;

        /// Gives an inode one more name. Counts as one lookup of the inode.
        link(ino: Ino, new_parent: Ino, new_name: Name<'_>) -> Entry;

        /// Opens a file. With [`OpenMode::TRUNCATE`] it is emptied.
        open(ino: Ino, mode: OpenMode) -> Opened;

        /// Creates and opens a regular file, or opens the one that has the name unless `flags`
        /// hold [`OpenMode::EXCLUSIVE`]. Counts as one lookup.
        create(parent: Ino, name: Name<'_>, mode: u32, flags: OpenMode) -> (Entry, Opened);

        /// Creates and opens a regular file that has no name. Counts as one lookup.
        tmpfile(parent: Ino, mode: u32, flags: OpenMode) -> (Entry, Opened);

        /// Reads at an offset. Answers less than asked only at the end of the file.
        read(ino: Ino, handle: Handle, offset: u64, buffer: &mut [u8]) -> usize;

        /// Writes at an offset (at the end, where [`WriteOptions::append`] says so) and answers
        /// how many bytes were taken, at least one unless `data` is empty.
        write(ino: Ino, handle: Handle, offset: u64, data: &[u8], options: WriteOptions) -> usize;

        /// Called at each close(2) of a descriptor; reports errors that can't wait.
        flush(ino: Ino, handle: Handle) -> ();

        /// Called once when an open file is no longer used. Its handle is free afterwards, whatever
        /// is answered.
        release(ino: Ino, handle: Handle) -> ();

        /// Makes a file durable; with `data_only`, what is needed to read its bytes.
        fsync(ino: Ino, handle: Handle, data_only: bool) -> ();

        /// Opens a directory.
        opendir(ino: Ino) -> Handle, tree_fallback;

        /// Lists a directory from `offset` (0 for the start, else the `next_offset` of an entry)
        /// until the sink refuses or the end. An entry that exists through the whole listing is
        /// delivered exactly once, whatever is created or removed meanwhile.
        readdir(
            ino: Ino, handle: Handle, offset: u64, sink: &mut DirectorySink<'_>
        ) -> (), tree_fallback;

        /// Called once when an open directory is no longer used.
        releasedir(ino: Ino, handle: Handle) -> (), tree_fallback;

        /// Makes a directory durable.
        fsyncdir(ino: Ino, handle: Handle, data_only: bool) -> (), tree_fallback;

        /// Makes everything durable that was acknowledged before the call.
        syncfs(ino: Ino) -> (), tree_fallback;

        /// Space and inodes of the file system.
        statfs(ino: Ino) -> StatFs, tree_fallback;

        /// The value of an extended attribute.
        ///
        /// # Errors
        /// `ENODATA` where there is none of this name.
        getxattr(ino: Ino, name: &std::ffi::OsStr) -> Vec<u8>;

        /// Sets an extended attribute.
        setxattr(ino: Ino, name: &std::ffi::OsStr, value: &[u8], mode: XattrMode) -> ();

        /// The names of all extended attributes, each ended by a zero byte.
        listxattr(ino: Ino) -> Vec<u8>;

        /// Removes an extended attribute.
        removexattr(ino: Ino, name: &std::ffi::OsStr) -> ();

        /// The inode flags of a file or directory.
        ///
        /// # Errors
        /// `ENOTTY` or `EOPNOTSUPP` where there are none, and for special files and symbolic links.
        fileattr_get(ino: Ino, form: FileAttrForm) -> FileAttr;

        /// Sets the inode flags of a file or directory. Whether the caller may (the owner, and
        /// CAP_LINUX_IMMUTABLE for some flags) was checked by the sender.
        ///
        /// # Errors
        /// `EOPNOTSUPP` for flags that the file system does not have.
        fileattr_set(ino: Ino, attr: &FileAttr) -> ();

        /// Reserves, punches, zeroes or moves a range.
        ///
        /// # Errors
        /// `EOPNOTSUPP` for a mode the file system does not have.
        fallocate(ino: Ino, handle: Handle, offset: u64, length: u64, mode: FallocateMode) -> ();

        /// Finds the next data or hole at or after `offset`.
        ///
        /// # Errors
        /// `ENXIO` behind the end, and for data where only a hole follows.
        lseek(ino: Ino, handle: Handle, offset: u64, to: SeekTo) -> u64;

        /// Copies between two open files and answers how much was copied. That nothing is copied to
        /// a file that appends is for the caller to see to, who knows whether it does by now.
        copy_file_range(source: (Ino, Handle, u64), target: (Ino, Handle, u64), length: u64) -> u64;
    }
}

/// A shared file system is one too; everything is forwarded.
impl FileSystem for Arc<dyn FileSystem> {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&**self)
    }
}
