//! Archived trees: their contents while the tree is in use, and the treatment of damaged ones.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::{Archive, ContainerKind};
use fslab_tier::catalogue::{Catalogue, ObjectRow, ObjectState};
use fslab_tier::rebuild::Options;
use fslab_tier::{Environment, Id, Identities, Settings, Tier, own_request, rebuild};
use fslab_vfs::{Errno, FileSystem, Ino, MemFs, OpenMode, Request, Timestamp};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::parts::{empty_tree, fresh_over, rebuild_in};
use crate::rebuilding::{Moving, picture};
use crate::support::{Bench, Counted, MIB, TIER, TRUST, noise, open_over};

/// A source of identities that archives the tree when it is about to make an identity that the test
/// chose.
struct Meddling {
    counted: Counted,
    /// The number of identities to make before the chosen one, and the tier whose tree is archived.
    at: Mutex<Option<(u64, Arc<Tier>)>>,
}

impl Identities for Meddling {
    fn make(&self) -> Id {
        let due = {
            let mut at = self.at.lock();
            if let Some((left, _)) = &mut *at {
                *left = left.saturating_sub(1);
            }
            at.take_if(|(left, _)| *left == 0)
        };
        if let Some((_, tier)) = due {
            tier.archive_tree(&own_request()).unwrap();
        }
        self.counted.make()
    }
}

/// The tree is archived after a version got its sequence number, but before its object is in the
/// catalogue. The test chooses the moment at which the object's identity is made.
#[test]
fn tree_is_older_than_a_numbered_object_not_yet_in_the_catalogue() {
    for bundled in [0, 64 << 10] {
        let bench = Bench::new();
        let meddling =
            Arc::new(Meddling { counted: Counted(AtomicU64::new(1 << 32)), at: Mutex::default() });
        let around = Environment { identities: meddling.clone(), ..bench.around.clone() };
        let settings = Settings { bundled, ..Settings::of(TIER) };
        let (archives, lower) = (bench.tier.archives(), empty_tree());
        let catalogue = Catalogue::in_memory().unwrap();
        let (tier, fs) = open_over(&lower, &settings, archives, catalogue, &around);
        let client = Client::new(&*fs);
        client.file(Ino::ROOT, "file", &noise(1, 5000)).unwrap();
        // The identities of the file, its container and its object.
        *meddling.at.lock() = Some((3, Arc::clone(&tier)));
        crate::bundles::do_all(&tier, &mut |_| {});
        assert!(meddling.at.lock().is_none(), "no tree was archived");
        let again = empty_tree();
        let report = rebuild_in(&bench, &again);
        assert_eq!((report.younger, report.lost.len()), (1, 0), "{bundled}: {report:?}");
        assert!(report.tree_made.is_some());
    }
}

