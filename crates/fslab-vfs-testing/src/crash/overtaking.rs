//! A double that plants bugs in the order in which something makes things durable: told of each
//! call that comes to the tree below, it may put it off, leave it out, or do it another way.

use std::ffi::OsStr;
use std::sync::Arc;

use fslab_vfs::{
    Attr, FallocateMode, FileSystem, Handle, Ino, OpenMode, Opened, Request, Result, SetAttr,
    StatFs, WriteOptions, XattrMode,
};

/// A call that comes to the tree below.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// fsync or fdatasync of a file.
    Sync {
        /// Whose.
        handle: Handle,
        /// fdatasync.
        data_only: bool,
    },
    /// A write.
    Write {
        /// Through what.
        handle: Handle,
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: &'a [u8],
    },
    /// An xattr that is set.
    SetXattr {
        /// Its name.
        name: &'a OsStr,
        /// What it is to say.
        value: &'a [u8],
        /// Whether it must, or must not, be there.
        mode: XattrMode,
    },
    /// Attributes that are set; a new size among them or not.
    SetAttr {
        /// The new size.
        size: Option<u64>,
    },
    /// Blocks that are reserved, punched, or zeroed.
    Fallocate,
    /// A read.
    Read,
    /// A file that is opened.
    Open {
        /// How.
        mode: OpenMode,
    },
    /// A file that is closed.
    Release,
    /// Everything is made durable.
    SyncFs,
    /// The file system is asked how full it is: what scripts do after each of their steps.
    StatFs,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Do,
    /// It is said to be done. Possible for syncs (of everything too), writes and xattrs; others
    /// are done.
    Skip,
}

/// A planted order of things. `below` is the tree, free to be called.
pub trait Bug: Send + Sync {
    /// Before a call is done.
    ///
    /// # Errors
    /// Those of what is caught up with; the call fails with them.
    fn before(
        &self,
        below: &dyn FileSystem,
        request: &Request,
        ino: Ino,
        call: &Call<'_>,
    ) -> Result<Verdict>;

    /// After a call was done with success.
    ///
    /// # Errors
    /// Those of what is caught up with; the call fails with them.
    fn after(
        &self,
        _below: &dyn FileSystem,
        _request: &Request,
        _ino: Ino,
        _call: &Call<'_>,
    ) -> Result<()> {
        Ok(())
    }
}

/// The tree below with a bug.
pub fn with_bug(inner: Arc<dyn FileSystem>, bug: impl Bug + 'static) -> Arc<dyn FileSystem> {
    Arc::new(Buggy { inner, bug })
}

/// A sync that was put off.
#[derive(Clone, Debug)]
pub struct LateSync {
    request: Request,
    ino: Ino,
    handle: Handle,
    data_only: bool,
}

impl LateSync {
    /// The sync that a call is.
    #[must_use]
    pub fn of(request: &Request, ino: Ino, call: &Call<'_>) -> Option<Self> {
        let Call::Sync { handle, data_only } = *call else { return None };
        Some(Self { request: request.clone(), ino, handle, data_only })
    }

    /// Does it.
    ///
    /// # Errors
    /// Those of fsync.
    pub fn perform(&self, below: &dyn FileSystem) -> Result<()> {
        below.fsync(&self.request, self.ino, self.handle, self.data_only)
    }
}

struct Buggy<B> {
    inner: Arc<dyn FileSystem>,
    bug: B,
}

impl<B: Bug> Buggy<B> {
    /// Does a call, or answers `skipped` for it.
    fn around<T>(
        &self,
        request: &Request,
        ino: Ino,
        call: &Call<'_>,
        skipped: Option<T>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let verdict = self.bug.before(&*self.inner, request, ino, call)?;
        if let (Verdict::Skip, Some(skipped)) = (verdict, skipped) {
            return Ok(skipped);
        }
        let answer = work()?;
        self.bug.after(&*self.inner, request, ino, call)?;
        Ok(answer)
    }
}

impl<B: Bug> FileSystem for Buggy<B> {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn fsync(&self, request: &Request, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        self.around(request, ino, &Call::Sync { handle, data_only }, Some(()), || {
            self.inner.fsync(request, ino, handle, data_only)
        })
    }

    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        self.around(request, ino, &Call::Write { handle, offset, data }, Some(data.len()), || {
            self.inner.write(request, ino, handle, offset, data, options)
        })
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.around(request, ino, &Call::SetXattr { name, value, mode }, Some(()), || {
            self.inner.setxattr(request, ino, name, value, mode)
        })
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        self.around(request, ino, &Call::SetAttr { size: changes.size }, None, || {
            self.inner.setattr(request, ino, handle, changes)
        })
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        self.around(request, ino, &Call::Fallocate, None, || {
            self.inner.fallocate(request, ino, handle, offset, length, mode)
        })
    }

    fn read(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        self.around(request, ino, &Call::Read, None, || {
            self.inner.read(request, ino, handle, offset, buffer)
        })
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> Result<Opened> {
        self.around(request, ino, &Call::Open { mode }, None, || {
            self.inner.open(request, ino, mode)
        })
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> Result<()> {
        self.around(request, ino, &Call::Release, None, || self.inner.release(request, ino, handle))
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> Result<()> {
        self.around(request, ino, &Call::SyncFs, Some(()), || self.inner.syncfs(request, ino))
    }

    fn statfs(&self, request: &Request, ino: Ino) -> Result<StatFs> {
        self.around(request, ino, &Call::StatFs, None, || self.inner.statfs(request, ino))
    }
}
