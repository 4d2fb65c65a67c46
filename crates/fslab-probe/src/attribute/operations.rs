//! `supports-*`: operations beyond reading and writing, found by performing them.

use std::os::unix::fs::FileExt;
use std::{fs, io};

use fslab_sys::{exchange_range, verity};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};

use super::{Attribute, in_directory};
use crate::finding::{Finding, Method, Value};
use crate::ground::{Ground, Scratch};

pub(super) static REFLINK: Attribute =
    in_directory("supports-reflink", "files can share blocks (FICLONE)", |ground| {
        let source = filled(ground)?;
        let copy = ground.fresh()?;
        let done = rustix::fs::ioctl_ficlone(&copy.file, &source.file);
        conclude(done, || Ok(content(&copy)? == content(&source)?))
    });

pub(super) static PUNCH: Attribute =
    in_directory("supports-punch", "holes can be punched into files", |ground| {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        change(ground, flags, |before| {
            let mut after = before.to_vec();
            after[MIDDLE].fill(0);
            after
        })
    });

pub(super) static ZERO_RANGE: Attribute =
    in_directory("supports-zero-range", "ranges of files can be zeroed", |ground| {
        change(ground, FallocateFlags::ZERO_RANGE, |before| {
            let mut after = before.to_vec();
            after[MIDDLE].fill(0);
            after
        })
    });

pub(super) static COLLAPSE: Attribute =
    in_directory("supports-collapse", "ranges can be removed from files", |ground| {
        change(ground, FallocateFlags::COLLAPSE_RANGE, |before| {
            [&before[..PIECE], &before[2 * PIECE..]].concat()
        })
    });

pub(super) static INSERT: Attribute =
    in_directory("supports-insert", "holes can be inserted into files", |ground| {
        change(ground, FallocateFlags::INSERT_RANGE, |before| {
            [&before[..PIECE], &[0; PIECE], &before[PIECE..]].concat()
        })
    });

pub(super) static EXCHANGE: Attribute =
    in_directory("supports-exchange", "two names can be exchanged atomically", |ground| {
        let (one, other) = (ground.fresh()?, ground.fresh()?);
        one.fill(0, 1)?;
        let done =
            rustix::fs::renameat_with(CWD, one.path(), CWD, other.path(), RenameFlags::EXCHANGE);
        conclude(done, || Ok(fs::metadata(other.path())?.len() == 1))
    });

pub(super) static EXCHANGE_RANGE: Attribute = in_directory(
    "supports-exchange-range",
    "contents of two files can be exchanged atomically",
    |ground| {
        let (one, other) = (filled(ground)?, ground.fresh()?);
        other.file.write_all_at(&vec![7; PIECES * PIECE], 0)?;
        let other = other.settle()?;
        let done = exchange_range::exchange_ranges(&one.file, &other.file, (PIECES * PIECE) as u64);
        conclude(done, || Ok(content(&one)?.iter().all(|byte| *byte == 7)))
    },
);

pub(super) static VERITY: Attribute = in_directory(
    "supports-verity",
    "files can be made read-only, with each read verified by a hash tree (fs-verity)",
    |ground| {
        let scratch = filled(ground)?;
        let sealed = scratch.for_reading_only()?;
        let done = verity::enable_verity(&sealed.file, BLOCK_OF_SUMS);
        conclude(done, || Ok(fs::OpenOptions::new().write(true).open(sealed.path()).is_err()))
    },
);

/// Block size of the fs-verity hash tree: the only one that every kernel version supports.
const BLOCK_OF_SUMS: u32 = 4096;

pub(super) static UNNAMED: Attribute =
    in_directory("supports-tmpfile", "files can be created without a name (O_TMPFILE)", |ground| {
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        let made = rustix::fs::open(ground.directory(), flags, Mode::RUSR | Mode::WUSR);
        conclude(made.map(|_file| ()), || Ok(true))
    });

pub(super) static USER_XATTR: Attribute =
    in_directory("supports-user-xattr", "files accept extended attributes in user.*", |ground| {
        let scratch = ground.fresh()?;
        let done =
            rustix::fs::fsetxattr(&scratch.file, "user.fslab-probe", b"value", XattrFlags::empty());
        conclude(done, || {
            let mut value = [0; 16];
            let length = rustix::fs::fgetxattr(&scratch.file, "user.fslab-probe", &mut value)?;
            Ok(&value[..length] == b"value")
        })
    });

/// Length of the changed range in bytes: a multiple of every block and cluster size in use.
const PIECE: usize = 1 << 20;
const PIECES: usize = 3;
const MIDDLE: std::ops::Range<usize> = PIECE..2 * PIECE;

fn filled(ground: &Ground) -> io::Result<Scratch> {
    ground.stored((PIECES * PIECE) as u64)
}

fn content(scratch: &Scratch) -> io::Result<Vec<u8>> {
    let length = usize::try_from(scratch.file.metadata()?.len()).map_err(io::Error::other)?;
    let mut content = vec![0; length];
    scratch.file.read_exact_at(&mut content, 0)?;
    Ok(content)
}

/// Performs an operation of fallocate(2) on the middle piece of a file, and compares the whole file
/// with the expected content.
fn change(
    ground: &Ground,
    flags: FallocateFlags,
    expected: fn(&[u8]) -> Vec<u8>,
) -> io::Result<Finding> {
    let scratch = filled(ground)?;
    let before = content(&scratch)?;
    let done = rustix::fs::fallocate(&scratch.file, flags, PIECE as u64, PIECE as u64);
    conclude(done, || Ok(content(&scratch)? == expected(&before)))
}

fn conclude(
    done: rustix::io::Result<()>,
    is_right: impl FnOnce() -> io::Result<bool>,
) -> io::Result<Finding> {
    const NAME: &str = "result of the operation, compared with the expected result";
    Ok(Finding::by(match done {
        Ok(()) if is_right()? => Method::found(NAME, Value::Word("yes"), Vec::new()),
        Ok(()) => Method::failed(NAME, "the operation succeeds with a wrong result", Vec::new()),
        Err(error) if means_no(error) => Method::found(NAME, Value::Word("no"), Vec::new()),
        Err(error) => Method::failed(NAME, format!("the operation fails with {error}"), Vec::new()),
    }))
}

/// Whether an error means that the file system does not support the operation.
fn means_no(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    [Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOTTY, Errno::INVAL, Errno::ISDIR].contains(&error)
}
