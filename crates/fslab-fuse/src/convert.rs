//! Between fuser's types and those of the trait.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fslab_vfs::{
    Attr, Credentials, Error, FileKind, OpenMode, Permissions, Request, SetAttr, SetTime, Timestamp,
};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};

pub(crate) fn to_request(request: &fuser::Request, umask: u32) -> Request {
    Request {
        credentials: Credentials { uid: request.uid(), gid: request.gid() },
        pid: request.pid(),
        umask,
        now: SystemTime::now().into(),
    }
}

pub(crate) fn to_file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: to_system_time(attr.accessed),
        mtime: to_system_time(attr.modified),
        ctime: to_system_time(attr.changed),
        crtime: attr.created.map_or(UNIX_EPOCH, to_system_time),
        kind: to_file_type(attr.kind),
        // Twelve bits always fit.
        perm: attr.permissions.bits() as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.device,
        blksize: attr.block_size,
        flags: 0,
    }
}

/// What a listing tells of an entry whose attributes could not be had.
pub(crate) fn bare_file_attr(ino: fslab_vfs::Ino, kind: FileKind) -> FileAttr {
    to_file_attr(&Attr {
        ino,
        size: 0,
        blocks: 0,
        block_size: 0,
        kind,
        permissions: Permissions::new(0),
        links: 0,
        uid: 0,
        gid: 0,
        device: 0,
        accessed: Timestamp::default(),
        modified: Timestamp::default(),
        changed: Timestamp::default(),
        created: None,
    })
}

pub(crate) fn to_file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

fn to_system_time(time: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds));
    if time.seconds >= 0 {
        UNIX_EPOCH + whole + nanoseconds
    } else {
        UNIX_EPOCH - whole + nanoseconds
    }
}

/// A time the kernel sent. fuser takes the nanoseconds of a time before 1970 as counted backwards,
/// although the kernel counts them forwards; taking them back as fuser put them in is exact.
pub(crate) fn to_timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => time.into(),
        Err(before) => {
            let distance = before.duration();
            let seconds = i64::try_from(distance.as_secs()).map_or(i64::MIN, |seconds| -seconds);
            Timestamp { seconds, nanoseconds: distance.subsec_nanos() }
        }
    }
}

fn to_set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(to_timestamp(time)),
    }
}

/// The changes of a SETATTR request.
pub(crate) fn to_changes(
    mode: Option<u32>,
    (uid, gid): (Option<u32>, Option<u32>),
    size: Option<u64>,
    (accessed, modified): (Option<TimeOrNow>, Option<TimeOrNow>),
    kill_set_id: bool,
) -> SetAttr {
    SetAttr {
        permissions: mode.map(Permissions::new),
        uid,
        gid,
        size,
        accessed: accessed.map(to_set_time),
        modified: modified.map(to_set_time),
        kill_set_id,
    }
}

/// The flags of an opening as the file system sees them. In writeback mode the kernel reads pages
/// of files opened for writing only, and appends by itself.
pub(crate) fn to_open_mode(flags: i32, writeback: bool) -> OpenMode {
    let mut mode = OpenMode::from_bits_retain(flags as u32);
    if writeback {
        if mode.contains(OpenMode::WRITE_ONLY) {
            mode = (mode - OpenMode::WRITE_ONLY) | OpenMode::READ_WRITE;
        }
        mode -= OpenMode::APPEND;
    }
    mode
}

/// What an operation that no file system of the stack has answers to the kernel.
///
/// `ENOSYS` is remembered for the whole connection where the kernel has a meaning for it. That is
/// right for these: it then answers `EOPNOTSUPP` by itself or uses its own fallback. Everywhere
/// else, above all for fsync (where the kernel would take `ENOSYS` as success), it must not be
/// sent.
pub(crate) fn to_errno(operation: &str, error: &Error) -> fuser::Errno {
    const REMEMBERED_RIGHTLY: &[&str] = &[
        "copy_file_range",
        "fallocate",
        "flush",
        "getxattr",
        "listxattr",
        "lseek",
        "removexattr",
        "setxattr",
    ];
    let is_missing = matches!(error, Error::NotImplemented { .. });
    let errno = error.errno();
    if errno != rustix::io::Errno::NOSYS {
        fuser::Errno::from_i32(errno.raw_os_error())
    } else if is_missing && REMEMBERED_RIGHTLY.contains(&operation) {
        fuser::Errno::ENOSYS
    } else {
        fuser::Errno::EOPNOTSUPP
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_time_before_1970_survives_the_way_through_fuser() {
        // The kernel sends seconds -2 and nanoseconds 800,000,000 for -1.2 s; fuser makes this:
        let made_by_fuser = UNIX_EPOCH - Duration::new(2, 800_000_000);
        let time = to_timestamp(made_by_fuser);
        assert_eq!(time, Timestamp { seconds: -2, nanoseconds: 800_000_000 });
        assert_eq!(to_system_time(time), UNIX_EPOCH - Duration::from_millis(1200));
    }

    #[test]
    fn enosys_is_never_answered_to_fsync() {
        let missing = Error::NotImplemented { operation: "fsync" };
        assert_eq!(to_errno("fsync", &missing), fuser::Errno::EOPNOTSUPP);
        assert_eq!(to_errno("lseek", &missing), fuser::Errno::ENOSYS);
        let from_below = Error::Errno(Errno::NOSYS);
        assert_eq!(to_errno("lseek", &from_below), fuser::Errno::EOPNOTSUPP);
    }

    #[test]
    fn writeback_reads_what_it_writes_and_appends_itself() {
        let mode = to_open_mode(0o2001, true);
        assert_eq!(mode, OpenMode::READ_WRITE);
        assert_eq!(to_open_mode(0o2001, false), OpenMode::WRITE_ONLY | OpenMode::APPEND);
    }
}
