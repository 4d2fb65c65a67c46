//! Tests ext2 images: the tools of `fslab ext2`, and mounted images.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use fslab_sys::mounts::Mount;
use fslab_vfs::{FileSystem, HostFs, HostOptions};
use fslab_vfs_testing::conformance::run_all;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::support::{Place, Transport, fslab, is_mounted, require_mounting, run};

const BAD_INPUT: i32 = 3;

#[track_caller]
pub fn works(arguments: &[&str]) -> Vec<u8> {
    let output = fslab(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && message.is_empty(), "{arguments:?}: {message}");
    output.stdout
}

#[track_caller]
pub fn check(image: &Path) {
    let Ok(output) = Command::new("e2fsck").arg("-fn").arg(image).output() else {
        fslab_vfs_testing::skip::skip("fslab::ext2", "no e2fsck");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

pub fn image(place: &Place, size: &str) -> PathBuf {
    let image = place.lower.join("image");
    works(&["ext2", "mkfs", image.to_str().unwrap(), size]);
    image
}

/// Mounts a new image.
pub fn mounted(size: &str, arguments: &[&str]) -> (Place, PathBuf) {
    mounted_over(Transport::Device, size, arguments)
}

/// Mounts a new image, whose daemon receives requests through this transport.
pub fn mounted_over(transport: Transport, size: &str, arguments: &[&str]) -> (Place, PathBuf) {
    let mut place = Place::new();
    place.transport = transport;
    let image = image(&place, size);
    place.lower = format!("ext2:{}", image.display()).into();
    place.mount(arguments);
    (place, image)
}

#[test]
fn put_and_get_copy_a_file_into_and_out_of_an_image() {
    let place = Place::new();
    let path = image(&place, "32MiB");
    let image = path.to_str().unwrap();
    let [source, target] = ["source", "target"].map(|name| place.lower.join(name));
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|index| (index * 7 % 251) as u8).collect();
    std::fs::write(&source, &bytes).unwrap();
    for _ in 0..2 {
        // In the second round, the copy replaces the first one.
        works(&["ext2", "put", image, source.to_str().unwrap(), "/lost+found/a file"]);
    }
    assert_eq!(works(&["ext2", "ls", image, "/lost+found"]), b"a file\n");
    assert!(works(&["ext2", "cat", image, "lost+found/a file"]) == bytes);
    works(&["ext2", "get", image, "/lost+found/a file", target.to_str().unwrap()]);
    assert!(std::fs::read(&target).unwrap() == bytes);
    let told = String::from_utf8(works(&["ext2", "stat", image, "/lost+found/a file"])).unwrap();
    assert!(told.contains("size: 3000001\n") && told.contains("extent: bytes 0.."), "{told}");
    let told = String::from_utf8(works(&["ext2", "info", "--json", image])).unwrap();
    assert!(told.contains("\"state\": \"clean\"") && told.contains("\"blocks\": 8192"), "{told}");
    check(&path);
}

#[test]
fn equal_arguments_make_equal_images() {
    let place = Place::new();
    let make = |name: &str| {
        let image = place.lower.join(name);
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        let image_name = image.to_str().unwrap();
        works(&[
            "ext2",
            "mkfs",
            "--time",
            "1600000000",
            "-U",
            uuid,
            "--hash-seed",
            uuid,
            "-L",
            "label",
            image_name,
            "16MiB",
        ]);
        std::fs::read(image).unwrap()
    };
    assert!(make("one") == make("other"));
}

#[test]
fn import_and_export_preserve_a_tree() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let place = Place::new();
    let path = image(&place, "32MiB");
    let image = path.to_str().unwrap();
    let [source, target] = ["source", "target"].map(|name| place.lower.join(name));
    std::fs::create_dir_all(source.join("deep/deeper")).unwrap();
    std::fs::create_dir(&target).unwrap();
    std::fs::write(source.join("deep/deeper/file"), "bytes").unwrap();
    std::fs::hard_link(source.join("deep/deeper/file"), source.join("second name")).unwrap();
    symlink("/etc/passwd", source.join("link")).unwrap();
    let sparse = std::fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(100 << 20).unwrap();
    std::fs::set_permissions(source.join("deep"), PermissionsExt::from_mode(0o750)).unwrap();
    works(&["ext2", "import", image, source.to_str().unwrap()]);
    check(&path);
    works(&["ext2", "export", image, target.to_str().unwrap()]);
    for name in ["deep", "deep/deeper/file", "second name", "link", "sparse"] {
        let [one, other] =
            [&source, &target].map(|root| root.join(name).symlink_metadata().unwrap());
        let facts = |all: &std::fs::Metadata| {
            (all.mode(), all.uid(), all.mtime(), all.mtime_nsec(), all.nlink())
        };
        assert_eq!(facts(&one), facts(&other), "{name}");
    }
    assert_eq!(std::fs::read(target.join("second name")).unwrap(), b"bytes");
    assert_eq!(std::fs::read_link(target.join("link")).unwrap(), Path::new("/etc/passwd"));
    let sparse = target.join("sparse").metadata().unwrap();
    assert_eq!((sparse.len(), sparse.blocks()), (100 << 20, 0));
    // An existing name is refused, and the file is not overwritten.
    let (code, message) = run(&["ext2", "export", image, target.to_str().unwrap()]);
    assert_ne!(code, 0);
    assert!(message.contains("exists"), "{message}");
}

