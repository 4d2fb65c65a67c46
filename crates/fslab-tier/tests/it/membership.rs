//! Archives that are attached, retired, drained and detached while the engine runs.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::{
    Archive, ArchiveEntry, ArchiveUsage, Container, ContainerKind, Deletion, Purpose, Upload,
};
use fslab_tier::catalogue::{Catalogue, ObjectRow, ObjectState};
use fslab_tier::command::{ArchiveState, Command, Event, execute};
use fslab_tier::home::{Home, SurvivingArchives, TierDescription};
use fslab_tier::{Environment, Error, Id, Settings, Tier, TierFs, own_request, rebuild};
use fslab_vfs::{FileSystem, Ino, MemFs, OpenMode};
use fslab_vfs_testing::client::Client;

use crate::bundles::{contents, do_all};
use crate::support::{Bench, MIB, TIER, noise};

/// A tier that keeps one copy of each file, with two archives in directories. The first archive
/// receives the copies.
struct World {
    scratch: tempfile::TempDir,
    lower: Arc<dyn FileSystem>,
    around: Environment,
}

impl World {
    fn new() -> Self {
        let (scratch, around) = (tempfile::tempdir().unwrap(), Bench::new().around);
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let world = Self { scratch, lower, around };
        let archives = ["first", "second"].map(|name| world.path(name).into());
        let wish = TierDescription::usual(archives.into(), None);
        Home::init(&world.path("home"), &*world.lower, &wish, &world.around).unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().canonicalize().unwrap().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("dir:{}", self.path(name).display())
    }

    fn home(&self) -> Home {
        Home::read(&self.path("home")).unwrap()
    }

    fn usages(&self) -> Vec<ArchiveUsage> {
        self.home().description.archives.iter().map(|archive| archive.usage).collect()
    }

    fn open(&self) -> (Arc<Tier>, TierFs) {
        let home = self.home();
        let tier = home.open(Arc::clone(&self.lower), home.settings(), self.around.clone());
        let tier = tier.unwrap();
        (Arc::clone(&tier), TierFs::new(tier))
    }

    /// Makes a tier with three bundled files and a large one in the first archive, all offline, and
    /// an archived tree.
    fn filled() -> Self {
        let world = Self::new();
        let (tier, fs) = world.open();
        let client = Client::new(&fs);
        for number in 0..3 {
            client.file(Ino::ROOT, format!("file{number}"), &contents(number)).unwrap();
        }
        client.file(Ino::ROOT, "file3", &large()).unwrap();
        do_all(&tier, &mut |_| {});
        tier.archive_tree(&own_request()).unwrap();
        for name in client.names(Ino::ROOT).unwrap() {
            let ino = client.lookup(Ino::ROOT, &name).unwrap().ino;
            assert!(tier.release(ino, name.as_bytes(), 0).unwrap().bytes > 0, "{name}");
        }
        tier.shutdown().unwrap();
        world
    }

    fn ask(&self, tier: &Arc<Tier>, action: &str, name: &str) -> Result<ArchiveState, String> {
        let archive = self.url(name);
        ask(
            tier,
            &match action {
                "attach" => Command::Attach { address: archive.parse().unwrap(), key: None },
                "retire" => Command::Retire { archive },
                "drain" => Command::Drain { archive, rate: 0 },
                "detach" => Command::Detach { archive },
                _ => unreachable!("{action}"),
            },
        )
    }

