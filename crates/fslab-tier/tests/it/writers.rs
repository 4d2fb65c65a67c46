//! Trees of one tier that use the same archive: one of them writes to it, the others only read it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_tier::archive::ArchiveAddress;
use fslab_tier::catalogue::{Catalogue, ObjectState};
use fslab_tier::command::{Command, Event, execute};
use fslab_tier::home::{Home, SurvivingArchives, TierDescription};
use fslab_tier::stored::Marks;
use fslab_tier::{Error, Id, Tier, TierFs, own_request, rebuild};
use fslab_vfs::{Attr, FileKind, FileSystem, Ino, MemFs, SetAttr, SetTime};
use fslab_vfs_testing::client::Client;

use crate::support::{Bench, MIB, noise};

const NAMES: [&str; 3] = ["small", "smaller", "large"];
const WEEK: u64 = 7 * 24 * 3600;

fn contents(name: &str) -> Vec<u8> {
    let length = if name == "large" { 2 * MIB + 9 } else { 1000 * name.len() as u64 };
    noise(name.len() as u64, length)
}

/// A tier with a tree of offline files, and other trees made from its archive.
struct World {
    scratch: tempfile::TempDir,
    bench: Bench,
}

/// A tree with its home.
struct Tree {
    lower: Arc<dyn FileSystem>,
    home: Home,
}

impl World {
    /// Makes an archive and the first tree that writes to it.
    fn new() -> (Self, Tree) {
        Self::of(Bench::new())
    }

    fn of(bench: Bench) -> (Self, Tree) {
        let world = Self { scratch: tempfile::tempdir().unwrap(), bench };
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let wish = TierDescription::usual(vec![world.path("archive").into()], None);
        let home = Home::init(&world.path("home"), &*lower, &wish, &world.bench.around).unwrap();
        let first = Tree { lower, home };
        let (tier, tiered) = world.open(&first);
        let client = Client::new(&tiered);
        for name in NAMES {
            client.file(Ino::ROOT, name, &contents(name)).unwrap();
        }
        archive_all(&tier).unwrap();
        tier.archive_tree(&own_request()).unwrap();
        for name in NAMES {
            let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
            assert!(tier.release(ino, name.as_bytes(), 0).unwrap().bytes > 0, "{name}");
        }
        tier.shutdown().unwrap();
        (world, first)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn open(&self, tree: &Tree) -> (Arc<Tier>, TierFs) {
        let around = self.bench.around.clone();
        let tier = tree.home.open(Arc::clone(&tree.lower), tree.home.settings(), around).unwrap();
        (Arc::clone(&tier), TierFs::new(tier))
    }

    /// Rebuilds a tree from the archive, with a home of its own.
    fn made_again(&self, home: &str) -> Tree {
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        self.made_again_in(lower, home)
    }

    fn made_again_in(&self, lower: Arc<dyn FileSystem>, home: &str) -> Tree {
        let around = &self.bench.around;
        let remains =
            SurvivingArchives::open(&[self.path("archive").into()], &[], None, &around.identities)
                .unwrap();
        let home = Home::again(&self.path(home), &*lower, &remains, around).unwrap();
        let (catalogue, request) = (home.catalogue().unwrap(), own_request());
        let archives = &remains.archives;
        rebuild::rebuild(
            rebuild::Options::default(),
            &lower,
            archives,
            &catalogue,
            (around, remains.tier),
            &request,
        )
        .unwrap();
        Tree { lower, home }
    }

    /// Copies a tree with its home, as if their volumes were cloned.
    fn cloned(&self, tree: &Tree, home: &str) -> Tree {
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let path = self.path(home);
        let (from, to) = (Client::new(&*tree.lower), Client::new(&*lower));
        let copy_xattrs = |source, target| {
            for name in from.listxattr(source).unwrap() {
                to.setxattr(target, &name, &from.getxattr(source, &name).unwrap()).unwrap();
            }
        };
        copy_xattrs(Ino::ROOT, Ino::ROOT);
        for name in NAMES {
            let source = from.lookup(Ino::ROOT, name).unwrap();
            let target = to.file(Ino::ROOT, name, &[]).unwrap();
            to.truncate(target, source.size).unwrap();
            copy_xattrs(source.ino, target);
            let modified = Some(SetTime::To(source.modified));
            to.set(target, &SetAttr { modified, ..SetAttr::default() }).unwrap();
        }
        fs::create_dir(&path).unwrap();
        for name in ["tier.toml", "catalogue.redb"] {
            fs::copy(tree.home.path().join(name), path.join(name)).unwrap();
        }
        Tree { lower: Arc::clone(&lower), home: Home::read(&path).unwrap() }
    }

    fn take_over(&self, tree: &Tree) -> fslab_tier::Result<()> {
        tree.home.take_over(&self.path("archive").into(), &tree.lower, &self.bench.around)
    }

    /// Returns the files in the archive with their lengths, except for the lease.
    fn stored(&self) -> Vec<(PathBuf, u64)> {
        let (mut places, mut found) = (vec![self.path("archive")], Vec::new());
        while let Some(place) = places.pop() {
            for entry in fs::read_dir(place).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    places.push(path);
                } else if path.file_name().unwrap() != "lease" {
                    found.push((path.clone(), path.metadata().unwrap().len()));
                }
            }
        }
        found.sort();
        found
    }
}

