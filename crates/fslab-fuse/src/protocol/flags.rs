//! Flags of the protocol.

bitflags::bitflags! {
    /// Features that the kernel offers at INIT and a server requests. The protocol sends them in
    /// two words, which are combined into one number here.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct InitFlags: u64 {
        const ASYNC_READ = 1 << 0;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const AUTO_INVAL_DATA = 1 << 12;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const WRITEBACK_CACHE = 1 << 16;
        const PARALLEL_DIROPS = 1 << 18;
        const POSIX_ACL = 1 << 20;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const SECURITY_CTX = 1 << 32;
        const CREATE_SUPP_GROUP = 1 << 34;
        const HAS_EXPIRE_ONLY = 1 << 35;
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        const PASSTHROUGH = 1 << 37;
        const NO_EXPORT_SUPPORT = 1 << 38;
        const HAS_RESEND = 1 << 39;
        const ALLOW_IDMAP = 1 << 40;
        const OVER_IO_URING = 1 << 41;
        const REQUEST_TIMEOUT = 1 << 42;
        const _ = !0;
    }

    /// The attributes changed by a SETATTR request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct SetattrValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const FH = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const KILL_SUIDGID = 1 << 11;
        const _ = !0;
    }

    /// Properties of an opened file, in the reply to the open.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct OpenFlags: u32 {
        const DIRECT_IO = 1 << 0;
        const KEEP_CACHE = 1 << 1;
        const CACHE_DIR = 1 << 3;
        const NOFLUSH = 1 << 5;
        const PASSTHROUGH = 1 << 7;
    }
}

/// GETATTR: the handle is valid.
pub(crate) const GETATTR_FH: u32 = 1;
/// WRITE: the pages come from the kernel's page cache and are written at their offset, even with
/// O_APPEND.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// WRITE: the request has a lock owner. The kernel sets this flag for writes that bypass its page
/// cache.
pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;
/// WRITE: clear the set-id bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// SETXATTR: the caller may not keep the set-group-id bit when setting an access ACL.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// Notification about a name: look it up again at the next use, but keep mounts on it.
pub(crate) const EXPIRE_ONLY: u32 = 1;
/// FSYNC: sync only the data.
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
