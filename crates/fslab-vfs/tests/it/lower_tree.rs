//! Tests a host directory in special conditions: file systems mounted below it, changes by other
//! processes, callers with fewer rights, and extents on a device.

use fslab_vfs_testing::scratch;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_sys::file_handle::FileHandle;
use fslab_sys::loop_device::{LoopDevice, Options};
use fslab_sys::make_file_system::{Kind, make};
use fslab_sys::mounts::Mount;
use fslab_vfs::{Errno, Extent, FallocateMode, FileSystem, HostFs, HostOptions, Ino, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::flag::RaisedAtEnd;
use fslab_vfs_testing::skip::skip;
use tempfile::TempDir;

fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(test, "not root");
    }
    is_root
}

fn scratch() -> TempDir {
    TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

fn host(path: &Path) -> HostFs {
    HostFs::open(path, &HostOptions::default()).unwrap()
}

fn tmpfs_on(path: PathBuf) -> Mount {
    fs::create_dir_all(&path).unwrap();
    Mount::new(Path::new("tmpfs"), &path, "tmpfs", "").unwrap()
}

/// Number of descriptors of this process for files below a path.
fn descriptors_below(path: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter(|open| fs::read_link(open.path()).is_ok_and(|file| file.starts_with(path))).count()
}

/// Two file systems of one kind contain files with the same inode numbers; the host file system
/// must show different numbers.
#[test]
fn mount_inside_the_root_is_served_too() {
    if !is_root("mount_inside_the_root_is_served_too") {
        return;
    }
    let scratch = scratch();
    let outer = tmpfs_on(scratch.path().join("outer"));
    let inner = tmpfs_on(outer.target().join("inner"));
    for number in 0..100 {
        fs::write(outer.target().join(number.to_string()), format!("outer {number}")).unwrap();
        fs::write(inner.target().join(number.to_string()), format!("inner {number}")).unwrap();
    }
    let host = host(outer.target());
    assert!(host.has_file_handles());
    serves_both(&host, outer.target());
    drop(host);
    assert_eq!(descriptors_below(outer.target()), 0);
    inner.unmount().unwrap();
    outer.unmount().unwrap();
}

fn serves_both(host: &HostFs, outer: &Path) {
    let client = Client::new(host);
    let inner = client.lookup(Ino::ROOT, "inner").unwrap().ino;
    let mut inos = std::collections::BTreeSet::new();
    for number in 0..100 {
        for (directory, side) in [(Ino::ROOT, "outer"), (inner, "inner")] {
            let file = client.lookup(directory, number.to_string()).unwrap();
            assert!(inos.insert(file.ino), "{:?} stands for two files", file.ino);
            assert_eq!(client.contents(file.ino).unwrap(), format!("{side} {number}").as_bytes());
        }
    }
    assert_eq!(host.remembered_inodes(), 202, "the root, the mount point, the files");
    let kept = descriptors_below(outer);
    assert!(kept <= 8, "{kept} descriptors are kept: the files have no handles");
    changes_both(&client, inner);
}

fn changes_both(client: &Client<'_>, inner: Ino) {
    let moved = client.rename(Ino::ROOT, "1", inner, "moved");
    assert_eq!(moved.unwrap_err().errno(), Errno::XDEV);
    for directory in [Ino::ROOT, inner] {
        let (made, file) = client.create(directory, "new", 0o600, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, b"new").unwrap();
        client.unlink(directory, "new").unwrap();
        assert_eq!(
            client.attr(made.ino).unwrap().links,
            0,
            "usable after the last name was removed"
        );
        assert_eq!(file.read(0, 10).unwrap(), b"new");
        file.close().unwrap();
    }
    let listed = client.list(inner).unwrap();
    let listed = listed.iter().find(|entry| entry.name == "7").unwrap();
    assert_eq!(listed.ino, client.lookup(inner, "7").unwrap().ino);
    client.subject().syncfs(&client.request(), Ino::ROOT).unwrap();
}

/// Makes and mounts a new file system on an image; the mount is dropped before the device.
fn mounted_image(kind: Kind, image: &Path) -> (Mount, LoopDevice) {
    fs::File::create(image).unwrap().set_len(320 << 20).unwrap();
    make(kind, image, &[]).unwrap();
    let options = Options { sector_size: 512, read_only: false };
    let device = LoopDevice::attach(image, options).unwrap();
    let point = image.with_extension("mounted");
    fs::create_dir(&point).unwrap();
    (Mount::new(device.path(), &point, kind.name(), "").unwrap(), device)
}

/// Number of descriptors of this process for files below a path, without `O_PATH` ones.
fn open_below(path: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten().filter(|open| {
        fs::read_link(open.path()).is_ok_and(|file| file.starts_with(path))
            && fs::read_to_string(Path::new("/proc/self/fdinfo").join(open.file_name()))
                .is_ok_and(|told| told.lines().any(is_more_than_a_name))
    });
    open.count()
}

fn is_more_than_a_name(line: &str) -> bool {
    let flags = line.strip_prefix("flags:").map(|flags| u32::from_str_radix(flags.trim(), 8));
    flags.is_some_and(|flags| flags.unwrap() & rustix::fs::OFlags::PATH.bits() == 0)
}

/// Each subvolume has its own device number. There may be thousands, so they must not need a
/// descriptor each.
#[test]
fn subvolumes_of_one_mount_share_a_descriptor() {
    const TEST: &str = "subvolumes_of_one_mount_share_a_descriptor";
    if !is_root(TEST) {
        return;
    }
    if let Err(error) = Kind::Btrfs.tool_version() {
        return skip(TEST, &error.to_string());
    }
    let scratch = scratch();
    let (mount, _device) = mounted_image(Kind::Btrfs, &scratch.path().join("image"));
    for number in 0..20 {
        let subvolume = mount.target().join(number.to_string());
        let mut create = std::process::Command::new("btrfs");
        create.args(["--quiet", "subvolume", "create"]).arg(&subvolume);
        assert!(create.status().unwrap().success());
        fs::write(subvolume.join("file"), format!("{number}")).unwrap();
    }
    let host = host(mount.target());
    let client = Client::new(&host);
    for number in 0..20 {
        let subvolume = client.lookup(Ino::ROOT, number.to_string()).unwrap().ino;
        let file = client.lookup(subvolume, "file").unwrap().ino;
        assert_eq!(client.contents(file).unwrap(), format!("{number}").as_bytes());
    }
    assert_eq!(open_below(mount.target()), 1);
    drop(client);
    drop(host);
    mount.unmount().unwrap();
}

/// Looks up files in this order through a new file system. Returns their numbers that are the same
/// in every session (`Attr::number`).
fn lasting_numbers(root: &Path, paths: &[&str]) -> std::collections::BTreeMap<String, u64> {
    let host = host(root);
    let client = Client::new(&host);
    let number = |path: &str| {
        let found = path.split('/').fold((Ino::ROOT, 0), |(parent, _), name| {
            let attr = client.lookup(parent, name).unwrap();
            assert_eq!(client.attr(attr.ino).unwrap().number, attr.number);
            (attr.ino, attr.number)
        });
        found.1
    };
    paths.iter().map(|path| ((*path).to_owned(), number(path))).collect()
}

/// Checks that files with the same lower number get different numbers, which are the same in every
/// session.
#[track_caller]
fn numbers_last(root: &Path, paths: [&str; 3]) {
    let own = fs::metadata(root.join(paths[0])).unwrap().ino();
    let numbers = lasting_numbers(root, &paths);
    assert_eq!(numbers[paths[0]], own, "as the root's device gives it");
    let [first, second, third] = paths;
    assert_eq!(lasting_numbers(root, &[third, second, first]), numbers);
    assert_eq!(lasting_numbers(root, &[second, first, third]), numbers);
    assert!(paths[1..].iter().all(|path| numbers[*path] != own));
}

#[test]
fn lasting_numbers_do_not_depend_on_the_order_of_devices() {
    if !is_root("lasting_numbers_do_not_depend_on_the_order_of_devices") {
        return;
    }
    let scratch = scratch();
    let outer = tmpfs_on(scratch.path().join("outer"));
    let inner = ["a", "b"].map(|name| tmpfs_on(outer.target().join(name)));
    for path in ["file", "a/file", "b/file"] {
        fs::write(outer.target().join(path), path).unwrap();
    }
    numbers_last(outer.target(), ["file", "a/file", "b/file"]);
    for mount in inner {
        mount.unmount().unwrap();
    }
    outer.unmount().unwrap();
}

/// Files in a snapshot have the same inode numbers and creation times as their originals. Their
/// `Attr::number` must differ nevertheless.
#[test]
fn snapshots_have_numbers_of_their_own() {
    const TEST: &str = "snapshots_have_numbers_of_their_own";
    if !is_root(TEST) {
        return;
    }
    if let Err(error) = Kind::Btrfs.tool_version() {
        return skip(TEST, &error.to_string());
    }
    let scratch = scratch();
    let (mount, _device) = mounted_image(Kind::Btrfs, &scratch.path().join("image"));
    fs::write(mount.target().join("file"), "file").unwrap();
    for snapshot in ["one", "two"] {
        let mut make = std::process::Command::new("btrfs");
        make.args(["--quiet", "subvolume", "snapshot"]).arg(mount.target());
        assert!(make.arg(mount.target().join(snapshot)).status().unwrap().success());
    }
    let paths = ["file", "one/file", "two/file"];
    let same = paths.map(|path| fs::metadata(mount.target().join(path)).unwrap().ino());
    assert_eq!(same, [same[0]; 3]);
    numbers_last(mount.target(), paths);
    let numbers = lasting_numbers(mount.target(), &paths);
    assert_ne!(numbers["one/file"], numbers["two/file"]);
    mount.unmount().unwrap();
}

/// Data that is not written back has no blocks yet; requesting extents allocates them.
#[test]
fn extents_point_to_the_data_on_the_device() {
    const PIECE: usize = 64 << 10;
    if !is_root("extents_point_to_the_data_on_the_device") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    let (mount, device) = mounted_image(Kind::Ext4, &image);
    let point = mount.target();
    let file = fs::File::create(point.join("file")).unwrap();
    file.write_all_at(&vec![b'a'; PIECE], 0).unwrap();
    file.write_all_at(&vec![b'b'; PIECE], 2 * PIECE as u64).unwrap();
    drop(file);
    let extents = extents_of(point, "file");
    mount.unmount().unwrap();
    drop(device);
    let [first, second] = extents[..] else { panic!("not two extents: {extents:?}") };
    assert_eq!((first.logical, first.length), (0, PIECE as u64));
    assert_eq!((second.logical, second.length), (2 * PIECE as u64, PIECE as u64));
    let image = fs::File::open(&image).unwrap();
    for (extent, byte) in [(first, b'a'), (second, b'b')] {
        let mut found = vec![0; PIECE];
        image.read_exact_at(&mut found, extent.physical).unwrap();
        assert!(found.iter().all(|found| *found == byte), "other bytes at {}", extent.physical);
    }
}

fn extents_of(directory: &Path, name: &str) -> Vec<Extent> {
    let host = host(directory);
    let client = Client::new(&host);
    let pipe = client.mknod(Ino::ROOT, "pipe", 0o010_600, 0).unwrap();
    let layout = host.layout().unwrap();
    assert!(layout.extents(pipe.ino).is_err(), "a pipe has none, and must not be waited for");
    layout.extents(client.lookup(Ino::ROOT, name).unwrap().ino).unwrap()
}

#[test]
fn creation_does_not_fail_while_others_make_and_remove_the_name() {
    const CREATIONS: usize = 5_000;
    let directory = scratch();
    let path = directory.path().join("lock");
    let host = host(directory.path());
    let client = Client::new(&host);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _done = RaisedAtEnd(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::write(&path, "").unwrap();
                // Must succeed, because no other thread removes the file.
                fs::remove_file(&path).unwrap();
            }
        });
        let created: Vec<_> = (0..CREATIONS)
            .map(|_| {
                let (attr, file) = client.create(Ino::ROOT, "lock", 0o600, OpenMode::empty())?;
                file.close()?;
                client.forget(attr.ino);
                Ok::<_, fslab_vfs::Error>(())
            })
            .filter(Result::is_err)
            .collect();
        assert!(created.is_empty(), "{} of {CREATIONS}: {:?}", created.len(), created[0]);
    });
}

