//! Conversions between the kernel's `statx` and [`Attr`].

use std::ffi::OsStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp, Timespec, Timestamps};

use crate::error::{Errno, Result};
use crate::types::{Attr, FileKind, Ino, Permissions, SetTime, Timestamp};

/// The kernel's special value of `tv_nsec` for the current time.
const UTIME_NOW: i64 = 0x3fff_ffff;
/// The kernel's special value of `tv_nsec` for an unchanged time.
const UTIME_OMIT: i64 = 0x3fff_fffe;

/// The fields needed for an [`Attr`].
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Calls `statx` for an open file; the descriptor may be `O_PATH`.
pub(super) fn stat(file: impl AsFd) -> Result<Statx> {
    Ok(rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, WANTED)?)
}

/// Calls `statx` for a name in a directory; a symbolic link is not followed.
pub(super) fn stat_at(directory: impl AsFd, name: &OsStr) -> Result<Statx> {
    let itself = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statx(directory, name, itself, WANTED)?)
}

/// Returns the magic number of the file system that contains an open file.
pub(super) fn file_system_kind(file: impl AsFd) -> Result<u64> {
    Ok(rustix::fs::fstatfs(file)?.f_type as u64)
}

/// Returns the id of the mount through which a file was opened; `None` if the kernel does not
/// report it (before Linux 5.8).
pub(super) fn mount_id(file: impl AsFd) -> Result<Option<u64>> {
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    Ok(mount_id_of(&stat))
}

fn mount_id_of(stat: &Statx) -> Option<u64> {
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// The device number as one value, for comparison.
pub(super) fn device_of(stat: &Statx) -> u64 {
    u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor)
}

pub(super) fn permissions(stat: &Statx) -> Permissions {
    Permissions::new(u32::from(stat.stx_mode))
}

pub(super) fn to_kind(stat: &Statx) -> Result<FileKind> {
    Ok(FileKind::from_mode(u32::from(stat.stx_mode)).ok_or(Errno::IO)?)
}

pub(super) fn to_attr(ino: Ino, number: u64, stat: &Statx) -> Result<Attr> {
    let mode = u32::from(stat.stx_mode);
    let has_birth_time = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(Attr {
        ino,
        number,
        size: stat.stx_size,
        is_size_known: true,
        blocks: stat.stx_blocks,
        block_size: stat.stx_blksize,
        kind: to_kind(stat)?,
        permissions: Permissions::new(mode),
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        device: encode_device(stat.stx_rdev_major, stat.stx_rdev_minor),
        accessed: to_timestamp(&stat.stx_atime),
        modified: to_timestamp(&stat.stx_mtime),
        changed: to_timestamp(&stat.stx_ctime),
        created: has_birth_time.then(|| to_timestamp(&stat.stx_btime)),
    })
}

fn to_timestamp(time: &StatxTimestamp) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

/// The kernel's 32-bit encoding of a device number (`new_encode_dev`), as used by
/// [`crate::Attr::device`] and [`crate::FileSystem::mknod`].
#[must_use]
pub fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// The inverse of [`encode_device`], in the form for `mknod`.
pub(super) fn decode_device(device: u32) -> rustix::fs::Dev {
    let major = device >> 8 & 0xfff;
    let minor = (device & 0xff) | (device >> 12 & 0xf_ff00);
    rustix::fs::makedev(major, minor)
}

/// The arguments of `utimensat` for changes of the access and modification time; either may be
/// absent.
pub(super) fn to_timestamps(accessed: Option<SetTime>, modified: Option<SetTime>) -> Timestamps {
    Timestamps { last_access: to_timespec(accessed), last_modification: to_timespec(modified) }
}

fn to_timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::To(time)) => {
            Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreported_mount_id_is_none() {
        let mut stat = stat(std::fs::File::open("/").unwrap()).unwrap();
        stat.stx_mask &= !StatxFlags::MNT_ID.bits();
        assert_eq!(mount_id_of(&stat), None);
        stat.stx_mask |= StatxFlags::MNT_ID.bits();
        assert_eq!(mount_id_of(&stat), Some(stat.stx_mnt_id));
    }

    #[test]
    fn device_numbers_survive_the_encoding() {
        for (major, minor) in [(1, 3), (8, 1), (259, 0x4_5678), (0xfff, 0xf_ffff)] {
            let device = decode_device(encode_device(major, minor));
            assert_eq!((rustix::fs::major(device), rustix::fs::minor(device)), (major, minor));
        }
    }
}
