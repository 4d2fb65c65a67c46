//! Set-id bits through a mount: who may keep them keeps them, whatever the daemon's thread has laid
//! down to register a file for somebody else before.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use fslab_vfs::testing::skip::skip;
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags, XattrFlags};

use crate::support::{Place, require_mounting};

/// Root keeps the bits, as on any file system.
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
        // Registering a file lays down on the daemon's thread what lets a write keep the bits.
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

/// An access list that says what mode 2770 says: version 2, then tag, permissions and id of owner,
/// group and others.
const ACCESS_LIST: [u8; 28] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255,
    255, 255, 255,
];

/// What makes or changes files with set-id bits in a directory of a foreign group, each as `root`
/// does it who is not of the group. Answers the mode there is then.
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

/// Who may keep set-group-id bits keeps them, whatever the daemon did for others before.
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
        // Several times: the daemon has several threads, and one must be met that has laid down
        // the right to do so.
        for attempt in 0..8 {
            drop(File::open(directory.join("source")).unwrap());
            let mode = change(&directory.join(format!("{what}-{attempt}"))).unwrap();
            lost.extend((mode & 0o2000 == 0).then_some(what));
        }
    }
    place.umount();
    assert_eq!(lost, [""; 0], "the bit is gone after these");
}