/// A lookup takes two steps; between them a name may be moved to another inode.
#[test]
fn lookup_during_an_exchange_never_mixes_two_files() {
    const LOOKUPS: usize = 20_000;
    let directory = scratch();
    let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
    fs::write(&one, "1").unwrap();
    fs::write(&other, "22").unwrap();
    let host = host(directory.path());
    let client = Client::new(&host);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _done = RaisedAtEnd(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                exchange(&one, &other);
            }
        });
        let mixed = (0..LOOKUPS).find(|_| !is_one_file(&client, "one"));
        assert_eq!(mixed, None, "a number with another file's attributes");
    });
}

fn exchange(one: &Path, other: &Path) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// Whether the attributes returned by a lookup belong to the inode that it returned. The two files
/// differ in size.
fn is_one_file(client: &Client<'_>, name: &str) -> bool {
    let found = client.lookup(Ino::ROOT, name).unwrap();
    let asked = client.attr(found.ino).unwrap();
    client.forget(found.ino);
    found.size == asked.size
}

/// If handles contain the inode number, a lookup need not open the file.
#[test]
fn handles_of_common_file_systems_contain_the_inode_number() {
    if !is_root("handles_of_common_file_systems_contain_the_inode_number") {
        return;
    }
    let scratch = scratch();
    let tmpfs = tmpfs_on(scratch.path().join("tmpfs"));
    tells_the_number(tmpfs.target());
    tmpfs.unmount().unwrap();
    for kind in [Kind::Ext2, Kind::Ext4, Kind::Xfs, Kind::Btrfs] {
        if let Err(error) = kind.tool_version() {
            skip("handles_of_common_file_systems_contain_the_inode_number", &error.to_string());
            continue;
        }
        let (mount, _device) = mounted_image(kind, &scratch.path().join(kind.name()));
        tells_the_number(mount.target());
        mount.unmount().unwrap();
    }
}