#[test]
fn invalid_images_and_arguments_are_named_in_the_error() {
    let place = Place::new();
    let path = image(&place, "8MiB");
    let image = path.to_str().unwrap();
    let file = place.lower.join("file");
    std::fs::write(&file, vec![0; 10_000]).unwrap();
    let file = file.to_str().unwrap();
    let point = place.point.to_str().unwrap();
    for (arguments, part) in [
        (vec!["ext2", "mkfs", image], "use --force"),
        (vec!["ext2", "mkfs", "-b", "5000", file], "block size 5000: use 1024"),
        (vec!["ext2", "mkfs", "-b", "8192", file, "64MiB"], "simulation"),
        (vec!["ext2", "mkfs", "-U", "12", file], "'12' is not a UUID"),
        (vec!["ext2", "mkfs", "/tmp/no-such-image"], "give the size"),
        (vec!["ext2", "info", file], "not an ext2 file system"),
    ] {
        let (code, message) = run(&arguments);
        assert_eq!(code, BAD_INPUT, "{arguments:?}: {message}");
        assert!(message.contains(part), "{arguments:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
    for (arguments, part) in [
        (vec!["ext2", "info", "/no/such/image"], "/no/such/image"),
        (vec!["ext2", "cat", image, "/none"], "/none"),
        (vec!["mount", &format!("ext2:{file}"), point], "not an ext2 file system"),
    ] {
        let (code, message) = run(&arguments);
        assert_ne!(code, 0, "{arguments:?}");
        assert!(message.contains(part), "{arguments:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
    assert!(!is_mounted(&place.point));
}

/// Runs a tool that must fail. Returns its exit code and both of its outputs.
pub fn fails(arguments: &[&str]) -> (i32, String) {
    let output = fslab(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
}

pub fn text(arguments: &[&str]) -> String {
    String::from_utf8(works(arguments)).unwrap()
}

#[test]
fn check_reports_damage_and_repair_fixes_it() {
    use std::os::unix::fs::FileExt;
    let place = Place::new();
    let path = image(&place, "8MiB");
    let image = path.to_str().unwrap();
    let source = place.lower.join("source");
    std::fs::write(&source, vec![3; 20_000]).unwrap();
    works(&["ext2", "put", image, source.to_str().unwrap(), "/a file"]);
    assert!(text(&["ext2", "check", image]).contains("clean; "));
    let inode: u64 = {
        let told = text(&["ext2", "stat", image, "/a file"]);
        told.lines().next().unwrap().strip_prefix("inode: ").unwrap().parse().unwrap()
    };
    let facts: serde_json::Value =
        serde_json::from_str(&text(&["ext2", "info", "--json", "--groups", image])).unwrap();
    let table = facts["groups"][0]["inode_table"].as_u64().unwrap();
    // Damages the link count in the inode.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[9], table * 4096 + (inode - 1) * 256 + 26).unwrap();
    let (code, told) = fails(&["ext2", "check", image]);
    assert_eq!(code, 1, "{told}");
    assert!(
        told.contains("(/a file)") && told.contains("has a link count of 9 instead of 1"),
        "{told}"
    );
    let before = std::fs::read(&path).unwrap();
    let told = text(&["ext2", "repair", "--dry-run", image]);
    assert!(told.contains("would repair: ") && told.contains("nothing was changed"), "{told}");
    let told: serde_json::Value =
        serde_json::from_str(&text(&["ext2", "repair", "-n", "--json", image])).unwrap();
    assert_eq!(told["repaired"][0]["code"], "links", "{told}");
    assert!(before == std::fs::read(&path).unwrap(), "a dry run has changed the image");
    let told = text(&["ext2", "repair", image]);
    assert!(told.contains("repaired: ") && told.contains("clean; 1 problem repaired"), "{told}");
    check(&path);
    assert_eq!(works(&["ext2", "cat", image, "/a file"]), vec![3; 20_000]);
}

#[test]
fn dx_prints_an_index_and_layout_draws_a_map() {
    let place = Place::new();
    let path = image(&place, "32MiB");
    let image = path.to_str().unwrap();
    let source = place.lower.join("source");
    std::fs::create_dir_all(source.join("many")).unwrap();
    for number in 0..400 {
        std::fs::write(source.join("many").join(format!("{number} {}", "x".repeat(60))), "")
            .unwrap();
    }
    std::fs::write(source.join("large"), vec![1; 1 << 20]).unwrap();
    works(&["ext2", "import", image, source.to_str().unwrap()]);
    let drawn = text(&["ext2", "dx", image, "/many"]);
    assert!(drawn.starts_with("root ") && drawn.contains("  leaf "), "{drawn}");
    assert!(drawn.lines().last().unwrap().contains("leaves ("), "{drawn}");
    assert_eq!(text(&["ext2", "dx", "--nodes", image, "/many"]).matches("leaf ").count(), 0);
    assert!(text(&["ext2", "dx", image, "/"]).contains("/ has no index"));
    let svg = place.lower.join("map.svg");
    let told = text(&["ext2", "layout", "--svg", svg.to_str().unwrap(), image]);
    assert!(told.lines().last().unwrap().trim_start().starts_with("all "), "{told}");
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
    assert!(drawn.contains("hsl(") && drawn.contains("#444"), "{drawn}");
}

#[test]
fn tune_resize_and_undelete_work_on_an_image() {
    let place = Place::new();
    let path = image(&place, "16MiB");
    let image = path.to_str().unwrap();
    works(&["ext2", "tune", "-L", "other", "-m", "0", image]);
    assert!(text(&["ext2", "info", image]).contains("label: other\n"));
    let told = text(&["ext2", "resize", image, "24MiB"]);
    assert!(told.contains("4096 blocks, now 6144"), "{told}");
    check(&path);
    let told = text(&["ext2", "resize", image, "8MiB"]);
    assert!(told.contains("6144 blocks, now 2048"), "{told}");
    check(&path);
    let (code, told) = fails(&["ext2", "resize", image, "64KiB"]);
    assert_eq!(code, BAD_INPUT, "{told}");
    check(&path);
    let (code, told) = fails(&["ext2", "tune", image]);
    assert_eq!((code, told.contains("nothing to change")), (BAD_INPUT, true), "{told}");
    let [source, target] = ["source", "target"].map(|name| place.lower.join(name));
    let [source, target] = [&source, &target].map(|path| path.to_str().unwrap());
    std::fs::write(source, vec![8; 300_000]).unwrap();
    works(&["ext2", "put", image, source, "/file"]);
    // Putting another file under this name deletes the first file.
    let other = place.lower.join("other");
    std::fs::write(&other, "short").unwrap();
    works(&["ext2", "put", image, other.to_str().unwrap(), "/file"]);
    let told = text(&["ext2", "undelete", image]);
    let inode = told.split_whitespace().nth(1).unwrap().to_owned();
    assert!(told.contains("300000 bytes") && told.contains("are free"), "{told}");
    works(&["ext2", "undelete", image, &inode, target]);
    assert!(std::fs::read(target).unwrap() == vec![8; 300_000]);
    let (code, told) = fails(&["ext2", "undelete", image, "2", "/tmp/no-such-target"]);
    assert_eq!(code, BAD_INPUT, "{told}");
}

#[test]
fn partition_at_an_offset_is_used_as_an_image() {
    let place = Place::new();
    let disk = place.lower.join("disk");
    std::fs::File::create(&disk).unwrap().set_len(20 << 20).unwrap();
    let source = place.lower.join("source");
    std::fs::write(&source, "bytes").unwrap();
    let part = format!("{}@1MiB+8MiB", disk.display());
    works(&["ext2", "mkfs", &part]);
    works(&["ext2", "put", &part, source.to_str().unwrap(), "/file"]);
    assert_eq!(works(&["ext2", "cat", &part, "/file"]), b"bytes");
    assert!(text(&["ext2", "info", &part]).contains("blocks: 2048\n"));
    let bytes = std::fs::read(&disk).unwrap();
    assert!(bytes[..1 << 20].iter().chain(&bytes[9 << 20..]).all(|byte| *byte == 0));
    let (code, told) = fails(&["ext2", "info", &format!("{}@1GiB", disk.display())]);
    assert_eq!(
        (code, told.contains("is not within the 20971520 bytes")),
        (BAD_INPUT, true),
        "{told}"
    );
    let copy = place.lower.join("copy");
    std::fs::write(&copy, &bytes[1 << 20..9 << 20]).unwrap();
    check(&copy);
}

#[test]
fn a_mounted_image_conforms() {
    require_mounting!();
    let (place, image) = mounted("400MiB", &["-o", "suid,dev"]);
    let make = || {
        let host = HostFs::open(&place.point, &HostOptions::default()).unwrap();
        Box::new(host) as Box<dyn FileSystem>
    };
    let reserved = "the engine treats space past the end of a file as damage";
    let report = run_all(
        &make,
        &[
            ("holes/reserving_can_keep_the_size", reserved),
            ("holes/reserved_space_past_the_end_reads_as_zeros", reserved),
        ],
    );
    eprintln!("{report}");
    assert!(report.is_success());
    // Sync first, so that unmounting a busy disk does not exceed the time limit.
    std::fs::File::open(&place.point).unwrap().sync_all().unwrap();
    place.umount();
    check(&image);
}

#[test]
fn mounted_image_is_locked_and_keeps_its_files() {
    require_mounting!();
    let (place, image) = mounted("32MiB", &["-l", "null"]);
    std::fs::create_dir(place.point.join("directory")).unwrap();
    std::fs::write(place.point.join("directory/file"), "kept").unwrap();
    let (code, message) = run(&["ext2", "ls", image.to_str().unwrap()]);
    assert_eq!(code, BAD_INPUT, "{message}");
    assert!(message.contains("in use by another fslab"), "{message}");
    let (code, message) = run(&["ext2", "mkfs", "--force", image.to_str().unwrap(), "1MiB"]);
    assert_eq!(code, BAD_INPUT, "{message}");
    assert_eq!(image.metadata().unwrap().len(), 32 << 20, "a refused mkfs changes no length");
    place.umount();
    check(&image);
    assert_eq!(works(&["ext2", "cat", image.to_str().unwrap(), "/directory/file"]), b"kept");
    place.mount(&[]);
    assert_eq!(std::fs::read(place.point.join("directory/file")).unwrap(), b"kept");
    place.umount();
}

#[test]
fn codec_layer_works_over_an_image() {
    require_mounting!();
    let layers = ["-l", "gzip:pack-after=1h"];
    let (place, image) = mounted("32MiB", &layers);
    let text = "It was the age of wisdom, it was the age of foolishness. ".repeat(10_000);
    std::fs::write(place.point.join("file"), &text).unwrap();
    let (code, message) = run(&["ext2", "ls", image.to_str().unwrap()]);
    assert_eq!(code, BAD_INPUT, "{message}");
    place.umount();
    check(&image);
    let stored = works(&["ext2", "cat", image.to_str().unwrap(), "/file"]);
    assert!(stored.starts_with(b"\x1f\x8b") && stored.len() < text.len() / 8, "{}", stored.len());
    place.mount(&layers);
    assert!(std::fs::read_to_string(place.point.join("file")).unwrap() == text);
    place.umount();
}

/// Returns the content of a file in the image's root, read from the image while a daemon has it
/// open.
fn on_the_device(image: &Path, name: &str) -> Option<Vec<u8>> {
    use fslab_ext2::{Ext2, VolumeOptions};
    use fslab_vfs::FileDevice;
    use fslab_vfs_testing::client::Client;
    let device =
        std::sync::Arc::new(FileDevice::from_file(std::fs::File::open(image).unwrap()).unwrap());
    let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let ext2 = Ext2::open(device, options).ok()?;
    let client = Client::new(&ext2);
    let found = client.lookup(fslab_vfs::Ino::ROOT, name).ok()?;
    client.contents(found.ino).ok()
}

/// Kills the daemon and repairs the image, like a user after a crash.
fn kill_and_repair(place: &Place, image: &Path) {
    place.kill_daemon();
    repair(place, image);
}

/// Removes the mount of a killed daemon, and repairs the image.
pub fn repair(place: &Place, image: &Path) {
    // Requests that a killed daemon never answered may keep the mount busy, so unmount lazily.
    rustix::mount::unmount(&place.point, rustix::mount::UnmountFlags::DETACH).unwrap();
    let output = Command::new("e2fsck").arg("-fy").arg(image).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    check(image);
}

#[test]
fn killed_daemon_loses_no_synced_or_written_back_file() {
    require_mounting!();
    let (place, image) = mounted("32MiB", &[]);
    let file = place.point.join("synced");
    std::fs::write(&file, "durable").unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    std::fs::write(place.point.join("closed"), "in time").unwrap();
    crate::support::soon("the file is written back", || {
        on_the_device(&image, "closed").is_some_and(|bytes| bytes == b"in time")
    });
    std::fs::write(place.point.join("late"), "perhaps").unwrap();
    kill_and_repair(&place, &image);
    let image = image.to_str().unwrap();
    assert_eq!(works(&["ext2", "cat", image, "/synced"]), b"durable");
    assert_eq!(works(&["ext2", "cat", image, "/closed"]), b"in time");
}

#[test]
fn close_sync_option_makes_closed_files_durable() {
    require_mounting!();
    let mut place = Place::new();
    let image = image(&place, "32MiB");
    place.lower = format!("ext2:{}?close=sync", image.display()).into();
    place.mount(&[]);
    std::fs::create_dir(place.point.join("directory")).unwrap();
    std::fs::write(place.point.join("directory/closed"), vec![7; 100_000]).unwrap();
    kill_and_repair(&place, &image);
    let bytes = works(&["ext2", "cat", image.to_str().unwrap(), "/directory/closed"]);
    assert!(bytes == vec![7; 100_000]);
}

/// Creates empty files as fast as a mount accepts them.
fn make_names(directory: &Path, numbers: impl Iterator<Item = u64>) {
    use rustix::fs::{CWD, FileType, mknodat};
    for number in numbers {
        let path = directory.join(format!("file{number:08}"));
        mknodat(CWD, &path, FileType::RegularFile, 0o644.into(), 0).unwrap();
    }
}

/// After most files of a large directory are removed, the directory shrinks, even while mounted.
/// `FSLAB_EXT2_NAMES` sets the number of names; the original bug report has 1000000.
#[test]
fn emptied_directory_shrinks_while_mounted() {
    use fslab_vfs_testing::environment::number;
    use std::os::unix::fs::MetadataExt;
    const KEPT: u64 = 100;
    require_mounting!();
    let names = number("FSLAB_EXT2_NAMES").unwrap_or(12_000);
    let mut place = Place::new();
    let image = place.lower.join("image");
    let size = (names * 4500 + (16 << 20)).to_string();
    works(&["ext2", "mkfs", "-i", "4096", image.to_str().unwrap(), &size]);
    place.lower = format!("ext2:{}", image.display()).into();
    place.mount(&[]);
    let directory = place.point.join("names");
    std::fs::create_dir(&directory).unwrap();
    let facts = || {
        let metadata = directory.metadata().unwrap();
        (metadata.size(), metadata.blocks() * 512)
    };
    let start = std::time::Instant::now();
    make_names(&directory, 0..names);
    let (full, filled) = (facts(), start.elapsed());
    assert!(full.0 > names * 20, "{full:?}");
    let is_kept = |number: &u64| number.is_multiple_of(names / KEPT);
    for number in (0..names).filter(|number| !is_kept(number)) {
        std::fs::remove_file(directory.join(format!("file{number:08}"))).unwrap();
    }
    let emptied = start.elapsed() - filled;
    eprintln!("{names} names: {full:?} in {filled:?}; {KEPT}: {:?} in {emptied:?}", facts());
    assert_eq!(facts(), (4096, 4096));
    for number in (0..names).filter(is_kept) {
        directory.join(format!("file{number:08}")).symlink_metadata().unwrap();
    }
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), KEPT as usize);
    place.umount();
    check(&image);
}

/// A refused mkfs does not change the image. If the requested size is impossible, the error
/// contains the size.
#[test]
fn refused_mkfs_leaves_the_image_unchanged() {
    let place = Place::new();
    let path = image(&place, "4MiB");
    let before = std::fs::read(&path).unwrap();
    let again = ["ext2", "mkfs", path.to_str().unwrap(), "64"];
    let (code, message) = run(&again);
    assert_eq!(code, BAD_INPUT);
    assert!(message.contains("use --force to overwrite it"), "{message}");
    assert!(std::fs::read(&path).unwrap() == before, "the image was changed");
    let (code, message) = run(&[&again[..], &["--force"]].concat());
    assert_eq!(code, BAD_INPUT);
    assert!(
        message
            .contains("image, 64 B: can't make or change the file system: the device is too small"),
        "{message}"
    );
    // The size is near the maximum. After rounding up to whole groups, there would be one inode
    // more than inode numbers.
    let large = ["ext2", "mkfs", "--force", "-i", "4096", path.to_str().unwrap(), "17592186040320"];
    let (code, message) = run(&large);
    assert_eq!(code, BAD_INPUT, "{message}");
    assert!(message.contains("too many inodes"), "{message}");
    assert!(std::fs::read(&path).unwrap() == before, "the image was changed");
}

/// mkfs refuses an image of another format, like one of the ext2 family. With `--force`, the image
/// becomes ext2, and tools no longer detect the old format.
#[test]
fn mkfs_overwrites_other_formats_only_with_force() {
    let place = Place::new();
    let path = place.lower.join("image");
    for (offset, bytes, name) in
        [(0_u64, &b"XFSB"[..], "xfs"), (0x10040, b"_BHRfS_M", "btrfs"), (510, b"\x55\xaa", "dos")]
    {
        let mut before = vec![0; 4 << 20];
        let at = offset as usize;
        before[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(&path, &before).unwrap();
        let again = ["ext2", "mkfs", path.to_str().unwrap()];
        let (code, message) = run(&again);
        assert_eq!(code, BAD_INPUT, "{message}");
        assert!(message.contains(&format!("contains {name}; use --force")), "{message}");
        assert!(std::fs::read(&path).unwrap() == before, "the image was changed");
        let (code, message) = run(&[&again[..], &["--force"]].concat());
        assert_eq!(code, 0, "{message}");
        let after = std::fs::read(&path).unwrap();
        assert_ne!(&after[at..at + bytes.len()], bytes, "{name}");
    }
}

/// Lists a directory from a seek position. Returns each name with the position after it.
fn listed_from(directory: &std::fs::File, position: u64) -> Vec<(Vec<u8>, u64)> {
    rustix::fs::seek(directory, rustix::fs::SeekFrom::Start(position)).unwrap();
    let mut buffer = vec![std::mem::MaybeUninit::uninit(); 1000];
    let mut entries = rustix::fs::RawDir::new(directory, &mut buffer);
    let mut all = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        all.push((entry.file_name().to_bytes().to_vec(), entry.next_entry_cookie()));
    }
    all
}

#[test]
fn readdir_option_sorts_a_listing_by_inode() {
    use std::os::unix::fs::DirEntryExt;
    require_mounting!();
    let mut place = Place::new();
    let path = image(&place, "32MiB");
    for (key, sorted) in [("inode", true), ("index", false)] {
        place.lower = format!("ext2:{}?readdir={key}", path.display()).into();
        place.mount(&[]);
        let names = place.point.join("names");
        if !names.exists() {
            std::fs::create_dir(&names).unwrap();
            make_names(&names, 0..1000);
        }
        let entries = std::fs::read_dir(&names).unwrap();
        let inodes: Vec<u64> = entries.map(|entry| entry.unwrap().ino()).collect();
        assert_eq!((inodes.len(), inodes.is_sorted()), (1000, sorted), "readdir={key}");
        place.umount();
    }
}

/// A listing resumes from earlier positions, as with seekdir(3), also with the kernel's cache of
/// listings, and while names are added and removed.
#[test]
fn listing_resumes_from_earlier_seek_positions() {
    require_mounting!();
    // The last pair uses a directory without its index. When it becomes small, it becomes linear.
    for (key, again) in [("htree", "htree"), ("linear", "linear"), ("htree", "linear")] {
        let mut place = Place::new();
        let path = image(&place, "32MiB");
        place.lower = format!("ext2:{}?index={key}", path.display()).into();
        place.mount(&[]);
        let names = place.point.join("names");
        std::fs::create_dir(&names).unwrap();
        make_names(&names, 0..1000);
        place.umount();
        place.lower = format!("ext2:{}?index={again}", path.display()).into();
        place.mount(&[]);
        let directory = std::fs::File::open(&names).unwrap();
        let whole = listed_from(&directory, 0);
        assert_eq!(whole.len(), 1002);
        let position = |at: usize| whole[at].1;
        for at in (0..whole.len()).rev().step_by(37) {
            assert!(listed_from(&directory, position(at)) == whole[at + 1..], "{key}, entry {at}");
        }
        let is_kept = |at: usize| at % 40 == 2;
        for (at, (name, _)) in whole.iter().enumerate().skip(2).filter(|(at, _)| !is_kept(*at)) {
            let name = String::from_utf8(name.clone()).unwrap();
            std::fs::remove_file(names.join(name)).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
        for when in ["small", "grown"] {
            let directory = std::fs::File::open(&names).unwrap();
            for at in (0..whole.len()).step_by(29) {
                let found = listed_from(&directory, position(at));
                for (number, (name, _)) in whole.iter().enumerate().filter(|(at, _)| is_kept(*at)) {
                    let is_listed = found.iter().any(|(found, _)| found == name);
                    assert_eq!(
                        is_listed,
                        number > at,
                        "{key}, {again}, {when}, {number} from {at}"
                    );
                }
            }
            if when == "small" {
                make_names(&names, 2000..2500);
            }
        }
        drop(directory);
        place.umount();
        check(&path);
    }
}

/// Makes an image with mke2fs that contains the file `file`; `None` if mke2fs is not installed.
fn of_mke2fs(place: &Place, arguments: &[&str]) -> Option<PathBuf> {
    let [path, source] = ["image", "source"].map(|name| place.lower.join(name));
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    std::fs::write(&source, b"bytes").unwrap();
    let Ok(made) = Command::new("mke2fs").args(["-q", "-F"]).args(arguments).arg(&path).output()
    else {
        fslab_vfs_testing::skip::skip("fslab::ext2", "no mke2fs");
        return None;
    };
    assert!(made.status.success(), "{made:?}");
    let request = format!("write {} file", source.display());
    let written = Command::new("debugfs").args(["-w", "-R", &request]).arg(&path).output();
    assert!(written.unwrap().status.success());
    Some(path)
}

#[test]
fn image_with_a_journal_can_only_be_read() {
    let mut place = Place::new();
    let Some(path) = of_mke2fs(&place, &["-t", "ext3"]) else { return };
    let image = path.to_str().unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused: [&[&str]; 6] = [
        &["check", image],
        &["repair", image],
        &["tune", "-L", "label", image],
        &["resize", image, "128MiB"],
        &["resize", image, "32MiB"],
        &["put", image, image, "/new"],
    ];
    for arguments in refused {
        let (code, message) = run(&[&["ext2"], arguments].concat());
        assert_eq!((code, message.lines().count()), (BAD_INPUT, 1), "{arguments:?}: {message}");
        assert!(message.contains("has_journal") && message.contains("tune2fs"), "{message}");
    }
    assert_eq!(works(&["ext2", "cat", image, "/file"]), b"bytes");
    assert!(std::fs::read(&path).unwrap() == before, "the image was changed");
    require_mounting!();
    place.lower = format!("ext2:{image}").into();
    let (code, message) = place.try_mount(&[]);
    assert_eq!(code, BAD_INPUT, "{message}");
    assert!(message.contains("has_journal") && !is_mounted(&place.point), "{message}");
    place.mount(&["-o", "ro"]);
    assert_eq!(std::fs::read(place.point.join("file")).unwrap(), b"bytes");
    let refused = std::fs::write(place.point.join("new"), b"").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    place.umount();
    assert!(std::fs::read(&path).unwrap() == before, "the image was changed");
}

/// An overlayfs works over an image. For this, renames must be able to leave a whiteout, and
/// removed files are recorded as whiteouts.
#[test]
fn an_image_serves_as_the_upper_directory_of_an_overlay() {
    require_mounting!();
    let (place, image) = mounted("32MiB", &[]);
    let scratch = TempDir::new().unwrap();
    let [lower, shown] = ["lower", "shown"].map(|name| scratch.path().join(name));
    let [upper, work] = ["upper", "work"].map(|name| place.point.join(name));
    for directory in [&lower, &shown, &upper, &work] {
        std::fs::create_dir(directory).unwrap();
    }
    for name in ["removed", "renamed", "kept"] {
        std::fs::write(lower.join(name), name).unwrap();
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let overlay = Mount::new(Path::new("overlay"), &shown, "overlay", &options).unwrap();
    std::fs::remove_file(shown.join("removed")).unwrap();
    std::fs::rename(shown.join("renamed"), shown.join("new")).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(&shown).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["kept", "new"]);
    assert_eq!(std::fs::read_to_string(shown.join("new")).unwrap(), "renamed");
    drop(overlay);
    for name in ["removed", "renamed"] {
        let whiteout = std::fs::symlink_metadata(upper.join(name)).unwrap();
        assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0, "{name}");
    }
    place.umount();
    check(&image);
}

#[test]
fn rename_leaves_a_whiteout_if_requested() {
    require_mounting!();
    let (place, image) = mounted("32MiB", &[]);
    let path = |name: &str| place.point.join(name);
    for (name, kind) in [("file", "file"), ("directory", "directory"), ("target", "file")] {
        match kind {
            "file" => std::fs::write(path(name), name).unwrap(),
            _ => std::fs::create_dir(path(name)).unwrap(),
        }
    }
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags)
    };
    let whiteout = RenameFlags::WHITEOUT;
    rename("file", "target", whiteout).unwrap();
    rename("directory", "moved", whiteout | RenameFlags::NOREPLACE).unwrap();
    assert_eq!(rename("target", "moved", whiteout | RenameFlags::EXCHANGE), Err(Errno::INVAL));
    assert_eq!(std::fs::read_to_string(path("target")).unwrap(), "file");
    assert!(path("moved").is_dir());
    for name in ["file", "directory"] {
        let left = std::fs::symlink_metadata(path(name)).unwrap();
        assert!(left.file_type().is_char_device() && left.rdev() == 0 && left.nlink() == 1);
        assert_eq!(left.mode() & 0o7777, 0);
    }
    place.umount();
    check(&image);
}
