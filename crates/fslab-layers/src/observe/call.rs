//! Operations as values: what was asked, and what was answered.

use std::ffi::OsStr;

use fslab_vfs::{
    Attr, Entry, Errno, FallocateMode, FileAttr, FileAttrForm, Handle, Ino, Name, OpenMode, Opened,
    Operation, RenameMode, SeekTo, SetAttr, WriteOptions, XattrMode,
};

/// An operation with its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call<'a> {
    Lookup { parent: Ino, name: Name<'a> },
    Forget { ino: Ino, lookups: u64 },
    GetAttr { ino: Ino, handle: Option<Handle> },
    SetAttr { ino: Ino, handle: Option<Handle>, changes: &'a SetAttr },
    ReadLink { ino: Ino },
    MkNod { parent: Ino, name: Name<'a>, mode: u32, device: u32 },
    MkDir { parent: Ino, name: Name<'a>, mode: u32 },
    Symlink { parent: Ino, name: Name<'a>, target: &'a OsStr },
    Unlink { parent: Ino, name: Name<'a> },
    RmDir { parent: Ino, name: Name<'a> },
    Rename { parent: Ino, name: Name<'a>, new_parent: Ino, new_name: Name<'a>, mode: RenameMode },
    Link { ino: Ino, new_parent: Ino, new_name: Name<'a> },
    Open { ino: Ino, mode: OpenMode },
    Create { parent: Ino, name: Name<'a>, mode: u32, flags: OpenMode },
    TmpFile { parent: Ino, mode: u32, flags: OpenMode },
    Read { ino: Ino, handle: Handle, offset: u64, size: usize },
    Write { ino: Ino, handle: Handle, offset: u64, data: &'a [u8], options: WriteOptions },
    Flush { ino: Ino, handle: Handle },
    Release { ino: Ino, handle: Handle },
    Fsync { ino: Ino, handle: Handle, data_only: bool },
    OpenDir { ino: Ino },
    ReadDir { ino: Ino, handle: Handle, offset: u64 },
    ReleaseDir { ino: Ino, handle: Handle },
    FsyncDir { ino: Ino, handle: Handle, data_only: bool },
    SyncFs { ino: Ino },
    StatFs { ino: Ino },
    GetXattr { ino: Ino, name: &'a OsStr },
    SetXattr { ino: Ino, name: &'a OsStr, value: &'a [u8], mode: XattrMode },
    ListXattr { ino: Ino },
    RemoveXattr { ino: Ino, name: &'a OsStr },
    FileAttrGet { ino: Ino, form: FileAttrForm },
    FileAttrSet { ino: Ino, attr: &'a FileAttr },
    Fallocate { ino: Ino, handle: Handle, offset: u64, length: u64, mode: FallocateMode },
    Lseek { ino: Ino, handle: Handle, offset: u64, to: SeekTo },
    CopyFileRange { source: (Ino, Handle, u64), target: (Ino, Handle, u64), length: u64 },
}

/// What an operation answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer<'a> {
    /// Nothing more than that it is done.
    Done,
    /// Attributes.
    Attr(&'a Attr),
    /// An inode, counted as a lookup.
    Entry(&'a Entry),
    /// An open file.
    Opened(&'a Opened),
    /// A new file, open.
    Created(&'a Entry, &'a Opened),
    /// An open directory.
    Directory(Handle),
    /// So many bytes were read, written or copied.
    Moved(u64),
    /// Another number: entries listed, the offset found, the length of an attribute.
    Number(u64),
    /// The target of a symbolic link.
    Target(&'a OsStr),
}

/// How an operation ended.
pub(super) type Outcome<'a> = Result<Answer<'a>, Errno>;

impl Call<'_> {
    pub fn operation(&self) -> Operation {
        match self {
            Self::Lookup { .. } => Operation::Lookup,
            Self::Forget { .. } => Operation::Forget,
            Self::GetAttr { .. } => Operation::Getattr,
            Self::SetAttr { .. } => Operation::Setattr,
            Self::ReadLink { .. } => Operation::Readlink,
            Self::MkNod { .. } => Operation::Mknod,
            Self::MkDir { .. } => Operation::Mkdir,
            Self::Symlink { .. } => Operation::Symlink,
            Self::Unlink { .. } => Operation::Unlink,
            Self::RmDir { .. } => Operation::Rmdir,
            Self::Rename { .. } => Operation::Rename,
            Self::Link { .. } => Operation::Link,
            Self::Open { .. } => Operation::Open,
            Self::Create { .. } => Operation::Create,
            Self::TmpFile { .. } => Operation::Tmpfile,
            Self::Read { .. } => Operation::Read,
            Self::Write { .. } => Operation::Write,
            Self::Flush { .. } => Operation::Flush,
            Self::Release { .. } => Operation::Release,
            Self::Fsync { .. } => Operation::Fsync,
            Self::OpenDir { .. } => Operation::Opendir,
            Self::ReadDir { .. } => Operation::Readdir,
            Self::ReleaseDir { .. } => Operation::Releasedir,
            Self::FsyncDir { .. } => Operation::Fsyncdir,
            Self::SyncFs { .. } => Operation::Syncfs,
            Self::StatFs { .. } => Operation::Statfs,
            Self::GetXattr { .. } => Operation::Getxattr,
            Self::SetXattr { .. } => Operation::Setxattr,
            Self::ListXattr { .. } => Operation::Listxattr,
            Self::RemoveXattr { .. } => Operation::Removexattr,
            Self::FileAttrGet { .. } => Operation::FileattrGet,
            Self::FileAttrSet { .. } => Operation::FileattrSet,
            Self::Fallocate { .. } => Operation::Fallocate,
            Self::Lseek { .. } => Operation::Lseek,
            Self::CopyFileRange { .. } => Operation::CopyFileRange,
        }
    }
}
