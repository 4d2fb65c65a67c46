//! Bundles that must not wait forever, and a catalogue that fails after files were archived.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fslab_tier::catalogue::Catalogue;
use fslab_tier::command::{Command, execute};
use fslab_tier::stored::Marks;
use fslab_tier::{
    Archived, Archiver, Error, Found, Settings, Tier, TierFs, WalkEntry, own_request,
};
use fslab_vfs::{FileSystem, Ino, MemFs, SteppingClock};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::bundles::contents;
use crate::concurrency::Meddled;
use crate::measure::row_of;
use crate::support::{Bench, Hands, TIER, open};

const SECOND: Duration = Duration::from_secs(1);

/// The names of reported files, and whether they are archived.
type Told = Vec<(String, bool)>;

fn gather(
    archiver: &mut Archiver<'_>,
    lower: &Arc<dyn FileSystem>,
    name: &str,
    told: &mut Told,
) -> fslab_tier::Result<()> {
    let found = Found::at(lower, name.as_bytes()).unwrap();
    let place = WalkEntry { path: name.as_bytes(), found: &found };
    archiver.archive(&place, &mut |path, outcome| note(told, path, &outcome))
}

fn note(
    told: &mut Told,
    path: &[u8],
    outcome: &fslab_tier::Result<Archived>,
) -> fslab_tier::Result<()> {
    let is_archived = matches!(outcome, Ok(Archived::Now { .. }));
    told.push((String::from_utf8_lossy(path).into_owned(), is_archived));
    Ok(())
}

#[test]
fn gathered_files_are_bundled_after_a_minute() {
    let hands = Arc::new(Hands::default());
    let lower = Arc::new(MemFs::default());
    // With one upload at a time, bundles are archived at once.
    let settings = Settings { uploads: 1, ..Settings::of(TIER) };
    let bench = Bench::by_clock(lower, settings, 1, hands.clone());
    for (number, name) in ["one", "three", "two"].into_iter().enumerate() {
        bench.client().file(Ino::ROOT, name, &contents(number as u64)).unwrap();
    }
    let (request, mut told) = (own_request(), Told::new());
    let mut archiver = bench.tier.archiver(&request, None, None);
    gather(&mut archiver, &bench.lower, "one", &mut told).unwrap();
    hands.turn(59 * SECOND);
    gather(&mut archiver, &bench.lower, "two", &mut told).unwrap();
    assert_eq!(told, []);
    hands.turn(SECOND);
    gather(&mut archiver, &bench.lower, "three", &mut told).unwrap();
    let both = ["one", "two"].map(|name| (name.to_owned(), true));
    assert_eq!(told, both);
    hands.turn(59 * SECOND);
    archiver.finish_if_due(&mut |path, outcome| note(&mut told, path, &outcome)).unwrap();
    assert_eq!(told, both, "the third has not waited for a minute");
    archiver.finish(&mut |path, outcome| note(&mut told, path, &outcome)).unwrap();
    assert_eq!((told.len(), bench.archives[0].containers()), (3, 2));
}

/// A walk over many files that the policy keeps may take hours. Files gathered for a bundle do not
/// wait for the end of the walk.
#[test]
fn policy_bundles_gathered_files_while_it_still_walks() {
    let lower = Arc::new(Meddled::default());
    // The clock advances more than a minute at each reading.
    let clock = Arc::new(SteppingClock::new(61_000_000_000));
    let settings = Settings { call_limit: Duration::MAX, uploads: 1, ..Settings::of(TIER) };
    let bench = Bench::by_clock(lower.clone(), settings, 1, clock);
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "goes", &contents(1)).unwrap();
    let stays = client.mkdir(Ino::ROOT, "stays").unwrap();
    client.file(stays, "large", &contents(2)).unwrap();
    let (below, is_archived) = (Arc::clone(&bench.lower), Arc::new(Mutex::new(None)));
    let seen = Arc::clone(&is_archived);
    lower.at(stays, move || {
        let known = Marks::Trusted.read(&*below, ino).unwrap();
        *seen.lock() = Some(known.is_some());
    });
    let rules = "[[rule]]\naction = 'archive'\npaths = ['goes']\n".to_owned();
    let command = Command::Policy { rules: Some((rules, "test".to_owned())), dry_run: false };
    execute(&bench.tier, &command, &own_request(), &mut |_| true).unwrap();
    assert_eq!(*is_archived.lock(), Some(true));
}

/// The storage of a catalogue, on which all writes fail once `fails` is set.
#[derive(Debug)]
struct Failing {
    inner: redb::backends::InMemoryBackend,
    fails: Arc<AtomicBool>,
}

