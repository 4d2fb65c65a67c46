//! One operation of a trace.

use fslab_vfs::Operation;

/// One operation with its arguments and its result. `docs/formats/trace.md` lists the fields of
/// each operation; the others are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Position in the order in which operations ended, from 1; a gap means lost records.
    pub sequence: u64,
    /// Start of the operation, in nanoseconds since the start of the trace.
    pub start_ns: u64,
    /// Duration of the operation in nanoseconds.
    pub duration_ns: u64,
    /// Time of the request, in nanoseconds since 1970; unknown for `forget`.
    pub time_ns: Option<i64>,
    /// The thread that served the operation, numbered from 1.
    pub thread: u32,
    /// The operation.
    pub operation: Operation,
    /// The calling thread; 0 for the kernel itself.
    pub pid: Option<u32>,
    /// The name of the calling thread (`comm`), at most 15 bytes; a hash in an anonymised trace.
    pub program: Option<Vec<u8>>,
    /// The caller's file-system user id.
    pub uid: Option<u32>,
    /// The caller's file-system group id.
    pub gid: Option<u32>,
    /// The caller's umask, if the operation creates a file.
    pub umask: Option<u32>,
    /// The inode that the operation works on.
    pub inode: Option<u64>,
    /// The directory of `name`.
    pub parent: Option<u64>,
    /// The name looked up, made or removed, as bytes.
    pub name: Option<Vec<u8>>,
    /// The directory of `new_name`.
    pub new_parent: Option<u64>,
    /// The new name of `rename` and `link`.
    pub new_name: Option<Vec<u8>>,
    /// The handle of the open file or directory that the operation uses.
    pub handle: Option<u64>,
    /// Offset in bytes; for `readdir` the cookie.
    pub offset: Option<u64>,
    /// Bytes requested, or bytes to write; the new size of `setattr`; the number of lookups of
    /// `forget`.
    pub size: Option<u64>,
    /// Flags of the operation.
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
    /// Nanoseconds of the new access time.
    pub accessed_ns: Option<u32>,
    /// New modification time of `setattr`: seconds since 1970.
    pub modified_s: Option<i64>,
    /// Nanoseconds of the new modification time.
    pub modified_ns: Option<u32>,
    /// The source of `copy_file_range`.
    pub from_inode: Option<u64>,
    /// Handle of the source.
    pub from_handle: Option<u64>,
    /// Offset in the source, in bytes.
    pub from_offset: Option<u64>,
    /// Target of a symbolic link (made or read), or name of an extended attribute.
    pub text: Option<Vec<u8>>,
    /// Checksum of the written data: CRC32C, or a keyed hash in an anonymised trace.
    pub checksum: Option<u64>,
    /// The written data, if the trace contains it.
    pub data: Option<Vec<u8>>,
    /// 0 for success, otherwise a Linux error number.
    pub errno: u32,
    /// Bytes read, written or copied; the offset found; the number of entries listed.
    pub result: Option<u64>,
    /// The inode that the operation returned.
    pub result_inode: Option<u64>,
    /// Handle of the file or directory that the operation opened.
    pub result_handle: Option<u64>,
    /// `st_mode` of the returned inode.
    pub result_mode: Option<u32>,
    /// Size of the returned inode, in bytes.
    pub result_size: Option<u64>,
}

impl Record {
    /// Makes a record of an operation with all other fields empty.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self { operation, ..Self::default() }
    }

    /// Returns the heap memory that the record uses, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let held = [&self.program, &self.name, &self.new_name, &self.text, &self.data];
        held.into_iter().flatten().map(Vec::len).sum()
    }
}

/// Bits of [`Record::flags`] that the trace format itself defines.
pub mod flag {
    /// `setattr`: set the access time to the current time.
    pub const ACCESSED_NOW: u32 = 1;
    /// `setattr`: set the modification time to the current time.
    pub const MODIFIED_NOW: u32 = 2;
    /// `setattr`, `write`: the caller lacks CAP_FSETID.
    pub const KILL_SET_ID: u32 = 4;
    /// `write`: append at the current end of the file.
    pub const APPEND: u32 = 8;
    /// `fsync`, `fsyncdir`: sync only the data and the metadata needed to read it.
    pub const DATA_ONLY: u32 = 1;
    /// `lseek`: find the next hole, not the next data.
    pub const HOLE: u32 = 1;
    /// `fileattr_get`, `fileattr_set`: use the form of `FS_IOC_FSGETXATTR`.
    pub const EXTENDED: u32 = 1;
}
