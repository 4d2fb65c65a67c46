//! Bundles: small files that are archived together, and recalled one by one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fslab_tier::archive::{Archive, ContainerKind};
use fslab_tier::catalogue::Catalogue;
use fslab_tier::command::{Command, Event, execute};
use fslab_tier::queue::OF_A_USER_MAX;
use fslab_tier::stored::{Location, Marks, TreeMark};
use fslab_tier::{Archived, Found, Settings, Tier, WalkEntry, own_request, rebuild};
use fslab_vfs::{
    Entry, Errno, FileSystem, Handle, Ino, MemFs, Name, OpenMode, Opened, Request, SetAttr,
    SetTime, Timestamp,
};
use fslab_vfs_testing::client::Client;

use crate::rebuilding::picture;
use crate::support::{Bench, TIER, noise};

pub const KIB: u64 = 1024;

pub fn two_copies() -> Bench {
    let settings = Settings { copies: 2, ..Settings::of(TIER) };
    Bench::with(Arc::new(MemFs::default()), settings, 2)
}

/// Makes files of 5 KiB, and archives them all in one run.
pub fn bundled(bench: &Bench, count: u64) {
    let client = bench.client();
    for number in 0..count {
        client.file(Ino::ROOT, format!("file{number}"), &contents(number)).unwrap();
    }
    let mut archived = 0;
    do_all(&bench.tier, &mut |event| {
        archived += u64::from(matches!(event, Event::Done { .. }));
    });
    assert_eq!(archived, count);
}

pub fn contents(number: u64) -> Vec<u8> {
    noise(200 + number, 5 * KIB)
}

pub fn do_all(tier: &Arc<Tier>, told: &mut dyn FnMut(&Event)) {
    let command = Command::Archive { paths: vec![Vec::new()], rate: 0, bundled: None };
    let mut tell = |event| {
        assert!(!matches!(event, Event::Problem { .. }), "{event:?}");
        told(&event);
        true
    };
    execute(tier, &command, &own_request(), &mut tell).unwrap();
}

pub fn release_all(bench: &Bench) {
    let client = bench.client();
    for name in client.names(Ino::ROOT).unwrap() {
        let ino = client.lookup(Ino::ROOT, &name).unwrap().ino;
        bench.release(ino, &name).unwrap();
    }
}

pub fn ino_of(bench: &Bench, number: u64) -> Ino {
    bench.client().lookup(Ino::ROOT, format!("file{number}")).unwrap().ino
}

pub fn place_of(bench: &Bench, number: u64) -> Location {
    let known = Marks::Trusted.read(&*bench.lower, ino_of(bench, number));
    known.unwrap().unwrap().location()
}

fn read(bench: &Bench, number: u64) -> fslab_vfs::Result<Vec<u8>> {
    bench.client().contents(ino_of(bench, number))
}

#[track_caller]
pub fn all_are_right(bench: &Bench, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        assert!(read(bench, number).unwrap() == contents(number), "file{number}");
    }
}

/// Overwrites files and archives them, so that their earlier versions are not needed.
pub fn replace(bench: &Bench, numbers: impl IntoIterator<Item = u64>) {
    let client = bench.client();
    for number in numbers {
        let file = client.open(ino_of(bench, number), OpenMode::READ_WRITE).unwrap();
        file.write_all(0, &contents(number)).unwrap();
        file.close().unwrap();
        bench.archive(ino_of(bench, number), &format!("file{number}")).unwrap();
    }
}

pub fn expire(bench: &Bench) -> fslab_tier::Expired {
    bench.dates.0.fetch_add(31 * 24 * 3600, Ordering::SeqCst);
    bench.tier.expire(&own_request()).unwrap()
}

#[test]
fn small_files_share_a_container_and_are_recalled_separately() {
    let bench = Bench::new();
    bundled(&bench, 40);
    assert_eq!(bench.archives[0].containers(), 1);
    assert_eq!(bench.counted("tier_bundles"), 1);
    release_all(&bench);
    let before = bench.bytes_recalled();
    all_are_right(&bench, [17]);
    let read = bench.bytes_recalled() - before;
    assert!(read < 8 * KIB, "{read} bytes for a file of 5 KiB among 40");
    all_are_right(&bench, 0..40);
}

