//! Permanent deletion: an object is deleted only if a scan has visited every file since the object
//! was recorded as unneeded.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fslab_tier::archive::{Archive, DirectoryArchive};
use fslab_tier::catalogue::{Catalogue, ObjectRow, ObjectState};
use fslab_tier::command::{Command, execute};
use fslab_tier::home::{Home, TierDescription};
use fslab_tier::stored::Marks;
use fslab_tier::{Id, Settings, Tier, TierFs, own_request};
use fslab_vfs::{Entry, Errno, FileSystem, Ino, MemFs, Name, Request};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::bundles::{contents, do_all, expire, replace};
use crate::concurrency::{Meddled, rows};
use crate::support::{Bench, MIB, TIER, noise, open, open_over};

const CONTENTS: u64 = 97;

/// Records in the catalogue that a scan has confirmed that all removed objects are unneeded.
pub fn seen_by_no_scan(bench: &Bench) {
    let catalogue = bench.tier.catalogue();
    let number = catalogue.begin_scan().unwrap();
    catalogue.end_scan(number).unwrap();
}

/// Marks all objects in the catalogue as removed.
fn say_removed(bench: &Bench) {
    let removed = |row| ObjectRow { state: ObjectState::Removed, ..row };
    let rows: Vec<_> = rows(bench).into_iter().map(removed).collect();
    bench.tier.catalogue().put(&rows).unwrap();
}

/// Makes an offline file that is recorded as removed in the catalogue. In fact it was renamed.
fn renamed_and_said_to_be_gone() -> (Bench, Ino) {
    let bench = Bench::new();
    let ino = bench.offline(&bench.client(), "file", &noise(CONTENTS, MIB));
    // After this scan, the catalogue is no longer in doubt.
    bench.tier.scan(&own_request()).unwrap();
    say_removed(&bench);
    bench.client().rename(Ino::ROOT, "file", Ino::ROOT, "other").unwrap();
    (bench, ino)
}

#[test]
fn object_of_a_renamed_file_never_expires() {
    let (bench, ino) = renamed_and_said_to_be_gone();
    let expired = expire(&bench);
    assert_eq!((expired.objects, expired.containers), (0, 0));
    assert!(bench.client().contents(ino).unwrap() == noise(CONTENTS, MIB));
}

/// A scan of an unmounted tree is not notified when a file moves from a directory not yet scanned
/// to one already scanned. If two scans missed the file, its only copy would be deleted.
#[test]
fn renames_during_scans_of_an_unmounted_tree_expire_nothing() {
    let (lower, bench) = Meddled::bench();
    let client = bench.client();
    let [first, last] = ["first", "last"].map(|name| client.mkdir(Ino::ROOT, name).unwrap());
    let ino = client.file(last, "file", &noise(CONTENTS, MIB)).unwrap();
    bench.archive(ino, "last/file").unwrap();
    bench.release(ino, "last/file").unwrap();
    bench.tier.shutdown().unwrap();
    let (archives, around) = (vec![bench.archives[0].clone() as Arc<dyn Archive>], &bench.around);
    let (catalogue, below) = (Catalogue::in_memory().unwrap(), bench.lower.clone());
    let settings = bench.tier.settings().clone();
    let tier = Tier::open(below, settings, archives, catalogue, around.clone()).unwrap();
    assert!(!tier.scan(&own_request()).unwrap().is_overtaken);
    for _ in 0..2 {
        let moving = Arc::clone(&bench.lower);
        lower.at(last, move || {
            Client::new(&*moving).rename(last, "file", first, "file").unwrap();
        });
        let scanned = tier.scan(&own_request()).unwrap();
        assert!(scanned.is_overtaken, "{scanned:?}");
        assert_eq!(scanned.unneeded, 0, "{scanned:?}");
        bench.below().rename(first, "file", last, "file").unwrap();
        bench.dates.0.fetch_add(31 * 24 * 3600, Ordering::SeqCst);
        let moving = Arc::clone(&bench.lower);
        lower.at(last, move || {
            Client::new(&*moving).rename(last, "file", first, "file").unwrap();
        });
        assert_eq!(tier.expire(&own_request()).unwrap().objects, 0);
        // Moves the file back for the next round. It was moved only if the expiry has scanned the
        // tree.
        if bench.below().exists(first, "file").unwrap() {
            bench.below().rename(first, "file", last, "file").unwrap();
        }
    }
    let fs = TierFs::new(tier);
    let found = Client::new(&fs).lookup(last, "file").unwrap();
    assert!(Client::new(&fs).contents(found.ino).unwrap() == noise(CONTENTS, MIB));
}

/// A scan finds the file, but can't determine which object it refers to.
#[test]
fn objects_that_a_damaged_renamed_file_may_name_are_kept() {
    let (bench, ino) = renamed_and_said_to_be_gone();
    let whole = bench.below().getxattr(ino, Marks::Trusted.residency_name()).unwrap();
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    bench.below().setxattr(ino, Marks::Trusted.residency_name(), &damaged).unwrap();
    assert_eq!([expire(&bench).objects, expire(&bench).objects], [0, 0]);
    bench.below().setxattr(ino, Marks::Trusted.residency_name(), &whole).unwrap();
    assert!(bench.client().contents(ino).unwrap() == noise(CONTENTS, MIB));
}

