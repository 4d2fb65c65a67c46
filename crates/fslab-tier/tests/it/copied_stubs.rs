//! Stubs that were copied to other inodes, and files with unreadable residencies. The archives keep
//! the objects that such files need.

use std::sync::Arc;

use fslab_tier::catalogue::Catalogue;
use fslab_tier::command::Residence;
use fslab_tier::stored::{Marks, Residency};
use fslab_tier::{Found, Runs, own_request, rebuild};
use fslab_vfs::{FileSystem, Ino, MemFs};

use crate::bundles::{bundled, contents, expire, ino_of, replace};
use crate::expiry::seen_by_no_scan;
use crate::opening::totals;
use crate::support::{Bench, MIB, TIER, noise, state};

const CONTENTS: u64 = 81;

/// Copies a stub in the lower directory to a new name.
fn copy_stub(bench: &Bench, from: &str, to: &str) {
    let below = bench.below();
    let known = known_of(bench, from);
    let copy = below.file(Ino::ROOT, "copy", &[]).unwrap();
    below.truncate(copy, known.version.size).unwrap();
    bench.write_residency(copy, known);
    below.rename(Ino::ROOT, "copy", Ino::ROOT, to).unwrap();
}

fn known_of(bench: &Bench, name: &str) -> Residency {
    let found = Found::at(&bench.lower, name.as_bytes()).unwrap();
    bench.residency(found.ino()).unwrap()
}

/// Checks that a stub can be recalled once its residency contains its inode.
#[track_caller]
fn comes_back(bench: &Bench, name: &str, expected: &[u8]) {
    let found = Found::at(&bench.lower, name.as_bytes()).unwrap();
    let inode = (bench.around.inode_identity)(&found.attr);
    let known = Residency { inode, ..known_of(bench, name) };
    bench.write_residency(found.ino(), known);
    assert!(bench.client().contents(found.ino()).unwrap() == expected);
}

/// A tree that was moved to another disk, with the xattrs of its files.
fn moved_tree() -> Bench {
    let bench = Bench::new();
    bench.offline(&bench.client(), "file", &noise(CONTENTS, MIB));
    bench.tier.scan(&own_request()).unwrap();
    copy_stub(&bench, "file", "file");
    bench
}

#[test]
fn objects_of_a_moved_tree_are_kept() {
    let bench = moved_tree();
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.damaged.len(), scanned.unneeded), (1, 0), "{scanned:?}");
    assert_eq!(expire(&bench).objects, 0);
    comes_back(&bench, "file", &noise(CONTENTS, MIB));
}

#[test]
fn objects_of_a_moved_tree_are_kept_after_losing_the_catalogue() {
    let mut bench = moved_tree();
    bench.below().rename(Ino::ROOT, "file", Ino::ROOT, "renamed").unwrap();
    bench.restart();
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.damaged.len(), scanned.unneeded), (1, 0), "{scanned:?}");
    assert_eq!(expire(&bench).objects, 0);
    comes_back(&bench, "renamed", &noise(CONTENTS, MIB));
}

/// The xattr on the file, not the catalogue, determines which object the file needs.
#[test]
fn object_of_a_stub_is_kept_even_if_the_catalogue_is_wrong() {
    use fslab_tier::catalogue::{ObjectRow, ObjectState};
    let bench = moved_tree();
    let mut rows = Vec::new();
    let mut keep = |row: ObjectRow| {
        rows.push(ObjectRow { state: ObjectState::Removed, ..row });
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    bench.tier.catalogue().put(&rows).unwrap();
    seen_by_no_scan(&bench);
    assert_eq!(expire(&bench).objects, 0);
    comes_back(&bench, "file", &noise(CONTENTS, MIB));
}

#[test]
fn object_named_by_a_copied_stub_stays_while_the_copy_exists() {
    let bench = Bench::new();
    bundled(&bench, 10);
    bench.release(ino_of(&bench, 0), "file0").unwrap();
    copy_stub(&bench, "file0", "copy0");
    // Most of the bundle is not needed any longer.
    replace(&bench, 0..10);
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.damaged.len(), scanned.unneeded), (1, 0), "{scanned:?}");
    let expired = expire(&bench);
    assert_eq!((expired.objects, expired.repacked), (9, 0));
    comes_back(&bench, "copy0", &contents(0));
    bench.below().unlink(Ino::ROOT, "copy0").unwrap();
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 1);
    assert_eq!(expire(&bench).objects, 1);
}