    /// Rebuilds the tree in a new directory, and checks its files.
    fn rebuild(&self, archives: &[&str], home: Option<&Home>) {
        let named: Vec<_> = archives.iter().map(|name| self.path(name).into()).collect();
        let remains = SurvivingArchives::open(&named, &[], home, &self.around.identities).unwrap();
        assert_eq!((remains.archives.len(), remains.problems.len()), (archives.len(), 0));
        let again: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let place = self.path("home-again");
        let home = Home::again(&place, &*again, &remains, &self.around).unwrap();
        let catalogue = home.catalogue().unwrap();
        let of = (&self.around, remains.tier);
        let options = rebuild::Options::default();
        let archives = &remains.archives;
        let made = rebuild::rebuild(options, &again, archives, &catalogue, of, &own_request());
        let made = made.unwrap();
        assert_eq!((made.files, made.problems.len(), made.lost.len()), (4, 0, 0), "{made:?}");
        drop((remains, catalogue));
        let (around, settings) = (self.around.clone(), home.settings());
        let settings = Settings { read_only: true, ..settings };
        let tier = home.open(Arc::clone(&again), settings, around).unwrap();
        all_are_right(&TierFs::new(tier));
        fs::remove_dir_all(place).unwrap();
    }
}

fn ask(tier: &Arc<Tier>, command: &Command) -> Result<ArchiveState, String> {
    let (mut state, mut problems) = (None, Vec::new());
    let done = execute(tier, command, &own_request(), &mut |event| {
        match event {
            Event::Archive(told) => state = Some(told),
            Event::Problem { what } => problems.push(what),
            _ => {}
        }
        true
    });
    problems.extend(done.err().map(|error| error.to_string()));
    if problems.is_empty() { Ok(state.unwrap()) } else { Err(problems.join("; ")) }
}

fn large() -> Vec<u8> {
    noise(900, 2 * MIB + 9)
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

fn containers(archive: &Arc<dyn Archive>) -> usize {
    let mut count = 0;
    archive.list(ContainerKind::Files, &mut |_, _| count += 1).unwrap();
    count
}

#[test]
fn retired_archive_takes_no_copies_and_is_read() {
    use ArchiveUsage::{Active, Retired};
    let world = World::filled();
    let (tier, fs) = world.open();
    assert_eq!(world.ask(&tier, "retire", "first").unwrap().usage, Retired);
    assert_eq!(world.usages(), [Retired, Active]);
    let refused = world.ask(&tier, "retire", "second").unwrap_err();
    assert!(refused.contains("archives needed: 1, one for each copy"), "{refused}");
    assert_eq!(world.usages(), [Retired, Active]);
    all_are_right(&fs);
    let client = Client::new(&fs);
    let counts = || [0, 1].map(|number| containers(&tier.archives()[number]));
    assert_eq!(counts(), [2, 0]);
    let ino = client.file(Ino::ROOT, "new", &large()).unwrap();
    tier.archive(ino, b"new", &own_request()).unwrap();
    tier.archive_tree(&own_request()).unwrap();
    assert_eq!(counts(), [2, 1]);
    // Copies in the retired archive are counted, so no others are made.
    assert_eq!(tier.scrub(&own_request()).unwrap().made, 0);
    let ino = client.lookup(Ino::ROOT, "file3").unwrap().ino;
    assert!(tier.release(ino, b"file3", 0).unwrap().bytes > 0);
    tier.shutdown().unwrap();
    drop(client);
    drop((tier, fs));
    // The archive remains retired until it is attached again.
    let (tier, _fs) = world.open();
    assert_eq!(world.ask(&tier, "attach", "first").unwrap().usage, Active);
    assert_eq!(world.usages(), [Active, Active]);
    assert_eq!(world.ask(&tier, "retire", "second").unwrap().usage, Retired);
}

#[test]
fn archive_is_detached_only_after_others_have_all_its_copies() {
    use ArchiveUsage::{Active, Detached};
    let world = World::filled();
    let (tier, fs) = world.open();
    let refused = world.ask(&tier, "detach", "first").unwrap_err();
    let expected = "4 versions have fewer than 1 copies outside of ";
    let advice = "first: run `fslab tier drain` first";
    assert!(refused.starts_with(expected) && refused.ends_with(advice), "{refused}");
    assert_eq!(world.usages(), [Active, Active], "it is as before");
    // Recent readers do not keep the archive open.
    let client = Client::new(&fs);
    let ino = client.lookup(Ino::ROOT, "file0").unwrap().ino;
    assert!(client.contents(ino).unwrap() == contents(0));
    drop(client);
    assert_eq!(world.ask(&tier, "drain", "first").unwrap().usage, ArchiveUsage::Retired);
    let state = world.ask(&tier, "detach", "first").unwrap();
    assert_eq!((state.usage, state.attached), (Detached, false));
    assert_eq!(world.usages(), [Detached, Active]);
    // The lease of the detached archive is released at once.
    world.home().description.archives[0].address.describe().unwrap();
    let lease = fs::File::open(world.path("first/lease")).unwrap();
    lease.try_lock().unwrap();
    fs::rename(world.path("first"), world.path("moved")).unwrap();
    all_are_right(&fs);
    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.missing.len(), scrubbed.short, scrubbed.made), (0, 0, 0));
    assert_eq!(tier.scan(&own_request()).unwrap().missing, Vec::<String>::new());
    tier.shutdown().unwrap();
    drop((tier, fs));
    let (tier, fs) = world.open();
    assert_eq!(tier.archives().len(), 1);
    all_are_right(&fs);
    tier.shutdown().unwrap();
    drop((tier, fs, lease));
    // The other archive is sufficient to rebuild the tree, even if the old home is given.
    world.rebuild(&["second"], None);
    let home = world.home();
    let named = [world.path("second").into()];
    let identities = &world.around.identities;
    let remains = SurvivingArchives::open(&named, &[], Some(&home), identities).unwrap();
    assert_eq!((remains.archives.len(), remains.problems), (1, Vec::new()));
    drop(remains.archives);
    // The detached archive is also sufficient to rebuild the tree as it was when the archive was
    // detached.
    world.rebuild(&["moved"], None);
}

