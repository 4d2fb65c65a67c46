//! Compact residencies, which depend on facts in the catalogue or in the archives.

use std::sync::atomic::Ordering;

use fslab_tier::catalogue::{Catalogue, ObjectState};
use fslab_tier::stored::{Marks, StoredResidency};
use fslab_tier::{Found, Id, Settings, own_request};
use fslab_vfs::{Errno, Ino, SetAttr, SetTime, Timestamp};

use crate::bundles::expire;
use crate::support::{Bench, MIB, TIER, noise};

const LONG_AGO: Timestamp = Timestamp { seconds: 1_000_000_000, nanoseconds: 1 };

fn contents() -> Vec<u8> {
    noise(7, 3 * MIB + 5)
}

fn stub() -> (Bench, Ino) {
    let bench = Bench::new();
    let ino = bench.offline(&bench.client(), "file", &contents());
    (bench, ino)
}

fn value(bench: &Bench, ino: Ino) -> Vec<u8> {
    bench.below().getxattr(ino, Marks::Trusted.residency_name()).unwrap()
}

fn is_compact(bench: &Bench, ino: Ino) -> bool {
    let stored = StoredResidency::decode(&value(bench, ino)).unwrap();
    matches!(stored, StoredResidency::Compact(_))
}

#[test]
fn released_file_has_a_compact_residency_until_it_is_recalled() {
    let (bench, ino) = stub();
    assert!(value(&bench, ino).len() <= 60);
    assert!(is_compact(&bench, ino));
    let client = bench.client();
    let file = client.open(ino, fslab_vfs::OpenMode::empty()).unwrap();
    file.read(0, 1).unwrap();
    file.close().unwrap();
    assert!(!is_compact(&bench, ino));
    assert!(client.contents(ino).unwrap() == contents());
    bench.release(ino, "file").unwrap();
    assert!(is_compact(&bench, ino));
}

/// The catalogue does not have this time, so a compact residency would lose it.
#[test]
fn time_set_on_a_stub_survives_the_loss_of_the_catalogue() {
    let (mut bench, ino) = stub();
    let changes = SetAttr { modified: Some(SetTime::To(LONG_AGO)), ..SetAttr::default() };
    bench.client().set(ino, &changes).unwrap();
    assert!(!is_compact(&bench, ino));
    // A scan does not record this time as that of the object.
    bench.tier.scan(&own_request()).unwrap();
    assert!(bench.client().contents(ino).unwrap() == contents());
    bench.release(ino, "file").unwrap();
    assert!(!is_compact(&bench, ino));
    bench.restart();
    assert!(bench.client().contents(ino).unwrap() == contents());
    assert_eq!(bench.client().attr(ino).unwrap().modified, LONG_AGO);
    assert!(!bench.is_changed(ino));
}

#[test]
fn without_catalogue_and_archive_a_stub_can_be_listed_and_is_kept() {
    let (mut bench, ino) = stub();
    let before = value(&bench, ino);
    let fails = |bench: &Bench, fail| {
        bench.archives[0].faults().reads_fail.store(fail, Ordering::SeqCst);
    };
    bench.restart();
    fails(&bench, true);
    let attr = bench.client().attr(ino).unwrap();
    assert_eq!(attr.size, contents().len() as u64);
    assert!(attr.blocks > 0);
    assert_eq!(bench.client().contents(ino).map(drop).unwrap_err().errno(), Errno::IO);
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.unknown, scanned.unneeded), (1, 0), "{scanned:?}");
    assert!(scanned.damaged[0].contains("its object is not in the catalogue"), "{scanned:?}");
    assert_eq!(bench.tier.expire(&own_request()).unwrap().objects, 0);
    assert_eq!(value(&bench, ino), before);
    fails(&bench, false);
    assert!(bench.client().contents(ino).unwrap() == contents());
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unknown, 0);
}

/// Each archive that has a copy is found, so that the file can be released again.
#[test]
fn all_copies_are_found_without_a_catalogue() {
    let settings = Settings { copies: 2, ..Settings::of(TIER) };
    let mut bench = Bench::with(std::sync::Arc::new(fslab_vfs::MemFs::default()), settings, 2);
    let ino = bench.offline(&bench.client(), "file", &contents());
    bench.restart();
    let known = bench.residency(ino).unwrap();
    assert_eq!(known.version.copies, [Id([1; 16]), Id([2; 16])]);
    assert!(bench.client().contents(ino).unwrap() == contents());
    assert!(bench.release(ino, "file").unwrap().bytes > 0);
}

