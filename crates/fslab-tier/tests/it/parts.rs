//! Bundles of which a part is known, whole or there, and the rest is not.

use std::sync::Arc;

use fslab_tier::archive::Archive;
use fslab_tier::catalogue::{Catalogue, ObjectRow, ObjectState};
use fslab_tier::stored::residency;
use fslab_tier::{own_request, rebuild};
use fslab_vfs::testing::client::Client;
use fslab_vfs::{FileSystem, Ino, MemFs};

use crate::bundles::{bundled, contents, do_all, ino_of, place_of, two_copies};
use crate::support::{Bench, TIER};

/// Makes a tree of the archives in a file system below.
fn rebuild_in(bench: &Bench, lower: &Arc<dyn FileSystem>) -> rebuild::Rebuilt {
    let archives: Vec<_> =
        bench.archives.iter().map(|archive| Arc::clone(archive) as Arc<dyn Archive>).collect();
    let catalogue = Catalogue::in_memory().unwrap();
    rebuild::rebuild(lower, &archives, &catalogue, &bench.around, TIER, &own_request()).unwrap()
}

/// Whether files of a tree that was made again are what they were.
#[track_caller]
fn are_whole(bench: &Bench, lower: Arc<dyn FileSystem>, numbers: impl IntoIterator<Item = u64>) {
    let fresh = Bench::over(lower);
    for archive in &bench.archives {
        fresh.tier.attach(Arc::clone(archive) as Arc<dyn Archive>);
    }
    let client = fresh.client();
    for number in numbers {
        let ino = client.lookup(Ino::ROOT, format!("file{number}")).unwrap().ino;
        assert!(client.contents(ino).unwrap() == contents(number), "file{number}");
    }
}

#[test]
fn what_is_gone_comes_back_from_a_bundle_of_which_the_rest_is_here() {
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
    are_whole(&bench, Arc::clone(&bench.lower), 0..3);
    assert_eq!(below.contents(below.lookup(Ino::ROOT, "file3").unwrap().ino).unwrap(), newer);
}

/// The tree was walked while the files were told that they are archived: it knows it of some.
#[test]
fn what_the_tree_does_not_name_of_a_bundle_comes_back_beside_what_it_names() {
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
        for name in names.iter().filter(|name| name.starts_with("user.fslab")) {
            below.removexattr(ino_of(&bench, number), name).unwrap();
        }
    }
    bench.tier.archive_tree(&own_request()).unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    residency::write_tree(&*lower, &own_request(), TIER, b"").unwrap();
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.files, report.younger), (2, 2), "{report:?}");
    assert_eq!((report.lost.len(), report.kept, report.problems.len()), (0, 0, 0), "{report:?}");
    are_whole(&bench, lower, 0..4);
}

#[test]
fn what_is_damaged_in_one_archive_is_found_in_the_other() {
    let mut bench = two_copies();
    bundled(&bench, 4);
    let damaged = place_of(&bench, 1);
    bench.archives[0].damage_at(damaged.container, damaged.offset + 20);
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    residency::write_tree(&*lower, &own_request(), TIER, b"").unwrap();
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.younger, report.kept, report.problems.len()), (4, 0, 1), "{report:?}");
    are_whole(&bench, lower, 0..4);
    // A scan asks both, too.
    for number in 0..4 {
        Client::new(&*bench.lower).unlink(Ino::ROOT, format!("file{number}")).unwrap();
    }
    bench.restart();
    let scanned = bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.unneeded, scanned.damaged.len()), (4, 1), "{scanned:?}");
}