fn tells_the_number(directory: &Path) {
    let path = directory.join("file");
    let file = fs::File::create(&path).unwrap();
    let number = file.metadata().unwrap().ino();
    let named = FileHandle::at(fs::File::open(directory).unwrap(), "file").unwrap();
    assert_eq!(named, FileHandle::of(&file).unwrap(), "{}", path.display());
    assert_eq!(named.number(), Some(number), "{}", path.display());
}

/// Entries delivered before an error must reach the reader.
#[test]
fn a_directory_removed_while_it_is_listed_keeps_what_was_read() {
    let directory = scratch();
    let path = directory.path().join("many");
    fs::create_dir(&path).unwrap();
    for number in 0..50 {
        fs::write(path.join(number.to_string()), "").unwrap();
    }
    let host = host(directory.path());
    let client = Client::new(&host);
    let listing = client.opendir(client.lookup(Ino::ROOT, "many").unwrap().ino).unwrap();
    let first = listing.next(0, 10).unwrap();
    fs::remove_dir_all(&path).unwrap();
    let rest = listing.next(first[9].next_offset, 1000).unwrap();
    assert_eq!(first.len() + rest.len(), 52, "with . and ..");
    listing.close().unwrap();
}

/// An open must wait for the holder of a lease on the lower file, not fail.
#[test]
fn lower_files_are_opened_in_blocking_mode() {
    let directory = scratch();
    let host = host(directory.path());
    let client = Client::new(&host);
    let ino = client.file(Ino::ROOT, "file", b"x").unwrap();
    let opened = host.open(&client.request(), ino, OpenMode::READ_WRITE).unwrap();
    let flags = rustix::fs::fcntl_getfl(opened.backing.as_deref().unwrap()).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{flags:?}");
    host.release(&client.request(), ino, opened.handle).unwrap();
}