/// A copy without one of its sources does not count.
#[test]
fn archive_is_not_detached_while_another_lacks_a_source() {
    let world = World::new();
    let settings = Settings { deltas: true, ..world.home().settings() };
    let tier = world.home().open(Arc::clone(&world.lower), settings, world.around.clone()).unwrap();
    let fs = TierFs::new(Arc::clone(&tier));
    let client = Client::new(&fs);
    let ino = client.file(Ino::ROOT, "file", &large()).unwrap();
    do_all(&tier, &mut |_| {});
    client.open(ino, OpenMode::READ_WRITE).unwrap().write_all(0, b"changed").unwrap();
    do_all(&tier, &mut |_| {});
    world.ask(&tier, "retire", "first").unwrap();
    world.ask(&tier, "drain", "first").unwrap();
    let mut source = None;
    let mut keep = |row: ObjectRow| {
        source = Some(row).filter(|row| row.state == ObjectState::Replaced).or(source.take());
        Ok(())
    };
    tier.catalogue().for_each(&mut keep).unwrap();
    let source = source.unwrap();
    assert_eq!(source.version.copies.len(), 2);
    let mut lacking = source.clone();
    lacking.version.copies.truncate(1);
    tier.catalogue().put(&[lacking]).unwrap();
    let refused = world.ask(&tier, "detach", "first").unwrap_err();
    // The source itself, and the version that needs it.
    assert!(refused.contains("2 versions have fewer"), "{refused}");
    tier.catalogue().put(&[source]).unwrap();
    world.ask(&tier, "detach", "first").unwrap();
}

#[test]
fn detached_archive_can_be_attached_at_a_new_path() {
    let world = World::filled();
    let (tier, _fs) = world.open();
    world.ask(&tier, "drain", "first").unwrap();
    world.ask(&tier, "detach", "first").unwrap();
    fs::rename(world.path("first"), world.path("moved")).unwrap();
    let state = world.ask(&tier, "attach", "moved").unwrap();
    assert_eq!((state.usage, state.attached), (ArchiveUsage::Active, true));
    assert_eq!((state.address.unwrap(), state.objects), (world.url("moved"), 4));
    assert_eq!(world.home().description.archives.len(), 2);
    // Now the second archive may be detached, because both have all copies.
    world.ask(&tier, "retire", "second").unwrap();
    let refused = world.ask(&tier, "detach", "second").unwrap_err();
    assert!(refused.starts_with("the newest archived tree is only in "), "{refused}");
    tier.archive_tree(&own_request()).unwrap();
    world.ask(&tier, "detach", "second").unwrap();
}

