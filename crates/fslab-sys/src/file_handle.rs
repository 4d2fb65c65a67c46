//! File handles as in NFS: they identify inodes even after all descriptors are closed.
//!
//! `name_to_handle_at(2)` returns the handle of an inode, and `open_by_handle_at(2)` opens it. A
//! handle contains the inode's generation. So the handle of a deleted file fails with `ESTALE`,
//! even after the inode number was reused.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::{Errno, Result};
use rustix::path::Arg;

/// The kernel's `MAX_HANDLE_SZ`.
const MAX_BYTES: usize = 128;

/// Maximum length of a handle that is stored without an allocation; enough for ext4, XFS and Btrfs.
const INLINE_BYTES: usize = 20;

/// Maximum number of retries of an open that failed with `ENOMEM`. ext4 returns this error (from
/// `iget_locked`) while the number of a removed inode is being reused. A moment later it returns
/// the right error, `ESTALE`.
const OUT_OF_MEMORY_RETRIES: u32 = 1000;

/// `FILEID_INO32_GEN`. tmpfs uses the same type for another format: the generation, then an inode
/// number of 64 bits.
const INO32_GENERATION: i32 = 1;

/// `FILEID_INO32_GEN | XFS_FILEID_TYPE_64FLAG` (`fs/xfs/xfs_export.h`).
const XFS_INO64_GENERATION: i32 = 0x81;

/// `FILEID_BTRFS_WITHOUT_PARENT`: number, root, generation.
const BTRFS_WITHOUT_PARENT: i32 = 0x4d;

/// The kernel's `struct file_handle` with space for the longest handle.
#[repr(C)]
struct RawHandle {
    byte_count: libc::c_uint,
    kind: libc::c_int,
    bytes: [u8; MAX_BYTES],
}

/// A file handle. Two handles of one file system are equal if and only if they refer to the same
/// inode and generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle {
    kind: i32,
    bytes: HandleBytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum HandleBytes {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Boxed(Box<[u8]>),
}

impl HandleBytes {
    fn new(source: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match bytes.get_mut(..source.len()) {
            Some(start) => {
                start.copy_from_slice(source);
                Self::Inline { length: source.len() as u8, bytes }
            }
            None => Self::Boxed(source.into()),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Boxed(bytes) => bytes,
        }
    }
}

impl FileHandle {
    /// The handle of an open file; the descriptor may be `O_PATH`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file system has no handles.
    pub fn of(file: impl AsFd) -> Result<Self> {
        Self::named(file.as_fd(), c"", libc::AT_EMPTY_PATH)
    }

    /// The handle of a name in a directory; a symbolic link is not followed.
    ///
    /// # Errors
    /// Errors of [`Self::of`], and of looking up the name.
    pub fn at(directory: impl AsFd, name: impl Arg) -> Result<Self> {
        name.into_with_c_str(|name| Self::named(directory.as_fd(), name, 0))
    }

