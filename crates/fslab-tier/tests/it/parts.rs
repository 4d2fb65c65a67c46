//! Bundles with members that are unrecorded, damaged or missing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_tier::archive::{Archive, ContainerKind};
use fslab_tier::catalogue::{Catalogue, ObjectRow, ObjectState};
use fslab_tier::object::bundle::{contents_of, enclose};
use fslab_tier::object::reader::ObjectReader;
use fslab_tier::stored::{Location, Marks, TreeMark};
use fslab_tier::{Id, own_request, rebuild};
use fslab_vfs::{FileSystem, Ino, MemFs};
use fslab_vfs_testing::client::Client;

use crate::bundles::{
    all_are_right, bundled, contents, do_all, ino_of, place_of, release_all, two_copies,
};
use crate::support::{Bench, TIER, TRUST};

/// Rebuilds a tree from the archives of a bench.
pub fn rebuild_in(bench: &Bench, lower: &Arc<dyn FileSystem>) -> rebuild::Rebuilt {
    rebuild_noted(bench, lower, &Catalogue::in_memory().unwrap())
}

/// Like [`rebuild_in`], with a catalogue that is not empty or that the test examines.
pub fn rebuild_noted(
    bench: &Bench,
    lower: &Arc<dyn FileSystem>,
    catalogue: &Catalogue,
) -> rebuild::Rebuilt {
    let archives: Vec<_> =
        bench.archives.iter().map(|archive| Arc::clone(archive) as Arc<dyn Archive>).collect();
    rebuild::rebuild(TRUST, lower, &archives, catalogue, (&bench.around, TIER), &own_request())
        .unwrap()
}

/// Makes a directory in memory for a rebuild.
pub fn empty_tree() -> Arc<dyn FileSystem> {
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    lower
}

/// Makes a tier over a rebuilt tree, with the archives that it was rebuilt from.
pub fn fresh_over(bench: &Bench, lower: Arc<dyn FileSystem>) -> Bench {
    let fresh = Bench::over(lower);
    for archive in &bench.archives {
        fresh.tier.attach(Arc::clone(archive) as Arc<dyn Archive>);
    }
    fresh
}

/// Checks that the files of a rebuilt tree have their contents.
#[track_caller]
fn are_whole(bench: &Bench, lower: Arc<dyn FileSystem>, numbers: impl IntoIterator<Item = u64>) {
    let fresh = fresh_over(bench, lower);
    let client = fresh.client();
    for number in numbers {
        let ino = client.lookup(Ino::ROOT, format!("file{number}")).unwrap().ino;
        assert!(client.contents(ino).unwrap() == contents(number), "file{number}");
    }
}

#[test]
fn rebuild_restores_a_missing_member_and_keeps_existing_files() {
    let bench = two_copies();
    let client = bench.client();
    for number in 0..4 {
        client.file(Ino::ROOT, format!("file{number}"), &contents(number)).unwrap();
    }
    bench.tier.archive_tree(&own_request()).unwrap();
    do_all(&bench.tier, &mut |_| {});
    let (below, newer) = (Client::new(&*bench.lower), b"newer, and in the way");
    for name in ["file2", "file3"] {
        below.unlink(Ino::ROOT, name).unwrap();
    }
    below.file(Ino::ROOT, "file3", newer).unwrap();
    let report = rebuild_in(&bench, &bench.lower);
    assert_eq!((report.younger, report.problems.len(), report.lost.len()), (1, 0, 0), "{report:?}");
    assert_eq!(report.unplaced, ["file3"]);
    are_whole(&bench, Arc::clone(&bench.lower), 0..3);
    assert_eq!(below.contents(below.lookup(Ino::ROOT, "file3").unwrap().ino).unwrap(), newer);
}

/// The tree was archived while the xattrs of the bundled files were being written. So the archived
/// tree refers to the objects of only some of the files.
#[test]
fn bundle_members_that_the_tree_does_not_name_are_rebuilt() {
    let bench = two_copies();
    bundled(&bench, 4);
    let mut rows = Vec::new();
    let mut keep = |row| {
        rows.push(ObjectRow { state: ObjectState::Pending, ..row });
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    bench.tier.catalogue().put(&rows).unwrap();
    let below = Client::new(&*bench.lower);
    for number in 0..2 {
        let names = below.listxattr(ino_of(&bench, number)).unwrap();
        for name in names.iter().filter(|name| **name == *Marks::Trusted.residency_name()) {
            below.removexattr(ino_of(&bench, number), name).unwrap();
        }
    }
    bench.tier.archive_tree(&own_request()).unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.files, report.younger), (2, 2), "{report:?}");
    assert_eq!((report.lost.len(), report.kept, report.problems.len()), (0, 0, 0), "{report:?}");
    are_whole(&bench, lower, 0..4);
}

