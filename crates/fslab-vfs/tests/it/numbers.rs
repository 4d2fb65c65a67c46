//! Tests that host directories find inodes by number only, over each lower file system that
//! supports it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fslab_sys::loop_device::{LoopDevice, Options};
use fslab_sys::make_file_system::{Kind, make};
use fslab_sys::mounts::Mount;
use fslab_vfs::{
    Entry, Errno, FileSystem, HostFs, HostOptions, Ino, LockMode, OpenMode, ReadOnly, Request,
    Result, Synchronous, SynchronousFs,
};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::scratch;
use fslab_vfs_testing::skip::skip;
use tempfile::TempDir;

/// A new file system; the mount is dropped before the device.
struct Ground {
    mount: Mount,
    _device: LoopDevice,
    scratch: TempDir,
}

impl Ground {
    fn new(kind: Kind) -> Self {
        // mkfs.xfs needs at least 300 MiB.
        const BYTES: u64 = 320 << 20;
        let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let (image, point) = (scratch.path().join("image"), scratch.path().join("mounted"));
        fs::File::create(&image).unwrap().set_len(BYTES).unwrap();
        make(kind, &image, &[]).unwrap();
        let device = LoopDevice::attach(&image, Options::default()).unwrap();
        fs::create_dir(&point).unwrap();
        let mount = Mount::new(device.path(), &point, kind.name(), "").unwrap();
        Self { mount, _device: device, scratch }
    }

    fn root(&self) -> &Path {
        self.mount.target()
    }
}

/// The kinds of file systems that can find files by number and whose tools are installed.
fn kinds(test: &str) -> Vec<Kind> {
    if !rustix::process::geteuid().is_root() {
        skip(test, "not root");
        return Vec::new();
    }
    let mut kinds = vec![Kind::Ext4, Kind::Xfs, Kind::Btrfs];
    kinds.retain(|kind| match kind.tool_version() {
        Ok(_) => true,
        Err(error) => {
            skip(test, &error.to_string());
            false
        }
    });
    kinds
}

fn host(root: &Path) -> HostFs {
    HostFs::open(root, &HostOptions::default()).unwrap()
}

fn request(subject: &dyn FileSystem) -> Request {
    Client::new(subject).request()
}

/// Looks up a path and releases all lookups.
#[track_caller]
fn looked_up(subject: &dyn FileSystem, path: &str) -> Entry {
    let client = Client::new(subject);
    let mut parent = Ino::ROOT;
    let (directories, name) = path.rsplit_once('/').unwrap_or(("", path));
    for directory in directories.split('/').filter(|name| !name.is_empty()) {
        parent = client.lookup(parent, directory).unwrap().ino;
    }
    let name = fslab_vfs::Name::new(name.as_ref()).unwrap();
    let entry = subject.lookup(&client.request(), parent, name).unwrap();
    subject.forget(entry.attr.ino, 1);
    entry
}

/// Resolves a number and releases the lookup.
fn resolved(subject: &dyn FileSystem, ino: Ino) -> Result<Entry> {
    let found = subject.resolve(&request(subject), ino);
    found.iter().for_each(|entry| subject.forget(entry.attr.ino, 1));
    found
}

#[track_caller]
fn is_stale(answer: Result<Entry>) {
    assert_eq!(answer.map_err(|error| error.errno()), Err(Errno::STALE));
}

