//! A double that plants bugs in the order in which something makes things durable: told of each
//! call that comes to the tree below, it may put it off, leave it out, or do it another way.

use std::ffi::OsStr;
use std::sync::Arc;

use fslab_vfs::{
    Call as AnyCall, FileSystem, Handle, Ino, Intercepted, Interceptor, OpenMode, Opened, Reply,
    Request, Result, XattrMode,
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
    Arc::new(Intercepted { inner, interceptor: Buggy(bug) })
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

struct Buggy<B>(B);

impl<B: Bug> Interceptor for Buggy<B> {
    fn around<T: Reply>(
        &self,
        inner: &dyn FileSystem,
        request: Option<&Request>,
        call: AnyCall<'_>,
        perform: impl FnOnce(&AnyCall<'_>) -> Result<T>,
    ) -> Result<T> {
        let (Some(request), Some((ino, known))) = (request, Call::of(&call)) else {
            return perform(&call);
        };
        let verdict = self.0.before(inner, request, ino, &known)?;
        if verdict == Verdict::Skip
            && known.may_be_skipped()
            && let Some(skipped) = T::skipped(&call)
        {
            return Ok(skipped);
        }
        let answer = perform(&call)?;
        self.0.after(inner, request, ino, &known)?;
        Ok(answer)
    }

    fn opened(&self, _: &mut Opened) {}
}

impl<'a> Call<'a> {
    /// A call that bugs are told of, and the inode it is about.
    fn of(call: &AnyCall<'a>) -> Option<(Ino, Self)> {
        Some(match *call {
            AnyCall::Fsync { ino, handle, data_only } => (ino, Self::Sync { handle, data_only }),
            AnyCall::Write { ino, handle, offset, data, .. } => {
                (ino, Self::Write { handle, offset, data })
            }
            AnyCall::Setxattr { ino, name, value, mode } => {
                (ino, Self::SetXattr { name, value, mode })
            }
            AnyCall::Setattr { ino, changes, .. } => (ino, Self::SetAttr { size: changes.size }),
            AnyCall::Fallocate { ino, .. } => (ino, Self::Fallocate),
            AnyCall::Read { ino, .. } => (ino, Self::Read),
            AnyCall::Open { ino, mode } => (ino, Self::Open { mode }),
            AnyCall::Release { ino, .. } => (ino, Self::Release),
            AnyCall::Syncfs { ino } => (ino, Self::SyncFs),
            AnyCall::Statfs { ino } => (ino, Self::StatFs),
            _ => return None,
        })
    }

    fn may_be_skipped(&self) -> bool {
        matches!(
            self,
            Self::Sync { .. } | Self::Write { .. } | Self::SetXattr { .. } | Self::SyncFs
        )
    }
}
