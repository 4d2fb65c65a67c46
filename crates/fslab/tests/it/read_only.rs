//! Tests that a mount with `-o ro` never changes its lower file system, even one that needs
//! repairs.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::XattrFlags;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::ext2;
use crate::support::{Place, is_mounted, require_mounting};
use crate::tiering::Tiered;

/// Layers of each kind: observers and codecs.
const LAYERS: [&str; 7] = ["null", "stats", "copy", "uuencode", "gzip", "zstd", "lz4"];

/// The size xattr of a stored file; see docs/formats/sca.md.
const SIZE_XATTR: &str = "user.fslab.sca";

/// Returns how long each mount is left idle. Within a second, a writable mount would have done its
/// maintenance.
fn idle_time() -> Duration {
    let is_long = std::env::var_os("FSLAB_EVERY_LAYER").is_some();
    Duration::from_secs(if is_long { 60 } else { 3 })
}

/// The attributes and the content of a file. The ctime shows any change.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    mode: u32,
    size: u64,
    blocks: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    accessed: Option<(i64, i64)>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    content: Vec<u8>,
}

/// Returns all files of a tree and its root, by path.
fn tree(root: &Path) -> BTreeMap<PathBuf, Found> {
    let mut found = BTreeMap::from([(root.to_owned(), look(root))]);
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(tree(&path)),
            false => drop(found.insert(path.clone(), look(&path))),
        }
    }
    found
}

fn look(path: &Path) -> Found {
    let metadata = fs::metadata(path).unwrap();
    let is_file = metadata.is_file();
    Found {
        mode: metadata.mode(),
        size: metadata.size(),
        blocks: metadata.blocks(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
        // Access times of directories are not compared, because each listing changes them.
        accessed: is_file.then(|| (metadata.atime(), metadata.atime_nsec())),
        xattrs: xattrs(path),
        content: if is_file { read_unnoticed(path) } else { Vec::new() },
    }
}

/// Reads a file without changing its access time.
fn read_unnoticed(path: &Path) -> Vec<u8> {
    use rustix::fs::{Mode, OFlags};
    use std::io::Read;
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::CLOEXEC;
    let mut content = Vec::new();
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty()).unwrap());
    file.read_to_end(&mut content).unwrap();
    content
}

fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 1 << 16];
    let length = rustix::fs::listxattr(path, &mut names).unwrap();
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| (name.to_vec(), xattr(path, name))).collect()
}

fn xattr(path: &Path, name: &[u8]) -> Vec<u8> {
    let mut value = vec![0; 1 << 16];
    let length = rustix::fs::getxattr(path, name, &mut value).unwrap();
    value.truncate(length);
    value
}

/// Rewrites parts of a file until more than half of its stored file is garbage.
fn write_with_garbage(path: &Path) {
    let lines: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    fs::write(path, &lines).unwrap();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    for round in 0..4_u64 {
        for part in 0..8_u64 {
            let piece: Vec<u8> =
                (0..65_536_u64).map(|at| mixed(at + (round << 32)) as u8).collect();
            file.write_all_at(&piece, part * 131_072).unwrap();
        }
        file.sync_all().unwrap();
    }
}

/// Returns numbers that no codec compresses.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ number >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

/// Makes a tree that the maintenance of a writable mount would change. Its files have garbage
/// beyond every threshold, and an outdated size xattr or none. The daemon of its last mount was
/// killed.
fn untidy(layer: &str) -> Place {
    let is_codec = !matches!(layer, "null" | "stats");
    let place = Place::new();
    // Make the file that is not from a layer before the first mount.
    fs::create_dir(place.lower.join("below")).unwrap();
    fs::write(place.lower.join("below/plain"), b"not made through a mount\n").unwrap();
    let choice = if is_codec { format!("{layer}:pack=off") } else { layer.to_owned() };
    place.mount(&["-l", &choice]);
    for name in ["garbage", "forgotten", "outdated"] {
        write_with_garbage(&place.point.join(name));
    }
    fs::write(place.point.join("empty"), b"").unwrap();
    place.umount();
    let outdated = is_codec.then(|| xattr(&place.lower.join("outdated"), SIZE_XATTR.as_bytes()));
    place.mount(&["-l", &choice]);
    let mut outdated_file = OpenOptions::new().append(true).open(place.point.join("outdated"));
    outdated_file.as_mut().unwrap().write_all(b"one more line\n").unwrap();
    outdated_file.unwrap().sync_all().unwrap();
    let mut open = File::create(place.point.join("open")).unwrap();
    open.write_all(&[7; 300_000]).unwrap();
    open.sync_all().unwrap();
    open.write_all(&[8; 10_000]).unwrap();
    place.kill_daemon();
    drop(open);
    rustix::mount::unmount(&place.point, UnmountFlags::DETACH).unwrap();
    if let Some(value) = outdated {
        let lower = |name| place.lower.join(name);
        rustix::fs::setxattr(lower("outdated"), SIZE_XATTR, &value, XattrFlags::empty()).unwrap();
        rustix::fs::removexattr(lower("forgotten"), SIZE_XATTR).unwrap();
    }
    place
}

/// Reads the whole tree twice, as `tar` and `ls` would.
fn read_all(point: &Path) -> BTreeMap<PathBuf, Found> {
    let first = tree(point);
    let names = |tree: &BTreeMap<PathBuf, Found>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&first), names(&tree(point)));
    assert!(fs::write(point.join("new"), b"").is_err());
    first
}