fn archive_all(tier: &Arc<Tier>) -> fslab_tier::Result<Vec<Event>> {
    told(tier, &Command::Archive { paths: vec![Vec::new()], rate: 0, bundled: None })
}

fn told(tier: &Arc<Tier>, command: &Command) -> fslab_tier::Result<Vec<Event>> {
    let mut events = Vec::new();
    let tell = &mut |event| {
        events.push(event);
        true
    };
    execute(tier, command, &own_request(), tell)?;
    Ok(events)
}

#[track_caller]
fn all_are_right(fs: &dyn FileSystem) {
    let client = Client::new(fs);
    for name in NAMES {
        let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
        assert!(client.contents(ino).unwrap() == contents(name), "{name}");
    }
}

fn remove_all(fs: &dyn FileSystem) {
    NAMES.iter().for_each(|name| Client::new(fs).unlink(Ino::ROOT, name).unwrap());
}

/// Returns why the tree may only read its archive.
fn refusal(tier: &Tier) -> Option<String> {
    let states = tier.archive_states().unwrap();
    assert!(states.len() == 1 && states[0].attached, "{states:?}");
    states[0].refusal.clone()
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(done: fslab_tier::Result<T>) {
    let error = done.unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::OthersArchive { .. }), "{message}");
    assert!(message.contains("fslab tier attach --take-over"), "{message}");
}

