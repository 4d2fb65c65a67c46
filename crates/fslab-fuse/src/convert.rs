//! Conversions between structures of the FUSE protocol and types of the `FileSystem` trait.

use fslab_vfs::{Attr, Errno, Error, OpenMode, Timestamp};

use crate::protocol::reply;

const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

/// The first error number that is internal to the kernel.
const KERNELS_OWN: i32 = 512;
/// An error number internal to the kernel, which some network file systems return instead of
/// `EOPNOTSUPP`.
const ENOTSUPP: i32 = 524;

fn to_mode(attr: &Attr) -> u32 {
    attr.kind.mode_bits() | attr.permissions.bits()
}

pub(crate) fn to_attr(attr: &Attr) -> reply::Attr {
    reply::Attr {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.accessed.seconds,
        mtime: attr.modified.seconds,
        ctime: attr.changed.seconds,
        atimensec: attr.accessed.nanoseconds,
        mtimensec: attr.modified.nanoseconds,
        ctimensec: attr.changed.nanoseconds,
        mode: to_mode(attr),
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.device,
        blksize: attr.block_size,
        flags: 0,
    }
}

pub(crate) fn to_statx(attr: &Attr) -> reply::Statx {
    let birth_mask = if attr.created.is_some() { STATX_BTIME } else { 0 };
    reply::Statx {
        mask: STATX_BASIC_STATS | birth_mask,
        blksize: attr.block_size,
        attributes: 0,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        // The file type and permission bits fit into sixteen bits.
        mode: to_mode(attr) as u16,
        spare0: 0,
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        attributes_mask: 0,
        atime: to_sx_time(attr.accessed),
        btime: to_sx_time(attr.created.unwrap_or_default()),
        ctime: to_sx_time(attr.changed),
        mtime: to_sx_time(attr.modified),
        rdev_major: attr.device >> 8 & 0xfff,
        rdev_minor: (attr.device & 0xff) | (attr.device >> 12 & 0xf_ff00),
        dev_major: 0,
        dev_minor: 0,
        spare2: [0; 14],
    }
}

fn to_sx_time(time: Timestamp) -> reply::SxTime {
    reply::SxTime { tv_sec: time.seconds, tv_nsec: time.nanoseconds, reserved: 0 }
}

/// Converts the kernel's open flags to those for the file system. In writeback mode, the kernel
/// also reads pages through write-only descriptors, and handles appends itself.
pub(crate) fn to_open_mode(flags: u32, writeback: bool) -> OpenMode {
    let mut mode = OpenMode::from_bits_retain(flags);
    if writeback {
        if mode.contains(OpenMode::WRITE_ONLY) {
            mode = (mode - OpenMode::WRITE_ONLY) | OpenMode::READ_WRITE;
        }
        mode -= OpenMode::APPEND;
    }
    mode
}

/// Returns the errno to send to the kernel for an error of an operation.
///
/// `ENOSYS` is sent only for the operations listed here, and only if no file system of the stack
/// implements the operation. The kernel then stops sending this operation on the connection. It
/// returns `EOPNOTSUPP` itself or uses its own fallback. For other operations, `ENOSYS` would be
/// wrong. After an `ENOSYS` to fsync, for example, the kernel would report success for every fsync.
///
/// Error numbers from 512 on are internal to the kernel, but lower file systems sometimes return
/// them. The kernel refuses a reply with such a number, so the calling program would wait forever.
pub(crate) fn to_errno(operation: &str, error: &Error) -> Errno {
    const REMEMBERED_RIGHTLY: &[&str] = &[
        "copy_file_range",
        "fallocate",
        "flush",
        "getxattr",
        "listxattr",
        "lseek",
        "removexattr",
        "setxattr",
        "tmpfile",
    ];
    let is_missing = matches!(error, Error::NotImplemented { .. });
    match error.errno() {
        Errno::NOSYS if is_missing && REMEMBERED_RIGHTLY.contains(&operation) => Errno::NOSYS,
        Errno::NOSYS => Errno::OPNOTSUPP,
        errno => match errno.raw_os_error() {
            ..KERNELS_OWN => errno,
            ENOTSUPP => Errno::OPNOTSUPP,
            _ => Errno::IO,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enosys_is_never_answered_to_fsync() {
        let missing = Error::NotImplemented { operation: "fsync" };
        assert_eq!(to_errno("fsync", &missing), Errno::OPNOTSUPP);
        assert_eq!(to_errno("lseek", &missing), Errno::NOSYS);
        let from_below = Error::Errno(Errno::NOSYS);
        assert_eq!(to_errno("lseek", &from_below), Errno::OPNOTSUPP);
    }

    #[test]
    fn error_numbers_invalid_in_replies_are_replaced() {
        let answer = |number| {
            to_errno("setxattr", &Error::Errno(Errno::from_raw_os_error(number))).raw_os_error()
        };
        assert_eq!([1, 133, 511].map(answer), [1, 133, 511]);
        assert_eq!(answer(524), Errno::OPNOTSUPP.raw_os_error());
        assert_eq!([512, 521, 4095].map(answer), [Errno::IO.raw_os_error(); 3]);
    }

    #[test]
    fn writeback_opens_for_reading_and_drops_the_append_flag() {
        let mode = to_open_mode(0o2001, true);
        assert_eq!(mode, OpenMode::READ_WRITE);
        assert_eq!(to_open_mode(0o2001, false), OpenMode::WRITE_ONLY | OpenMode::APPEND);
    }
}