#[test]
fn only_root_sees_the_names_of_trusted_attributes() {
    if !is_root("only_root_sees_the_names_of_trusted_attributes") {
        return;
    }
    let directory = scratch();
    let host = host(directory.path());
    let root = Client::new(&host);
    let ino = root.file(Ino::ROOT, "file", b"").unwrap();
    root.setxattr(ino, "trusted.secret", b"1").unwrap();
    root.setxattr(ino, "user.known", b"1").unwrap();
    assert_eq!(root.listxattr(ino).unwrap().len(), 2);
    assert_eq!(root.as_user(1234, 1234).listxattr(ino).unwrap(), ["user.known"]);
}

/// As with a write, the set-id bits are cleared unless the caller has CAP_FSETID. The requests do
/// not state whether the caller has it, so the file system determines this.
#[test]
fn reserving_punching_and_copying_clear_set_id_bits() {
    if !is_root("reserving_punching_and_copying_clear_set_id_bits") {
        return;
    }
    let directory = scratch();
    let host = host(directory.path());
    let root = Client::new(&host);
    let source = root.file(Ino::ROOT, "source", &[7; 8192]).unwrap();
    for (caller, expected) in [(root.as_user(1234, 1234), 0o777), (root.clone(), 0o6777)] {
        for change in ["reserve", "punch", "copy"] {
            let ino = root.file(Ino::ROOT, change, &[1; 8192]).unwrap();
            root.chmod(ino, 0o6777).unwrap();
            let file = caller.open(ino, OpenMode::READ_WRITE).unwrap();
            let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            match change {
                "reserve" => file.fallocate(0, 16384, FallocateMode::empty()).unwrap(),
                "punch" => file.fallocate(0, 4096, punch).unwrap(),
                _ => {
                    let source = caller.open(source, OpenMode::empty()).unwrap();
                    assert_eq!(source.copy_to(0, &file, 0, 4096).unwrap(), 4096);
                    source.close().unwrap();
                }
            }
            file.close().unwrap();
            let mode = root.attr(ino).unwrap().permissions.bits();
            assert_eq!(mode, expected, "{change}: {mode:o}");
            root.unlink(Ino::ROOT, change).unwrap();
        }
    }
}