#[test]
fn damaged_member_is_read_from_the_other_archive() {
    let mut bench = two_copies();
    bundled(&bench, 4);
    let damaged = place_of(&bench, 1);
    bench.archives[0].damage_at(damaged.container, damaged.offset + 20);
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.younger, report.kept, report.problems.len()), (4, 0, 1), "{report:?}");
    are_whole(&bench, lower, 0..4);
    // A scan reads both copies too.
    for number in 0..4 {
        Client::new(&*bench.lower).unlink(Ino::ROOT, format!("file{number}")).unwrap();
    }
    bench.restart();
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.unneeded, scanned.damaged.len()), (4, 1), "{scanned:?}");
}

/// Returns the bytes of a container in one of the archives.
fn bytes_of(bench: &Bench, archive: usize, container: Id) -> Vec<u8> {
    let archive = &bench.archives[archive];
    let mut bytes = vec![0; archive.length((ContainerKind::Files, container)).unwrap() as usize];
    archive.read((ContainerKind::Files, container), 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn truncated_copy_does_not_shorten_other_copies() {
    let bench = two_copies();
    bundled(&bench, 4);
    let (first, last) = (place_of(&bench, 0), place_of(&bench, 3));
    let whole = bytes_of(&bench, 0, first.container);
    for end in [last.offset + 100, last.offset] {
        let cut = whole[..end as usize].to_vec();
        bench.archives[1].put((ContainerKind::Files, first.container), cut);
        bench.archives[0].damage_at(first.container, first.offset + 300);
        let scrubbed = bench.tier.scrub(&own_request()).unwrap();
        assert_eq!(scrubbed.damaged, Vec::<String>::new());
        for archive in 0..2 {
            assert!(bytes_of(&bench, archive, first.container) == whole, "a{archive}, {end}");
        }
    }
    release_all(&bench);
    all_are_right(&bench, 0..4);
}

/// A rebuild expects a list at the end of the container, and would not find one before extra bytes.
#[test]
fn bytes_after_a_bundle_are_dropped_and_not_copied() {
    let bench = two_copies();
    bundled(&bench, 4);
    let first = place_of(&bench, 0);
    let whole = bytes_of(&bench, 0, first.container);
    let longer = [&whole[..], &[7; 500]].concat();
    bench.archives[1].put((ContainerKind::Files, first.container), longer);
    bench.archives[0].damage_at(first.container, first.offset + 300);
    let scrubbed = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.repaired, scrubbed.damaged.len()), (2, 0), "{scrubbed:?}");
    for archive in 0..2 {
        assert!(bytes_of(&bench, archive, first.container) == whole, "a{archive}");
    }
}

/// Copies may be truncated on a full disk. The bytes before the cut are kept, even in the last
/// chunk.
#[test]
fn scrub_keeps_all_bytes_of_truncated_copies() {
    let bench = two_copies();
    bundled(&bench, 4);
    let (first, last) = (place_of(&bench, 0), place_of(&bench, 3));
    let whole = bytes_of(&bench, 0, first.container);
    for (archive, more) in [(0, 100), (1, 200)] {
        let cut = whole[..(last.offset + more) as usize].to_vec();
        bench.archives[archive].put((ContainerKind::Files, first.container), cut);
    }
    let scrubbed = bench.tier.scrub(&own_request()).unwrap();
    assert!(scrubbed.damaged.iter().all(|told| told.starts_with("file3: ")), "{scrubbed:?}");
    for archive in 0..2 {
        let found = bytes_of(&bench, archive, first.container);
        assert_eq!(found.len(), whole.len());
        let kept = (last.offset + 200) as usize;
        assert!(found[..kept] == whole[..kept], "a{archive}");
        let list = (last.offset + last.length) as usize;
        assert!(found[list..] == whole[list..], "a{archive}");
    }
}

