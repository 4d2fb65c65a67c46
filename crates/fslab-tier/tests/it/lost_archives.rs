//! Archives that are lost or not attached, and copies that are missing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::{
    Archive, Container, ContainerKind, Deletion, DirectoryArchive, Key, Purpose, Upload,
};
use fslab_tier::catalogue::Catalogue;
use fslab_tier::home::{Home, SurvivingArchives, TierDescription};
use fslab_tier::stored::{Marks, StoredResidency};
use fslab_tier::{Archived, Id, Scrubbed, Settings, Tier, TierFs, own_request, rebuild};
use fslab_vfs::{FileSystem, Ino, MemFs};
use fslab_vfs_testing::client::Client;

use crate::bundles::{contents, do_all};
use crate::support::{Bench, MIB, TIER, copied, noise, open, open_over};

/// A tier that keeps two copies of each file, in two archives in directories.
struct Twofold {
    scratch: tempfile::TempDir,
    lower: Arc<dyn FileSystem>,
    home: Home,
    around: fslab_tier::Environment,
}

impl Twofold {
    fn new() -> Self {
        let (scratch, around) = (tempfile::tempdir().unwrap(), Bench::new().around);
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let archives = ["first", "second"].map(|name| scratch.path().join(name).into());
        let wish = TierDescription { copies: 2, ..TierDescription::usual(archives.into(), None) };
        let home = Home::init(&scratch.path().join("home"), &*lower, &wish, &around).unwrap();
        Self { scratch, lower, home, around }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn open(&self) -> (Arc<Tier>, TierFs) {
        let lower = Arc::clone(&self.lower);
        let tier = self.home.open(lower, self.home.settings(), self.around.clone()).unwrap();
        (Arc::clone(&tier), TierFs::new(tier))
    }

    /// Archives three bundled files, a large one and the tree, and releases the files.
    fn fill(&self) {
        let (tier, fs) = self.open();
        let client = Client::new(&fs);
        for number in 0..3 {
            client.file(Ino::ROOT, format!("file{number}"), &contents(number)).unwrap();
        }
        client.file(Ino::ROOT, "file3", &large()).unwrap();
        do_all(&tier, &mut |_| {});
        tier.archive_tree(&own_request()).unwrap();
        release_all(&tier, &client);
        tier.shutdown().unwrap();
    }

    fn scrub(&self) -> Scrubbed {
        let (tier, _fs) = self.open();
        let scrubbed = tier.scrub(&own_request()).unwrap();
        tier.shutdown().unwrap();
        scrubbed
    }
}

fn large() -> Vec<u8> {
    noise(700, 2 * MIB + 9)
}

fn release_all(tier: &Arc<Tier>, client: &Client<'_>) {
    for name in client.names(Ino::ROOT).unwrap() {
        let ino = client.lookup(Ino::ROOT, &name).unwrap().ino;
        assert!(tier.release(ino, name.as_bytes(), 0).unwrap().bytes > 0, "{name}");
    }
}

#[track_caller]
fn all_are_right(fs: &dyn FileSystem) {
    let client = Client::new(fs);
    for number in 0..4 {
        let ino = client.lookup(Ino::ROOT, format!("file{number}")).unwrap().ino;
        let expected = if number == 3 { large() } else { contents(number) };
        assert!(client.contents(ino).unwrap() == expected, "file{number}");
    }
}

#[test]
fn replacement_of_a_lost_archive_gets_all_its_copies() {
    let mut twofold = Twofold::new();
    twofold.fill();
    let lost = twofold.home.description.archives[0].id;
    fs::remove_dir_all(twofold.path("first")).unwrap();
    twofold.home.replace(lost, &twofold.path("new").into(), None).unwrap();
    let archives = &twofold.home.description.archives;
    assert_eq!((archives.len(), archives[0].id), (2, lost), "in its place");
    assert!(archives[0].address.to_string().ends_with("/new"));
    let home = Home::read(twofold.home.path()).unwrap();
    assert_eq!(home.description, twofold.home.description);
    let scrubbed = twofold.scrub();
    assert_eq!((scrubbed.short, &scrubbed.damaged[..]), (0, &[][..]), "{scrubbed:?}");
    assert_eq!((scrubbed.repaired, scrubbed.made), (2, 1), "a bundle, a file and the tree");
    assert_eq!(twofold.scrub().repaired, 0);

    fs::remove_dir_all(twofold.path("second")).unwrap();
    let (tier, tiered) = twofold.open();
    all_are_right(&tiered);
    tier.shutdown().unwrap();
    drop((tier, tiered));
    // The copies in the replacement are also sufficient to rebuild the tree.
    let (again, catalogue) = (empty_again(&home, &twofold.around), Catalogue::in_memory().unwrap());
    let mut archives = home.archives(&Purpose::Write(None), &twofold.around).unwrap();
    archives.retain(|archive| archive.why_unavailable().is_none());
    let (around, owner) = (&twofold.around, home.description.tier);
    let made = rebuild::rebuild(
        rebuild::Options::default(),
        &again,
        &archives,
        &catalogue,
        (around, owner),
        &own_request(),
    );
    let made = made.unwrap();
    assert_eq!((made.files, made.younger, made.problems.len()), (4, 0, 0), "{made:?}");
}

fn empty_again(home: &Home, around: &fslab_tier::Environment) -> Arc<dyn FileSystem> {
    let again: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    home.adopt(&*again, around).unwrap();
    again
}

#[test]
fn refused_replacement_of_an_archive_changes_nothing() {
    let mut twofold = Twofold::new();
    let before = twofold.home.description.clone();
    let [first, second] = [0, 1].map(|number| before.archives[number].id);
    let mut refused = |lost, name: &str| {
        let place = twofold.scratch.path().join(name);
        twofold.home.replace(lost, &place.into(), None).unwrap_err().to_string()
    };
    assert!(refused(first, "new").contains("is not lost: it is still at"));
    assert!(refused(Id([9; 16]), "new").contains("the tier has no archive 0909"));
    fs::remove_dir_all(twofold.scratch.path().join("first")).unwrap();
    assert!(refused(first, "second").contains("is already an archive; attach it with"));
    assert!(refused(first, "none/new").contains("is its disk mounted?"));
    assert!(!twofold.path("new").exists());
    assert_eq!(twofold.home.description, before);
    // An archive that a killed `replace` left can be attached like any other.
    DirectoryArchive::init(&twofold.path("first"), first, before.tier, None).unwrap();
    twofold.home.attach(&twofold.path("first").into(), Id([8; 16]), None).unwrap();
    let ids: Vec<Id> = twofold.home.description.archives.iter().map(|known| known.id).collect();
    assert_eq!(ids, [second, first]);
}

/// Reopens the tier of a bench with a second archive, and requires two copies.
fn raised(bench: &Bench) -> (Arc<Tier>, Arc<TierFs>, Arc<MemoryArchive>) {
    let further = Arc::new(MemoryArchive::new(Id([2; 16]), "a1"));
    let archives = [&bench.archives[0], &further].map(Arc::clone);
    let settings = Settings { copies: 2, ..Settings::of(TIER) };
    let catalogue = Catalogue::in_memory().unwrap();
    let (tier, fs) = open(&bench.lower, &settings, &archives, catalogue, &bench.around);
    (tier, fs, further)
}

#[test]
fn missing_copies_are_made_from_archive_to_archive() {
    let bench = Bench::new();
    let client = bench.client();
    for number in 0..3 {
        client.file(Ino::ROOT, format!("file{number}"), &contents(number)).unwrap();
    }
    client.file(Ino::ROOT, "file3", &large()).unwrap();
    do_all(&bench.tier, &mut |_| {});
    release_all(&bench.tier, &client);
    // Only a full residency lists copies.
    let ino = client.lookup(Ino::ROOT, "file0").unwrap().ino;
    bench.write_residency(ino, bench.residency(ino).unwrap());
    let (tier, fs, further) = raised(&bench);
    tier.scan(&own_request()).unwrap();
    let client = Client::new(&*fs);
    // The row of a renamed file has the old path.
    client.rename(Ino::ROOT, "file0", Ino::ROOT, "renamed").unwrap();
    let ino = client.lookup(Ino::ROOT, "file3").unwrap().ino;
    let refused = |tier: &Arc<Tier>, ino| tier.release(ino, b"file3", 0).unwrap_err().to_string();
    let said = refused(&tier, ino);
    assert!(said.contains("2 copies are required, but only 1 are in attached archives"), "{said}");

    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.made, scrubbed.short), (4, 0), "{scrubbed:?}");
    assert_eq!(tier.scrub(&own_request()).unwrap(), Scrubbed { copies: 8, ..Scrubbed::default() });
    let recalled = tier.counts().into_iter().find(|(name, ..)| *name == "tier_recalled_bytes");
    assert!(recalled.is_none_or(|(.., bytes)| bytes == 0));
    assert!(bench.offline_blocks(ino) == [0, 1, 2], "no block was recalled");
    let copies = |ino| tier.residency_below(ino).unwrap().unwrap().version.copies;
    let both = vec![Id([1; 16]), Id([2; 16])];
    assert_eq!(copies(ino), both);
    let stored = Marks::Trusted.read(&*bench.lower, ino).unwrap().unwrap();
    assert!(matches!(stored, StoredResidency::Compact(_)), "{stored:?}");
    let renamed = client.lookup(Ino::ROOT, "renamed").unwrap().ino;
    assert_eq!(copies(renamed).len(), 1);
    // The renamed file is nevertheless recalled from the new copy, and a scan then records this
    // copy.
    bench.archives[0].faults().reads_fail.store(true, Ordering::SeqCst);
    assert!(client.contents(renamed).unwrap() == contents(0));
    assert!(client.contents(ino).unwrap() == large());
    bench.archives[0].faults().reads_fail.store(false, Ordering::SeqCst);
    assert_eq!(tier.scan(&own_request()).unwrap().repaired, 0);
    assert_eq!(copies(renamed), both);
    assert!(tier.release(renamed, b"renamed", 0).unwrap().bytes > 0);
    assert!(further.containers() > 0);
}

