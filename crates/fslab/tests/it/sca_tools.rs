//! Tests `fslab sca` on several files: an unusable file does not stop the work on the other files.

use fslab_vfs_testing::scratch;
use std::fs;
use std::path::Path;

use fslab_vfs::{FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{Place, fslab, require_mounting, run, sca_stack};

const NAMES: [&str; 3] = ["one", "two", "three"];

/// Makes stored files with garbage: the first half of each is rewritten.
fn make_files(root: &Path) {
    let layer = format!("zstd:chunk=4KiB,pack=off / {}", root.display());
    let fs = sca_stack(&layer).build().unwrap();
    let client = Client::new(&*fs);
    for name in NAMES {
        let (_, file) = client.create(Ino::ROOT, name, 0o644, OpenMode::READ_WRITE).unwrap();
        let bytes: Vec<u8> = (0..200_000_u32).map(|number| (number / 7) as u8).collect();
        file.write_all(0, &bytes).unwrap();
        file.fsync(false).unwrap();
        file.write_all(0, &bytes[..100_000]).unwrap();
        file.fsync(false).unwrap();
        file.close().unwrap();
    }
    fs.shutdown().unwrap();
}

/// Overwrites everything that identifies a stored file, except for its xattr.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[..1200].fill(0xEE);
    fs::write(path, bytes).unwrap();
}

fn tree_bytes(root: &Path) -> Vec<Vec<u8>> {
    NAMES.iter().map(|name| fs::read(root.join(name)).unwrap()).collect()
}

#[test]
fn damaged_file_does_not_stop_compaction_of_others() {
    for damaged in NAMES {
        let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        make_files(scratch.path());
        damage(&scratch.path().join(damaged));
        let before = tree_bytes(scratch.path());
        let tree = scratch.path().to_str().unwrap();
        let output = fslab(&["sca", "compact", "--dry-run", tree]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(told.starts_with("2 files would be compacted, with "), "{told}");
        assert!(before == tree_bytes(scratch.path()), "a dry run has changed a file");
        // `pack` is the former name of `compact`.
        let output = fslab(&["sca", "pack", tree]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("2 files compacted"), "{told}");
        let named = scratch.path().join(damaged).display().to_string();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains(&named), "{errors}");
    }
}

#[test]
fn unverifiable_files_do_not_stop_verification_of_others() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    make_files(scratch.path());
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("empty"), b"").unwrap();
    fs::write(path("plain"), b"nothing of ours").unwrap();
    let (whole, empty, plain, last) = (path("one"), path("empty"), path("plain"), path("three"));
    let (code, message) = run(&["sca", "verify", &whole, &empty]);
    assert_eq!(code, 0, "{message}");
    let (code, message) = run(&["sca", "verify", &plain, &whole]);
    assert_eq!((code, message.contains("1 file could not be verified")), (3, true), "{message}");
    let mut bytes = fs::read(&last).unwrap();
    let place = bytes.len() - 3000;
    bytes[place..place + 1000].fill(0xEE);
    fs::write(&last, bytes).unwrap();
    let output = fslab(&["sca", "verify", &whole, &empty, &plain, &last]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("{last}: offset ")), "{told}");
}