#[test]
fn tree_is_rebuilt_as_it_was_at_a_given_time() {
    let bench = Bench::new();
    let client = bench.client();
    let put = |name: &str, seed| {
        let ino = client.file(Ino::ROOT, name, &noise(seed, MIB)).unwrap();
        bench.archive(ino, name).unwrap();
    };
    let change = |name: &str, seed| {
        let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, &noise(seed, MIB)).unwrap();
        file.close().unwrap();
        bench.archive(ino, name).unwrap();
    };
    let later = || {
        bench.dates.0.fetch_add(3600, Ordering::SeqCst);
    };
    put("changed", 1);
    put("removed", 2);
    put("behind", 3);
    bench.tier.archive_tree(&own_request()).unwrap();
    later();
    // This version is newer than the archived tree, but must be restored, because it is older than
    // the requested time.
    change("behind", 4);
    let time = bench.around.calendar.now();
    later();
    change("changed", 5);
    put("new", 6);
    client.unlink(Ino::ROOT, "removed").unwrap();
    bench.tier.archive_tree(&own_request()).unwrap();
    let made = |time| {
        let again = empty_tree();
        let report = made_before(&bench, &again, time);
        assert_eq!((report.lost.len(), report.problems.len()), (0, 0), "{report:?}");
        (fresh_over(&bench, again), report.earlier)
    };
    let found = |bench: &Bench, expected: &[(&str, u64)]| {
        let client = bench.client();
        let mut names = client.names(Ino::ROOT).unwrap();
        names.sort();
        assert_eq!(names, expected.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for (name, seed) in expected {
            let ino = client.lookup(Ino::ROOT, *name).unwrap().ino;
            assert!(client.contents(ino).unwrap() == noise(*seed, MIB), "{name}");
        }
    };
    let (then, earlier) = made(Some(time));
    found(&then, &[("behind", 4), ("changed", 1), ("removed", 2)]);
    assert_eq!(earlier, 3, "versions newer than the archived tree can be restored");
    let (now, _) = made(None);
    found(&now, &[("behind", 4), ("changed", 5), ("new", 6)]);
    // A later version is not part of the state at that time.
    let mut earlier = Vec::new();
    let mut note = |row: ObjectRow| {
        if row.path == b"changed" && row.state == ObjectState::Replaced {
            earlier.push(row.version.location.container);
        }
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut note).unwrap();
    bench.archives[0].delete((ContainerKind::Files, earlier[0])).unwrap();
    assert_eq!(made_before(&bench, &empty_tree(), Some(time)).lost, ["changed"]);
}

/// Rebuilds a tree as it was at a given time.
fn made_before(
    bench: &Bench,
    again: &Arc<dyn FileSystem>,
    before: Option<Timestamp>,
) -> rebuild::Rebuilt {
    let (catalogue, archives) = (Catalogue::in_memory().unwrap(), bench.tier.archives());
    let (options, of) = (Options { before, ..TRUST }, (&bench.around, TIER));
    let request = own_request();
    rebuild::rebuild(options, again, &archives, &catalogue, of, &request).unwrap()
}

/// Archives a tree of two directories while a file and a directory are moved from one to the other.
/// Returns the contents of the tree after the walk.
fn moved_while_walked(from: &str, to: &str) -> (Bench, Vec<String>) {
    let lower = Arc::new(Moving::default());
    let bench = Bench::over(lower.clone());
    let client = bench.client();
    let inos = ["first", "last"].map(|name| client.mkdir(Ino::ROOT, name).unwrap());
    for ino in inos {
        client.chmod(ino, 0o700).unwrap();
    }
    let source = client.lookup(Ino::ROOT, from).unwrap().ino;
    let target = client.lookup(Ino::ROOT, to).unwrap().ino;
    let directory = client.mkdir_mode(source, "directory", 0o750).unwrap().ino;
    for (parent, path) in [(source, from.to_owned()), (directory, format!("{from}/directory"))] {
        let ino = client.file(parent, "file", &noise(2, MIB)).unwrap();
        bench.archive(ino, &format!("{path}/file")).unwrap();
        bench.release(ino, &format!("{path}/file")).unwrap();
    }
    client.symlink(directory, "symlink", "file").unwrap();
    client.file(directory, "empty", &[]).unwrap();
    let fs = Arc::clone(&bench.fs);
    let moves = move || {
        let client = Client::new(&*fs);
        client.rename(source, "file", target, "moved").unwrap();
        client.rename(source, "directory", target, "directory").unwrap();
    };
    *lower.moves.lock() = Some((inos[1], Box::new(moves)));
    let archived = bench.tier.archive_tree(&own_request()).unwrap();
    assert_eq!(archived.problems, Vec::<String>::new());
    let expected = picture(&*bench.fs);
    drop(client);
    (bench, expected)
}