#[test]
fn hard_linked_file_is_bundled_once_and_a_large_file_never() {
    let bench = Bench::new();
    let client = bench.client();
    let small = client.file(Ino::ROOT, "file0", &contents(0)).unwrap();
    client.link(small, Ino::ROOT, "link").unwrap();
    client.file(Ino::ROOT, "large", &noise(1, 65 * KIB)).unwrap();
    client.file(Ino::ROOT, "empty", &[]).unwrap();
    let mut told = Vec::new();
    do_all(&bench.tier, &mut |event| {
        if let Event::Done { path, .. } = event {
            told.push(path.clone());
        }
    });
    // The bundle and the large file are archived at the same time.
    told.sort();
    assert_eq!(told, ["empty", "file0", "large"]);
    assert_eq!(bench.archives[0].containers(), 2);
    do_all(&bench.tier, &mut |event| panic!("{event:?}"));
}

#[test]
fn change_before_the_bundle_is_written_is_kept() {
    let bench = Bench::new();
    let client = bench.client();
    let names = ["file0", "file1"];
    for (number, name) in names.into_iter().enumerate() {
        client.file(Ino::ROOT, name, &contents(number as u64)).unwrap();
    }
    let request = own_request();
    let mut archiver = bench.tier.archiver(&request, None, None);
    let mut outcomes = Vec::new();
    let mut told = |path: &[u8], outcome: fslab_tier::Result<Archived>| {
        outcomes.push((String::from_utf8(path.to_vec()).unwrap(), outcome.is_ok()));
        Ok(())
    };
    for name in names {
        let found = Found::at(&bench.lower, name.as_bytes()).unwrap();
        archiver.archive(&WalkEntry { path: name.as_bytes(), found: &found }, &mut told).unwrap();
    }
    assert!(bench.archive(ino_of(&bench, 0), "file0").is_err(), "it is on its way");
    let file = client.open(ino_of(&bench, 0), OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"later").unwrap();
    file.close().unwrap();
    archiver.finish(&mut told).unwrap();
    drop(archiver);
    assert_eq!(outcomes, [("file0".to_owned(), false), ("file1".to_owned(), true)]);
    assert!(bench.release(ino_of(&bench, 0), "file0").is_err());
    bench.release(ino_of(&bench, 1), "file1").unwrap();
    assert!(read(&bench, 0).unwrap().starts_with(b"later"));
    all_are_right(&bench, [1]);
}

#[test]
fn bundling_to_a_full_archive_keeps_all_files_and_leaves_no_object() {
    let bench = Bench::new();
    let client = bench.client();
    for number in 0..3 {
        client.file(Ino::ROOT, format!("file{number}"), &contents(number)).unwrap();
    }
    bench.archives[0].faults().full.store(true, Ordering::SeqCst);
    let command = Command::Archive { paths: vec![Vec::new()], rate: 0, bundled: None };
    let mut problems = 0;
    let mut tell = |event| {
        problems += u64::from(matches!(event, Event::Problem { .. }));
        true
    };
    execute(&bench.tier, &command, &own_request(), &mut tell).unwrap();
    assert_eq!((problems, bench.archives[0].containers()), (3, 0));
    bench.archives[0].faults().full.store(false, Ordering::SeqCst);
    do_all(&bench.tier, &mut |_| {});
    release_all(&bench);
    all_are_right(&bench, 0..3);
}

#[test]
fn damaged_member_leaves_other_members_readable() {
    let bench = Bench::new();
    bundled(&bench, 5);
    bench.tier.archive_tree(&own_request()).unwrap();
    release_all(&bench);
    let damaged = place_of(&bench, 2);
    for offset in [0, damaged.length / 2, damaged.length - 1] {
        bench.archives[0].damage_at(damaged.container, damaged.offset + offset);
    }
    assert_eq!(read(&bench, 2).unwrap_err().errno(), Errno::IO);
    all_are_right(&bench, [0, 1, 3, 4]);
    let report = rebuilt(&bench).1;
    assert_eq!((report.files, report.problems.len()), (5, 0), "the tree names it all the same");
}

#[test]
fn rebuild_finds_all_members_if_one_list_is_damaged() {
    let bench = Bench::new();
    bundled(&bench, 4);
    let first = place_of(&bench, 0);
    let length = bench.archives[0].length((ContainerKind::Files, first.container)).unwrap();
    let expected = picture(&*bench.fs);
    let offsets = (0..first.offset).step_by(7).chain((length - first.offset..length).step_by(7));
    for offset in offsets.chain([length - 1]) {
        bench.archives[0].damage_at(first.container, offset);
        let (found, report) = rebuilt(&bench);
        assert_eq!((report.younger, report.problems.len()), (4, 0), "at {offset} of {length}");
        assert_eq!(found, expected, "at {offset}");
        bench.archives[0].damage_at(first.container, offset);
    }
    bench.archives[0].damage_at(first.container, first.offset + 20);
    let (_, report) = rebuilt(&bench);
    assert_eq!((report.younger, report.problems.len()), (3, 1), "{:?}", report.problems);
}