#[test]
fn stat_and_verify_walk_directories_and_print_totals() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("inner")).unwrap();
    make_files(&tree);
    fs::rename(tree.join("two"), tree.join("inner/two")).unwrap();
    fs::write(tree.join("plain"), b"nothing of ours").unwrap();
    std::os::unix::fs::symlink(tree.join("one"), tree.join("link")).unwrap();
    let tree = tree.to_str().unwrap();
    let json = |words: &[&str]| -> serde_json::Value {
        let output = fslab(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let sums = json(&["sca", "stat", "--json", tree]);
    assert_eq!(sums["total"]["files"], 3, "{sums}");
    assert_eq!(sums["total"]["size_bytes"], 600_000);
    assert_eq!((&sums["plain_files"], &sums["codecs"][0]["codec"]), (&1.into(), &"zstd".into()));
    assert_eq!(sums["files"].as_array().map(Vec::len), Some(0));
    let each = json(&["sca", "stat", "--json", "--verbose", tree]);
    assert_eq!(each["files"].as_array().map(Vec::len), Some(3));
    let checked = json(&["sca", "verify", "--json", tree]);
    assert_eq!((&checked["stored_files"], &checked["damaged_files"]), (&3.into(), &0.into()));
    let output = fslab(&["sca", "verify", "-v", tree]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(told.matches(": ok\n").count(), 3, "{told}");
    assert!(
        told.contains("3 stored files verified") && told.contains("not verified: 1 file that no"),
        "{told}"
    );
    let quiet = fslab(&["sca", "verify", "-q", tree]).output().unwrap();
    assert!(quiet.status.success() && quiet.stdout.is_empty() && quiet.stderr.is_empty());
    let empty = scratch.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let output = fslab(&["sca", "verify", empty.to_str().unwrap()]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 stored files verified\n");
    let (code, message) = run(&["sca", "stat", "/no/such"]);
    assert!(code == 3 && message.contains("/no/such"), "{code} {message}");
}

/// A directory that a mount uses is skipped at once. The other directories are checked, whether the
/// command names them or their common parent directory.
#[test]
fn verify_skips_a_directory_in_use_and_checks_others() {
    require_mounting!();
    let place = Place::in_memory();
    let inner = place.lower.join("deep/deeper");
    let free = place.lower.with_file_name("free");
    fs::create_dir_all(&inner).unwrap();
    fs::create_dir(&free).unwrap();
    for directory in [&place.lower, &inner, &free] {
        make_files(directory);
    }
    fs::remove_file(inner.join(".fslab-lock")).unwrap();
    place.mount(&["-l", "zstd"]);
    let (parent, point) = (place.lower.parent().unwrap(), place.point.display());
    let [used, free, parent] = [&*place.lower, &*free, parent].map(|path| path.to_str().unwrap());
    for named in [&[used, free][..], &[parent]] {
        let output = fslab(&[&["sca", "verify", "-v"], named].concat()).output().unwrap();
        let told = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        let [told, errors] = told;
        assert_eq!(output.status.code(), Some(3), "{told}{errors}");
        assert_eq!(
            errors.matches(&format!("{used} is in use by the mount on {point}")).count(),
            1,
            "{errors}"
        );
        let end = "fslab: 1 directory could not be verified; see above\n";
        assert!(errors.ends_with(end), "{errors}");
        assert_eq!(told.matches(&format!("{free}/")).count(), NAMES.len(), "{told}");
    }
    for conversion in ["encode", "decode"] {
        let (code, message) = run(&["sca", conversion, used]);
        let expected = format!("fslab: {used} is in use by the mount on {point}: unmount it first");
        assert_eq!((code, message.trim_end()), (3, &*expected));
    }
    place.umount();
}

/// A repair that can't recover all content must fail. An earlier version skipped content after a
/// damaged header, and still succeeded.
#[test]
fn repair_fails_if_it_cannot_recover_all_content() {
    let scratch = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let root = scratch.path();
    let fs = sca_stack(&format!("copy:chunk=4KiB / {}", root.display()));
    let fs = fs.build().unwrap();
    {
        let client = Client::new(&*fs);
        let (_, file) = client.create(Ino::ROOT, "file", 0o644, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, &[7; 40_000]).unwrap();
        file.close().unwrap();
    }
    fs.shutdown().unwrap();
    drop(fs);
    let path = root.join("file");
    let mut bytes = fs::read(&path).unwrap();
    let (file, saved) = (path.to_str().unwrap(), root.join("saved"));
    let third = 1024 + 2 * (72 + 4096);
    // A wrong byte in the content is found by `verify`, but not by `check`.
    bytes[third + 100] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(run(&["sca", "check", file]).0, 0);
    assert_eq!(run(&["sca", "verify", file]).0, 1);
    bytes[third + 100] ^= 1;
    bytes[third + 20..third + 22].fill(0xEE);
    fs::write(&path, bytes).unwrap();
    assert_eq!(run(&["sca", "check", file]).0, 1);
    let (code, message) = run(&["sca", "stat", file]);
    assert!(code == 1 && message.contains("a part of the file is missing"), "{code} {message}");
    let output = fslab(&["sca", "cat", file]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 8192));
    let (code, message) = run(&["sca", "repair", file, "-o", saved.to_str().unwrap()]);
    assert_eq!(code, 1, "{message}");
    let saved = fs::read(saved).unwrap();
    assert_eq!(saved.len(), 40_000);
    assert!(saved.iter().enumerate().all(|(at, byte)| *byte == 7 || (8192..12_288).contains(&at)));
}

/// The tools refuse paths in a mount with a codec. There, stored files appear decoded, so the tools
/// would report success and hide damage.
#[test]
fn tools_refuse_paths_in_a_mount_that_decodes() {
    require_mounting!();
    let place = Place::mounted(&["-l", "stats", "-l", "zstd"]);
    let file = place.point.join("file");
    fs::write(&file, "data").unwrap();
    let [point, lower] = [&place.point, &place.lower].map(|path| path.to_str().unwrap());
    for command in ["verify", "check", "stat", "compact", "encode", "decode"] {
        let (code, message) = run(&["sca", command, point]);
        assert!(code == 3 && message.contains(lower), "{command}: {code} {message}");
        assert!(message.contains("is a mount: unmount it"), "{command}: {message}");
    }
    for command in ["verify", "check", "stat", "compact", "cat", "dump"] {
        let (code, message) = run(&["sca", command, file.to_str().unwrap()]);
        assert!(code == 3 && message.contains(lower), "{command}: {code} {message}");
        assert!(message.contains("is in the mount"), "{command}: {message}");
    }
    // If the daemon is stopped, the layers of the mount are unknown, so encoding and decoding fail.
    let daemon = Pid::from_raw(place.daemon().try_into().unwrap()).unwrap();
    kill_process(daemon, Signal::STOP).unwrap();
    let refused = ["encode", "decode"].map(|command| run(&["sca", command, point]));
    kill_process(daemon, Signal::CONT).unwrap();
    for (code, message) in refused {
        assert!(code != 0 && message.contains("can't find out the layers"), "{code} {message}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"data");
    place.umount();
    for command in ["verify", "check"] {
        assert_eq!(run(&["sca", command, lower]).0, 0, "{command}");
    }
}