#[test]
fn scrub_records_a_copy_made_by_an_interrupted_scrub() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = bench.offline(&client, "file3", &large());
    let (tier, fs, further) = raised(&bench);
    tier.scan(&own_request()).unwrap();
    // The copy exists, but was never recorded.
    let known = Marks::Trusted.read(&*bench.lower, ino).unwrap().unwrap();
    let (kind, container) = (ContainerKind::Files, known.location().container);
    let mut bytes = vec![0; bench.archives[0].length((kind, container)).unwrap() as usize];
    bench.archives[0].read((kind, container), 0, &mut bytes).unwrap();
    further.put((kind, container), bytes);
    further.faults().full.store(true, Ordering::SeqCst);
    assert_eq!(tier.scrub(&own_request()).unwrap().made, 1);
    bench.archives[0].faults().reads_fail.store(true, Ordering::SeqCst);
    assert!(Client::new(&*fs).contents(ino).unwrap() == large());
}

#[test]
fn archive_that_accepts_no_copies_is_reported_once() {
    let bench = Bench::new();
    let client = bench.client();
    for name in ["one", "two", "three"] {
        bench.offline(&client, name, &large());
    }
    let (tier, _fs, further) = raised(&bench);
    tier.scan(&own_request()).unwrap();
    further.faults().full.store(true, Ordering::SeqCst);
    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.made, scrubbed.short, scrubbed.damaged.len()), (0, 3, 1), "{scrubbed:?}");
}

