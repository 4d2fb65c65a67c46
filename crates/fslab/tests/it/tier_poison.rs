//! Over file systems that share blocks, nobody reads zeros in a released file: below the mount it
//! is a text that says where its bytes are.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use fslab_sys::make_file_system::Kind;

use crate::support::require_mounting;
use crate::tiering::{Tiered, noise};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// Sizes around pages, blocks and extents.
const SIZES: [usize; 7] = [100, PAGE - 1, PAGE, 5 * PAGE + 7, MIB, 3 * MIB + 5000, 40 * MIB + 1];

fn text(length: usize) -> Vec<u8> {
    let line = b"fslab: this file is in an archive; mount its tree to read it. \n\n";
    line.iter().copied().cycle().take(length).collect()
}

/// A tier over a file system, whose `tier.toml` asks for poison.
fn poisoned(kind: Kind) -> Tiered {
    let tiered = Tiered::over(Some(kind));
    let settings = tiered.beside("home/tier.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replacen("copies", "poison = \"auto\"\ncopies", 1)).unwrap();
    tiered.place().mount(&["-l", "tier"]);
    tiered
}

fn free_bytes(tree: &Path) -> u64 {
    assert!(Command::new("sync").arg("-f").arg(tree).status().unwrap().success());
    let found = rustix::fs::statvfs(tree).unwrap();
    found.f_bfree * found.f_frsize
}

fn name(size: usize) -> String {
    format!("file{size}")
}

fn check(kind: Kind) {
    let tiered = poisoned(kind);
    let tree = tiered.tree().to_owned();
    let data = |size: usize| noise(size as u64, size);
    SIZES.iter().for_each(|size| fs::write(tiered.path(&name(*size)), data(*size)).unwrap());
    let full = free_bytes(&tree);
    tiered.of("archive", "");
    tiered.of("release", "");
    let sum: usize = SIZES.iter().sum();
    let freed = free_bytes(&tree).saturating_sub(full);
    // The text itself takes 16 MiB, once.
    assert!(freed > (sum - 18 * MIB) as u64, "over {kind:?}: {freed} bytes are free of {sum}");
    tiered.umount();
    for size in SIZES {
        let below = fs::read(tree.join(name(size))).unwrap();
        assert!(below == text(size), "{size} bytes over {kind:?}");
    }
    // A backup by root, and a copy that shares blocks, have the text as well.
    let copy = tree.join("copy");
    let mut cp = Command::new("cp");
    cp.arg("--sparse=always").arg("--reflink=auto").arg(tree.join(name(MIB))).arg(&copy);
    assert!(cp.status().unwrap().success());
    assert!(fs::read(&copy).unwrap() == text(MIB));
    fs::remove_file(&copy).unwrap();
    // Zeros that root writes below, and holes, are changes.
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
    // Once more, from a file that was read in part.
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
fn released_files_over_xfs_show_a_text_below_and_no_zeros() {
    require_mounting!();
    check(Kind::Xfs);
}

#[test]
fn released_files_over_btrfs_show_a_text_below_and_no_zeros() {
    require_mounting!();
    check(Kind::Btrfs);
}

/// Where blocks can't be shared, and where `tier.toml` does not ask for poison, released files are
/// holes.
#[test]
fn released_files_are_holes_without_shared_blocks_or_without_poison() {
    require_mounting!();
    for kind in [Kind::Ext4, Kind::Xfs] {
        let tiered = match kind {
            Kind::Xfs => Tiered::mounted_over(kind),
            _ => poisoned(kind),
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