    fn named(directory: BorrowedFd<'_>, name: &CStr, flags: libc::c_int) -> Result<Self> {
        let mut raw =
            RawHandle { byte_count: MAX_BYTES as libc::c_uint, kind: 0, bytes: [0; MAX_BYTES] };
        let mut mount_id: libc::c_int = 0;
        // SAFETY: the name is NUL-terminated and outlives the call; `raw` has the layout of `struct
        // file_handle` followed by `byte_count` bytes; both pointers are to live local variables
        // that nothing else uses during the call.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                directory.as_raw_fd(),
                name.as_ptr(),
                &raw mut raw,
                &raw mut mount_id,
                flags,
            )
        };
        check(answer)?;
        let length = (raw.byte_count as usize).min(MAX_BYTES);
        Ok(Self { kind: raw.kind, bytes: HandleBytes::new(&raw.bytes[..length]) })
    }

    /// The inode number in the handle. Known formats are the kernel's general one
    /// (`include/linux/exportfs.h`), XFS with 64-bit numbers, Btrfs, and tmpfs; others return
    /// `None`.
    ///
    /// User space is not supposed to parse handles, so callers must compare the number with the
    /// result of `stat`.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        let bytes = self.bytes.as_slice();
        let narrow = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let wide = || Some(u64::from_ne_bytes(*bytes.first_chunk()?));
        match (self.kind, bytes.len()) {
            (INO32_GENERATION, 8) => narrow(0).map(u64::from),
            (INO32_GENERATION, 12) => Some(u64::from(narrow(8)?) << 32 | u64::from(narrow(4)?)),
            (XFS_INO64_GENERATION, 12) | (BTRFS_WITHOUT_PARENT, 20) => wide(),
            _ => None,
        }
    }

    /// Offset of the 32-bit generation, in the formats known to [`Self::number`].
    fn place_of_generation(&self) -> Option<usize> {
        match (self.kind, self.bytes.as_slice().len()) {
            (INO32_GENERATION, 8) => Some(4),
            (INO32_GENERATION, 12) => Some(0),
            (XFS_INO64_GENERATION, 12) => Some(8),
            (BTRFS_WITHOUT_PARENT, 20) => Some(16),
            _ => None,
        }
    }

    /// Returns the handle of another inode of the same file system and subvolume. Returns `None`
    /// for an unknown format, or a number that does not fit into it.
    ///
    /// If the generation in a handle is 0, ext4 and Btrfs accept any generation. After opening such
    /// a handle, read the handle of the opened file to get its generation.
    #[must_use]
    pub fn with_number(&self, number: u64, generation: u32) -> Option<Self> {
        let mut bytes = self.bytes.as_slice().to_vec();
        let narrow = u32::try_from(number).ok();
        match (self.kind, bytes.len()) {
            (INO32_GENERATION, 8) => bytes[..4].copy_from_slice(&narrow?.to_ne_bytes()),
            (XFS_INO64_GENERATION, 12) | (BTRFS_WITHOUT_PARENT, 20) => {
                bytes[..8].copy_from_slice(&number.to_ne_bytes());
            }
            _ => return None,
        }
        let at = self.place_of_generation()?;
        bytes[at..at + 4].copy_from_slice(&generation.to_ne_bytes());
        Some(Self { kind: self.kind, bytes: HandleBytes::new(&bytes) })
    }

    /// Returns a hash of the handle that is the same in every session. If two handles of a known
    /// format differ only in their generation, their tags differ. Other handles may have the same
    /// tag by chance.
    #[must_use]
    pub fn tag(&self) -> u32 {
        const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const FNV_PRIME: u64 = 0x100_0000_01b3;
        let bytes = self.bytes.as_slice();
        let place = self.place_of_generation();
        let generation = place.and_then(|at| bytes.get(at..)?.first_chunk().copied());
        let is_hashed = |at: usize| place.is_none_or(|start| !(start..start + 4).contains(&at));
        let hashed = bytes.iter().enumerate().filter(|(at, _)| is_hashed(*at));
        let kind = self.kind.to_le_bytes();
        let hash = kind
            .iter()
            .chain(hashed.map(|(_, byte)| byte))
            .fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
        (hash ^ hash >> 32) as u32 ^ generation.map_or(0, u32::from_ne_bytes)
    }

    /// The subvolume in a Btrfs handle; a subvolume keeps its number for its lifetime.
    #[must_use]
    pub fn subvolume(&self) -> Option<u64> {
        let root = self.bytes.as_slice().get(8..16)?.first_chunk().copied()?;
        (self.kind == BTRFS_WITHOUT_PARENT).then(|| u64::from_ne_bytes(root))
    }

    /// Opens the inode. `mount` is any open file (not `O_PATH`) of its file system.
    ///
    /// # Errors
    /// `ESTALE` if the inode no longer exists, `EPERM` without CAP_DAC_READ_SEARCH.
    pub fn open(&self, mount: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
        for _ in 0..OUT_OF_MEMORY_RETRIES {
            match self.try_to_open(mount, flags) {
                Err(Errno::NOMEM) => std::thread::yield_now(),
                answer => return answer,
            }
        }
        self.try_to_open(mount, flags)
    }

    fn try_to_open(&self, mount: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
        let source = self.bytes.as_slice();
        let mut raw = RawHandle {
            byte_count: source.len() as libc::c_uint,
            kind: self.kind,
            bytes: [0; MAX_BYTES],
        };
        raw.bytes[..source.len()].copy_from_slice(source);
        let flags = flags | OFlags::CLOEXEC;
        // SAFETY: `raw` has the layout of `struct file_handle` with `byte_count` valid bytes and
        // lives through the call; the kernel only reads it.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                &raw const raw,
                flags.bits() as libc::c_int,
            )
        };
        let descriptor = check(answer)? as libc::c_int;
        // SAFETY: the kernel has just returned this descriptor, and no other code owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}

/// Converts the return value of `libc::syscall` to a result.
pub(crate) fn check(answer: libc::c_long) -> Result<libc::c_long> {
    if answer >= 0 {
        return Ok(answer);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(kind: i32, words: &[u32]) -> FileHandle {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        FileHandle { kind, bytes: HandleBytes::new(&bytes) }
    }

    #[test]
    fn handle_with_another_number_keeps_its_format() {
        let ext4 = handle(INO32_GENERATION, &[2, 7]);
        assert_eq!(ext4.with_number(12, 9), Some(handle(INO32_GENERATION, &[12, 9])));
        assert_eq!(ext4.with_number(1 << 32, 0), None);
        let xfs = handle(XFS_INO64_GENERATION, &[128, 0, 7]);
        let other = handle(XFS_INO64_GENERATION, &[5, 1, 9]);
        assert_eq!(xfs.with_number(1 << 32 | 5, 9), Some(other));
        let btrfs = handle(BTRFS_WITHOUT_PARENT, &[256, 0, 5, 0, 7]);
        let other = btrfs.with_number(300, 0).unwrap();
        assert_eq!(other, handle(BTRFS_WITHOUT_PARENT, &[300, 0, 5, 0, 0]));
        assert_eq!((other.number(), other.subvolume()), (Some(300), Some(5)));
        let tmpfs = handle(INO32_GENERATION, &[7, 1, 0]);
        assert_eq!(tmpfs.with_number(2, 0), None, "its generation must be right");
        assert_eq!(handle(0x99, &[1, 2]).with_number(2, 0), None);
    }

    #[test]
    fn tags_differ_by_generation_number_and_subvolume() {
        let one = handle(BTRFS_WITHOUT_PARENT, &[256, 0, 5, 0, 7]);
        for other in [[256, 0, 5, 0, 8], [257, 0, 5, 0, 7], [256, 0, 6, 0, 7]] {
            assert_ne!(one.tag(), handle(BTRFS_WITHOUT_PARENT, &other).tag(), "{other:?}");
        }
        assert_eq!(one.tag() ^ 7, one.with_number(256, 0).unwrap().tag(), "exact in generations");
    }
}
