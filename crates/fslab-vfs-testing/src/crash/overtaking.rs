//! A test double that plants bugs in the order in which the code under test makes data durable. A
//! bug sees each call to the lower tree and may delay it, skip it, or perform it differently.

use std::ffi::OsStr;
use std::sync::Arc;

use fslab_vfs::{
    Call as AnyCall, FileSystem, Handle, Ino, Intercepted, Interceptor, OpenMode, Opened, Reply,
    Request, Result, XattrMode,
};

/// A call to the lower tree.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// fsync or fdatasync of a file.
    Sync {
        /// The file's handle.
        handle: Handle,
        /// Whether the call is fdatasync.
        data_only: bool,
    },
    /// A write.
    Write {
        /// The file's handle.
        handle: Handle,
        /// The offset in the file, in bytes.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// Setting an xattr.
    SetXattr {
        /// Its name.
        name: &'a OsStr,
        /// The new value.
        value: &'a [u8],
        /// Whether the xattr must or must not exist.
        mode: XattrMode,
    },
    /// Setting attributes, which may include the size.
    SetAttr {
        /// The new size, if it is set.
        size: Option<u64>,
    },
    /// Reserving, punching or zeroing blocks.
    Fallocate,
    /// A read.
    Read,
    /// Opening a file.
    Open {
        /// The open flags.
        mode: OpenMode,
    },
    /// Closing a file.
    Release,
    /// Making everything durable.
    SyncFs,
    /// Requesting the free space. Scripts do this after each of their steps.
    StatFs,
}

/// The treatment of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Perform it.
    Do,
    /// Return success without performing it. This works for fsync, syncfs, writes and xattrs; other
    /// calls are performed.
    Skip,
}

/// A planted bug in the order of calls. It may itself make calls to `below`, the lower tree.
pub trait Bug: Send + Sync {
    /// Runs before a call is performed.
    ///
    /// # Errors
    /// Errors of delayed calls that are performed here. The call fails with them.
    fn before(
        &self,
        below: &dyn FileSystem,
        request: &Request,
        ino: Ino,
        call: &Call<'_>,
    ) -> Result<Verdict>;

    /// Runs after a call succeeded.
    ///
    /// # Errors
    /// Errors of delayed calls that are performed here. The call fails with them.
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

/// Adds a bug to the lower tree.
pub fn with_bug(inner: Arc<dyn FileSystem>, bug: impl Bug + 'static) -> Arc<dyn FileSystem> {
    Arc::new(Intercepted { inner, interceptor: Buggy(bug) })
}

/// A delayed sync.
#[derive(Clone, Debug)]
pub struct LateSync {
    request: Request,
    ino: Ino,
    handle: Handle,
    data_only: bool,
}

impl LateSync {
    /// The sync that a call requests, if it requests one.
    #[must_use]
    pub fn of(request: &Request, ino: Ino, call: &Call<'_>) -> Option<Self> {
        let Call::Sync { handle, data_only } = *call else { return None };
        Some(Self { request: request.clone(), ino, handle, data_only })
    }

    /// Performs the sync.
    ///
    /// # Errors
    /// Errors of fsync.
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
    /// Converts a call and returns it with its inode; `None` for calls that bugs do not see.
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