#[test]
fn copies_in_an_unattached_archive_are_reported() {
    let twofold = Twofold::new();
    twofold.fill();
    let [first, second] = [0, 1].map(|number| twofold.home.description.archives[number].clone());
    move_away(&first.address.local_path().unwrap());
    let (tier, fs) = twofold.open();
    let (id, path) = (first.id, first.address.label());
    let expected = [format!("archive {id} ({path}) is not attached, so 4 copies were not checked")];
    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert_eq!((&scrubbed.missing[..], scrubbed.short), (&expected[..], 4));
    assert_eq!(tier.scan(&own_request()).unwrap().missing, expected);
    let states = tier.archive_states().unwrap();
    let found = states.iter().map(|state| (state.archive, state.attached, state.objects));
    assert_eq!(found.collect::<Vec<_>>(), [(first.id, false, 4), (second.id, true, 4)]);
    assert_eq!(
        states.iter().map(|state| state.free_bytes.is_some()).collect::<Vec<_>>(),
        [false, true]
    );
    all_are_right(&fs);
    let ino = Client::new(&fs).lookup(Ino::ROOT, "file3").unwrap().ino;
    let said = tier.release(ino, b"file3", 0).unwrap_err().to_string();
    let expected =
        format!("1 are in attached archives, because archive {id} ({path}) is not attached");
    assert!(said.contains(&expected), "{said}");
}

/// The resident bytes are the last intact ones, so they must not be released while the only copy is
/// damaged.
#[test]
fn file_without_an_intact_copy_is_not_released_until_archived_again() {
    let lose: [fn(&MemoryArchive); 2] = [
        |archive| archive.damage(2 * MIB as usize),
        |archive| {
            let mut all = Vec::new();
            archive.list(ContainerKind::Files, &mut |container, _| all.push(container)).unwrap();
            for container in all {
                archive.delete((ContainerKind::Files, container)).unwrap();
            }
        },
    ];
    for lose in lose {
        let bench = Bench::new();
        let ino = bench.client().file(Ino::ROOT, "file", &large()).unwrap();
        bench.archive(ino, "file").unwrap();
        lose(&bench.archives[0]);
        let scrubbed = bench.tier.scrub(&own_request()).unwrap();
        assert_eq!((scrubbed.damaged.len(), scrubbed.anew, scrubbed.short), (1, 1, 0));
        bench.release(ino, "file").unwrap_err();
        assert!(matches!(bench.archive(ino, "file").unwrap(), Archived::Now { .. }));
        assert!(bench.release(ino, "file").unwrap().bytes > 0);
        assert!(bench.client().contents(ino).unwrap() == large());
    }
}