/// The stub comes from another tier, or its object has expired. It must not stop expiry.
#[test]
fn copied_stub_without_an_object_does_not_keep_other_objects() {
    let (bench, ino) = stub();
    let below = bench.below();
    let forged = StoredResidency::decode(&value(&bench, ino)).unwrap();
    let StoredResidency::Compact(mut forged) = forged else { panic!("{forged:?}") };
    (forged.object, forged.location.container) = (Id([77; 16]), Id([78; 16]));
    let copy = below.file(Ino::ROOT, "copy", &[0; 10]).unwrap();
    below.setxattr(copy, Marks::Trusted.residency_name(), &forged.encode()).unwrap();
    let client = bench.client();
    let copy = client.lookup(Ino::ROOT, "copy").unwrap().ino;
    assert_eq!(client.contents(copy).map(drop).unwrap_err().errno(), Errno::IO);
    bench.tier.archive_tree(&own_request()).unwrap();
    client.unlink(Ino::ROOT, "file").unwrap();
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.damaged.len(), scanned.unknown), (1, 0), "{scanned:?}");
    assert_eq!(expire(&bench).objects, 1);
}

/// `rsync -X` and `cp -a` copy the xattr, but not the bytes.
#[test]
fn copied_stub_can_not_be_used_and_its_object_is_kept() {
    let (bench, ino) = stub();
    let below = bench.below();
    let copy = below.file(Ino::ROOT, "copy", &[]).unwrap();
    below.truncate(copy, contents().len() as u64).unwrap();
    below.setxattr(copy, Marks::Trusted.residency_name(), &value(&bench, ino)).unwrap();
    let client = bench.client();
    let copy = client.lookup(Ino::ROOT, "copy").unwrap().ino;
    assert_eq!(client.contents(copy).map(drop).unwrap_err().errno(), Errno::IO);
    client.unlink(Ino::ROOT, "file").unwrap();
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.damaged.len(), scanned.unneeded), (1, 0), "{scanned:?}");
    assert_eq!(expire(&bench).objects, 0);
    // Without the copy, nothing needs the object.
    below.unlink(Ino::ROOT, "copy").unwrap();
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 1);
    assert_eq!(expire(&bench).objects, 1);
}

/// The home was restored from a backup that was made while the file was being archived. At that
/// time, the catalogue did not have the hash of the object yet.
#[test]
fn row_of_an_unfinished_upload_does_not_describe_the_object() {
    let (bench, ino) = stub();
    let mut row = bench.tier.catalogue().get(bench.residency(ino).unwrap().version.object);
    let row = row.as_mut().unwrap().as_mut().unwrap();
    row.state = ObjectState::Pending;
    (row.version.root, row.version.location.length) = ([0; 32], 0);
    bench.tier.catalogue().put(std::slice::from_ref(row)).unwrap();
    assert_ne!(bench.residency(ino).unwrap().version.root, [0; 32]);
    assert!(bench.client().contents(ino).unwrap() == contents());
}

/// An object at the recorded location that is not the recorded one must not be shown.
#[test]
fn object_at_a_wrong_location_is_refused() {
    let (mut bench, ino) = stub();
    let other = bench.offline(&bench.client(), "other", &noise(8, MIB));
    let stored = |ino| StoredResidency::decode(&value(&bench, ino)).unwrap();
    let (StoredResidency::Compact(mut forged), StoredResidency::Compact(real)) =
        (stored(ino), stored(other))
    else {
        panic!("the residencies are not compact");
    };
    forged.location = real.location;
    bench.below().setxattr(ino, Marks::Trusted.residency_name(), &forged.encode()).unwrap();
    // With the catalogue, the hash of the object is known. Without it, its identity is compared.
    for _ in 0..2 {
        assert_eq!(bench.client().contents(ino).map(drop).unwrap_err().errno(), Errno::IO);
        bench.restart();
    }
}

/// A killed rebuild has made stubs, but has not recorded them in the catalogue.
#[test]
fn rebuild_recognises_the_compact_stubs_of_a_killed_rebuild() {
    let (bench, _) = stub();
    bench.tier.archive_tree(&own_request()).unwrap();
    let lower: std::sync::Arc<dyn fslab_vfs::FileSystem> =
        std::sync::Arc::new(fslab_vfs::MemFs::default());
    let rebuild = || {
        let catalogue = Catalogue::in_memory().unwrap();
        let options = fslab_tier::rebuild::Options::default();
        let of = (&bench.around, TIER);
        let archives = bench.tier.archives();
        fslab_tier::rebuild::rebuild(options, &lower, &archives, &catalogue, of, &own_request())
            .unwrap()
    };
    let made = rebuild();
    assert_eq!((made.files, made.kept, made.problems.len()), (1, 0, 0), "{made:?}");
    let ino = Found::at(&lower, b"file").unwrap().ino();
    let stored = Marks::Trusted.read(&*lower, ino).unwrap().unwrap();
    assert!(matches!(stored, StoredResidency::Compact(_)), "{stored:?}");
    let again = rebuild();
    assert_eq!((again.files, again.kept, again.problems.len()), (0, 1, 0), "{again:?}");
    assert_eq!((again.unplaced.len(), again.lost.len(), again.earlier), (0, 0, 0), "{again:?}");
}
