//! The basic types of a file system; distinct types prevent mixing up sizes, offsets and inodes.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use crate::deferral::Deferral;

/// Identity of an inode within one mounted stack, and the number `stat` shows for it.
///
/// Stable while the inode has lookups (see [`crate::FileSystem::forget`]); never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory of every file system.
    pub const ROOT: Self = Self(1);
}

/// A number for an open file or directory, assigned by the file system that opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// A name within a directory: 1 to 255 bytes, without `/` and NUL, neither `.` nor `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name<'a>(&'a OsStr);

impl<'a> Name<'a> {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 255;

    /// Checks an untrusted name.
    ///
    /// # Errors
    /// `ENAMETOOLONG` above 255 bytes; `EINVAL` for a string that can't be a name.
    pub fn new(name: &'a OsStr) -> Result<Self, Errno> {
        let bytes = name.as_bytes();
        if bytes.len() > Self::MAX_LEN {
            return Err(Errno::NAMETOOLONG);
        }
        let names_a_file = !matches!(bytes, b"" | b"." | b"..")
            && !bytes.iter().any(|byte| matches!(byte, b'/' | 0));
        if names_a_file { Ok(Self(name)) } else { Err(Errno::INVAL) }
    }

    /// The name as the operating system's string.
    #[must_use]
    pub fn as_os_str(self) -> &'a OsStr {
        self.0
    }

    /// The name's bytes; no encoding is assumed.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0.as_bytes()
    }
}

/// The kind of an inode, as in the file type bits of `st_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A file of bytes.
    Regular = 0o100_000,
    /// A directory.
    Directory = 0o040_000,
    /// A symbolic link.
    Symlink = 0o120_000,
    /// A named pipe.
    Fifo = 0o010_000,
    /// A Unix-domain socket.
    Socket = 0o140_000,
    /// A character device.
    CharDevice = 0o020_000,
    /// A block device.
    BlockDevice = 0o060_000,
}

impl FileKind {
    const ALL: [Self; 7] = [
        Self::Regular,
        Self::Directory,
        Self::Symlink,
        Self::Fifo,
        Self::Socket,
        Self::CharDevice,
        Self::BlockDevice,
    ];

    /// Returns the kind for the file type bits of `st_mode`; `None` for an unknown pattern.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.mode_bits() == mode & 0o170_000)
    }

    /// The file type bits for `st_mode`.
    #[must_use]
    pub fn mode_bits(self) -> u32 {
        self as u32
    }
}

/// Permission, set-id and sticky bits: the lower twelve bits of `st_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Permissions(u16);

impl Permissions {
    /// Set-user-id on execution.
    pub const SET_UID: u32 = 0o4000;
    /// Set-group-id on execution, or group inheritance on a directory.
    pub const SET_GID: u32 = 0o2000;
    /// The group may execute the file.
    pub const GROUP_EXECUTE: u32 = 0o0010;

    /// Takes the lower twelve bits of `mode`, without the file type bits.
    #[must_use]
    pub fn new(mode: u32) -> Self {
        Self((mode & 0o7777) as u16)
    }

    /// The bits as in `st_mode`.
    #[must_use]
    pub fn bits(self) -> u32 {
        u32::from(self.0)
    }

    /// The bits that are not set in `umask`.
    #[must_use]
    pub fn masked(self, umask: u32) -> Self {
        Self::new(self.bits() & !(umask & 0o777))
    }

    /// Whether there is a set-user-id or a set-group-id bit; see [`crate::rules::set_id`].
    #[must_use]
    pub fn has_set_id(self) -> bool {
        self.bits() & (Self::SET_UID | Self::SET_GID) != 0
    }
}

/// A point in time, before or after 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Whole seconds since 1970, rounded down.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let time_ns = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_nanos().cast_signed(),
            Err(before) => -before.duration().as_nanos().cast_signed(),
        };
        Self {
            seconds: i64::try_from(time_ns.div_euclid(1_000_000_000)).unwrap_or(i64::MAX),
            nanoseconds: time_ns.rem_euclid(1_000_000_000) as u32,
        }
    }
}

impl Timestamp {
    /// Makes a timestamp from nanoseconds since 1970.
    #[must_use]
    pub fn from_ns(time_ns: i64) -> Self {
        let seconds = time_ns.div_euclid(1_000_000_000);
        Self { seconds, nanoseconds: time_ns.rem_euclid(1_000_000_000) as u32 }
    }

    /// Nanoseconds since 1970; saturates at the limits of 64 bits.
    #[must_use]
    pub fn to_ns(self) -> i64 {
        self.seconds.saturating_mul(1_000_000_000).saturating_add(self.nanoseconds.into())
    }
}

/// User and group of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Credentials {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
}

impl Credentials {
    /// The id of an unknown caller. On id-mapped mounts, the kernel sends the caller's ids only
    /// with requests that create a file, which needs an owner. The kernel checks all permissions
    /// itself.
    pub const UNKNOWN: u32 = u32::MAX;