/// An unreadable copy does not count as damaged. If it did, files would be archived again whenever
/// a disk is unavailable.
#[test]
fn file_with_an_unreadable_copy_is_not_archived_again() {
    let bench = Bench::new();
    let ino = bench.client().file(Ino::ROOT, "file", &large()).unwrap();
    bench.archive(ino, "file").unwrap();
    bench.archives[0].faults().reads_fail.store(true, Ordering::SeqCst);
    let scrubbed = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.damaged.len(), scrubbed.anew, scrubbed.short), (1, 0, 1));
    assert!(!bench.is_changed(ino));
}

/// With a second home, the policy, copies and archives set in the first one would no longer be
/// used.
#[test]
fn tree_with_an_existing_home_gets_no_second_home() {
    let scratch = tempfile::tempdir().unwrap();
    let of = |name: &str| scratch.path().join(name);
    let (tree, around) = (MemFs::default(), Bench::new().around);
    Home::init(
        &of("home"),
        &tree,
        &TierDescription::usual(vec![of("archive").into()], None),
        &around,
    )
    .unwrap();
    let remains =
        SurvivingArchives::open(&[of("archive").into()], &[], None, &around.identities).unwrap();
    let again = || Home::again(&of("new"), &tree, &remains, &around);
    let said = again().unwrap_err().to_string();
    assert!(said.contains(&format!("`--home {}`", of("home").display())), "{said}");
    fs::write(of("home/tier.toml"), "version = [").unwrap();
    again().unwrap_err();
    assert!(!of("new").exists(), "what can't be read is not lost");
    move_away(&of("home"));
    again().unwrap();
}

/// Each copy of a bundle has a damaged file, and one archive becomes unreadable during the repair.
#[test]
fn unreadable_part_is_not_overwritten_by_a_damaged_copy() {
    let settings = Settings { copies: 2, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings.clone(), 2);
    for number in 0..2 {
        bench.client().file(Ino::ROOT, format!("file{number}"), &contents(number)).unwrap();
    }
    do_all(&bench.tier, &mut |_| ());
    let mut places = Vec::new();
    let rows = bench.tier.catalogue().for_each(&mut |row| {
        places.push(row.version.location);
        Ok(())
    });
    rows.unwrap();
    places.sort_by_key(|place| place.offset);
    for (archive, place) in bench.archives.iter().zip(&places) {
        archive.damage_at(place.container, place.offset + place.length / 2);
    }
    let length = bench.archives[0].length((ContainerKind::Files, places[0].container)).unwrap();
    let kept = || {
        let mut bytes = vec![0; length as usize];
        let (kind, container) = (ContainerKind::Files, places[0].container);
        bench.archives[0].read((kind, container), 0, &mut bytes).unwrap();
        bytes
    };
    let before = kept();
    let [first, second] = [0, 1].map(|at| bench.archives[at].clone() as Arc<dyn Archive>);
    let archives = vec![Unlisted::over(first, true), second];
    let catalogue = Catalogue::in_memory().unwrap();
    let (tier, _fs) = open_over(&bench.lower, &settings, archives, catalogue, &bench.around);
    // The archive can't be listed, but the files still refer to their objects.
    tier.scan(&own_request()).unwrap_err();
    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert!(scrubbed.damaged.len() >= 2, "{scrubbed:?}");
    assert!(kept() == before);
}

fn move_away(path: &Path) {
    fs::rename(path, path.with_extension("away")).unwrap();
}

#[test]
fn scrub_reports_an_unattached_archive_that_has_the_only_copy() {
    let bench = Bench::new();
    let client = bench.client();
    bench.offline(&client, "file", &large());
    let other = Arc::new(MemoryArchive::new(Id([7; 16]), "other"));
    let catalogue = copied(bench.tier.catalogue());
    let (tier, _fs) = open(&bench.lower, &Settings::of(TIER), &[other], catalogue, &bench.around);
    tier.scan(&own_request()).unwrap();
    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.copies, scrubbed.short, scrubbed.missing.len()), (0, 1, 1));
}