impl Failing {
    fn check(&self) -> io::Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

impl redb::StorageBackend for Failing {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.check()?;
        self.inner.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.inner.write(offset, data)
    }
}

/// An engine whose catalogue fails once the residency xattr of a file is written.
struct Doomed {
    lower: Arc<Meddled>,
    bench: Bench,
    tier: Arc<Tier>,
    fs: Arc<TierFs>,
    fails: Arc<AtomicBool>,
}

impl Doomed {
    fn new() -> Self {
        let (lower, bench) = Meddled::bench();
        let fails = Arc::new(AtomicBool::new(false));
        let inner = redb::backends::InMemoryBackend::new();
        let catalogue = Catalogue::on(Failing { inner, fails: Arc::clone(&fails) }).unwrap();
        let (settings, archives) = (bench.tier.settings(), &bench.archives);
        let (tier, fs) = open(&bench.lower, settings, archives, catalogue, &bench.around);
        Self { lower, bench, tier, fs, fails }
    }

    fn client(&self) -> Client<'_> {
        Client::new(&*self.fs)
    }

    fn fail_when_marked(&self, ino: Ino) {
        let fails = Arc::clone(&self.fails);
        self.lower.at(ino, move || fails.store(true, Ordering::SeqCst));
    }
}

#[test]
fn bundled_files_are_reported_as_archived_if_the_catalogue_fails() {
    let mut doomed = Doomed::new();
    let names = ["file0", "file1", "file2"];
    for (number, name) in names.into_iter().enumerate() {
        let ino = doomed.client().file(Ino::ROOT, name, &contents(number as u64)).unwrap();
        doomed.fail_when_marked(ino);
    }
    let (request, mut told) = (own_request(), Told::new());
    let mut archiver = doomed.tier.archiver(&request, None, None);
    for name in names {
        gather(&mut archiver, &doomed.bench.lower, name, &mut told).unwrap();
    }
    let ended = archiver.finish(&mut |path, outcome| note(&mut told, path, &outcome));
    drop(archiver);
    assert!(matches!(ended, Err(Error::Catalogue { .. })), "{ended:?}");
    assert_eq!(told, names.map(|name| (name.to_owned(), true)));
    doomed.bench.restart();
    let scanned = doomed.bench.tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.archived, scanned.unneeded), (3, 0));
    for (number, name) in names.into_iter().enumerate() {
        let ino = doomed.bench.client().lookup(Ino::ROOT, name).unwrap().ino;
        assert!(doomed.bench.release(ino, name).unwrap().bytes > 0);
        let found = doomed.bench.client().contents(ino).unwrap();
        assert!(found == contents(number as u64), "{name}");
    }
}

#[test]
fn file_is_reported_as_archived_if_the_catalogue_fails() {
    let mut doomed = Doomed::new();
    let ino = doomed.client().file(Ino::ROOT, "file", &contents(0)).unwrap();
    doomed.fail_when_marked(ino);
    let error = doomed.tier.archive(ino, b"file", &own_request()).unwrap_err();
    assert!(matches!(error, Error::Uncatalogued { .. }), "{error:?}");
    assert!(error.to_string().starts_with("file: was archived, but "), "{error}");
    doomed.bench.restart();
    assert_eq!(doomed.bench.archive(ino, "file").unwrap(), Archived::Before);
}

/// Each command for an unmounted tree opens the tier, so opening must be fast for any number of
/// files. One row of the catalogue is damaged, so opening would fail if it read all rows.
#[test]
fn opening_a_tier_reads_only_pending_rows() {
    const OBJECTS: redb::TableDefinition<'_, [u8; 16], &[u8]> =
        redb::TableDefinition::new("objects");
    let (bench, scratch) = (Bench::new(), tempfile::tempdir().unwrap());
    let path = scratch.path().join("catalogue.redb");
    let row = row_of(1);
    Catalogue::open(&path).unwrap().put(std::slice::from_ref(&row)).unwrap();
    let database = redb::Database::open(&path).unwrap();
    let damaging = database.begin_write().unwrap();
    damaging.open_table(OBJECTS).unwrap().insert(row.version.object.0, &[0xff; 40][..]).unwrap();
    damaging.commit().unwrap();
    drop(database);
    let catalogue = Catalogue::open(&path).unwrap();
    assert!(catalogue.for_each(&mut |_| Ok(())).is_err());
    open(&bench.lower, bench.tier.settings(), &bench.archives, catalogue, &bench.around);
}
