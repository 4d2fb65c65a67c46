//! Tests mounts whose files only the mount changes. The kernel caches names for a day, and pages
//! until they are evicted. In these tests, it also caches attributes for an hour.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fslab_vfs_testing::environment::{number, seed};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, RenameFlags, StatxFlags, XattrFlags, fallocate, removexattr,
    renameat_with, setxattr, statx,
};
use rustix::io::Errno;

use crate::ext2;
use crate::support::{Place, require_mounting, run, soon};

/// Number of random operations in one stack.
const OPERATIONS: u64 = 3000;

/// Random numbers.
struct Choices(u64);

impl Choices {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % count
    }

    fn of<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[self.below(N as u64) as usize]
    }
}

/// Returns one of a few names in one of a few directories. Most of them exist after a while.
fn any_path(point: &Path, choices: &mut Choices) -> PathBuf {
    let directory = choices.of(["", "n0", "n1", "n0/n1"]);
    point.join(directory).join(format!("n{}", choices.below(6)))
}

/// Performs a random operation. It fails if the name does not exist, or if it is of the wrong kind.
fn operate(point: &Path, choices: &mut Choices) -> io::Result<()> {
    let (path, other) = (any_path(point, choices), any_path(point, choices));
    let (offset, length) = (choices.below(100_000), 1 + choices.below(20_000));
    let data = vec![choices.below(256) as u8; length as usize];
    let file = || OpenOptions::new().read(true).write(true).open(&path);
    match choices.below(21) {
        0 | 1 => fs::write(&path, &data),
        2 | 3 => file()?.write_all_at(&data, offset),
        4 => file()?.set_len(offset),
        5 => fs::set_permissions(&path, Permissions::from_mode(0o700 + choices.below(64) as u32)),
        6 => chown(&path, Some(choices.below(3) as u32), Some(choices.below(3) as u32)),
        7 => fs::hard_link(&path, &other),
        8 => fs::remove_file(&path),
        9 => fs::rename(&path, &other),
        10 => Ok(renameat_with(CWD, &path, CWD, &other, RenameFlags::EXCHANGE)?),
        11 | 12 => fs::create_dir(&path),
        13 => fs::remove_dir(&path),
        14 => symlink("target", &path),
        15 => {
            let value = &data[..data.len().min(900)];
            Ok(setxattr(&path, choices.of(["user.one", "user.two"]), value, XattrFlags::empty())?)
        }
        16 => Ok(removexattr(&path, "user.one")?),
        17 => File::open(&path)?.read_at(&mut vec![0; 5000], offset).map(drop),
        18 => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(file()?, choices.of([FallocateFlags::empty(), hole]), offset, length)?)
        }
        19 => fs::copy(&path, &other).map(drop),
        _ => file()?.set_modified(SystemTime::now() - Duration::from_secs(offset)),
    }
}

/// The positions of the allocated blocks, the access time and the change time in [`attributes`]. A
/// codec changes them when it reads and writes the stored file in the background.
const CHANGED_BY_CODECS: [usize; 3] = [6, 7, 9];

/// The attributes of a file: those in the kernel's cache if they are valid, or with
/// `STATX_FORCE_SYNC` those of the daemon.
fn attributes(path: &Path, flags: AtFlags) -> Result<Vec<i128>, Errno> {
    let flags = flags | AtFlags::SYMLINK_NOFOLLOW;
    let found = statx(CWD, path, flags, StatxFlags::BASIC_STATS)?;
    let numbers = [
        u64::from(found.stx_mode),
        found.stx_nlink.into(),
        found.stx_uid.into(),
        found.stx_gid.into(),
        found.stx_ino,
        found.stx_size,
        found.stx_blocks,
    ];
    let times = [found.stx_atime, found.stx_mtime, found.stx_ctime];
    let ns = |time: rustix::fs::StatxTimestamp| {
        i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
    };
    Ok(numbers.map(i128::from).into_iter().chain(times.map(ns)).collect())
}

/// Performs random operations. The attributes that programs see must always be those of the daemon,
/// except those at the positions `outdated` of [`attributes`].
#[track_caller]
fn show_current_attributes(place: &Place, outdated: &[usize]) {
    let mut choices = Choices(seed());
    let (mut succeeded, mut compared) = (0, 0);
    let operations = number("FSLAB_OPERATIONS").unwrap_or(OPERATIONS);
    for step in 0..operations {
        succeeded += u64::from(operate(&place.point, &mut choices).is_ok());
        // Most attributes stay in the cache for many operations before they are compared.
        let path = any_path(&place.point, &mut choices);
        for path in [&path, path.parent().unwrap()] {
            let compared_ones = |found: Vec<i128>| -> Vec<i128> {
                let kept =
                    found.into_iter().enumerate().filter(|(index, _)| !outdated.contains(index));
                kept.map(|(_, value)| value).collect()
            };
            let shown = attributes(path, AtFlags::empty()).map(compared_ones);
            if choices.below(4) > 0 {
                continue;
            }
            let current = attributes(path, AtFlags::STATX_FORCE_SYNC).map(compared_ones);
            assert_eq!(shown, current, "{} after operation {step}", path.display());
            compared += u64::from(current.is_ok());
        }
    }
    assert!(succeeded > operations / 10 && compared > operations / 10, "{succeeded} {compared}");
    place.umount();
}

#[test]
fn mounted_image_never_shows_outdated_attributes() {
    require_mounting!();
    let (place, image) = ext2::mounted("64MiB", &["-o", "attr_timeout=1h"]);
    show_current_attributes(&place, &[]);
    ext2::check(&image);
}

#[test]
fn exclusive_directory_never_shows_outdated_attributes() {
    require_mounting!();
    let outdated: [(&str, &[usize]); 3] =
        [("null", &[]), ("null:passthrough=off", &[]), ("zstd", &CHANGED_BY_CODECS)];
    for (layer, outdated) in outdated {
        show_current_attributes(
            &Place::mounted(&["-l", layer, "-o", "exclusive,attr_timeout=1h"]),
            outdated,
        );
    }
}

/// A name that another program removes from the lower directory remains visible only with
/// `exclusive`, which promises that there is no such program.
#[test]
fn names_are_cached_for_longer_than_a_second_only_if_the_mount_is_exclusive() {
    require_mounting!();
    for (options, is_cached) in [("exclusive,attr_timeout=1h", true), ("attr_timeout=1h", false)] {
        let place = Place::mounted(&["-l", "null", "-o", options]);
        fs::write(place.point.join("file"), "content").unwrap();
        assert!(place.point.join("file").exists());
        fs::remove_file(place.lower.join("file")).unwrap();
        if is_cached {
            std::thread::sleep(Duration::from_millis(2500));
            assert!(place.point.join("file").exists(), "{options}");
        } else {
            soon("the name was removed", || !place.point.join("file").exists());
        }
        place.umount();
    }
}

#[test]
fn exclusive_is_refused_for_a_tier() {
    require_mounting!();
    let place = Place::new();
    let (lower, point) = (place.lower.to_str().unwrap(), place.point.to_str().unwrap());
    let (code, message) = run(&["mount", "-l", "tier", "-o", "exclusive", lower, point]);
    assert!(code == 3 && message.contains("not possible with the layer 'tier'"), "{message}");
}
