//! Tests the file handles of mounts. An NFS server keeps such handles for its clients.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use fslab_sys::file_handle::FileHandle;
use fslab_sys::make_file_system::Kind;
use fslab_sys::mounts::Mount;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::ext2;
use crate::support::{Place, require_mounting, run, soon, umount_unused};
use crate::tiering::Ground;

/// A mount over the root directory of a separate file system. The file system is dropped after the
/// mount.
struct Exported {
    place: Place,
    ground: Ground,
}

impl Exported {
    #[track_caller]
    fn new(kind: Kind, arguments: &[&str]) -> Self {
        let (mut place, ground) = (Place::in_memory(), Ground::new(kind));
        place.lower = ground.root();
        place.mount(arguments);
        Self { place, ground }
    }

    fn lower(&self) -> PathBuf {
        self.ground.root()
    }
}

#[track_caller]
fn handle_of(path: &Path) -> FileHandle {
    FileHandle::at(rustix::fs::CWD, path).unwrap()
}

/// Returns a copy of a handle with another inode number. In a handle, the upper half of the number
/// comes first.
fn forged(sample: &FileHandle, number: u64, generation: u32) -> FileHandle {
    sample.with_number(number.rotate_left(32), generation).unwrap()
}

/// Opens the file of a handle in the mount at `point`.
fn open(point: &Path, handle: &FileHandle) -> Result<OwnedFd, Errno> {
    handle.open(File::open(point).unwrap().as_fd(), OFlags::RDONLY)
}

/// Returns an O_PATH descriptor of the file of a handle.
#[track_caller]
fn named(point: &Path, handle: &FileHandle) -> File {
    handle.open(File::open(point).unwrap().as_fd(), OFlags::PATH).unwrap().into()
}

#[track_caller]
fn is_stale(point: &Path, handle: &FileHandle) {
    assert_eq!(open(point, handle).map(drop), Err(Errno::STALE));
}

/// Waits until the kernel has evicted the inode of a file with this content. This happens only
/// after the daemon has received the file's close.
#[track_caller]
fn becomes_stale(point: &Path, handle: &FileHandle, text: &str) {
    soon("the handle is stale", || {
        drop_caches();
        let opened = open(point, handle);
        let is_stale = opened.as_ref().is_err_and(|errno| *errno == Errno::STALE);
        opened.into_iter().for_each(|file| {
            assert_eq!(std::io::read_to_string(File::from(file)).unwrap(), text);
        });
        is_stale
    });
}

#[track_caller]
fn contents(point: &Path, handle: &FileHandle) -> String {
    // fstat returns the size that the kernel received together with the inode. Opening the file, or
    // asking statx for the birth time, would request the size again.
    let size = rustix::fs::fstat(named(point, handle)).unwrap().st_size;
    let text = std::io::read_to_string(File::from(open(point, handle).unwrap())).unwrap();
    assert_eq!(size, text.len() as i64);
    text
}

