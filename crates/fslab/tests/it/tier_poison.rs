//! Tests poison. If the file system can share blocks, the lower files of released files do not read
//! as zeros. Instead they contain a text, which states that the content is in an archive.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::{fs, iter};

use fslab_sys::make_file_system::Kind;

use crate::support::require_mounting;
use crate::tiering::{Tiered, noise};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// File sizes near boundaries of pages, blocks and extents.
const SIZES: [usize; 7] = [100, PAGE - 1, PAGE, 5 * PAGE + 7, MIB, 3 * MIB + 5000, 40 * MIB + 1];

fn text(length: usize) -> Vec<u8> {
    let line = b"fslab: this file is in an archive; mount its tree to read it. \n\n";
    line.iter().copied().cycle().take(length).collect()
}

/// Returns a tier over a file system, with poison disabled in `tier.toml`.
fn without_poison(kind: Kind) -> Tiered {
    let tiered = Tiered::over(Some(kind));
    let settings = tiered.beside("home/tier.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replacen("copies", "poison = \"off\"\ncopies", 1)).unwrap();
    tiered.place().mount(&["-l", "tier"]);
    tiered
}

/// Returns the size of the tree's file system and its free space, in bytes.
fn space(tree: &Path) -> (u64, u64) {
    assert!(Command::new("sync").arg("-f").arg(tree).status().unwrap().success());
    let found = rustix::fs::statvfs(tree).unwrap();
    (found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize)
}

fn free_bytes(tree: &Path) -> u64 {
    space(tree).1
}

fn name(size: usize) -> String {
    format!("file{size}")
}

fn check(kind: Kind) {
    let tiered = Tiered::mounted_over(kind);
    let tree = tiered.tree().to_owned();
    let data = |size: usize| noise(size as u64, size);
    SIZES.iter().for_each(|size| fs::write(tiered.path(&name(*size)), data(*size)).unwrap());
    let full = free_bytes(&tree);
    tiered.of("archive", "");
    tiered.of("release", "");
    let sum: usize = SIZES.iter().sum();
    let freed = free_bytes(&tree).saturating_sub(full);
    // The text itself may use up to an eighth of the released space.
    assert!(freed > (sum - sum / 6) as u64, "over {kind:?}: {freed} bytes are free of {sum}");
    tiered.umount();
    for size in SIZES {
        let below = fs::read(tree.join(name(size))).unwrap();
        assert!(below == text(size), "{size} bytes over {kind:?}");
    }
    // A backup by root also contains the text, and so does a copy that shares blocks.
    let copy = tree.join("copy");
    let mut cp = Command::new("cp");
    cp.arg("--sparse=always").arg("--reflink=auto").arg(tree.join(name(MIB))).arg(&copy);
    assert!(cp.status().unwrap().success());
    assert!(fs::read(&copy).unwrap() == text(MIB));
    fs::remove_file(&copy).unwrap();
    // If root writes zeros in the lower directory, this is a change of the file too.
    let (changed, mut expected) = (3 * MIB + 5000, data(3 * MIB + 5000));
    let file = fs::File::options().write(true).open(tree.join(name(changed))).unwrap();
    file.write_all_at(&[0; 2 * PAGE], (MIB + PAGE) as u64).unwrap();
    file.write_all_at(b"HERE", (2 * MIB + 1000) as u64).unwrap();
    drop(file);
    expected[MIB + PAGE..MIB + 3 * PAGE].fill(0);
    expected[2 * MIB + 1000..2 * MIB + 1004].copy_from_slice(b"HERE");
    tiered.place().mount(&["-l", "tier"]);
    for size in SIZES {
        let expected = if size == changed { expected.clone() } else { data(size) };
        assert!(fs::read(tiered.path(&name(size))).unwrap() == expected, "{size} over {kind:?}");
    }
    // Release all files, and then release one of them again after a partial recall.
    tiered.of("archive", "");
    tiered.of("release", "");
    let largest = fs::File::open(tiered.path(&name(40 * MIB + 1))).unwrap();
    let mut part = vec![0; 10];
    largest.read_exact_at(&mut part, 20 * MIB as u64).unwrap();
    drop(largest);
    tiered.of("release", "");
    tiered.umount();
    assert!(fs::read(tree.join(name(40 * MIB + 1))).unwrap() == text(40 * MIB + 1));
    assert!(fs::metadata(tree.join(name(MIB))).unwrap().blocks() >= (MIB / 512) as u64);
}