#[test]
fn renamed_file_is_in_the_archived_tree_once() {
    for (from, to) in [("last", "first"), ("first", "last")] {
        let (bench, expected) = moved_while_walked(from, to);
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        let report = rebuild_in(&bench, &lower);
        assert_eq!((report.files, report.younger), (3, 0), "{from}: {report:?}");
        assert_eq!((report.problems.len(), report.lost.len()), (0, 0), "{from}: {report:?}");
        let fresh = fresh_over(&bench, lower);
        // Moving files changes the times of the directories.
        let untimed = |lines: Vec<String>| -> Vec<String> {
            lines.into_iter().filter(|line| !line.contains(" Directory ")).collect()
        };
        assert_eq!(untimed(picture(&*fresh.fs)), untimed(expected), "{from}");
        for name in ["first", "last"] {
            let names = |bench: &Bench| {
                let client = bench.client();
                let directory = client.lookup(Ino::ROOT, name).unwrap().ino;
                let mut names = client.names(directory).unwrap();
                names.sort();
                names
            };
            assert_eq!(names(&fresh), names(&bench), "{from}");
            let made = fresh.client().lookup(Ino::ROOT, name).unwrap();
            assert_eq!(made.permissions.bits(), 0o700, "{from}: {name}");
        }
    }
}

/// A tree in memory with an unreadable xattr.
#[derive(Default)]
struct Unreadable(MemFs);

impl FileSystem for Unreadable {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.0)
    }

    fn getxattr(&self, request: &Request, ino: Ino, name: &OsStr) -> fslab_vfs::Result<Vec<u8>> {
        match name.to_str() {
            Some("user.broken") => Err(Errno::IO.into()),
            Some("user.gone") => Err(Errno::NODATA.into()),
            _ => self.0.getxattr(request, ino, name),
        }
    }
}

#[test]
fn file_with_an_unreadable_xattr_is_in_the_archived_tree() {
    let bench = Bench::over(Arc::new(Unreadable::default()));
    let client = bench.client();
    for (name, xattr) in [("one", "user.broken"), ("two", "user.gone")] {
        let ino = bench.offline(&client, name, &noise(3, MIB));
        client.setxattr(ino, xattr, b"value").unwrap();
    }
    let archived = bench.tier.archive_tree(&own_request()).unwrap();
    assert_eq!((archived.entries, archived.problems.len()), (3, 1), "{archived:?}");
    assert!(archived.problems[0].starts_with("one: "), "{archived:?}");
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    assert_eq!(rebuild_in(&bench, &lower).files, 2);
    let fresh = fresh_over(&bench, lower);
    let client = fresh.client();
    for name in ["one", "two"] {
        let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
        assert!(client.contents(ino).unwrap() == noise(3, MIB), "{name}");
    }
}

/// Changes a byte in the middle of the last archived tree.
fn damage_last_tree(archive: &Arc<MemoryArchive>) {
    let kind = ContainerKind::Tree;
    let trees = rebuild::trees(&(Arc::clone(archive) as Arc<dyn Archive>)).unwrap();
    let last = trees.iter().max_by_key(|(_, tree)| tree.sequence).unwrap();
    let mut bytes = vec![0; archive.length((kind, last.0)).unwrap() as usize];
    archive.read((kind, last.0), 0, &mut bytes).unwrap();
    // The byte is after head and attributes, in the only block.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    archive.put((kind, last.0), bytes);
    let opened = rebuild::trees(&(Arc::clone(archive) as Arc<dyn Archive>)).unwrap();
    assert_eq!(opened.len(), trees.len(), "the description was hit");
}

/// Makes files and archives a tree, then more files and a later tree.
fn two_trees(archives: u8) -> Bench {
    let settings = Settings { copies: archives.into(), level: 0, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, archives);
    let client = bench.client();
    for names in [["one", "two"], ["three", "four"]] {
        for name in names {
            let ino = client.file(Ino::ROOT, name, &noise(4, 5000)).unwrap();
            client.setxattr(ino, "user.long", &noise(5, 2000)).unwrap();
            bench.archive(ino, name).unwrap();
        }
        bench.tier.archive_tree(&own_request()).unwrap();
    }
    drop(client);
    bench
}