#[test]
fn archive_attached_to_a_running_engine_takes_copies() {
    let world = World::filled();
    let (tier, fs) = world.open();
    let state = world.ask(&tier, "attach", "third").unwrap();
    assert_eq!((state.usage, state.attached, state.objects), (ArchiveUsage::Active, true, 0));
    assert!(state.free_bytes.is_some());
    for name in ["first", "second"] {
        world.ask(&tier, "retire", name).unwrap();
    }
    let ino = Client::new(&fs).file(Ino::ROOT, "new", b"data").unwrap();
    tier.archive(ino, b"new", &own_request()).unwrap();
    assert_eq!(containers(&tier.archives()[2]), 1);
    for name in ["first", "second"] {
        world.ask(&tier, "drain", name).unwrap();
        world.ask(&tier, "detach", name).unwrap();
        fs::remove_dir_all(world.path(name)).unwrap();
    }
    all_are_right(&fs);
    let unknown = world.ask(&tier, "retire", "none").unwrap_err();
    assert!(unknown.starts_with("the tier has no archive dir:/"), "{unknown}");
    let detached = world.ask(&tier, "drain", "first").unwrap_err();
    assert!(detached.ends_with("first is detached: attach it first"), "{detached}");
}

/// A killed drain did not record the copies that it made.
#[test]
fn interrupted_drain_resumes() {
    let world = World::filled();
    let id = world.home().description.archives[0].id;
    let (tier, fs) = world.open();
    world.ask(&tier, "retire", "first").unwrap();
    let stop = &mut |scrubbed: &mut fslab_tier::Scrubbed| {
        if scrubbed.made >= 2 { Err(Error::Interrupted) } else { Ok(()) }
    };
    assert!(matches!(tier.drain(id, &own_request(), None, stop), Err(Error::Interrupted)));
    let refused = world.ask(&tier, "detach", "first").unwrap_err();
    assert!(refused.starts_with("2 versions have fewer than 1 copies"), "{refused}");
    tier.shutdown().unwrap();
    drop((tier, fs));
    // A lost catalogue has no record of the copies, but the existing ones are found.
    fs::remove_file(world.path("home/catalogue.redb")).unwrap();
    let (tier, fs) = world.open();
    let drained = tier.drain(id, &own_request(), None, &mut |_| Ok(())).unwrap();
    let found = (drained.copies, drained.made, drained.short, drained.damaged.len());
    assert_eq!(found, (4, 0, 0, 0), "{drained:?}");
    world.ask(&tier, "drain", "first").unwrap();
    world.ask(&tier, "detach", "first").unwrap();
    fs::remove_dir_all(world.path("first")).unwrap();
    all_are_right(&fs);
}

/// The catalogue still has the old path of a renamed file.
#[test]
fn drain_records_its_copies_on_a_renamed_file() {
    let world = World::filled();
    let (tier, fs) = world.open();
    let client = Client::new(&fs);
    client.rename(Ino::ROOT, "file3", Ino::ROOT, "renamed").unwrap();
    world.ask(&tier, "drain", "first").unwrap();
    world.ask(&tier, "detach", "first").unwrap();
    let ino = client.lookup(Ino::ROOT, "renamed").unwrap().ino;
    let known = tier.residency_below(ino).unwrap().unwrap();
    let ids: Vec<_> = world.home().description.archives.iter().map(|one| one.id).collect();
    assert_eq!(known.version.copies, ids);
    assert!(client.contents(ino).unwrap() == large());
    assert!(tier.release(ino, b"renamed", 0).unwrap().bytes > 0);
}

