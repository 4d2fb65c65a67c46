//! Stubs that stand on other inodes than they were written to, and files that can't tell what they
//! name: what these need stays in the archives.

use fslab_tier::stored::{Marks, Residency};
use fslab_tier::{Found, own_request};
use fslab_vfs::Ino;

use crate::bundles::{bundled, contents, expire, ino_of, replace};
use crate::support::{Bench, MIB, noise};

const CONTENTS: u64 = 81;

/// Puts a copy of a stub, made behind the mount, under a name.
fn copy_stub(bench: &Bench, from: &str, to: &str) {
    let below = bench.below();
    let known = known_of(bench, from);
    let copy = below.file(Ino::ROOT, "copy", &[]).unwrap();
    below.truncate(copy, known.version.size).unwrap();
    Marks::Trusted.write(&*bench.lower, &own_request(), copy, &known).unwrap();
    below.rename(Ino::ROOT, "copy", Ino::ROOT, to).unwrap();
}

fn known_of(bench: &Bench, name: &str) -> Residency {
    let found = Found::at(&bench.lower, name.as_bytes()).unwrap();
    Marks::Trusted.read(&*bench.lower, &own_request(), found.ino()).unwrap().unwrap()
}

/// Whether a stub comes back once somebody who knows says that it is the file.
#[track_caller]
fn comes_back(bench: &Bench, name: &str, expected: &[u8]) {
    let found = Found::at(&bench.lower, name.as_bytes()).unwrap();
    let inode = (bench.around.tell)(&found.attr);
    let known = Residency { inode, ..known_of(bench, name) };
    Marks::Trusted.write(&*bench.lower, &own_request(), found.ino(), &known).unwrap();
    assert!(bench.client().contents(found.ino()).unwrap() == expected);
}

/// As one that was moved to another disk, with the mark that each file has.
fn moved_tree() -> Bench {
    let bench = Bench::new();
    bench.offline(&bench.client(), "file", &noise(CONTENTS, MIB));
    bench.tier.scan(&own_request()).unwrap();
    copy_stub(&bench, "file", "file");
    bench
}

#[test]
fn objects_of_a_tree_that_was_moved_stay() {
    let bench = moved_tree();
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.damaged.len(), scanned.unneeded), (1, 0), "{scanned:?}");
    assert_eq!(expire(&bench).objects, 0);
    comes_back(&bench, "file", &noise(CONTENTS, MIB));
}

#[test]
fn objects_of_a_tree_that_was_moved_stay_though_the_catalogue_is_lost() {
    let mut bench = moved_tree();
    bench.below().rename(Ino::ROOT, "file", Ino::ROOT, "renamed").unwrap();
    bench.restart();
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.damaged.len(), scanned.unneeded), (1, 0), "{scanned:?}");
    assert_eq!(expire(&bench).objects, 0);
    comes_back(&bench, "renamed", &noise(CONTENTS, MIB));
}

/// As a scan of an earlier version left it.
#[test]
fn what_a_stub_in_the_place_of_its_file_names_stays_whatever_the_catalogue_says() {
    use fslab_tier::catalogue::{ObjectRow, ObjectState};
    let bench = moved_tree();
    let mut rows = Vec::new();
    let mut keep = |row: ObjectRow| {
        rows.push(ObjectRow { state: ObjectState::Removed, ..row });
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    bench.tier.catalogue().put(&rows).unwrap();
    assert_eq!(expire(&bench).objects, 0);
    comes_back(&bench, "file", &noise(CONTENTS, MIB));
}

#[test]
fn what_a_copy_of_a_stub_names_stays_while_it_is_there_and_no_longer() {
    let bench = Bench::new();
    bundled(&bench, 10);
    bench.release(ino_of(&bench, 0), "file0").unwrap();
    copy_stub(&bench, "file0", "copy0");
    // Nobody needs most of the bundle any more.
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

/// It may have another name than the catalogue knows it by.
#[test]
fn a_damaged_residency_may_name_any_object() {
    for is_lost in [false, true] {
        let mut bench = Bench::new();
        let ino = bench.offline(&bench.client(), "file", &noise(CONTENTS, MIB));
        let whole = bench.below().getxattr(ino, Marks::Trusted.residency_name()).unwrap();
        let mut damaged = whole.clone();
        damaged[60] ^= 1;
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