/// Returns a container of one archive with a list in which the last member is longer.
fn with_longer_list(bench: &Bench, whole: &[u8], container: Id, more: u64) -> Vec<u8> {
    let archive = Arc::clone(&bench.archives[0]) as Arc<dyn Archive>;
    let length = whole.len() as u64;
    let contents = contents_of(&archive, container, length).unwrap();
    let mut members: Vec<_> = contents.objects.into_iter().zip(contents.members).collect();
    members.last_mut().unwrap().1.length += more;
    let location = Location { container, offset: 0, length: contents.list_bytes };
    let list = ObjectReader::open_any(&archive, ContainerKind::Files, location).unwrap();
    let bundle = enclose(list.heading(), &members, &[]).unwrap();
    let (crafted, own) = (&bundle[..bundle.len() / 2], contents.list_bytes as usize);
    // The end is damaged, so the list at the beginning is used.
    [crafted, &whole[own..whole.len() - own], &[0; 100]].concat()
}

/// A malicious archive can't make intact or damaged containers in another archive grow.
#[test]
fn forged_list_does_not_enlarge_other_copies() {
    for more in [16 << 20, 100 << 20] {
        let bench = two_copies();
        bundled(&bench, 4);
        let first = place_of(&bench, 0);
        let whole = bytes_of(&bench, 0, first.container);
        let crafted = with_longer_list(&bench, &whole, first.container, more);
        bench.archives[1].put((ContainerKind::Files, first.container), crafted);
        let scrubbed = bench.tier.scrub(&own_request()).unwrap();
        assert!(bytes_of(&bench, 0, first.container) == whole, "{more}: {scrubbed:?}");
        // The damaged part of the first container is repaired, and its own list determines its
        // contents.
        bench.archives[0].damage_at(first.container, first.offset + 300);
        bench.archives[0].damage_at(first.container, whole.len() as u64 - 20);
        let scrubbed = bench.tier.scrub(&own_request()).unwrap();
        assert!(bytes_of(&bench, 0, first.container) == whole, "{more}: {scrubbed:?}");
    }
}

/// A container with a single object is as long as the object, even if another copy is longer.
#[test]
fn bytes_after_an_object_are_not_copied() {
    let bench = two_copies();
    let ino = bench.client().file(Ino::ROOT, "file0", &contents(0)).unwrap();
    bench.archive(ino, "file0").unwrap();
    let place = place_of(&bench, 0);
    let whole = bytes_of(&bench, 0, place.container);
    bench.archives[1].put((ContainerKind::Files, place.container), whole.repeat(3));
    bench.archives[0].damage_at(place.container, 300);
    let scrubbed = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.repaired, scrubbed.damaged.len()), (1, 0), "{scrubbed:?}");
    assert!(bytes_of(&bench, 0, place.container) == whole);
}

/// An object that expired while it was read is not needed any longer.
#[test]
fn object_deleted_during_a_scrub_is_neither_damaged_nor_copied() {
    let bench = two_copies();
    bundled(&bench, 1);
    bench.client().unlink(Ino::ROOT, "file0").unwrap();
    let faults = bench.archives[1].faults();
    *faults.stalled.lock() = true;
    std::thread::scope(|scope| {
        let scrubbing = scope.spawn(|| bench.tier.scrub(&own_request()).unwrap());
        while faults.blocked.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        bench.dates.0.fetch_add(31 * 24 * 3600, Ordering::SeqCst);
        assert_eq!(bench.tier.expire(&own_request()).unwrap().objects, 1);
        faults.resume();
        let scrubbed = scrubbing.join().unwrap();
        assert_eq!((scrubbed.repaired, &scrubbed.damaged[..]), (0, &[][..]));
    });
    assert_eq!(bench.archives.iter().map(|archive| archive.containers()).sum::<usize>(), 0);
}

/// A scrub may take days. If it read a snapshot of the catalogue, the catalogue's file could not
/// reuse space meanwhile.
#[test]
fn object_deleted_before_the_scrub_reaches_it_is_not_read() {
    let bench = Bench::new();
    bundled(&bench, 100);
    let faults = bench.archives[0].faults();
    *faults.stalled.lock() = true;
    std::thread::scope(|scope| {
        let scrubbing = scope.spawn(|| bench.tier.scrub(&own_request()).unwrap());
        while faults.blocked.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let mut last = Vec::new();
        let mut keep = |row| {
            last = vec![row];
            Ok(())
        };
        bench.tier.catalogue().for_each(&mut keep).unwrap();
        bench.tier.catalogue().remove(&last).unwrap();
        faults.resume();
        assert_eq!(scrubbing.join().unwrap().copies, 99);
    });
}