    /// The credentials of this process; `None` for root, which can act as any user.
    #[must_use]
    pub fn own_unless_root() -> Option<Self> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        (!uid.is_root()).then(|| Self { uid: uid.as_raw(), gid: gid.as_raw() })
    }

    /// Whether the sender reported the caller's ids.
    #[must_use]
    pub fn are_known(&self) -> bool {
        self.uid != Self::UNKNOWN && self.gid != Self::UNKNOWN
    }
}

/// Data about a creation that a sender may know, in addition to ids and umask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Creation {
    /// The relevant supplementary groups of the caller: only the directory's group, if the caller
    /// belongs to it. `None` if the sender does not state them; the groups are then those of
    /// [`Request::pid`].
    pub groups: Option<Vec<u32>>,
    /// Security labels of the new inode: xattrs (name and value) that must be set at its creation.
    pub labels: Vec<(OsString, Vec<u8>)>,
}

/// Data of every request: the caller and the time.
///
/// The sender of the request has checked permissions (for a mount, the kernel). A file system uses
/// the credentials only for ownership and inheritance. The default is a request of root at the
/// epoch, for read-only use.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Owner of new inodes.
    pub credentials: Credentials,
    /// Thread id of the caller, 0 if unknown; used to find its supplementary groups.
    pub pid: u32,
    /// Further data for operations that create an inode.
    pub creation: Creation,
    /// The caller's umask; applies to creations, except under a default ACL.
    pub umask: u32,
    /// The time of the request.
    pub now: Timestamp,
    /// Whether the caller still waits for the result.
    pub cancellation: Cancellation,
    /// The sender's offer to perform the request again later, if it made one.
    pub deferral: Deferral,
}

/// Lets a waiting operation notice that its caller was signalled.
///
/// An operation that waits without a limit must check it regularly, and end with `EINTR` when
/// cancelled. The default is never cancelled.
#[derive(Clone, Debug, Default)]
pub struct Cancellation {
    /// The number of the cancelled request, and the number of this request.
    watched: Option<(Arc<AtomicU64>, u64)>,
}

impl Cancellation {
    /// Makes a cancellation that takes effect when `cancelled` contains the request's number.
    #[must_use]
    pub fn new(cancelled: Arc<AtomicU64>, number: u64) -> Self {
        Self { watched: Some((cancelled, number)) }
    }

    /// Whether the caller no longer waits.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.watched
            .as_ref()
            .is_some_and(|(cancelled, number)| cancelled.load(Ordering::SeqCst) == *number)
    }

    /// Fails if the caller no longer waits.
    ///
    /// # Errors
    /// `EINTR` when the caller no longer waits.
    pub fn check(&self) -> Result<(), Errno> {
        if self.is_cancelled() { Err(Errno::INTR) } else { Ok(()) }
    }
}

/// The attributes that `stat` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Identity of the inode while it has lookups.
    pub ino: Ino,
    /// The number of the inode in the file system that stores it, which is the same in every
    /// session. Stored data about files refers to them by this number. After the number is reused,
    /// it refers to the new file.
    pub number: u64,
    /// Logical size in bytes.
    pub size: u64,
    /// Whether the size is correct. If the size can't be determined, because the file is unreadable
    /// or damaged, another value is shown. Such a file can be renamed, removed and given other
    /// permissions. Its size must not be trusted, and opening it fails.
    pub is_size_known: bool,
    /// Allocated space, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred size of a request, in bytes.
    pub block_size: u32,
    /// The kind of the inode.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits.
    pub permissions: Permissions,
    /// Number of names.
    pub links: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Device number of a device node, in the kernel's 32-bit encoding.
    pub device: u32,
    /// Time of the last access.
    pub accessed: Timestamp,
    /// Time of the last change of contents.
    pub modified: Timestamp,
    /// Time of the last change of the inode.
    pub changed: Timestamp,
    /// Time of creation, if the file system records it.
    pub created: Option<Timestamp>,
}

/// A looked-up or created inode.
///
/// Every returned `Entry` counts as one lookup, to be released by
/// [`crate::FileSystem::forget`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode.
    pub attr: Attr,
    /// Distinguishes successive uses of one inode number.
    pub generation: u64,
}

/// An opened file and its properties.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The handle, to be passed with every operation on the open file.
    pub handle: Handle,
    /// The lower file, if reads and writes may bypass the file system because no layer depends on
    /// its bytes or their order.
    pub backing: Option<Arc<OwnedFd>>,
    /// Whether pages that the kernel cached at an earlier open are still valid.
    pub keep_cache: bool,
    /// Whether the kernel must bypass its page cache for this file.
    pub direct: bool,
    /// Whether `flush` has nothing to do at close, so that it need not be called.
    pub no_flush: bool,
}

impl Opened {
    /// Makes an opened file with all other properties off.
    #[must_use]
    pub fn new(handle: Handle) -> Self {
        Self { handle, backing: None, keep_cache: false, direct: false, no_flush: false }
    }
}