/// A new catalogue has no record of any file. The tier must not conclude that no file needs the
/// archive.
#[test]
fn needed_archive_is_not_detached_after_losing_the_catalogue() {
    let world = World::filled();
    fs::remove_file(world.path("home/catalogue.redb")).unwrap();
    let (tier, _fs) = world.open();
    let refused = world.ask(&tier, "detach", "first").unwrap_err();
    assert!(refused.starts_with("4 versions have fewer than 1 copies"), "{refused}");
}

/// The unavailable archive has the only copies. Compact residencies do not list archives.
#[test]
fn unavailable_archive_is_not_detached_after_losing_the_catalogue() {
    let world = World::filled();
    fs::remove_file(world.path("home/catalogue.redb")).unwrap();
    fs::rename(world.path("first"), world.path("away")).unwrap();
    let (tier, fs) = world.open();
    let refused = world.ask(&tier, "detach", "first").unwrap_err();
    assert!(refused.contains("it is not certain which objects are needed"), "{refused}");
    drop((tier, fs));
    fs::rename(world.path("away"), world.path("first")).unwrap();
    let (_tier, fs) = world.open();
    all_are_right(&fs);
}

/// The restored catalogue has no record of the copies in the second archive.
#[test]
fn needed_archive_is_not_detached_after_restoring_the_catalogue() {
    let world = World::filled();
    let catalogue = world.path("home/catalogue.redb");
    fs::copy(&catalogue, world.path("backup")).unwrap();
    let (tier, fs) = world.open();
    world.ask(&tier, "drain", "first").unwrap();
    world.ask(&tier, "detach", "first").unwrap();
    tier.shutdown().unwrap();
    drop((tier, fs));
    fs::copy(world.path("backup"), &catalogue).unwrap();
    let (tier, fs) = world.open();
    world.ask(&tier, "attach", "third").unwrap();
    let refused = world.ask(&tier, "detach", "second").unwrap_err();
    assert!(refused.starts_with("4 versions have fewer than 1 copies"), "{refused}");
    all_are_right(&fs);
}

/// A drain does not count lost or damaged copies, so the archive with the last intact ones can't be
/// detached.
#[test]
fn drain_reads_the_copies_that_it_counts() {
    let world = World::filled();
    let (tier, fs) = world.open();
    world.ask(&tier, "drain", "first").unwrap();
    for container in fs::read_dir(world.path("second/files")).unwrap() {
        fs::remove_dir_all(container.unwrap().path()).unwrap();
    }
    world.ask(&tier, "drain", "first").unwrap();
    world.ask(&tier, "detach", "first").unwrap();
    fs::remove_dir_all(world.path("first")).unwrap();
    all_are_right(&fs);
}

#[test]
fn damaged_archive_can_be_detached_if_others_have_intact_copies() {
    let world = World::filled();
    let (tier, fs) = world.open();
    world.ask(&tier, "drain", "first").unwrap();
    for container in fs::read_dir(world.path("first/files")).unwrap() {
        fs::remove_dir_all(container.unwrap().path()).unwrap();
    }
    world.ask(&tier, "attach", "third").unwrap();
    tier.shutdown().unwrap();
    drop((tier, fs));
    world.home().ask_for_copies(2).unwrap();
    let (tier, fs) = world.open();
    let refused = world.ask(&tier, "detach", "first").unwrap_err();
    assert!(refused.starts_with("4 versions have fewer than 2 copies"), "{refused}");
    world.ask(&tier, "drain", "first").unwrap();
    world.ask(&tier, "detach", "first").unwrap();
    let mut written = fs::read_dir(world.path("first/files")).unwrap();
    assert!(written.next().is_none(), "what goes is not repaired");
    fs::remove_dir_all(world.path("second")).unwrap();
    all_are_right(&fs);
}

/// An archive that calls a function when a container is begun.
struct Meddling {
    inner: Arc<MemoryArchive>,
    meddle: Box<dyn Fn() + Send + Sync>,
}

impl Archive for Meddling {
    fn id(&self) -> Id {
        self.inner.id()
    }