/// Rebuilds a tree from only the archives. Returns its contents as programs see them, and the
/// report.
fn rebuilt(bench: &Bench) -> (Vec<String>, rebuild::Rebuilt) {
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let copies: Vec<_> = bench.archives.iter().map(|archive| Arc::new(archive.fork())).collect();
    let archives: Vec<_> =
        copies.iter().map(|archive| Arc::clone(archive) as Arc<dyn Archive>).collect();
    let (catalogue, request) = (Catalogue::in_memory().unwrap(), own_request());
    let around = &bench.around;
    let report = rebuild::rebuild(
        rebuild::Options::default(),
        &lower,
        &archives,
        &catalogue,
        (around, TIER),
        &request,
    )
    .unwrap();
    let (tier, fs) =
        crate::support::open(&lower, bench.tier.settings(), &copies, catalogue, around);
    let seen = if report.problems.is_empty() && report.lost.is_empty() {
        let client = Client::new(&*fs);
        let is_whole = client
            .names(Ino::ROOT)
            .unwrap()
            .iter()
            .all(|name| client.contents(client.lookup(Ino::ROOT, name).unwrap().ino).is_ok());
        if is_whole { picture(&*fs) } else { Vec::new() }
    } else {
        Vec::new()
    };
    drop(tier);
    (seen, report)
}

#[test]
fn bundle_is_deleted_with_its_last_member() {
    let bench = Bench::new();
    bundled(&bench, 3);
    let client = bench.client();
    for number in 0..3 {
        client.unlink(Ino::ROOT, format!("file{number}")).unwrap();
    }
    assert_eq!(bench.tier.expire(&own_request()).unwrap().objects, 0);
    let expired = expire(&bench);
    assert_eq!((expired.objects, expired.containers, expired.repacked), (3, 1, 0));
    assert_eq!(bench.archives[0].containers(), 0);
}

#[test]
fn repacking_moves_needed_members_and_frees_the_rest() {
    let bench = two_copies();
    bundled(&bench, 10);
    let old = place_of(&bench, 8).container;
    bench.tier.archive_tree(&own_request()).unwrap();
    let expected = picture(&*bench.fs);
    release_all(&bench);
    let client = bench.client();
    // Reads from a file that is kept open during all changes.
    let open = client.open(ino_of(&bench, 8), OpenMode::empty()).unwrap();
    replace(&bench, 0..4);
    assert_eq!(expire(&bench).repacked, 0, "more than half of it is needed");
    assert_eq!(place_of(&bench, 8).container, old);
    replace(&bench, 4..7);
    let expired = expire(&bench);
    assert_eq!((expired.objects, expired.containers, expired.repacked), (3, 0, 1));
    assert_ne!(place_of(&bench, 8).container, old);
    assert_eq!(place_of(&bench, 8).container, place_of(&bench, 9).container);
    for archive in &bench.archives {
        assert!(archive.length((ContainerKind::Files, old)).is_err());
        assert_eq!(
            archive.containers(),
            7 + 1 + 1,
            "seven single files, a bundle, and the archived tree"
        );
    }
    assert!(open.read(0, 5 * KIB as usize).unwrap() == contents(8));
    open.close().unwrap();
    all_are_right(&bench, 0..10);
    assert_eq!(expire(&bench).repacked, 0);
    // Since the tree was archived, its objects were moved to another bundle or replaced by later
    // versions.
    let (found, report) = rebuilt(&bench);
    assert_eq!((report.files, report.younger), (3, 7), "{report:?}");
    assert_eq!(report.lost, Vec::<String>::new());
    assert_eq!(report.older, Vec::<String>::new(), "later is not earlier");
    let untimed = |lines: &[String]| -> Vec<String> {
        let kept = lines.iter().filter(|line| line.contains("file8 ") || line.contains("file9 "));
        kept.cloned().collect()
    };
    assert_eq!(untimed(&found), untimed(&expected));
    assert_eq!(bench.tier.scan(&own_request()).unwrap().repaired, 0);
}