#[test]
fn rebuilt_tree_changes_nothing_in_the_archive_of_the_original() {
    let (world, first) = World::new();
    let second = world.made_again("second");
    let before = world.stored();
    let (tier, tiered) = world.open(&second);
    assert!(refusal(&tier).unwrap().contains("is written by another tree, TREE on "));
    all_are_right(&tiered);
    Client::new(&tiered).file(Ino::ROOT, "new", b"of the second").unwrap();
    is_refused(archive_all(&tier));
    is_refused(tier.archive_tree(&own_request()));
    is_refused(told(&tier, &Command::Release { paths: vec![Vec::new()], keep_bytes: 0 }));
    let rules = Some(("[[rule]]\naction = 'release'\n".to_owned(), "rules".to_owned()));
    is_refused(told(&tier, &Command::Policy { rules, dry_run: false }));
    remove_all(&tiered);
    // The order of these commands and their times do not matter.
    for _ in 0..2 {
        assert_eq!(tier.scan(&own_request()).unwrap().missing, Vec::<String>::new());
        world.bench.dates.0.fetch_add(20 * WEEK, Ordering::SeqCst);
        is_refused(tier.expire(&own_request()));
        tier.round(&own_request());
    }
    // The catalogue keeps the rows of objects in the archive.
    let mut rows = 0;
    tier.catalogue()
        .for_each(&mut |_| {
            rows += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(rows, NAMES.len());
    tier.shutdown().unwrap();
    drop((tier, tiered));
    assert_eq!(world.stored(), before);

    let (tier, tiered) = world.open(&first);
    assert_eq!(refusal(&tier), None);
    all_are_right(&tiered);
    tier.shutdown().unwrap();
}

/// Identifies an inode by its size, which a clone keeps.
fn by_size(attr: &Attr) -> Id {
    Id(u128::from(if attr.kind == FileKind::Directory { 0 } else { attr.size }).to_le_bytes())
}

/// Opens a tree and writes to its archive if it may; returns why it may not.
fn written_by(world: &World, tree: &Tree) -> Option<String> {
    let (tier, tiered) = world.open(tree);
    let refusal = refusal(&tier);
    all_are_right(&tiered);
    let client = Client::new(&tiered);
    if !client.exists(Ino::ROOT, "more").unwrap() {
        client.file(Ino::ROOT, "more", b"than before").unwrap();
    }
    if refusal.is_some() {
        is_refused(archive_all(&tier));
        is_refused(tier.expire(&own_request()));
    } else {
        archive_all(&tier).unwrap();
        tier.expire(&own_request()).unwrap();
    }
    tier.shutdown().unwrap();
    refusal
}

#[test]
fn only_the_copy_of_a_tree_that_opened_an_archive_last_writes_to_it() {
    let mut bench = Bench::new();
    bench.around.inode_identity = by_size;
    let (world, first) = World::of(bench);
    let second = world.cloned(&first, "second");
    // The first copy that opens the archive becomes the writer.
    assert_eq!(written_by(&world, &second), None);
    for _ in 0..2 {
        let refused = written_by(&world, &first).expect("a clone opened it since");
        assert!(refused.contains("another copy of this tree"), "{refused}");
        assert!(refused.contains("fslab tier attach --take-over"), "{refused}");
    }
    assert_eq!(written_by(&world, &second), None);
    world.take_over(&first).unwrap();
    let holder = ArchiveAddress::from(world.path("archive")).holder().unwrap();
    for part in ["is held by ", ", last opened at ", ", last written to at "] {
        assert!(holder.contains(part), "{holder}");
    }
    assert!(written_by(&world, &second).is_some());
    assert_eq!(written_by(&world, &first), None);
}

/// After a rollback, the tree is a copy of its state at the snapshot.
#[test]
fn tree_that_was_rolled_back_only_reads() {
    let mut bench = Bench::new();
    bench.around.inode_identity = by_size;
    let (world, first) = World::of(bench);
    let snapshot = world.cloned(&first, "snapshot");
    for _ in 0..3 {
        assert_eq!(written_by(&world, &first), None);
    }
    assert!(written_by(&world, &snapshot).is_some());
}

#[test]
fn take_over_moves_writing_to_one_tree_and_back() {
    let (world, first) = World::new();
    let second = world.made_again("second");
    let (tier, tiered) = world.open(&first);
    let refused = world.take_over(&second).unwrap_err().to_string();
    assert!(refused.contains("is being written by another fslab"), "{refused}");
    tier.shutdown().unwrap();
    drop((tier, tiered));
    for (writer, reader) in [(&second, &first), (&first, &second)] {
        world.take_over(writer).unwrap();
        let (tier, tiered) = world.open(writer);
        assert_eq!(refusal(&tier), None);
        all_are_right(&tiered);
        Client::new(&tiered).file(Ino::ROOT, "more", b"than before").unwrap();
        assert!(!archive_all(&tier).unwrap().is_empty());
        tier.archive_tree(&own_request()).unwrap();
        tier.shutdown().unwrap();
        drop((tier, tiered));
        let (tier, tiered) = world.open(reader);
        all_are_right(&tiered);
        assert_eq!(tier.scan(&own_request()).unwrap().unneeded, 0, "what the other wrote");
        is_refused(tier.expire(&own_request()));
        is_refused(archive_all(&tier));
        tier.shutdown().unwrap();
    }
}

/// A killed engine left an unfinished object. Since then another tree has taken over the archive,
/// so this tree can't delete the object yet.
#[test]
fn interrupted_upload_waits_until_the_tree_may_write_again() {
    let (world, first) = World::new();
    let pending = |catalogue: &Catalogue| catalogue.pending().unwrap().len();
    let catalogue = first.home.catalogue().unwrap();
    let mut rows = Vec::new();
    let noted = catalogue.for_each(&mut |row| {
        rows.push(row);
        Ok(())
    });
    noted.unwrap();
    let mut row = rows.pop().unwrap();
    row.state = ObjectState::Pending;
    (row.version.object, row.version.location.container) = (Id([3; 16]), Id([4; 16]));
    catalogue.put(&[row]).unwrap();
    drop(catalogue);
    let second = world.made_again("second");
    world.take_over(&second).unwrap();
    let (tier, _) = world.open(&first);
    assert_eq!(pending(tier.catalogue()), 1);
    tier.shutdown().unwrap();
    drop(tier);
    world.take_over(&first).unwrap();
    assert_eq!(pending(world.open(&first).0.catalogue()), 0);
}

#[test]
fn tree_that_lost_its_home_or_catalogue_needs_no_take_over() {
    let (world, mut first) = World::new();
    fs::remove_file(world.path("home/catalogue.redb")).unwrap();
    for again in [false, true] {
        if again {
            fs::remove_dir_all(world.path("home")).unwrap();
            first = world.made_again_in(first.lower, "home-again");
        }
        let (tier, tiered) = world.open(&first);
        assert_eq!(refusal(&tier), None, "{again}");
        all_are_right(&tiered);
        tier.shutdown().unwrap();
    }
}

/// A tree whose root does not accept xattrs can't record itself as the writer of its archive. A
/// tree that is rebuilt from this archive may then only read it.
#[test]
fn archive_without_a_writer_record_is_read_only_for_a_rebuilt_tree() {
    let (world, first) = World::new();
    let forget = || fs::remove_file(world.path("archive/writer.toml")).unwrap();
    forget();
    let name = format!("{}.writer", Marks::Trusted.residency_name());
    Client::new(&*first.lower).removexattr(Ino::ROOT, &name).unwrap();
    let second = world.made_again("second");
    let (tier, tiered) = world.open(&second);
    assert!(refusal(&tier).unwrap().contains("may still be written by the tree"));
    all_are_right(&tiered);
    tier.shutdown().unwrap();
    drop((tier, tiered));
    assert!(!world.path("archive/writer.toml").exists());
    for _ in 0..2 {
        let (tier, tiered) = world.open(&first);
        assert_eq!(refusal(&tier), None);
        tier.shutdown().unwrap();
        drop((tier, tiered));
        // The other tree may still only read the archive.
        let (tier, tiered) = world.open(&second);
        assert!(refusal(&tier).is_some());
        tier.shutdown().unwrap();
        drop((tier, tiered));
        forget();
    }
    fs::write(world.path("archive/writer.toml"), "nonsense").unwrap();
    let (tier, tiered) = world.open(&first);
    assert!(refusal(&tier).unwrap().contains("damaged"));
    all_are_right(&tiered);
    tier.shutdown().unwrap();
    drop((tier, tiered));
    world.take_over(&first).unwrap();
    assert_eq!(refusal(&world.open(&first).0), None);
}

/// A file with a copy only in another tree's archive is not released until an archive of this tree
/// has a copy.
#[test]
fn tree_writes_copies_only_to_its_own_archive() {
    let (world, first) = World::new();
    let mut second = world.made_again("second");
    second.home.attach(&world.path("own").into(), Id([9; 16]), None).unwrap();
    let (tier, tiered) = world.open(&second);
    all_are_right(&tiered);
    let rules = Some(("[[rule]]\naction = 'release'\n".to_owned(), "rules".to_owned()));
    let events = told(&tier, &Command::Policy { rules, dry_run: false }).unwrap();
    let problems = events.iter().filter(|event| matches!(event, Event::Problem { .. })).count();
    assert_eq!(problems, 1, "once, and not for each file: {events:?}");
    let container = world
        .stored()
        .into_iter()
        .find(|(path, length)| *length > MIB && path.starts_with(world.path("archive/files")));
    let damaged = container.unwrap().0;
    let whole = fs::read(&damaged).unwrap();
    fs::write(&damaged, &whole[..whole.len() / 2]).unwrap();
    let before = world.stored();
    let scrubbed = tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.made, scrubbed.repaired), (3, 0), "{scrubbed:?}");
    assert_eq!(scrubbed.damaged.len(), 1, "{scrubbed:?}");
    assert_eq!(world.stored(), before);
    fs::write(&damaged, &whole).unwrap();
    let client = Client::new(&tiered);
    let release = |name: &str| {
        let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
        tier.release(ino, name.as_bytes(), 0)
    };
    assert!(release("small").unwrap().bytes > 0);
    // The only copy of this file is damaged, as the scrub found.
    release("large").unwrap_err();
    assert!(!archive_all(&tier).unwrap().is_empty(), "to the archive of its own");
    assert!(release("large").unwrap().bytes > 0);
    assert_eq!(fs::read(&damaged).unwrap(), whole);
    tier.shutdown().unwrap();
    drop((client, tier));
    drop(tiered);
    all_are_right(&world.open(&first).1);
}

#[test]
fn tree_with_its_own_archive_deletes_nothing_from_others() {
    let (world, first) = World::new();
    let mut second = world.made_again("second");
    second.home.attach(&world.path("own").into(), Id([9; 16]), None).unwrap();
    let (tier, tiered) = world.open(&second);
    let before = world.stored();
    archive_all(&tier).unwrap();
    let counts = tier.counts();
    let recalled = counts.iter().find(|(name, ..)| *name == "tier_recalled_bytes").unwrap().2;
    assert_eq!(recalled, 0, "a scrub copies from archive to archive");
    remove_all(&tiered);
    world.bench.dates.0.fetch_add(31 * 24 * 3600, Ordering::SeqCst);
    assert_eq!(tier.expire(&own_request()).unwrap().objects, 0);
    assert_eq!(world.stored(), before);
    tier.shutdown().unwrap();
    drop((tiered, tier));
    all_are_right(&world.open(&first).1);
}