/// A new value for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The current time of the lower file system.
    Now,
    /// The given time.
    To(Timestamp),
}

/// Attributes to change; `None` leaves an attribute unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits.
    pub permissions: Option<Permissions>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New logical size in bytes.
    pub size: Option<u64>,
    /// New time of last access.
    pub accessed: Option<SetTime>,
    /// New time of last modification.
    pub modified: Option<SetTime>,
    /// Whether a change of size clears the set-id bits, because the caller lacks CAP_FSETID.
    pub kill_set_id: bool,
}

/// Options of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Whether the write clears the set-id bits, because the caller lacks CAP_FSETID.
    pub kill_set_id: bool,
    /// Whether to write at the current end of the file; the offset is then ignored. This is an
    /// option of the write and not of the open, because fcntl(2) can change it. Pages of a shared
    /// mapping are written to their offset however the file was opened.
    pub append: bool,
}

impl WriteOptions {
    /// Returns these options without appending, for a write at its offset.
    #[must_use]
    pub fn placed(self) -> Self {
        Self { append: false, ..self }
    }
}

/// Selects how a program locks a tree in which it stores files of its own format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// For reading; other readers are allowed.
    Shared,
    /// Like `Shared`, for a mount. It creates no lock file, and warns if it can't exclude writers.
    ReadOnly,
    /// For changes; while the lock is held, no other program may read or change the tree.
    Exclusive,
    /// Like `Exclusive`, for a tool. If this lock creates the lock file, it removes the file
    /// afterwards.
    Passing,
}

/// One entry of a directory listing.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry<'a> {
    /// The inode number as recorded in the directory. A lookup may return another number.
    pub ino: Ino,
    /// The kind of the inode, if the directory records it.
    pub kind: Option<FileKind>,
    /// The offset from which to continue after this entry.
    pub next_offset: u64,
    /// The name; `.` and `..` are included.
    pub name: &'a OsStr,
}

/// The target of `lseek`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// The next byte of data.
    Data,
    /// The next hole; the end of the file counts as one.
    Hole,
}

bitflags::bitflags! {
    /// The effect of `fallocate` on a range; the values are the kernel's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FallocateMode: u32 {
        /// The size does not change, even if the range ends past it.
        const KEEP_SIZE = 0x01;
        /// The range becomes a hole; needs `KEEP_SIZE`.
        const PUNCH_HOLE = 0x02;
        /// The range is removed, and the rest of the file moves down.
        const COLLAPSE_RANGE = 0x08;
        /// The range reads as zeros.
        const ZERO_RANGE = 0x10;
        /// A hole is inserted, and the rest of the file moves up.
        const INSERT_RANGE = 0x20;
        /// Shared blocks become exclusive to the file.
        const UNSHARE_RANGE = 0x40;
        const _ = !0;
    }

    /// How `rename` treats its target; the values are the kernel's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameMode: u32 {
        /// An existing target is an error.
        const NO_REPLACE = 1;
        /// Source and target exchange their names.
        const EXCHANGE = 2;
        /// The source is replaced by a whiteout (used by overlay file systems).
        const WHITEOUT = 4;
        const _ = !0;
    }

    /// Open flags that matter to a file system; the values are the kernel's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenMode: u32 {
        /// For writing only.
        const WRITE_ONLY = 0o1;
        /// For reading and writing.
        const READ_WRITE = 0o2;
        /// Creation fails if the name exists.
        const EXCLUSIVE = 0o200;
        /// The file is truncated.
        const TRUNCATE = 0o1000;
        /// Every write goes to the end.
        const APPEND = 0o2000;
        /// Every write is followed by the equivalent of `fdatasync`.
        const DATA_SYNC = 0o10_000;
        /// The page cache is bypassed.
        const DIRECT = 0o40_000;
        /// Reads do not update the access time.
        const NO_ACCESS_TIME = 0o1_000_000;
        /// With `DATA_SYNC`: every write is followed by the equivalent of `fsync`.
        const SYNC = 0o4_000_000;
        const _ = !0;
    }

    /// How `setxattr` treats an existing attribute; the values of the first two are the kernel's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct XattrMode: u32 {
        /// An existing attribute is an error.
        const CREATE = 1;
        /// A missing attribute is an error.
        const REPLACE = 2;
        /// The setter of an access ACL neither has CAP_FSETID nor belongs to the file's group, so
        /// the set-group-id bit is cleared.
        const KILL_SET_GROUP_ID = 1 << 31;
        const _ = !0;
    }
}

impl OpenMode {
    /// Whether this mode allows writing.
    #[must_use]
    pub fn writes(self) -> bool {
        self.intersects(Self::WRITE_ONLY | Self::READ_WRITE)
    }
}

/// The result of `statfs`; counts are in units of `fragment_size`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks available to ordinary users.
    pub blocks_available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Preferred size of a request, in bytes.
    pub block_size: u32,
    /// Unit of the block counts, in bytes.
    pub fragment_size: u32,
    /// The longest name, in bytes.
    pub name_max: u32,
}