/// The catalogue still has the old time, which a repack must not restore.
#[test]
fn repacking_keeps_a_modification_time_set_by_hand() {
    let bench = Bench::new();
    bundled(&bench, 10);
    replace(&bench, 0..8);
    // After this scan, the catalogue is no longer in doubt, so no later scan updates it.
    bench.tier.scan(&own_request()).unwrap();
    let modified = Timestamp { seconds: 1_000_000, nanoseconds: 5 };
    let changes = SetAttr { modified: Some(SetTime::To(modified)), ..SetAttr::default() };
    bench.client().set(ino_of(&bench, 8), &changes).unwrap();
    let old = place_of(&bench, 8);
    assert_eq!(expire(&bench).repacked, 1);
    assert_ne!(place_of(&bench, 8), old);
    assert_eq!(bench.archive(ino_of(&bench, 8), "file8").unwrap(), Archived::Before);
    assert!(bench.release(ino_of(&bench, 8), "file8").unwrap().bytes > 0);
    all_are_right(&bench, [8, 9]);
    assert_eq!(bench.client().attr(ino_of(&bench, 8)).unwrap().modified, modified);
}

/// A removed file can be restored during the retention time, even if other members were moved. Its
/// object also stays in the bundle for this time, because others may refer to it, such as a
/// snapshot of the tree.
#[test]
fn removed_member_stays_in_its_bundle_and_can_be_undeleted() {
    let bench = Bench::new();
    bundled(&bench, 10);
    let client = bench.client();
    let before = place_of(&bench, 9);
    replace(&bench, 0..8);
    bench.dates.0.fetch_add(31 * 24 * 3600, Ordering::SeqCst);
    client.unlink(Ino::ROOT, "file9").unwrap();
    let expired = bench.tier.expire(&own_request()).unwrap();
    assert_eq!((expired.objects, expired.containers, expired.repacked), (8, 0, 1));
    let mut removed = Vec::new();
    let command = Command::Versions { path: b"file9".to_vec() };
    let mut tell = |event| {
        if let Event::Version { object, state, .. } = event {
            assert_eq!(state, "removed");
            removed.push(object);
        }
        true
    };
    execute(&bench.tier, &command, &own_request(), &mut tell).unwrap();
    let object = removed.pop().unwrap().parse().unwrap();
    assert_eq!(bench.tier.expire(&own_request()).unwrap().repacked, 0, "nothing else is to move");
    assert!(bench.archives[0].length((ContainerKind::Files, before.container)).is_ok());
    let command = Command::Undelete { object, path: b"file9".to_vec() };
    execute(&bench.tier, &command, &own_request(), &mut |_| true).unwrap();
    all_are_right(&bench, 0..10);
}

#[test]
fn scrub_repairs_members_and_lists_from_either_copy() {
    let bench = two_copies();
    bundled(&bench, 4);
    let places: Vec<_> = (0..4).map(|number| place_of(&bench, number)).collect();
    let container = places[0].container;
    let length = bench.archives[0].length((ContainerKind::Files, container)).unwrap();
    // Each copy is intact where the other one is damaged.
    bench.archives[0].damage_at(container, places[1].offset + 300);
    bench.archives[1].damage_at(container, places[2].offset + 300);
    bench.archives[0].damage_at(container, 50);
    bench.archives[1].damage_at(container, length - 20);
    let scrubbed = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.copies, &scrubbed.damaged[..]), (8, &[][..]));
    assert_eq!(scrubbed.repaired, 4);
    let again = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!((again.copies, again.repaired, again.damaged.len()), (8, 0, 0));
    release_all(&bench);
    bench.archives[1].faults().reads_fail.store(true, Ordering::SeqCst);
    all_are_right(&bench, 0..4);
}

#[test]
fn one_expiry_deletes_more_than_one_batch_of_versions() {
    let bench = Bench::new();
    let client = bench.client();
    for number in 0..1100 {
        client.file(Ino::ROOT, format!("file{number}"), b"x").unwrap();
    }
    do_all(&bench.tier, &mut |_| {});
    for number in 0..1100 {
        client.unlink(Ino::ROOT, format!("file{number}")).unwrap();
    }
    assert_eq!(expire(&bench).objects, 1100);
    assert_eq!(bench.archives[0].containers(), 0);
}

