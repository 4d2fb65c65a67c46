//! Tests set-id bits in mounts. A privileged user's writes keep them, even if a thread of the
//! daemon has dropped capabilities to register another file for passthrough.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use fslab_vfs_testing::skip::skip;
use rustix::fs::{CWD, FallocateFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};

use crate::support::{Place, require_mounting};

#[test]
fn writing_by_root_keeps_set_id_bits() {
    require_mounting!();
    let stacks = [["-l", "null"], ["-l", "null:passthrough=off"], ["-l", "copy"]];
    for arguments in stacks.into_iter().chain([["-o", "writeback"]]) {
        let place = Place::mounted(&arguments);
        let path = place.point.join("file");
        fs::write(&path, "xxx").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        fs::write(place.point.join("other"), "").unwrap();
        let pass_another_through = || drop(File::open(place.point.join("other")).unwrap());
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        // Opening another file registers it for passthrough. To do this, a thread of the daemon
        // drops the capability that a write needs to keep the bits.
        pass_another_through();
        file.write_all(b"y").unwrap();
        pass_another_through();
        file.set_len(1).unwrap();
        pass_another_through();
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 8192).unwrap();
        pass_another_through();
        OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        drop(file);
        let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o6777, "{arguments:?}: {mode:o}");
        place.umount();
    }
}

/// An ACL that is equivalent to mode 770. After the version (2), it contains tag, permissions and
/// ID for the owner, the group and others.
const ACCESS_LIST: [u8; 28] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255,
    255, 255, 255,
];

/// Makes or changes a file with a set-group-id bit in a directory of another group. The caller is
/// root, who is not a member of that group. Returns the resulting mode.
type Change = fn(&Path) -> rustix::io::Result<u32>;

const CHANGES: [(&str, Change); 5] = [
    ("create", |path| {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o2710))?;
        Ok(rustix::fs::fstat(file)?.st_mode)
    }),
    ("mknod", |path| {
        let (kind, mode) = (FileType::RegularFile, Mode::from_raw_mode(0o2710));
        rustix::fs::mknodat(CWD, path, kind, mode, 0)?;
        Ok(rustix::fs::stat(path)?.st_mode)
    }),
    ("tmpfile", |path| {
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        let file = rustix::fs::open(path.parent().unwrap(), flags, Mode::from_raw_mode(0o2710))?;
        Ok(rustix::fs::fstat(file)?.st_mode)
    }),
    ("setxattr", |path| {
        let file = with_set_group_id(path);
        rustix::fs::fsetxattr(&file, "system.posix_acl_access", &ACCESS_LIST, XattrFlags::empty())?;
        Ok(rustix::fs::fstat(file)?.st_mode)
    }),
    ("copy_file_range", |path| {
        let (source, file) =
            (File::open(path.with_file_name("source")).unwrap(), with_set_group_id(path));
        rustix::fs::copy_file_range(source, None, &file, None, 3)?;
        Ok(rustix::fs::fstat(file)?.st_mode)
    }),
];

fn with_set_group_id(path: &Path) -> File {
    let file = File::create(path).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o2770)).unwrap();
    file
}

/// Changes by root keep the set-group-id bit, even if threads of the daemon have dropped the
/// necessary capability for other requests.
#[test]
fn root_keeps_set_group_id_bits_of_foreign_groups() {
    const FOREIGN: u32 = 12_345;
    require_mounting!();
    if !rustix::process::geteuid().is_root() {
        return skip("root_keeps_set_group_id_bits_of_foreign_groups", "not root");
    }
    let place = Place::mounted(&["-l", "null"]);
    let directory = place.point.join("directory");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("source"), "xxx").unwrap();
    std::os::unix::fs::chown(&directory, None, Some(FOREIGN)).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2777)).unwrap();
    let mut lost = Vec::new();
    for (what, change) in CHANGES {
        // The daemon has several threads, and only some have dropped the capability, so repeat
        // this.
        for attempt in 0..8 {
            drop(File::open(directory.join("source")).unwrap());
            let mode = change(&directory.join(format!("{what}-{attempt}"))).unwrap();
            lost.extend((mode & 0o2000 == 0).then_some(what));
        }
    }
    place.umount();
    assert_eq!(lost, [""; 0], "these clear the bit");
}

/// A user who changes a file that belongs to the group [`GROUP`].
struct Caller {
    uid: u32,
    gid: u32,
    groups: &'static [u32],
}

const GROUP: u32 = 12_345;

