//! One operation as a trace holds it.

use fslab_vfs::Operation;

/// One operation with its arguments and its result. Which fields an operation has is listed in
/// `docs/formats/trace.md`; the others are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Place in the order in which operations ended, from 1 without gaps.
    pub sequence: u64,
    /// When it began, in nanoseconds since the trace did.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// When it was asked for, in nanoseconds since 1970; unknown for `forget`.
    pub time_ns: Option<i64>,
    /// The thread that served it, numbered from 1.
    pub thread: u32,
    /// What was done.
    pub operation: Operation,
    /// The calling thread; 0 for the kernel itself.
    pub pid: Option<u32>,
    /// The caller's file-system user id.
    pub uid: Option<u32>,
    /// The caller's file-system group id.
    pub gid: Option<u32>,
    /// The caller's umask, where the operation creates.
    pub umask: Option<u32>,
    /// The inode it is about.
    pub inode: Option<u64>,
    /// The directory of `name`.
    pub parent: Option<u64>,
    /// The name looked up, made or removed, as bytes.
    pub name: Option<Vec<u8>>,
    /// The directory of `new_name`.
    pub new_parent: Option<u64>,
    /// The new name of `rename` and `link`.
    pub new_name: Option<Vec<u8>>,
    /// The open file or directory it goes through.
    pub handle: Option<u64>,
    /// Where, in bytes; for `readdir` the cookie.
    pub offset: Option<u64>,
    /// How many bytes were asked for or given; the new size of `setattr`; lookups of `forget`.
    pub size: Option<u64>,
    /// Flags as the operation has them.
    pub flags: Option<u32>,
    /// File mode before the umask; the new permissions of `setattr`.
    pub mode: Option<u32>,
    /// Device number of `mknod`.
    pub device: Option<u32>,
    /// New owner of `setattr`.
    pub owner: Option<u32>,
    /// New group of `setattr`.
    pub group: Option<u32>,
    /// New access time of `setattr`: seconds since 1970.
    pub accessed_s: Option<i64>,
    /// And nanoseconds.
    pub accessed_ns: Option<u32>,
    /// New modification time of `setattr`: seconds since 1970.
    pub modified_s: Option<i64>,
    /// And nanoseconds.
    pub modified_ns: Option<u32>,
    /// The source of `copy_file_range`.
    pub from_inode: Option<u64>,
    /// The source's open file.
    pub from_handle: Option<u64>,
    /// Where in the source.
    pub from_offset: Option<u64>,
    /// Target of a symbolic link (made, or answered), or name of an extended attribute.
    pub text: Option<Vec<u8>>,
    /// Checksum of what was written: CRC32C, or keyed in an anonymised trace.
    pub checksum: Option<u64>,
    /// What was written, where the trace keeps it.
    pub data: Option<Vec<u8>>,
    /// 0 for success, else the error number of Linux.
    pub errno: u32,
    /// Bytes read, written or copied; the offset found; entries listed.
    pub result: Option<u64>,
    /// The inode answered.
    pub result_inode: Option<u64>,
    /// The open file or directory answered.
    pub result_handle: Option<u64>,
    /// `st_mode` of the inode answered.
    pub result_mode: Option<u32>,
    /// Size of the inode answered, in bytes.
    pub result_size: Option<u64>,
}

impl Record {
    /// A record of an operation about which nothing is known yet.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self { operation, ..Self::default() }
    }

    /// Bytes it takes in memory beyond its own size.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let held = [&self.name, &self.new_name, &self.text, &self.data];
        held.into_iter().flatten().map(Vec::len).sum()
    }
}

/// Bits of [`Record::flags`] that the trace format defines itself.
pub mod flag {
    /// `setattr`: the access time becomes the present time.
    pub const ACCESSED_NOW: u32 = 1;
    /// `setattr`: the modification time becomes the present time.
    pub const MODIFIED_NOW: u32 = 2;
    /// `setattr`, `write`: the caller lacks CAP_FSETID.
    pub const KILL_SET_ID: u32 = 4;
    /// `write`: at the end, wherever that is then.
    pub const APPEND: u32 = 8;
    /// `fsync`, `fsyncdir`: only what is needed to read the bytes.
    pub const DATA_ONLY: u32 = 1;
    /// `lseek`: the next hole, not the next data.
    pub const HOLE: u32 = 1;
    /// `fileattr_get`, `fileattr_set`: in the form of `FS_IOC_FSGETXATTR`.
    pub const EXTENDED: u32 = 1;
}