/// In a bundle of tiny files, the lists of its members are larger than the files. They are not
/// garbage.
#[test]
fn fully_needed_bundle_is_never_repacked() {
    let bench = Bench::new();
    let client = bench.client();
    for number in 0..2 {
        client.file(Ino::ROOT, format!("file{number}"), b"tiny").unwrap();
    }
    do_all(&bench.tier, &mut |_| {});
    let place = place_of(&bench, 0);
    let length = bench.archives[0].length((ContainerKind::Files, place.container)).unwrap();
    assert!(4 * place.length < length, "the lists are not large enough to show anything");
    assert_eq!(expire(&bench).repacked, 0);
    assert_eq!(place_of(&bench, 0), place);
}

/// Counts the open lower files.
#[derive(Default)]
struct CountingOpenings {
    inner: MemFs,
    open: AtomicI64,
    most: AtomicI64,
}

impl CountingOpenings {
    fn count(&self) {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(open, Ordering::SeqCst);
    }
}

impl FileSystem for CountingOpenings {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.inner)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> fslab_vfs::Result<Opened> {
        let opened = self.inner.open(request, ino, mode)?;
        self.count();
        Ok(opened)
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> fslab_vfs::Result<(Entry, Opened)> {
        let created = self.inner.create(request, parent, name, mode, flags)?;
        self.count();
        Ok(created)
    }

    fn release(&self, request: &Request, ino: Ino, handle: Handle) -> fslab_vfs::Result<()> {
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.inner.release(request, ino, handle)
    }
}

/// A process may open only some hundred files at a time, but a bundle has thousands of members.
#[test]
fn bundling_keeps_few_files_open() {
    let below = Arc::new(CountingOpenings::default());
    let bench = Bench::over(Arc::clone(&below) as Arc<dyn FileSystem>);
    bundled(&bench, 100);
    let most = below.most.load(Ordering::SeqCst);
    // Eight threads read, each one file at a time.
    assert!((1..=8).contains(&most), "{most} files open at a time");
}

/// A read of an offline file fails at once, but its recall remains queued. No thread serves the
/// queue, so it would grow with each file that is read.
#[test]
fn queue_of_recalls_without_waiting_readers_is_bounded() {
    const FILES: u64 = OF_A_USER_MAX as u64 + 50;
    let patience = Some(Duration::ZERO);
    let settings = Settings { movers: 0, patience, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 1);
    let client = bench.client();
    for number in 0..FILES {
        client.file(Ino::ROOT, format!("file{number}"), b"x").unwrap();
    }
    do_all(&bench.tier, &mut |_| {});
    release_all(&bench);
    for number in 0..FILES {
        assert_eq!(read(&bench, number).unwrap_err().errno(), Errno::AGAIN);
    }
    assert_eq!(bench.tier.queue().list().len(), OF_A_USER_MAX);
    let is_in_use = |number| bench.tier.in_use(ino_of(&bench, number)).is_some();
    assert_eq!([0, 49, 50, FILES - 1].map(is_in_use), [false, false, true, true]);
    assert_eq!(read(&bench, 0).unwrap_err().errno(), Errno::AGAIN, "it is asked for again");
    assert_eq!([0, 50].map(is_in_use), [true, false]);
    bench.tier.shutdown().unwrap();
}

/// The memory for a bundle is limited, so long xattrs count as well as contents.
#[test]
fn attribute_bytes_count_towards_the_size_of_a_bundle() {
    let bench = Bench::new();
    let client = bench.client();
    for number in 0..200 {
        let ino = client.file(Ino::ROOT, format!("file{number}"), b"short").unwrap();
        client.setxattr(ino, "user.long", &[b'x'; 60 * KIB as usize]).unwrap();
    }
    do_all(&bench.tier, &mut |_| ());
    let containers: BTreeSet<_> =
        (0..200).map(|number| place_of(&bench, number).container).collect();
    assert_eq!(containers.len(), 2, "12 MB of attributes went together");
}

#[test]
fn file_that_grew_since_the_walk_is_not_bundled() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file0", b"short").unwrap();
    let found = Found::at(&bench.lower, b"file0").unwrap();
    let grown = noise(3, 3 << 20);
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, &grown).unwrap();
    file.close().unwrap();
    let request = own_request();
    let mut archiver = bench.tier.archiver(&request, None, None);
    let mut told = Vec::new();
    let mut tell = |_: &[u8], archived: fslab_tier::Result<Archived>| {
        told.push(archived?);
        Ok(())
    };
    archiver.archive(&WalkEntry { path: b"file0", found: &found }, &mut tell).unwrap();
    archiver.finish(&mut tell).unwrap();
    assert_eq!(told, [Archived::Now { bytes: 3 << 20 }]);
    assert_eq!(place_of(&bench, 0).offset, 0, "in a container of its own");
}
