//! The kinds of requests.

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are those of the protocol")]
pub(crate) enum Opcode {
    Lookup = 1,
    Forget = 2,
    Getattr = 3,
    Setattr = 4,
    Readlink = 5,
    Symlink = 6,
    Mknod = 8,
    Mkdir = 9,
    Unlink = 10,
    Rmdir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    Statfs = 17,
    Release = 18,
    Fsync = 20,
    Setxattr = 21,
    Getxattr = 22,
    Listxattr = 23,
    Removexattr = 24,
    Flush = 25,
    Init = 26,
    Opendir = 27,
    Readdir = 28,
    Releasedir = 29,
    Fsyncdir = 30,
    Create = 35,
    Interrupt = 36,
    Destroy = 38,
    Ioctl = 39,
    BatchForget = 42,
    Fallocate = 43,
    Readdirplus = 44,
    Rename2 = 45,
    Lseek = 46,
    CopyFileRange = 47,
    Syncfs = 50,
    Tmpfile = 51,
    Statx = 52,
    CopyFileRange64 = 53,
}

impl Opcode {
    /// All opcodes.
    pub const ALL: [Self; 42] = [
        Self::Lookup,
        Self::Forget,
        Self::Getattr,
        Self::Setattr,
        Self::Readlink,
        Self::Symlink,
        Self::Mknod,
        Self::Mkdir,
        Self::Unlink,
        Self::Rmdir,
        Self::Rename,
        Self::Link,
        Self::Open,
        Self::Read,
        Self::Write,
        Self::Statfs,
        Self::Release,
        Self::Fsync,
        Self::Setxattr,
        Self::Getxattr,
        Self::Listxattr,
        Self::Removexattr,
        Self::Flush,
        Self::Init,
        Self::Opendir,
        Self::Readdir,
        Self::Releasedir,
        Self::Fsyncdir,
        Self::Create,
        Self::Interrupt,
        Self::Destroy,
        Self::Ioctl,
        Self::BatchForget,
        Self::Fallocate,
        Self::Readdirplus,
        Self::Rename2,
        Self::Lseek,
        Self::CopyFileRange,
        Self::Syncfs,
        Self::Tmpfile,
        Self::Statx,
        Self::CopyFileRange64,
    ];

    /// Returns the opcode with a number; `None` for unsupported requests, such as locks, poll and
    /// bmap. `ENOSYS` is the right reply to these, because the kernel then handles them itself.
    pub fn from_number(number: u32) -> Option<Self> {
        const BY_NUMBER: [Option<Opcode>; 64] = by_number();
        BY_NUMBER.get(number as usize).copied().flatten()
    }

    /// Whether the kernel expects no reply.
    pub fn has_no_reply(self) -> bool {
        matches!(self, Self::Forget | Self::BatchForget | Self::Interrupt)
    }

    /// Whether serving such a request probably waits for a device, so that another thread should
    /// read the next request at once.
    pub fn is_slow(self) -> bool {
        matches!(
            self,
            Self::Fsync
                | Self::Fsyncdir
                | Self::Syncfs
                | Self::Fallocate
                | Self::CopyFileRange
                | Self::CopyFileRange64
        )
    }

    /// The operation's name, for messages and for the list of operations that may return `ENOSYS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Forget => "forget",
            Self::Getattr => "getattr",
            Self::Setattr => "setattr",
            Self::Readlink => "readlink",
            Self::Symlink => "symlink",
            Self::Mknod => "mknod",
            Self::Mkdir => "mkdir",
            Self::Unlink => "unlink",
            Self::Rmdir => "rmdir",
            Self::Rename | Self::Rename2 => "rename",
            Self::Link => "link",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Statfs => "statfs",
            Self::Release => "release",
            Self::Fsync => "fsync",
            Self::Setxattr => "setxattr",
            Self::Getxattr => "getxattr",
            Self::Listxattr => "listxattr",
            Self::Removexattr => "removexattr",
            Self::Flush => "flush",
            Self::Init => "init",
            Self::Opendir => "opendir",
            Self::Readdir => "readdir",
            Self::Releasedir => "releasedir",
            Self::Fsyncdir => "fsyncdir",
            Self::Create => "create",
            Self::Interrupt => "interrupt",
            Self::Destroy => "destroy",
            Self::Ioctl => "ioctl",
            Self::BatchForget => "batch_forget",
            Self::Fallocate => "fallocate",
            Self::Readdirplus => "readdirplus",
            Self::Lseek => "lseek",
            Self::CopyFileRange | Self::CopyFileRange64 => "copy_file_range",
            Self::Syncfs => "syncfs",
            Self::Tmpfile => "tmpfile",
            Self::Statx => "statx",
        }
    }
}

const fn by_number() -> [Option<Opcode>; 64] {
    let mut table = [None; 64];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        let opcode = Opcode::ALL[index];
        table[opcode as usize] = Some(opcode);
        index += 1;
    }
    table
}
