//! ext2 images: the tools without a mount, and images mounted beneath layers.

use std::path::{Path, PathBuf};
use std::process::Command;

use fslab_vfs::testing::conformance::run_all;
use fslab_vfs::{FileSystem, HostFs, HostOptions};

use crate::support::{Place, fslab, is_mounted, require_mounting, run};

const BAD_INPUT: i32 = 3;

#[track_caller]
fn works(arguments: &[&str]) -> Vec<u8> {
    let output = fslab(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && message.is_empty(), "{arguments:?}: {message}");
    output.stdout
}

#[track_caller]
fn check(image: &Path) {
    let Ok(output) = Command::new("e2fsck").arg("-fn").arg(image).output() else {
        fslab_vfs::testing::skip::skip("fslab::ext2", "no e2fsck");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn image(place: &Place, size: &str) -> PathBuf {
    let image = place.lower.join("image");
    works(&["ext2", "mkfs", image.to_str().unwrap(), size]);
    image
}

/// A place whose lower file system is an image.
fn mounted(size: &str, arguments: &[&str]) -> (Place, PathBuf) {
    let mut place = Place::new();
    let image = image(&place, size);
    place.lower = format!("ext2:{}", image.display()).into();
    place.mount(arguments);
    (place, image)
}

#[test]
fn files_go_into_an_image_and_out_again() {
    let place = Place::new();
    let path = image(&place, "32MiB");
    let image = path.to_str().unwrap();
    let [source, target] = ["source", "target"].map(|name| place.lower.join(name));
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|index| (index * 7 % 251) as u8).collect();
    std::fs::write(&source, &bytes).unwrap();
    for _ in 0..2 {
        // The second time over the first.
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
fn trees_go_in_and_out_whole() {
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
    // A name that is taken is refused, not written through.
    let (code, message) = run(&["ext2", "export", image, target.to_str().unwrap()]);
    assert_ne!(code, 0);
    assert!(message.contains("exists"), "{message}");
}

#[test]
fn what_is_no_image_is_named() {
    let place = Place::new();
    let path = image(&place, "8MiB");
    let image = path.to_str().unwrap();
    let file = place.lower.join("file");
    std::fs::write(&file, vec![0; 10_000]).unwrap();
    let file = file.to_str().unwrap();
    let point = place.point.to_str().unwrap();
    for (arguments, part) in [
        (vec!["ext2", "mkfs", image], "use --force"),
        (vec!["ext2", "mkfs", "-b", "5000", file], "5000 is no block size"),
        (vec!["ext2", "mkfs", "-b", "8192", file, "64MiB"], "simulation"),
        (vec!["ext2", "mkfs", "-U", "12", file], "'12' is no UUID"),
        (vec!["ext2", "mkfs", "/tmp/no-such-image"], "how large"),
        (vec!["ext2", "info", file], "no ext2 file system"),
    ] {
        let (code, message) = run(&arguments);
        assert_eq!(code, BAD_INPUT, "{arguments:?}: {message}");
        assert!(message.contains(part), "{arguments:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
    for (arguments, part) in [
        (vec!["ext2", "info", "/no/such/image"], "/no/such/image"),
        (vec!["ext2", "cat", image, "/none"], "/none"),
        (vec!["mount", &format!("ext2:{file}"), point], "no ext2 file system"),
    ] {
        let (code, message) = run(&arguments);
        assert_ne!(code, 0, "{arguments:?}");
        assert!(message.contains(part), "{arguments:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
    assert!(!is_mounted(&place.point));
}

#[test]
fn a_mounted_image_conforms() {
    require_mounting!();
    let (place, image) = mounted("400MiB", &["-o", "suid,dev"]);
    let make = || {
        let host = HostFs::open(&place.point, &HostOptions::default()).unwrap();
        Box::new(host) as Box<dyn FileSystem>
    };
    let reserved = "space behind the end of a file can't be told from damage";
    let report = run_all(
        &make,
        &[
            ("holes/reserving_can_keep_the_size", reserved),
            ("holes/reserved_space_behind_the_end_shows_nothing_stale", reserved),
        ],
    );
    eprintln!("{report}");
    assert!(report.is_success());
    place.umount();
    check(&image);
}

#[test]
fn an_image_is_mounted_once_and_keeps_its_files() {
    require_mounting!();
    let (place, image) = mounted("32MiB", &["-l", "null"]);
    std::fs::create_dir(place.point.join("directory")).unwrap();
    std::fs::write(place.point.join("directory/file"), "kept").unwrap();
    let (code, message) = run(&["ext2", "ls", image.to_str().unwrap()]);
    assert_eq!(code, BAD_INPUT, "{message}");
    assert!(message.contains("in use by another fslab"), "{message}");
    place.umount();
    check(&image);
    assert_eq!(works(&["ext2", "cat", image.to_str().unwrap(), "/directory/file"]), b"kept");
    place.mount(&[]);
    assert_eq!(std::fs::read(place.point.join("directory/file")).unwrap(), b"kept");
    place.umount();
}