/// Any object may belong to this file, because it may have been renamed since the catalogue
/// recorded its path.
#[test]
fn no_object_expires_while_a_residency_is_damaged() {
    for is_lost in [false, true] {
        let mut bench = Bench::new();
        let ino = bench.offline(&bench.client(), "file", &noise(CONTENTS, MIB));
        let whole = bench.below().getxattr(ino, Marks::Trusted.residency_name()).unwrap();
        let mut damaged = whole.clone();
        damaged[20] ^= 1;
        bench.below().setxattr(ino, Marks::Trusted.residency_name(), &damaged).unwrap();
        bench.below().rename(Ino::ROOT, "file", Ino::ROOT, "renamed").unwrap();
        if is_lost {
            bench.restart();
        }
        let scanned = bench.tier.scan(&own_request()).unwrap();
        assert_eq!((scanned.unknown, scanned.unneeded), (1, 0), "{scanned:?}");
        assert_eq!(expire(&bench).objects, 0);
        let ino = Found::at(&bench.lower, b"renamed").unwrap().ino();
        bench.below().setxattr(ino, Marks::Trusted.residency_name(), &whole).unwrap();
        assert!(bench.client().contents(ino).unwrap() == noise(CONTENTS, MIB));
    }
}

/// Makes a resident file with the xattr of another, archived file, as root's `rsync -aX` does.
/// Unlike after `rsync`, its bytes differ from the archived ones.
fn copied_with_its_mark() -> Bench {
    let bench = Bench::new();
    copy_with_its_mark(&bench);
    bench
}

fn copy_with_its_mark(bench: &Bench) {
    let below = bench.below();
    let ino = bench.client().file(Ino::ROOT, "file", &noise(CONTENTS, MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    let known = known_of(bench, "file");
    below.unlink(Ino::ROOT, "file").unwrap();
    let copy = below.file(Ino::ROOT, "file", &noise(CONTENTS + 1, MIB)).unwrap();
    let known = Residency { offline: Runs::new(), ..known };
    bench.write_residency(copy, known);
}

/// Rebuilds the tree from only the archive.
fn rebuilt(bench: &Bench) -> (Arc<dyn FileSystem>, rebuild::Rebuilt) {
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let (archives, catalogue) = (bench.tier.archives(), Catalogue::in_memory().unwrap());
    let request = own_request();
    let made = rebuild::rebuild(
        rebuild::Options::default(),
        &lower,
        &archives,
        &catalogue,
        (&bench.around, TIER),
        &request,
    );
    (lower, made.unwrap())
}

#[test]
fn copied_residency_xattr_does_not_count_as_archived() {
    let bench = copied_with_its_mark();
    let found = state(&bench, "file");
    assert_eq!((found.state, found.copies.len()), (Residence::Resident, 0));
    bench.tier.archive_tree(&own_request()).unwrap();
    let (_, report) = rebuilt(&bench);
    assert_eq!((report.files, report.lost.len()), (0, 1), "{report:?}");
    assert_eq!(totals(&bench, "[[rule]]\naction = 'archive'\n"), (1, 0));
    assert_eq!(state(&bench, "file").state, Residence::Archived);
}

#[test]
fn file_with_a_copied_xattr_is_archived_and_recalled() {
    let bench = copied_with_its_mark();
    assert_eq!(totals(&bench, "[[rule]]\naction = 'archive'\n"), (1, 0));
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 1);
    assert_eq!(expire(&bench).objects, 1);
    bench.tier.archive_tree(&own_request()).unwrap();
    let (lower, report) = rebuilt(&bench);
    assert_eq!((report.files, report.lost.len()), (1, 0), "{report:?}");
    let fresh = Bench::over(lower);
    bench.tier.archives().into_iter().for_each(|archive| fresh.tier.attach(archive));
    let client = fresh.client();
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    assert!(client.contents(ino).unwrap() == noise(CONTENTS + 1, MIB));
}