    fn label(&self) -> &str {
        self.inner.label()
    }

    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>> {
        (self.meddle)();
        self.inner.begin(container)
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(container, offset, buffer)
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        self.inner.length(container)
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        self.inner.list(kind, visit)
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.inner.delete(container)
    }
}

#[test]
fn archive_stays_attached_while_a_file_is_archived_to_it() {
    let scratch = tempfile::tempdir().unwrap();
    let bench = Bench::new();
    let ids = [Id([1; 16]), Id([2; 16])];
    let entry = |id: Id| ArchiveEntry {
        id,
        address: scratch.path().join(id.to_string()).into(),
        key: None,
        usage: ArchiveUsage::Active,
    };
    let archives = ids.map(entry).to_vec();
    let description = TierDescription { tier: TIER, ..TierDescription::usual(Vec::new(), None) };
    let description = TierDescription { archives: archives.clone(), ..description };
    let text = toml::to_string(&description).unwrap();
    fs::write(scratch.path().join("tier.toml"), text).unwrap();
    let (tier, refusals) = (Arc::new(OnceLock::<Arc<Tier>>::new()), Arc::new(OnceLock::new()));
    let (asked, noted) = (Arc::clone(&tier), Arc::clone(&refusals));
    let detach = Command::Detach { archive: ids[0].to_string() };
    let meddle = {
        let detach = detach.clone();
        move || {
            noted.get_or_init(|| ask(asked.get().unwrap(), &detach).unwrap_err());
        }
    };
    let first = MemoryArchive::new(ids[0], "first");
    let first = Meddling { inner: Arc::new(first), meddle: Box::new(meddle) };
    let second = MemoryArchive::new(ids[1], "second");
    let settings = Settings {
        home: Some(scratch.path().to_owned()),
        known_archives: archives,
        call_limit: std::time::Duration::MAX,
        ..Settings::of(TIER)
    };
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let mark = fslab_tier::stored::TreeMark::of(TIER);
    bench.around.marks.write_tree(&*lower, &mark).unwrap();
    let of: Vec<Arc<dyn Archive>> = vec![Arc::new(first), Arc::new(second)];
    let catalogue = Catalogue::in_memory().unwrap();
    let opened = Tier::open(lower, settings, of, catalogue, bench.around.clone()).unwrap();
    assert!(tier.set(Arc::clone(&opened)).is_ok());
    let fs = TierFs::new(Arc::clone(&opened));
    let ino = Client::new(&fs).file(Ino::ROOT, "file", b"data").unwrap();
    opened.scan(&own_request()).unwrap();
    opened.archive(ino, b"file", &own_request()).unwrap();
    let refused = refusals.get().unwrap();
    assert!(refused.starts_with("files are being archived to "), "{refused}");
    // The attempt left no changes.
    assert!(ask(&opened, &detach).unwrap_err().starts_with("1 versions have fewer than 1"));
}

#[test]
fn home_opens_no_detached_archive_and_needs_enough_active_ones() {
    use ArchiveUsage::{Detached, Retired};
    let world = World::new();
    let mut home = world.home();
    let [first, second] = [0, 1].map(|number| home.description.archives[number].id);
    home.set_usage(first, Detached).unwrap();
    assert_eq!(home.archives(&Purpose::Read, &world.around).unwrap().len(), 1);
    assert_eq!(home.locked_files().len(), 2, "a lease and the catalogue");
    assert!(!home.knows(&world.path("first").into()));
    for (archive, usage) in [(second, Retired), (second, Detached)] {
        let refused = world.home().set_usage(archive, usage).unwrap_err().to_string();
        assert!(refused.contains("archives needed: 1"), "{refused}");
    }
    let settings = world.path("home/tier.toml");
    let text = fs::read_to_string(&settings).unwrap();
    assert!(text.contains("usage = \"detached\"") && !text.contains("active"), "{text}");
    fs::write(&settings, text.replace("copies = 1", "copies = 2")).unwrap();
    let refused = Home::read(&world.path("home")).unwrap_err().to_string();
    assert!(refused.contains("only 1 [[archive]] tables accept copies"), "{refused}");
}
