//! Shares a range of blocks between two files with FICLONERANGE. Btrfs, XFS and some other file
//! systems support it.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Result;

use crate::file_handle::check;

/// `FICLONERANGE`, from include/uapi/linux/fs.h.
const CLONE_RANGE: libc::c_ulong = 0x4020_940d;

/// `struct file_clone_range`, from the same file.
#[repr(C)]
struct FileCloneRange {
    source: i64,
    source_offset: u64,
    length: u64,
    target_offset: u64,
}

/// Makes a range of one file share the blocks of a range of another. Both ranges start at block
/// boundaries of the file system, and end at one or at the end of the source.
///
/// Fails with `EOPNOTSUPP`, `ENOTTY` or `EINVAL` if these files can't share blocks, and with
/// `EXDEV` if they are in different file systems.
pub fn range(
    (source, source_offset): (impl AsFd, u64),
    (target, target_offset): (impl AsFd, u64),
    length: u64,
) -> Result<()> {
    let source = i64::from(source.as_fd().as_raw_fd());
    let asked = FileCloneRange { source, source_offset, length, target_offset };
    let target = target.as_fd().as_raw_fd();
    // SAFETY: both descriptors are open, and the kernel reads one structure of this layout.
    let answer = unsafe { libc::ioctl(target, CLONE_RANGE, &raw const asked) };
    check(answer.into())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Seek, Write};

    use rustix::io::Errno;

    use super::range;

    #[test]
    fn a_cloned_range_has_the_bytes_of_its_source_or_the_call_is_refused() {
        let mut source = tempfile::tempfile_in(".").unwrap();
        source.write_all(&[7; 8192]).unwrap();
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("target");
        fs::write(&path, [1; 12288]).unwrap();
        let mut target = fs::File::options().read(true).write(true).open(&path).unwrap();
        match range((&source, 4096), (&target, 4096), 4096) {
            Ok(()) => {
                let bytes = fs::read(&path).unwrap();
                assert!(bytes[..4096] == [1; 4096] && bytes[4096..8192] == [7; 4096]);
                assert_eq!(bytes[8192..], [1; 4096]);
            }
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => {
                assert_eq!(fs::read(&path).unwrap(), [1; 12288]);
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(target.stream_position().unwrap(), 0);
    }
}