#[test]
fn released_files_over_xfs_read_as_poison_text_below_the_mount() {
    require_mounting!();
    check(Kind::Xfs);
}

#[test]
fn released_files_over_btrfs_read_as_poison_text_below_the_mount() {
    require_mounting!();
    check(Kind::Btrfs);
}

/// Released files are holes if the file system can't share blocks, or if poison is disabled.
#[test]
fn released_files_are_holes_without_shared_blocks_or_without_poison() {
    require_mounting!();
    for kind in [Kind::Ext4, Kind::Xfs] {
        let tiered = match kind {
            Kind::Xfs => without_poison(kind),
            _ => Tiered::mounted_over(kind),
        };
        fs::write(tiered.path("file"), noise(1, MIB + 9)).unwrap();
        tiered.of("archive", "file");
        tiered.of("release", "file");
        tiered.umount();
        assert!(fs::read(tiered.tree().join("file")).unwrap() == vec![0; MIB + 9]);
        tiered.place().mount(&["-l", "tier"]);
        assert!(fs::read(tiered.path("file")).unwrap() == noise(1, MIB + 9));
        tiered.umount();
    }
}

/// Checks that a policy that must free 24 MiB does so, over a file system of 320 MiB.
fn policy_frees_the_promised_space(kind: Kind) {
    const FILE: usize = 6 * MIB;
    const FILES: usize = 20;
    const WANTED: f64 = 24.0 * MIB as f64;
    let tiered = Tiered::mounted_over(kind);
    let tree = tiered.tree().to_owned();
    let name = |number: usize| format!("file{number}");
    for number in 0..FILES {
        fs::write(tiered.path(&name(number)), noise(number as u64, FILE)).unwrap();
    }
    tiered.of("archive", "");
    let (all, free) = space(&tree);
    let used = (all - free) as f64;
    let [high, low] = [used - MIB as f64, used - WANTED].map(|bytes| bytes / all as f64);
    let policy = tiered.beside("policy.toml");
    let rules = format!("[watermarks]\nhigh = {high}\nlow = {low}\n[[rule]]\naction = 'release'\n");
    fs::write(&policy, rules).unwrap();
    let point = tiered.path("");
    let arguments = ["policy", "--file", policy.to_str().unwrap(), point.to_str().unwrap()];
    // `ok` fails on any message. So this also checks that no warning is printed about snapshots
    // that keep the freed blocks.
    tiered.ok(&arguments);
    let freed = free_bytes(&tree).saturating_sub(free) as f64;
    let is_right = (WANTED - MIB as f64..WANTED + 2.0 * FILE as f64).contains(&freed);
    assert!(is_right, "over {kind:?}: {freed} bytes are free of {WANTED}");
    let state = tiered.ok(&["state", "-r", point.to_str().unwrap()]);
    let offline = state.matches("A offline ").count();
    assert!((4..=7).contains(&offline), "over {kind:?}: {offline} files are offline");
    let before = free_bytes(&tree);
    tiered.ok(&arguments);
    assert!(
        free_bytes(&tree).abs_diff(before) < MIB as u64,
        "the usage is already below the low watermark"
    );
    for number in 0..FILES {
        let is_same = fs::read(tiered.path(&name(number))).unwrap() == noise(number as u64, FILE);
        assert!(is_same, "{number} over {kind:?}");
    }
    tiered.umount();
}

#[test]
fn policy_over_shared_poison_frees_only_the_requested_space() {
    require_mounting!();
    policy_frees_the_promised_space(Kind::Xfs);
    policy_frees_the_promised_space(Kind::Btrfs);
}