/// An archive that can't be listed, but can be read.
struct Unlisted {
    inner: Arc<dyn Archive>,
    /// Whether the archive also becomes unreadable when a container is begun.
    ends_at_begin: bool,
    has_begun: AtomicBool,
}

impl Unlisted {
    fn over(inner: Arc<dyn Archive>, ends_at_begin: bool) -> Arc<dyn Archive> {
        Arc::new(Self { inner, ends_at_begin, has_begun: AtomicBool::new(false) })
    }
}

impl Archive for Unlisted {
    fn id(&self) -> Id {
        self.inner.id()
    }

    fn label(&self) -> &str {
        self.inner.label()
    }

    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>> {
        self.has_begun.store(self.ends_at_begin, Ordering::SeqCst);
        self.inner.begin(container)
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if self.has_begun.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.inner.read(container, offset, buffer)
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        self.inner.length(container)
    }

    fn list(&self, _: ContainerKind, _: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        Err(io::ErrorKind::TimedOut.into())
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.inner.delete(container)
    }
}

#[test]
fn rebuild_uses_other_archives_if_one_cannot_be_listed() {
    let twofold = Twofold::new();
    twofold.fill();
    let (home, around) = (&twofold.home, &twofold.around);
    let mut archives = home.archives(&Purpose::Write(None), around).unwrap();
    archives[0] = Unlisted::over(Arc::clone(&archives[0]), false);
    let made = |archives: &[Arc<dyn Archive>]| {
        let catalogue = Catalogue::in_memory().unwrap();
        let (again, owner) = (empty_again(home, around), home.description.tier);
        rebuild::rebuild(
            rebuild::Options::default(),
            &again,
            archives,
            &catalogue,
            (around, owner),
            &own_request(),
        )
    };
    let report = made(&archives).unwrap();
    assert_eq!((report.files, report.tree_made.is_some()), (4, true), "{report:?}");
    let first = home.description.archives[0].address.label();
    assert_eq!(report.problems.len(), 2, "its trees and its files: {report:?}");
    assert!(report.problems.iter().all(|problem| problem.contains(&first)), "{report:?}");
    assert!(made(&archives[..1]).is_err(), "none can be listed");
}

#[test]
fn each_surviving_archive_is_read_with_its_own_key() {
    let (scratch, bench) = (tempfile::tempdir().unwrap(), Bench::new());
    let of = |name: &str| scratch.path().join(name);
    for (name, byte) in [("one.key", 1), ("two.key", 2), ("other.key", 3)] {
        Key::new([byte; 32]).write(&of(name)).unwrap();
    }
    let wish = TierDescription::usual(vec![of("one").into()], Some(of("one.key")));
    let mut home = Home::init(&of("home"), &MemFs::default(), &wish, &bench.around).unwrap();
    home.attach(&of("two").into(), Id([9; 16]), Some(of("two.key"))).unwrap();
    home.attach(&of("plain").into(), Id([8; 16]), None).unwrap();
    let identities = &bench.around.identities;
    let open = |named: &[&str], keys: &[&str], home: Option<&Home>| {
        let named: Vec<_> = named.iter().map(|one| of(one).into()).collect();
        let keys: Vec<_> = keys.iter().map(|one| of(one)).collect();
        SurvivingArchives::open(&named, &keys, home, identities)
    };
    let both = open(&["one", "two", "plain"], &["two.key", "one.key"], None).unwrap();
    let keys: Vec<_> = both.attached.iter().map(|archive| archive.key.clone()).collect();
    assert_eq!(keys, [Some(of("one.key")), Some(of("two.key")), None]);
    drop(both);
    let said = open(&["one", "two"], &["one.key"], None).err().unwrap().to_string();
    assert!(said.contains("one.key: is not the key of the archive"), "{said}");
    let said = open(&["one", "none"], &["one.key"], None).err().unwrap().to_string();
    assert!(said.contains("none: the archive is not there"), "{said}");
    // The keys of archives in the home need not be given. An unavailable archive is reported.
    fs::remove_dir_all(of("plain")).unwrap();
    let known = open(&["one"], &[], Some(&home)).unwrap();
    assert_eq!((known.archives.len(), known.problems.len()), (2, 1), "{:?}", known.problems);
    assert!(known.problems[0].contains("plain: the archive is not there"));
    // An unencrypted replacement of the archive is not read.
    fs::remove_dir_all(of("two")).unwrap();
    DirectoryArchive::init(&of("two"), Id([9; 16]), home.description.tier, None).unwrap();
    let said = open(&["two"], &[], Some(&home)).err().unwrap().to_string();
    assert!(said.contains("is not encrypted, although a key is given for it"), "{said}");
}