/// Makes the kernel drop inodes and names, in mounts and in lower file systems.
fn drop_caches() {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

/// Checks that handles refer to the same files after all caches were dropped, and after a remount.
#[track_caller]
fn handles_outlive_caches(place: &Place, arguments: &[&str]) {
    let point = &place.point;
    let (directory, inner) = (point.join("directory"), point.join("directory/inner"));
    fs::create_dir_all(&inner).unwrap();
    let (file, fifo) = (inner.join("file"), directory.join("fifo"));
    fs::write(&file, "bytes").unwrap();
    fs::hard_link(&file, point.join("another name")).unwrap();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let handles = [&file, &inner, &fifo].map(|path| handle_of(path));
    let numbers = [&file, &inner, &fifo].map(|path| fs::metadata(path).unwrap().ino());
    for session in 0..2 {
        drop_caches();
        assert_eq!(contents(point, &handles[0]), "bytes", "session {session}");
        drop_caches();
        // To find the path of a directory, the kernel looks up its parent directories.
        let opened = open(point, &handles[1]).unwrap();
        let path = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap();
        assert_eq!(path, inner);
        drop((opened, path));
        drop_caches();
        assert!(named(point, &handles[2]).metadata().unwrap().file_type().is_fifo());
        for (handle, number) in handles.iter().zip(numbers) {
            assert_eq!(named(point, handle).metadata().unwrap().ino(), number);
        }
        assert_eq!(umount_unused(&place.point).0, 0);
        place.mount(arguments);
    }
    fs::remove_file(point.join("another name")).unwrap();
    fs::remove_file(&file).unwrap();
    becomes_stale(point, &handles[0], "bytes");
    is_stale(point, &forged(&handles[0], numbers[1], 12_345));
    for number in [0, 2, 8, 11 << 40, 1 << 63 | 5, u64::MAX] {
        is_stale(point, &forged(&handles[0], number, 0));
    }
}

fn outlive_over(kind: Kind, arguments: &[&str]) {
    handles_outlive_caches(&Exported::new(kind, arguments).place, arguments);
}

/// A mount can cover its own lower directory. Inside it, `..` then leads to the mount.
#[test]
fn file_handles_survive_dropped_kernel_caches_of_a_mount_over_its_lower_directory() {
    require_mounting!();
    for layer in ["null", "zstd"] {
        let (mut place, ground) = (Place::in_memory(), Ground::new(Kind::Ext4));
        (place.lower, place.point) = (ground.root(), ground.root());
        place.mount(&["-l", layer]);
        handles_outlive_caches(&place, &["-l", layer]);
        assert_eq!(umount_unused(&place.point).0, 0);
    }
}

#[test]
fn file_handles_survive_dropped_kernel_caches_over_ext4() {
    require_mounting!();
    outlive_over(Kind::Ext4, &["-l", "null"]);
}

#[test]
fn file_handles_survive_dropped_kernel_caches_over_xfs_and_btrfs() {
    require_mounting!();
    outlive_over(Kind::Xfs, &["-l", "null"]);
    outlive_over(Kind::Btrfs, &["-l", "null"]);
}

#[test]
fn file_handles_survive_dropped_kernel_caches_with_a_codec() {
    require_mounting!();
    outlive_over(Kind::Ext4, &["-l", "zstd"]);
}

#[test]
fn file_handles_survive_dropped_kernel_caches_in_a_tier() {
    require_mounting!();
    let (mut place, ground) = (Place::in_memory(), Ground::new(Kind::Ext4));
    let beside = place.lower.parent().unwrap().to_owned();
    place.lower = ground.root();
    let [archive, home] = ["archive", "home"].map(|name| beside.join(name));
    let [archive, home, tree] = [&archive, &home, &place.lower].map(|path| path.to_str().unwrap());
    let made = run(&["tier", "init", "--archive", archive, "--home", home, tree]);
    assert_eq!(made, (0, String::new()));
    place.mount(&["-l", "tier"]);
    handles_outlive_caches(&place, &["-l", "tier"]);
    drop(place);
    drop(ground);
}

#[test]
fn file_handles_survive_dropped_kernel_caches_in_an_image() {
    require_mounting!();
    let mut place = Place::in_memory();
    let image = ext2::image(&place, "32MiB");
    place.lower = format!("ext2:{}", image.display()).into();
    place.mount(&[]);
    handles_outlive_caches(&place, &[]);
    place.umount();
    ext2::check(&image);
}

/// After a file was removed and its inode number reused, the old handle must be stale. Only the
/// generation in the handle shows that the file is another one.
#[track_caller]
fn handle_is_stale_after_its_inode_number_is_reused(place: &Place) {
    let path = |name: &str| place.point.join(name);
    fs::write(path("file"), "first").unwrap();
    let (handle, number) = (handle_of(&path("file")), fs::metadata(path("file")).unwrap().ino());
    fs::remove_file(path("file")).unwrap();
    let later = (0..4096).map(|attempt| path(&format!("later {attempt}"))).find(|later| {
        fs::write(later, "later").unwrap();
        fs::metadata(later).unwrap().ino() == number
    });
    let later_handle = handle_of(&later.unwrap());
    for _ in 0..2 {
        is_stale(&place.point, &handle);
        assert_eq!(contents(&place.point, &later_handle), "later");
        drop_caches();
    }
}

#[test]
fn stale_handle_does_not_open_a_file_that_reuses_its_number() {
    require_mounting!();
    for kind in [Kind::Ext4, Kind::Xfs] {
        handle_is_stale_after_its_inode_number_is_reused(
            &Exported::new(kind, &["-l", "null"]).place,
        );
    }
    let mut place = Place::in_memory();
    let image = ext2::image(&place, "32MiB");
    place.lower = format!("ext2:{}", image.display()).into();
    place.mount(&[]);
    handle_is_stale_after_its_inode_number_is_reused(&place);
}

#[test]
fn mount_of_a_subdirectory_provides_no_file_handles() {
    require_mounting!();
    let mut exported = Exported::new(Kind::Ext4, &["-l", "null"]);
    fs::write(exported.lower().join("outside"), "secret").unwrap();
    let outside = handle_of(&exported.place.point.join("outside"));
    assert_eq!(contents(&exported.place.point, &outside), "secret");
    exported.place.umount();
    exported.place.lower = exported.lower().join("tree");
    fs::create_dir(&exported.place.lower).unwrap();
    exported.place.mount(&["-l", "null"]);
    let point = &exported.place.point;
    fs::write(point.join("inside"), "").unwrap();
    let inside = FileHandle::at(rustix::fs::CWD, point.join("inside"));
    assert_eq!(inside.map(drop), Err(Errno::OPNOTSUPP), "Linux 6.9 and later");
    // A handle of another mount, or an invented one, is refused.
    is_stale(point, &outside);
    drop_caches();
    is_stale(point, &outside);
    let number = fs::metadata(exported.lower().join("outside")).unwrap().ino();
    is_stale(point, &forged(&outside, number, 0));
}

/// Files of another file system that is mounted inside the tree have no persistent inode numbers. A
/// handle with such a number must never open the file of the tree that has this number.
#[test]
fn handles_into_nested_mounts_never_open_another_file() {
    require_mounting!();
    let exported = Exported::new(Kind::Ext4, &["-l", "null"]);
    let other = Ground::new(Kind::Ext4);
    let (lower, point) = (exported.lower(), &exported.place.point);
    for number in 0..64 {
        fs::write(lower.join(number.to_string()), "own").unwrap();
        fs::write(other.root().join(number.to_string()), "other").unwrap();
    }
    for name in ["inner", "bound", "again", "directory"] {
        fs::create_dir(lower.join(name)).unwrap();
    }
    fs::write(lower.join("directory/file"), "again").unwrap();
    let bind = |from: &Path, name: &str| {
        rustix::mount::mount_bind(from, lower.join(name)).unwrap();
        Mount::adopt(&lower.join(name))
    };
    let mounts = [
        Mount::new(Path::new("tmpfs"), &lower.join("inner"), "tmpfs", "").unwrap(),
        bind(&other.root(), "bound"),
        bind(&lower.join("directory"), "again"),
    ];
    fs::write(lower.join("inner/file"), "inner").unwrap();
    let number = |path: &str| fs::metadata(lower.join(path)).unwrap().ino();
    assert_eq!(number("7"), number("bound/7"));
    let paths = ["inner/file", "bound/7", "again/file"].map(|path| point.join(path));
    // Keep the files open, because other tests make the kernel drop unused inodes.
    let held = paths.each_ref().map(|path| File::open(path).unwrap());
    let [inner, bound, again] = paths.map(|path| handle_of(&path));
    assert_eq!(contents(point, &inner), "inner");
    assert_eq!(contents(point, &bound), "other");
    drop(held);
    becomes_stale(point, &inner, "inner");
    becomes_stale(point, &bound, "other");
    // The same file is still readable by another path.
    assert_eq!(contents(point, &again), "again");
    assert_eq!(fs::metadata(point.join("again/file")).unwrap().ino(), number("directory/file"));
    exported.place.umount();
    drop(mounts);
}

#[test]
fn handles_never_open_files_of_another_subvolume() {
    require_mounting!();
    let ground = Ground::new(Kind::Btrfs);
    let btrfs = |arguments: &[&str]| {
        let mut command = Command::new("btrfs");
        command.args(["--quiet", "subvolume"]).args(arguments).current_dir(ground.root());
        assert!(command.status().unwrap().success());
    };
    btrfs(&["create", "volume"]);
    fs::write(ground.root().join("volume/file"), "first").unwrap();
    btrfs(&["snapshot", "volume", "snapshot"]);
    fs::write(ground.root().join("snapshot/file"), "second").unwrap();
    let mut place = Place::in_memory();
    place.lower = ground.root().join("volume");
    place.mount(&["-l", "null"]);
    let first = handle_of(&place.point.join("file"));
    drop_caches();
    assert_eq!(contents(&place.point, &first), "first");
    place.umount();
    place.lower = ground.root().join("snapshot");
    place.mount(&["-l", "null"]);
    drop_caches();
    is_stale(&place.point, &first);
    let second = handle_of(&place.point.join("file"));
    assert_eq!(contents(&place.point, &second), "second");
    place.umount();
    // The device numbers of both subvolumes differ from that of the volume around them.
    place.lower = ground.root();
    place.mount(&["-l", "null"]);
    let path = place.point.join("volume/file");
    // Keep the file open, because other tests make the kernel drop unused inodes.
    let held = File::open(&path).unwrap();
    let below = handle_of(&path);
    assert_eq!(contents(&place.point, &below), "first");
    drop(held);
    for handle in [&first, &second] {
        is_stale(&place.point, handle);
    }
    becomes_stale(&place.point, &below, "first");
    place.umount();
}