fn contents(tree: &BTreeMap<PathBuf, Found>, root: &Path) -> Vec<(PathBuf, u64, Vec<u8>)> {
    let of = |(path, found): (&PathBuf, &Found)| {
        let path = path.strip_prefix(root).unwrap().to_owned();
        (path, found.size, found.content.clone())
    };
    tree.iter().filter(|(_, found)| found.accessed.is_some()).map(of).collect()
}

#[test]
fn read_only_mount_does_not_change_a_tree_that_needs_maintenance() {
    require_mounting!();
    let places = LAYERS.map(|layer| (layer, untidy(layer)));
    let before: Vec<_> = places.iter().map(|(_, place)| tree(&place.lower)).collect();
    let mut shown = Vec::new();
    for (layer, place) in &places {
        let is_observer = matches!(*layer, "null" | "stats");
        let eager = if is_observer { "" } else { ":pack-after=1s" };
        place.mount(&["-o", "ro", "-l", &format!("{layer}{eager}")]);
        shown.push(read_all(&place.point));
    }
    std::thread::sleep(idle_time());
    for ((layer, place), before) in places.iter().zip(before) {
        place.umount();
        let after = tree(&place.lower);
        for (path, found) in &before {
            assert!(after.get(path) == Some(found), "{layer} changed {}", path.display());
        }
        assert_eq!(after.len(), before.len(), "{layer}");
    }
    // A writable mount shows the same content.
    for ((layer, place), shown) in places.iter().zip(shown) {
        place.mount(&["-l", layer]);
        let writable = tree(&place.point);
        assert!(contents(&shown, &place.point) == contents(&writable, &place.point), "{layer}");
        place.umount();
    }
}

/// A directory that is bind-mounted over itself, read-only. It is unmounted on drop.
struct Sealed(PathBuf);

impl Sealed {
    fn new(path: &Path) -> Self {
        rustix::mount::mount_bind(path, path).unwrap();
        let sealed = Self(path.to_owned());
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        rustix::mount::mount_remount(path, flags, "").unwrap();
        sealed
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        let _gone_with_its_tree = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn an_untidy_tree_on_a_read_only_file_system_can_be_read() {
    require_mounting!();
    for layer in ["null", "zstd"] {
        let place = untidy(layer);
        let sealed = Sealed::new(&place.lower);
        for options in ["ro", "rw"] {
            place.mount(&["-o", options, "-l", layer]);
            let shown = tree(&place.point);
            let garbage = &shown[&place.point.join("garbage")];
            assert!(garbage.content.len() as u64 == garbage.size, "{layer} {options}");
            assert!(garbage.size > 1_000_000, "{layer} {options}");
            place.umount();
        }
        drop(sealed);
        assert!(!is_mounted(&place.lower));
    }
}

#[test]
fn read_only_mount_does_not_change_an_image() {
    require_mounting!();
    for layers in [&[][..], &["-l", "zstd:pack-after=1s"]] {
        let mut place = Place::new();
        let image = ext2::image(&place, "64MiB");
        place.lower = format!("ext2:{}", image.display()).into();
        place.mount(layers);
        write_with_garbage(&place.point.join("garbage"));
        // At the kill, this file is open and has no name. So the next writable mount would free it.
        let removed = File::create(place.point.join("removed")).unwrap();
        fs::remove_file(place.point.join("removed")).unwrap();
        removed.sync_all().unwrap();
        rustix::fs::syncfs(&removed).unwrap();
        place.kill_daemon();
        drop(removed);
        rustix::mount::unmount(&place.point, UnmountFlags::DETACH).unwrap();
        // Access times are not compared, because reading the image changes its access time.
        let unused = |found| Found { accessed: None, ..found };
        let before = unused(look(&image));
        let (code, message) = place.try_mount(&[&["-o", "ro"], layers].concat());
        assert_eq!(code, 0, "{message}");
        read_all(&place.point);
        std::thread::sleep(idle_time());
        place.umount();
        assert!(unused(look(&image)) == before, "{layers:?}");
    }
}

/// Offline files can be read on a read-only mount. The result includes data that was written
/// directly into their lower files.
#[test]
fn read_only_tier_reads_offline_files_without_recalling_them() {
    require_mounting!();
    let tiered = Tiered::mounted();
    let mut content: Vec<u8> = (0..3_500_000_u64).map(|at| mixed(at) as u8).collect();
    for name in ["gone", "here"] {
        fs::write(tiered.path(name), &content).unwrap();
        tiered.of("archive", name);
    }
    tiered.of("release", "gone");
    tiered.umount();
    let gone = OpenOptions::new().write(true).open(tiered.tree().join("gone")).unwrap();
    gone.write_all_at(&[7; 4096], 1_572_864).unwrap();
    gone.sync_all().unwrap();
    drop(gone);
    let before = tree(tiered.tree());
    tiered.place().mount(&["-o", "ro", "-l", "tier"]);
    // Read the file with O_NOATIME. The kernel passes this read through, so it would otherwise
    // change the access time of the lower file.
    assert!(read_unnoticed(&tiered.path("here")) == content);
    content[1_572_864..1_572_864 + 4096].fill(7);
    assert!(fs::read(tiered.path("gone")).unwrap() == content);
    let gone = File::open(tiered.path("gone")).unwrap();
    let mut piece = vec![0; 3000];
    gone.read_exact_at(&mut piece, 2_096_000).unwrap();
    assert!(piece == content[2_096_000..2_099_000], "across a block boundary");
    drop(gone);
    std::thread::sleep(idle_time());
    tiered.umount();
    let after = tree(tiered.tree());
    for (path, found) in &before {
        assert!(after.get(path) == Some(found), "{} changed", path.display());
    }
    assert_eq!(after.len(), before.len());
}