/// Releasing one file per command frees space too. Each command on an unmounted tree has its own
/// engine.
#[test]
fn release_of_one_file_by_one_command_frees_space() {
    require_mounting!();
    const FILE: usize = MIB / 2;
    const FILES: usize = 24;
    for kind in [Kind::Xfs, Kind::Btrfs] {
        let tiered = Tiered::over(Some(kind));
        let tree = tiered.tree().to_owned();
        let name = |number: usize| tree.join(format!("file{number}"));
        (0..FILES).for_each(|number| fs::write(name(number), noise(3, FILE)).unwrap());
        tiered.ok(&["archive", tree.to_str().unwrap()]);
        let full = free_bytes(&tree);
        for number in 0..FILES {
            tiered.ok(&["release", name(number).to_str().unwrap()]);
        }
        let freed = free_bytes(&tree).saturating_sub(full);
        let wanted = (FILES * FILE) as u64 * 3 / 4;
        assert!(freed > wanted, "over {kind:?}: {freed} bytes are free");
        assert!(fs::read(name(0)).unwrap() == text(FILE), "over {kind:?}");
    }
}

#[test]
fn release_of_small_files_frees_their_blocks_over_xfs() {
    require_mounting!();
    const FILES: usize = 3000;
    let tiered = Tiered::mounted_over(Kind::Xfs);
    let name = |number: usize| tiered.path(&format!("file{number}"));
    let data = |number: usize| noise(number as u64, 2000 + number % 7);
    (0..FILES).for_each(|number| fs::write(name(number), data(number)).unwrap());
    tiered.of("archive", "");
    let full = free_bytes(tiered.tree());
    tiered.of("release", "");
    let freed = free_bytes(tiered.tree()).saturating_sub(full);
    assert!(freed > (FILES * PAGE) as u64 * 3 / 4, "{freed} bytes are free");
    tiered.umount();
    for number in [0, 1, FILES - 1] {
        let file = tiered.tree().join(format!("file{number}"));
        assert!(fs::read(file).unwrap() == text(2000 + number % 7));
    }
    tiered.place().mount(&["-l", "tier"]);
    (0..FILES).step_by(37).for_each(|number| {
        assert!(fs::read(name(number)).unwrap() == data(number), "{number}");
    });
    tiered.umount();
}

/// Writes a file until the disk is full, and then truncates it to free `bytes` bytes.
fn fill_but_for(path: &Path, bytes: u64) {
    let mut file = fs::File::create(path).unwrap();
    let piece = vec![1; MIB];
    let filled = iter::repeat_with(|| file.write_all(&piece)).find_map(Result::err);
    assert_eq!(filled.map(|error| error.kind()), Some(ErrorKind::StorageFull));
    file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
    file.sync_all().unwrap();
}

/// Releasing an appended file needs little free space: the file has 100 MiB, but only 40 MiB are
/// free.
#[test]
fn releasing_an_appended_offline_file_takes_little_free_space() {
    require_mounting!();
    for kind in [Kind::Xfs, Kind::Btrfs] {
        let tiered = Tiered::mounted_over(kind);
        let tree = tiered.tree().to_owned();
        let mut data = noise(7, 100 * MIB);
        fs::write(tiered.path("file"), &data).unwrap();
        tiered.of("archive", "file");
        tiered.of("release", "file");
        fill_but_for(&tiered.path("keep"), 40 * MIB as u64);
        let mut file = fs::File::options().append(true).open(tiered.path("file")).unwrap();
        file.write_all(b"appended").unwrap();
        drop(file);
        data.extend(b"appended");
        let (all, free) = space(&tree);
        let high = (all - free) as f64 / all as f64 - 0.01;
        let policy = tiered.beside("policy.toml");
        let rules = format!(
            "[watermarks]\nhigh = {high}\nlow = 0.0\n[[rule]]\naction = 'keep'\n\
             paths = ['keep']\n[[rule]]\naction = 'release'\n"
        );
        fs::write(&policy, rules).unwrap();
        let point = tiered.path("");
        tiered.ok(&["policy", "--file", policy.to_str().unwrap(), point.to_str().unwrap()]);
        assert!(tiered.of("state", "file").starts_with("A offline "));
        let taken = free.saturating_sub(free_bytes(&tree));
        assert!(taken < 4 * MIB as u64, "over {kind:?}: {taken} bytes fewer are free");
        fs::remove_file(tiered.path("keep")).unwrap();
        assert!(fs::read(tiered.path("file")).unwrap() == data, "over {kind:?}");
        tiered.umount();
    }
}