const CALLERS: [(&str, Caller); 4] = [
    ("root", Caller { uid: 0, gid: 0, groups: &[] }),
    ("a member", Caller { uid: 1001, gid: GROUP, groups: &[] }),
    ("a member by a supplementary group", Caller { uid: 1001, gid: 1001, groups: &[7, GROUP] }),
    ("a stranger", Caller { uid: 1001, gid: 1001, groups: &[7] }),
];

const MODES: [u32; 6] = [0o666, 0o2666, 0o2676, 0o4666, 0o6666, 0o6677];

/// A change of an open file of 16 KiB. The second argument is a file that can be copied from.
type ChangeOfOpen = fn(&File, &File) -> rustix::io::Result<()>;

const CHANGES_OF_OPEN: [(&str, ChangeOfOpen); 8] = [
    ("write", |file, _| rustix::io::pwrite(file, b"x", 0).map(drop)),
    ("truncate", |file, _| rustix::fs::ftruncate(file, 5)),
    ("reserve", |file, _| reserve(file, FallocateFlags::empty())),
    ("reserve past the end", |file, _| reserve(file, FallocateFlags::KEEP_SIZE)),
    ("punch", |file, _| reserve(file, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE)),
    ("zero", |file, _| reserve(file, FallocateFlags::ZERO_RANGE)),
    ("copy", |file, other| {
        rustix::fs::copy_file_range(other, Some(&mut 0), file, Some(&mut 0), 3).map(drop)
    }),
    ("chgrp", |file, _| rustix::fs::fchown(file, None, Some(Gid::from_raw(1001)))),
];

fn reserve(file: &File, mode: FallocateFlags) -> rustix::io::Result<()> {
    rustix::fs::fallocate(file, mode, 0, 4096)
}

/// Runs a function in a new thread that has the IDs of another user.
fn as_caller<T: Send>(caller: &Caller, work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        let groups: Vec<_> = caller.groups.iter().copied().map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(caller.uid), Gid::from_raw(caller.gid));
        rustix::thread::set_thread_groups(&groups).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// Returns the resulting mode for each change, caller and initial mode.
fn modes_left_below(root: &Path) -> Vec<String> {
    let other = root.join("other");
    fs::write(&other, "some bytes").unwrap();
    let other = File::open(other).unwrap();
    let mut left = Vec::new();
    for (who, caller) in &CALLERS {
        for (what, change) in CHANGES_OF_OPEN {
            for mode in MODES {
                let path = root.join("file");
                fs::write(&path, [1; 16_384]).unwrap();
                std::os::unix::fs::chown(&path, Some(1001), Some(GROUP)).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                let answer = as_caller(caller, || change(&file, &other));
                let after = fs::metadata(&path).unwrap().mode() & 0o7777;
                left.push(format!("{what} by {who}: {mode:o}, {answer:?}, {after:o}"));
                drop(file);
                fs::remove_file(path).unwrap();
            }
        }
    }
    left
}

#[test]
fn set_id_bits_are_cleared_as_on_a_native_file_system() {
    require_mounting!();
    if !rustix::process::geteuid().is_root() {
        return skip("set_id_bits_are_cleared_as_on_a_native_file_system", "not root");
    }
    let native = Place::on_disk();
    let expected = modes_left_below(&native.lower);
    let stacks = [
        &["-l", "null"][..],
        &["-l", "null:passthrough=off"],
        &["-l", "zstd"],
        &["-o", "writeback"],
    ];
    for arguments in stacks {
        let place = Place::on_disk();
        place.mount(arguments);
        assert_same(&modes_left_below(&place.point), &expected, arguments);
        place.umount();
    }
    for leaf in ["mem:", "ext2:"] {
        let mut place = Place::on_disk();
        place.lower = match leaf {
            "mem:" => leaf.into(),
            _ => format!("ext2:{}", crate::ext2::image(&place, "32MiB").display()).into(),
        };
        place.mount(&[]);
        // Neither the kernel's ext2 nor the engine can reserve space past the end of a file.
        let is_common = |line: &&String| !line.starts_with("reserve past");
        let common = |lines: &[String]| lines.iter().filter(is_common).cloned().collect::<Vec<_>>();
        assert_same(&common(&modes_left_below(&place.point)), &common(&expected), &[leaf]);
        place.umount();
    }
}

#[track_caller]
fn assert_same(found: &[String], expected: &[String], stack: &[&str]) {
    let pairs = found.iter().zip(expected).filter(|(found, expected)| found != expected);
    let wrong: Vec<_> = pairs.map(|(found, expected)| format!("{found} for {expected}")).collect();
    assert!(wrong.is_empty() && found.len() == expected.len(), "{stack:?}: {wrong:#?}");
}