/// Makes the lower file system forget unused inodes.
fn drop_caches(root: &Path) {
    rustix::fs::syncfs(fs::File::open(root).unwrap()).unwrap();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

/// Creates files until one gets a certain reused number.
#[track_caller]
fn made_with_number(directory: &Path, number: u64) -> PathBuf {
    for attempt in 0..4096 {
        let path = directory.join(format!("made {attempt}"));
        fs::write(&path, "another").unwrap();
        if fs::metadata(&path).unwrap().ino() == number {
            return path;
        }
    }
    panic!("the number {number} was not used again");
}

#[test]
fn numbers_resolve_to_forgotten_files() {
    for kind in kinds("numbers_resolve_to_forgotten_files") {
        let ground = Ground::new(kind);
        fs::create_dir_all(ground.root().join("directory/inner")).unwrap();
        fs::write(ground.root().join("directory/inner/file"), "bytes").unwrap();
        std::os::unix::fs::symlink("target", ground.root().join("link")).unwrap();
        let host = host(ground.root());
        assert!(host.can_resolve(), "{kind:?}");
        for path in ["directory", "directory/inner", "directory/inner/file", "link"] {
            let known = looked_up(&host, path);
            assert_eq!(host.remembered_inodes(), 1, "{kind:?}: {path} is forgotten");
            drop_caches(ground.root());
            let found = resolved(&host, known.attr.ino).unwrap();
            assert_eq!((found.attr.ino, found.generation), (known.attr.ino, known.generation));
            assert_eq!(found.attr.kind, known.attr.kind);
            assert_eq!(host.remembered_inodes(), 1, "{kind:?}: one lookup was counted");
            let again = self::host(ground.root());
            assert_eq!(resolved(&again, known.attr.ino).unwrap().generation, known.generation);
        }
        assert_eq!(resolved(&host, Ino::ROOT).unwrap().generation, 0);
    }
}

#[test]
fn observers_pass_numbers_on() {
    if kinds("observers_pass_numbers_on").is_empty() {
        return;
    }
    let ground = Ground::new(Kind::Ext4);
    fs::create_dir_all(ground.root().join("outer/inner")).unwrap();
    let host: Arc<dyn FileSystem> = Arc::new(host(ground.root()));
    let inner = looked_up(&*host, "outer/inner");
    let synchronous = SynchronousFs::new(Arc::clone(&host), Synchronous::Names);
    let read_only = ReadOnly::new(Arc::new(synchronous));
    assert!(read_only.can_resolve());
    assert_eq!(resolved(&read_only, inner.attr.ino).unwrap(), inner);
    let request = request(&read_only);
    let found = read_only.resolve(&request, inner.attr.ino).unwrap();
    let outer = read_only.parent_of(&request, found.attr.ino).unwrap();
    assert_eq!(outer.attr.ino, looked_up(&*host, "outer").attr.ino);
    [found, outer].iter().for_each(|entry| read_only.forget(entry.attr.ino, 1));
}

#[test]
fn directories_above_are_found_up_to_the_root() {
    for kind in kinds("directories_above_are_found_up_to_the_root") {
        let ground = Ground::new(kind);
        fs::create_dir_all(ground.root().join("directory/inner")).unwrap();
        let host = host(ground.root());
        let [outer, inner] = ["directory", "directory/inner"].map(|path| looked_up(&host, path));
        drop_caches(ground.root());
        let request = request(&host);
        host.resolve(&request, inner.attr.ino).unwrap();
        let parent = host.parent_of(&request, inner.attr.ino).unwrap();
        assert_eq!((parent.attr.ino, parent.generation), (outer.attr.ino, outer.generation));
        let root = host.parent_of(&request, outer.attr.ino).unwrap();
        assert_eq!((root.attr.ino, root.generation), (Ino::ROOT, 0));
        is_stale(host.parent_of(&request, Ino::ROOT));
        for ino in [inner.attr.ino, outer.attr.ino] {
            host.forget(ino, 1);
        }
        assert_eq!(host.remembered_inodes(), 1);

        // A directory that was moved out of the tree no longer has a parent in it.
        let part = self::host(&ground.root().join("directory"));
        let client = Client::new(&part);
        let moved = client.lookup(Ino::ROOT, "inner").unwrap().ino;
        fs::rename(ground.root().join("directory/inner"), ground.root().join("moved")).unwrap();
        is_stale(part.parent_of(&request, moved));
    }
}

#[test]
fn numbers_of_removed_files_are_stale() {
    for kind in kinds("numbers_of_removed_files_are_stale") {
        let ground = Ground::new(kind);
        let path = ground.root().join("file");
        fs::write(&path, "bytes").unwrap();
        let host = host(ground.root());
        let known = looked_up(&host, "file");
        // The number is stale even while a process has the file open, although the file's handle
        // can then still be opened.
        let open = fs::File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        is_stale(resolved(&host, known.attr.ino));
        drop(open);
        drop_caches(ground.root());
        is_stale(resolved(&host, known.attr.ino));
        assert_eq!(host.remembered_inodes(), 1);
    }
}

#[test]
fn reused_number_has_another_generation() {
    for kind in kinds("reused_number_has_another_generation") {
        // Btrfs does not reuse inode numbers.
        if kind == Kind::Btrfs {
            continue;
        }
        let ground = Ground::new(kind);
        fs::write(ground.root().join("file"), "bytes").unwrap();
        let host = host(ground.root());
        let known = looked_up(&host, "file");
        fs::remove_file(ground.root().join("file")).unwrap();
        made_with_number(ground.root(), known.attr.ino.0);
        drop_caches(ground.root());
        let found = resolved(&host, known.attr.ino).unwrap();
        assert_eq!(found.attr.size, "another".len() as u64);
        // The kernel compares only the lower 32 bits of generations.
        assert_ne!(found.generation as u32, known.generation as u32, "{kind:?}");
    }
}

/// While the removed inode is in use, its number stands for it and does not resolve to the new
/// file. The number that the new file got instead does not resolve either.
#[test]
fn displaced_inode_is_not_resolved_by_either_number() {
    for kind in kinds("displaced_inode_is_not_resolved_by_either_number") {
        if kind == Kind::Btrfs {
            continue;
        }
        let ground = Ground::new(kind);
        fs::write(ground.root().join("file"), "bytes").unwrap();
        let host = host(ground.root());
        let client = Client::new(&host);
        let known = client.lookup(Ino::ROOT, "file").unwrap();
        fs::remove_file(ground.root().join("file")).unwrap();
        let later = made_with_number(ground.root(), known.ino.0);
        let displaced = looked_up(&host, later.file_name().unwrap().to_str().unwrap());
        assert_ne!(displaced.attr.ino, known.ino);
        is_stale(resolved(&host, known.ino));
        is_stale(resolved(&host, displaced.attr.ino));
        drop(client);
        assert_eq!(host.remembered_inodes(), 1);
    }
}

#[test]
fn numbers_outside_the_tree_are_stale() {
    for kind in kinds("numbers_outside_the_tree_are_stale") {
        let ground = Ground::new(kind);
        fs::create_dir(ground.root().join("tree")).unwrap();
        for path in ["outside", "tree/inside"] {
            fs::write(ground.root().join(path), path).unwrap();
        }
        let number = |path: &str| Ino(fs::metadata(ground.root().join(path)).unwrap().ino());
        let part = host(&ground.root().join("tree"));
        assert!(!part.can_resolve(), "{kind:?}");
        for path in ["outside", "tree/inside"] {
            is_stale(resolved(&part, number(path)));
        }
        // Reserved or invalid numbers, and the lower number of the root, because the root has
        // another number here.
        let whole = host(ground.root());
        let own = (2..11).chain([129, 130, number("").0, 1 << 31, 1 << 32, 1 << 62, 1 << 63]);
        for ino in own.map(Ino) {
            is_stale(resolved(&whole, ino));
        }
        assert_eq!(whole.remembered_inodes(), 1);
    }
}

#[test]
fn file_systems_that_cannot_open_by_number_resolve_nothing() {
    if kinds("file_systems_that_cannot_open_by_number_resolve_nothing").is_empty() {
        return;
    }
    let scratch = TempDir::new().unwrap();
    let mount = Mount::new(Path::new("tmpfs"), scratch.path(), "tmpfs", "").unwrap();
    fs::write(mount.target().join("file"), "").unwrap();
    let memory = host(mount.target());
    assert!(!memory.can_resolve());
    is_stale(resolved(&memory, looked_up(&memory, "file").attr.ino));
    drop(memory);
    let ground = Ground::new(Kind::Ext4);
    let options = HostOptions { file_handles: false, ..HostOptions::default() };
    assert!(!HostFs::open(ground.root(), &options).unwrap().can_resolve());
}

/// Subvolumes use the same numbers, and a snapshot also has the same generations.
#[test]
fn numbers_never_resolve_into_other_subvolumes() {
    const TEST: &str = "numbers_never_resolve_into_other_subvolumes";
    if !kinds(TEST).contains(&Kind::Btrfs) {
        return;
    }
    let ground = Ground::new(Kind::Btrfs);
    let btrfs = |arguments: &[&str]| {
        let mut command = Command::new("btrfs");
        command.args(["--quiet", "subvolume"]).args(arguments).current_dir(ground.root());
        assert!(command.status().unwrap().success());
    };
    btrfs(&["create", "volume"]);
    let root = ground.root().join("volume");
    fs::write(root.join("file"), "bytes").unwrap();
    btrfs(&["snapshot", "volume", "snapshot"]);
    fs::write(ground.root().join("snapshot/file"), "other bytes").unwrap();
    for number in 0..8 {
        fs::write(ground.root().join(number.to_string()), "top").unwrap();
    }
    let ino = fs::metadata(root.join("file")).unwrap().ino();
    assert_eq!(fs::metadata(ground.root().join("snapshot/file")).unwrap().ino(), ino);

    let volume = host(&root);
    let known = looked_up(&volume, "file");
    drop_caches(ground.root());
    assert_eq!(resolved(&volume, Ino(ino)).unwrap().attr.size, 5);
    let snapshot = host(&ground.root().join("snapshot"));
    let copy = resolved(&snapshot, Ino(ino)).unwrap();
    assert_eq!(copy.attr.size, 11);
    assert_ne!(copy.generation as u32, known.generation as u32);
    // The subvolume has no inode with this number; only the surrounding volume has one.
    let above = fs::metadata(ground.root().join("7")).unwrap().ino();
    assert!(above > ino);
    is_stale(resolved(&volume, Ino(above)));

    let top = host(ground.root());
    let below = looked_up(&top, "volume/file");
    assert_ne!(below.attr.ino.0, ino);
    drop_caches(ground.root());
    is_stale(resolved(&top, below.attr.ino));
    let other_session = looked_up(&host(ground.root()), "snapshot/file");
    assert_eq!(other_session.attr.ino, below.attr.ino, "the first volume that was met");
    assert_ne!(other_session.generation as u32, below.generation as u32);
}

/// An image and its copy contain files with equal handles. Each is mounted below the root in a
/// session of its own, in which its file gets the same number. Only the generations can differ.
#[test]
fn generations_distinguish_file_systems_of_different_sessions() {
    if kinds("generations_distinguish_file_systems_of_different_sessions").is_empty() {
        return;
    }
    let (outer, inner) = (Ground::new(Kind::Ext4), Ground::new(Kind::Ext4));
    let inner_image = inner.scratch.path().join("image");
    fs::write(inner.root().join("file"), "bytes").unwrap();
    inner.mount.unmount().unwrap();
    let copy = inner_image.with_extension("copy");
    fs::copy(&inner_image, &copy).unwrap();
    let point = outer.root().join("point");
    fs::create_dir(&point).unwrap();
    let entries = [&inner_image, &copy].map(|image| {
        let device = LoopDevice::attach(image, Options::default()).unwrap();
        let mount = Mount::new(device.path(), &point, "ext4", "").unwrap();
        let entry = looked_up(&host(outer.root()), "point/file");
        mount.unmount().unwrap();
        entry
    });
    assert_eq!(entries[0].attr.ino, entries[1].attr.ino);
    assert_ne!(entries[0].generation as u32, entries[1].generation as u32);
}

#[test]
fn numbers_do_not_resolve_into_a_locked_tree() {
    for kind in kinds("numbers_do_not_resolve_into_a_locked_tree") {
        let ground = Ground::new(kind);
        fs::create_dir_all(ground.root().join("inner/directory")).unwrap();
        fs::create_dir(ground.root().join("free")).unwrap();
        let inner = host(&ground.root().join("inner"));
        inner.lock_tree(LockMode::Exclusive).unwrap();
        let host = host(ground.root());
        host.lock_tree(LockMode::Exclusive).unwrap();
        let number = |path: &str| Ino(fs::metadata(ground.root().join(path)).unwrap().ino());
        is_stale(resolved(&host, number(".fslab-lock")));
        let is_busy = |path| resolved(&host, number(path)).unwrap_err().errno() == Errno::BUSY;
        assert!(is_busy("inner") && is_busy("inner/directory"));
        resolved(&host, number("free")).unwrap();
        assert_eq!(host.remembered_inodes(), 1);
        drop(inner);
        resolved(&host, number("inner/directory")).unwrap();
    }
}

/// Simulates a process that takes over a tree from another one.
#[test]
fn operations_resolve_unknown_numbers_only_with_the_option() {
    for kind in kinds("operations_resolve_unknown_numbers_only_with_the_option") {
        let ground = Ground::new(kind);
        fs::create_dir(ground.root().join("directory")).unwrap();
        fs::write(ground.root().join("directory/file"), "bytes").unwrap();
        let number = |path: &str| Ino(fs::metadata(ground.root().join(path)).unwrap().ino());
        let (directory, file) = (number("directory"), number("directory/file"));
        drop_caches(ground.root());

        let strict = host(ground.root());
        assert_eq!(Client::new(&strict).attr(file).unwrap_err().errno(), Errno::STALE);
        let options = HostOptions { inherited: Some(Arc::default()), ..HostOptions::default() };
        let host = HostFs::open(ground.root(), &options).unwrap();
        let client = Client::new(&host);
        assert_eq!(client.attr(file).unwrap().size, 5);
        assert_eq!(client.contents(file).unwrap(), b"bytes");
        assert_eq!(client.names(directory).unwrap(), ["file"]);
        client.file(directory, "new", b"more").unwrap();
        host.hold(file).unwrap();
        host.let_go(file);
        drop(client);

        // The kernel releases the lookups that it counted itself, which may be more or fewer than
        // were counted here.
        host.forget(file, 7);
        host.forget(file, 7);
        host.forget(directory, 1);
        assert_eq!(host.remembered_inodes(), 1, "{kind:?}");
        let client = Client::new(&host);
        client.open(file, OpenMode::empty()).unwrap().close().unwrap();
        assert_eq!(client.lookup(directory, "file").unwrap().ino, file);
        client.forget(file);
        assert_eq!(client.attr(file).unwrap().size, 5, "found again though it was forgotten");
        host.forget(file, 3);
        host.forget(directory, 3);
        assert_eq!(host.remembered_inodes(), 1, "{kind:?}");
        fs::remove_file(ground.root().join("directory/file")).unwrap();
        assert_eq!(client.attr(file).unwrap_err().errno(), Errno::STALE);
    }
}