#[test]
fn tree_damaged_in_one_archive_is_read_from_the_other() {
    for damaged in 0..2 {
        let bench = two_trees(2);
        damage_last_tree(&bench.archives[damaged]);
        let lower = empty_tree();
        let report = rebuild_in(&bench, &lower);
        assert_eq!((report.files, report.problems.len()), (4, 0), "{report:?}");
        let scrubbed = bench.tier.scrub(&own_request()).unwrap();
        assert_eq!((scrubbed.copies, scrubbed.damaged.len()), (12, 1), "{scrubbed:?}");
        assert!(scrubbed.damaged[0].starts_with("an archived tree: "), "{scrubbed:?}");
    }
}

#[test]
fn damaged_last_tree_is_reported_and_the_previous_one_used() {
    let bench = two_trees(1);
    let whole = rebuild_in(&bench, &empty_tree());
    damage_last_tree(&bench.archives[0]);
    let lower = empty_tree();
    let report = rebuild_in(&bench, &lower);
    assert_eq!((report.files, report.younger, report.problems.len()), (2, 2, 1), "{report:?}");
    assert_eq!((whole.files, whole.younger, whole.problems.len()), (4, 0, 0), "{whole:?}");
    assert_eq!(picture(&*fresh_over(&bench, lower).fs), picture(&*bench.fs));
}

#[test]
fn tree_that_fails_verification_is_discarded() {
    let bench = two_trees(1);
    let containers = bench.archives[0].containers();
    bench.archives[0].faults().flips.store(true, Ordering::SeqCst);
    bench.tier.archive_tree(&own_request()).unwrap_err();
    bench.archives[0].faults().flips.store(false, Ordering::SeqCst);
    assert_eq!(bench.archives[0].containers(), containers);
    bench.tier.archive_tree(&own_request()).unwrap();
    assert_eq!(bench.archives[0].containers(), containers + 1);
}

/// The clock was ahead at first. Later the catalogue was lost, and with it the last sequence
/// number.
#[test]
fn version_order_survives_a_clock_set_back_and_a_lost_catalogue() {
    for has_scanned in [true, false] {
        let mut bench = Bench::new();
        bench.dates.0.store(400 * 24 * 3600, Ordering::SeqCst);
        bench.client().file(Ino::ROOT, "changed", &noise(1, 5000)).unwrap();
        crate::bundles::do_all(&bench.tier, &mut |_| {});
        bench.tier.archive_tree(&own_request()).unwrap();
        bench.dates.0.store(24 * 3600, Ordering::SeqCst);
        bench.restart();
        if has_scanned {
            bench.tier.scan(&own_request()).unwrap();
        }
        let client = bench.client();
        client.file(Ino::ROOT, "new", &noise(2, 5000)).unwrap();
        let changed = client.lookup(Ino::ROOT, "changed").unwrap().ino;
        let file = client.open(changed, OpenMode::READ_WRITE).unwrap();
        file.write_all(0, b"changed").unwrap();
        file.close().unwrap();
        crate::bundles::do_all(&bench.tier, &mut |_| {});
        if has_scanned {
            bench.tier.archive_tree(&own_request()).unwrap();
        }
        let again = empty_tree();
        let report = rebuild_in(&bench, &again);
        assert_eq!((report.lost.len(), report.problems.len()), (0, 0), "{report:?}");
        let fresh = fresh_over(&bench, again);
        let found = |name: &str| {
            let ino = fresh.client().lookup(Ino::ROOT, name).map(|found| found.ino);
            ino.and_then(|ino| fresh.client().contents(ino))
        };
        assert!(found("changed").unwrap().starts_with(b"changed"), "scanned: {has_scanned}");
        assert!(found("new").is_ok() || !has_scanned, "scanned: {has_scanned}");
    }
}