/// A tree with a part that is unmounted for a while.
#[derive(Default)]
struct Unmounted {
    memory: MemFs,
    missing: Mutex<Option<&'static str>>,
}

impl FileSystem for Unmounted {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> fslab_vfs::Result<Entry> {
        let is_missing = self.missing.lock().is_some_and(|missing| name.as_os_str() == missing);
        if is_missing {
            Err(Errno::NOENT.into())
        } else {
            self.memory.lookup(request, parent, name)
        }
    }
}

/// Scenario: after a power cut, a file system in the tree is checked for a long time and mounted
/// only the next day. Scans meanwhile miss its files.
#[test]
fn objects_missed_by_a_partial_scan_never_expire() {
    let lower = Arc::new(Unmounted::default());
    let bench = Bench::over(lower.clone());
    let client = bench.client();
    let data = client.mkdir(Ino::ROOT, "data").unwrap();
    let ino = client.file(data, "file", &noise(CONTENTS, MIB)).unwrap();
    bench.archive(ino, "data/file").unwrap();
    bench.release(ino, "data/file").unwrap();
    *lower.missing.lock() = Some("data");
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 1);
    *lower.missing.lock() = None;
    client.rename(data, "file", data, "other").unwrap();
    assert_eq!(expire(&bench).objects, 0);
    assert!(client.contents(ino).unwrap() == noise(CONTENTS, MIB));
}

/// Most of the bundle is not needed. An object marked as removed is not moved to another bundle,
/// because files in an unmounted part may refer to its present location.
#[test]
fn object_missed_by_a_scan_stays_in_its_bundle() {
    let lower = Arc::new(Unmounted::default());
    let bench = Bench::over(lower.clone());
    let client = bench.client();
    let data = client.mkdir(Ino::ROOT, "data").unwrap();
    let ino = client.file(data, "file", &contents(0)).unwrap();
    for number in 1..10 {
        client.file(Ino::ROOT, format!("file{number}"), &contents(number)).unwrap();
    }
    do_all(&bench.tier, &mut |_| ());
    bench.release(ino, "data/file").unwrap();
    replace(&bench, 1..8);
    *lower.missing.lock() = Some("data");
    let expired = expire(&bench);
    assert_eq!((expired.objects, expired.repacked), (7, 1));
    *lower.missing.lock() = None;
    assert!(client.contents(ino).unwrap() == contents(0));
}

/// The home was restored from a backup. In the backup the file is recorded as removed, and its
/// object as proven unneeded by a scan. Since then the file was undeleted under another name.
#[test]
fn catalogue_restored_from_a_backup_expires_no_needed_object() {
    let (bench, scratch) = (Bench::new(), tempfile::tempdir().unwrap());
    let (now, backup) = (scratch.path().join("now"), scratch.path().join("backup"));
    let settings = bench.tier.settings().clone();
    let reopen = || {
        let catalogue = Catalogue::open(&now).unwrap();
        open(&bench.lower, &settings, &bench.archives, catalogue, &bench.around)
    };
    let (tier, fs) = reopen();
    {
        let client = Client::new(&*fs);
        let ino = client.file(Ino::ROOT, "file", &noise(CONTENTS, MIB)).unwrap();
        tier.archive(ino, b"file", &own_request()).unwrap();
        client.unlink(Ino::ROOT, "file").unwrap();
    }
    tier.scan(&own_request()).unwrap();
    let object = only_row(&tier).version.object;
    tier.shutdown().unwrap();
    drop((tier, fs));
    std::fs::copy(&now, &backup).unwrap();
    let (tier, fs) = reopen();
    let undelete = Command::Undelete { object, path: b"again".to_vec() };
    execute(&tier, &undelete, &own_request(), &mut |_| true).unwrap();
    tier.shutdown().unwrap();
    drop((tier, fs));
    std::fs::copy(&backup, &now).unwrap();
    let (tier, fs) = reopen();
    bench.dates.0.fetch_add(31 * 24 * 3600, Ordering::SeqCst);
    assert_eq!(tier.expire(&own_request()).unwrap().objects, 0);
    let client = Client::new(&*fs);
    let again = client.lookup(Ino::ROOT, "again").unwrap().ino;
    assert!(client.contents(again).unwrap() == noise(CONTENTS, MIB));
}