/// Rebuilds a tree and mounts it. In the lower directory, root reads the poison text. Through the
/// mount, programs read the original content.
fn rebuilt(kind: Kind) {
    let mut tiered = Tiered::mounted_over(kind);
    let files = [("directory/large", 3 * MIB + 5000), ("directory/page", PAGE), ("small", 100)];
    fs::create_dir(tiered.path("directory")).unwrap();
    for (seed, (name, size)) in files.iter().enumerate() {
        fs::write(tiered.path(name), noise(seed as u64, *size)).unwrap();
    }
    fs::hard_link(tiered.path("small"), tiered.path("link")).unwrap();
    tiered.of("archive", "");
    tiered.of("tree", "");
    // This file is archived after the tree was, so the archived tree does not contain it.
    fs::write(tiered.path("late"), noise(9, MIB + 1)).unwrap();
    tiered.of("archive", "late");
    tiered.umount();
    let (new, home, archive) =
        (tiered.beside_tree("new"), tiered.beside("home-again"), tiered.archive());
    let [home, archive] = [&home, &archive].map(|path| path.to_str().unwrap());
    let arguments = ["rebuild", "--take-over", "--archive", archive, "--home", home];
    tiered.ok(&[&arguments[..], &[new.to_str().unwrap()]].concat());
    let all = || files.iter().copied().chain([("link", 100), ("late", MIB + 1)]);
    let shows_text = |when: &str| {
        for (name, size) in all() {
            let below = fs::read(new.join(name)).unwrap();
            assert!(below == text(size), "{name} over {kind:?} {when}");
        }
    };
    shows_text("as it was made");
    tiered.move_to(new.clone());
    tiered.place().mount(&["-l", "tier"]);
    let reads = |seed: u64, name: &str, size: usize| {
        assert!(fs::read(tiered.path(name)).unwrap() == noise(seed, size), "{name} over {kind:?}");
    };
    for (seed, (name, size)) in files.iter().enumerate() {
        reads(seed as u64, name, *size);
    }
    reads(2, "link", 100);
    reads(9, "late", MIB + 1);
    tiered.of("release", "");
    tiered.umount();
    shows_text("after an umount");
}

#[test]
fn rebuilt_tree_reads_as_poison_text_below_the_mount() {
    require_mounting!();
    rebuilt(Kind::Xfs);
    rebuilt(Kind::Btrfs);
}

#[test]
fn init_reports_what_root_reads_in_released_files() {
    require_mounting!();
    let kinds = [(Kind::Ext4, "auto", false), (Kind::Xfs, "auto", true)];
    let kinds = kinds.into_iter().chain([(Kind::Btrfs, "auto", true), (Kind::Xfs, "off", false)]);
    for (kind, how, is_text) in kinds {
        let tiered = Tiered::over(Some(kind));
        let [tree, home, archive] = [
            tiered.beside_tree("second"),
            tiered.beside("second-home"),
            tiered.beside("second-archive"),
        ];
        fs::create_dir(&tree).unwrap();
        let [tree, home, archive] = [&tree, &home, &archive].map(|path| path.to_str().unwrap());
        let arguments = ["init", "--poison", how, "--archive", archive, "--home", home, tree];
        let said = tiered.ok(&arguments);
        assert!(said.contains("has mode 0400"), "{said}");
        assert_eq!(said.contains("this file is in an archive"), is_text, "{kind:?}: {said}");
        assert_eq!(said.contains("as zeros"), !is_text, "{kind:?}: {said}");
        let settings = fs::read_to_string(Path::new(home).join("tier.toml")).unwrap();
        assert_eq!(settings.contains("poison = \"off\""), how == "off", "{settings}");
    }
}