fn only_row(tier: &Tier) -> ObjectRow {
    let mut rows = Vec::new();
    let mut keep = |row| {
        rows.push(row);
        Ok(())
    };
    tier.catalogue().for_each(&mut keep).unwrap();
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

/// During a scan, the clock is set back. Then a file that the scan has already visited is archived,
/// at a time before the start of the scan.
#[test]
fn scan_keeps_an_object_archived_after_the_clock_was_set_back() {
    let (lower, bench) = Meddled::bench();
    let client = bench.client();
    let [first, last] = ["first", "last"].map(|name| client.mkdir(Ino::ROOT, name).unwrap());
    let ino = client.file(first, "file", &noise(CONTENTS, MIB)).unwrap();
    bench.dates.0.store(1000, Ordering::SeqCst);
    let (tier, dates) = (Arc::clone(&bench.tier), Arc::clone(&bench.dates));
    lower.at(last, move || {
        dates.0.store(0, Ordering::SeqCst);
        tier.archive(ino, b"first/file", &own_request()).unwrap();
    });
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 0);
    let states: Vec<_> = rows(&bench).into_iter().map(|row| row.state).collect();
    assert_eq!(states, [ObjectState::Live]);
}

/// The catalogue has more unneeded rows than one transaction writes, and a needed row among them.
#[test]
fn scan_records_any_number_of_unneeded_objects() {
    const GONE: u64 = 1203;
    let bench = Bench::new();
    let ino = bench.offline(&bench.client(), "file", &noise(CONTENTS, MIB));
    let needed = rows(&bench).remove(0);
    let gone = (0..GONE).map(|number| {
        let mut row = ObjectRow { inode: Id::default(), ..needed.clone() };
        row.version.object.0[..8].copy_from_slice(&(number << 44).to_be_bytes());
        row
    });
    bench.tier.catalogue().put(&gone.collect::<Vec<_>>()).unwrap();
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, GONE);
    let live = rows(&bench).into_iter().filter(|row| row.state == ObjectState::Live);
    assert_eq!(live.map(|row| row.version.object).collect::<Vec<_>>(), [needed.version.object]);
    assert_eq!(bench.tier.scan(&own_request()).unwrap().unneeded, 0);
    assert!(bench.client().contents(ino).unwrap() == noise(CONTENTS, MIB));
}

/// An expiry scans only if no scan has begun since the objects were recorded as removed.
#[test]
fn expiry_scans_at_most_once() {
    let bench = Bench::new();
    let client = bench.client();
    for name in ["one", "two", "three"] {
        bench.offline(&client, name, &noise(CONTENTS, MIB));
    }
    let scans = || bench.tier.catalogue().scanned().unwrap();
    assert_eq!(scans(), 0, "no scan ended");
    client.unlink(Ino::ROOT, "one").unwrap();
    assert_eq!((expire(&bench).objects, scans()), (1, 1));
    assert_eq!((expire(&bench).objects, scans()), (0, 1), "nothing is due");
    client.unlink(Ino::ROOT, "two").unwrap();
    bench.tier.scan(&own_request()).unwrap();
    assert_eq!((expire(&bench).objects, scans()), (1, 2));
    client.unlink(Ino::ROOT, "three").unwrap();
    assert_eq!((expire(&bench).objects, scans()), (1, 3));
}

/// An archive was moved away, but is not yet known to be unavailable. If an expiry deleted the rows
/// of its objects, their containers would never be deleted.
#[test]
fn objects_of_a_moved_archive_stay_in_the_catalogue() {
    let (bench, scratch) = (Bench::new(), tempfile::tempdir().unwrap());
    let [root, aside] = ["archive", "aside"].map(|name| scratch.path().join(name));
    DirectoryArchive::init(&root, Id([1; 16]), TIER, None).unwrap();
    let archive: Arc<dyn Archive> = Arc::new(DirectoryArchive::open(&root, TIER).unwrap());
    let settings = Settings { keep: Duration::ZERO, ..Settings::of(TIER) };
    let (catalogue, archives) = (Catalogue::in_memory().unwrap(), vec![Arc::clone(&archive)]);
    let (tier, fs) = open_over(&bench.lower, &settings, archives, catalogue, &bench.around);
    let client = Client::new(&*fs);
    let ino = client.file(Ino::ROOT, "file", &noise(CONTENTS, MIB)).unwrap();
    tier.archive(ino, b"file", &own_request()).unwrap();
    client.unlink(Ino::ROOT, "file").unwrap();
    tier.scan(&own_request()).unwrap();
    std::fs::rename(&root, &aside).unwrap();
    assert_eq!(archive.why_unavailable(), None, "nobody has noticed");
    assert_eq!(tier.expire(&own_request()).unwrap().objects, 0);
    assert_eq!(only_row(&tier).state, ObjectState::Removed);
    std::fs::rename(&aside, &root).unwrap();
    assert_eq!(tier.expire(&own_request()).unwrap().containers, 1);
}

#[test]
fn catalogue_of_a_new_tier_is_not_in_doubt() {
    let scratch = tempfile::tempdir().unwrap();
    let wish = TierDescription::usual(vec![scratch.path().join("archive").into()], None);
    let (home, around) = (scratch.path().join("home"), Bench::new().around);
    Home::init(&home, &MemFs::default(), &wish, &around).unwrap();
    let catalogue = Catalogue::open(&home.join("catalogue.redb")).unwrap();
    catalogue.begin_use().unwrap();
    assert!(!catalogue.is_in_doubt().unwrap());
}
