//! New versions that refer to blocks in objects of earlier versions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use data_encoding::BASE64;
use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::{Archive, ContainerKind};
use fslab_tier::catalogue::{ObjectRow, ObjectState};
use fslab_tier::command::{Command, Event};
use fslab_tier::object::reader::ObjectReader;
use fslab_tier::{Id, Released, Settings, own_request};
use fslab_vfs::{Ino, MemFs, OpenMode};
use parking_lot::Mutex;

use crate::bundles::expire;
use crate::concurrency::{Meddled, rows};
use crate::encryption::sealed;
use crate::parts::{empty_tree, fresh_over, rebuild_in};
use crate::support::{Bench, MIB, TIER, copied, noise, open, told};

const FILES: ContainerKind = ContainerKind::Files;

/// Makes a tier that archives only changed blocks, and keeps no earlier versions.
fn bench(copies: u8) -> Bench {
    Bench::with(Arc::new(MemFs::default()), settings(copies), copies)
}

fn settings(copies: u8) -> Settings {
    let (keep, copies) = (Duration::ZERO, copies.into());
    Settings { deltas: true, keep, copies, ahead: 0, ..Settings::of(TIER) }
}

fn write(bench: &Bench, ino: Ino, offset: u64, bytes: &[u8]) {
    let client = bench.client();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(offset, bytes).unwrap();
    file.close().unwrap();
}

/// Changes bytes of a file and archives it.
fn change(bench: &Bench, ino: Ino, offset: u64, bytes: &[u8]) {
    write(bench, ino, offset, bytes);
    bench.archive(ino, "file").unwrap();
}

fn release(bench: &Bench, ino: Ino) -> Released {
    bench.release(ino, "file").unwrap()
}

/// Returns the containers of an archive with their lengths.
fn containers(archive: &MemoryArchive) -> Vec<(Id, u64)> {
    let mut found = Vec::new();
    archive.list(FILES, &mut |id, length| found.push((id, length))).unwrap();
    found
}

/// Returns the containers of the sources of a file's object.
fn sources(bench: &Bench, ino: Ino) -> Vec<Id> {
    let archive = Arc::clone(&bench.archives[0]) as Arc<dyn Archive>;
    let version = bench.residency(ino).unwrap().version;
    let object = ObjectReader::open(&archive, &version).unwrap();
    object.sources().iter().map(|source| Id(source.container)).collect()
}

fn container(bench: &Bench, ino: Ino) -> Id {
    bench.residency(ino).unwrap().version.location.container
}

#[track_caller]
fn expect(bench: &Bench, ino: Ino, expected: &[u8]) {
    assert!(bench.client().contents(ino).unwrap() == expected);
}

/// A file with four blocks, archived twice: the second version has a new third block.
fn changed_once(copies: u8) -> (Bench, Ino, Vec<u8>) {
    let bench = bench(copies);
    let mut bytes = noise(1, 4 * MIB);
    let ino = bench.client().file(Ino::ROOT, "file", &bytes).unwrap();
    bench.archive(ino, "file").unwrap();
    bytes[2 * MIB as usize..][..9].copy_from_slice(b"something");
    change(&bench, ino, 2 * MIB, b"something");
    (bench, ino, bytes)
}

fn scan(bench: &Bench) {
    bench.tier.scan(&own_request()).unwrap();
}

#[test]
fn append_to_an_offline_file_reads_and_writes_only_its_last_block() {
    let bench = bench(1);
    let mut bytes = noise(1, 20 * MIB + 100);
    let ino = bench.offline(&bench.client(), "file", &bytes);
    let before = bench.bytes_recalled();
    write(&bench, ino, bytes.len() as u64, b"appended");
    bytes.extend(b"appended");
    bench.archive(ino, "file").unwrap();
    assert!(release(&bench, ino).bytes > 0);
    let moved = bench.bytes_recalled() - before;
    assert!(moved < MIB / 2, "{moved} bytes were read");
    let lengths: Vec<u64> =
        containers(&bench.archives[0]).iter().map(|(_, bytes)| *bytes).collect();
    assert!(lengths.iter().min().unwrap() < &(8 << 10), "{lengths:?}");
    assert_eq!(bench.residency(ino).unwrap().offline.count(), 21);
    expect(&bench, ino, &bytes);
}

#[test]
fn only_changed_blocks_of_a_resident_file_are_archived() {
    let (bench, ino, bytes) = changed_once(1);
    let newest = container(&bench, ino);
    let (_, length) = *containers(&bench.archives[0]).iter().find(|(id, _)| *id == newest).unwrap();
    assert!((MIB..MIB + 4096).contains(&length), "{length}");
    assert_eq!(sources(&bench, ino).len(), 1);
    release(&bench, ino);
    expect(&bench, ino, &bytes);
}

#[test]
fn without_the_setting_every_version_is_complete() {
    let bench = Bench::new();
    let ino = bench.client().file(Ino::ROOT, "file", &noise(1, 4 * MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    change(&bench, ino, 0, b"something");
    assert!(sources(&bench, ino).is_empty());
}

/// The third version needs blocks of both earlier ones.
#[test]
fn versions_that_later_ones_need_are_not_deleted() {
    let (bench, ino, mut bytes) = changed_once(1);
    bytes[..3].copy_from_slice(b"new");
    change(&bench, ino, 0, b"new");
    assert_eq!(sources(&bench, ino).len(), 2);
    release(&bench, ino);
    for _ in 0..3 {
        scan(&bench);
        assert_eq!(expire(&bench).objects, 0);
    }
    let states: Vec<_> = rows(&bench).iter().map(|row| row.state).collect();
    assert_eq!(
        states.iter().filter(|state| **state == ObjectState::Source).count(),
        2,
        "{states:?}"
    );
    expect(&bench, ino, &bytes);
    // A version without references makes all others unneeded.
    let whole = noise(9, 4 * MIB);
    change(&bench, ino, 0, &whole);
    scan(&bench);
    expire(&bench);
    assert_eq!(expire(&bench).objects + rows(&bench).len() as u64, 1);
    assert_eq!(containers(&bench.archives[0]).len(), 1);
    release(&bench, ino);
    expect(&bench, ino, &whole);
}

/// Each version needs only blocks of the version before it. All others must be deleted.
#[test]
fn versions_that_only_deleted_versions_need_are_deleted() {
    let bench = bench(1);
    let ino = bench.client().file(Ino::ROOT, "file", &noise(1, 2 * MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    for number in 0..8 {
        change(&bench, ino, number % 2 * MIB, &noise(10 + number, MIB));
        assert_eq!(sources(&bench, ino).len(), 1);
    }
    scan(&bench);
    expire(&bench);
    expire(&bench);
    assert_eq!(containers(&bench.archives[0]).len(), 2);
    release(&bench, ino);
    expect(&bench, ino, &[noise(16, MIB), noise(17, MIB)].concat());
}

/// A file of 100 blocks that are rewritten one by one must not refer to many mostly unneeded
/// objects.
#[test]
fn archives_keep_few_unneeded_bytes() {
    let bench = bench(1);
    let ino = bench.client().file(Ino::ROOT, "file", &noise(1, 12 * MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    for number in 0..12 {
        change(&bench, ino, number * MIB, &noise(10 + number, MIB));
        scan(&bench);
        expire(&bench);
        expire(&bench);
        let held: u64 = containers(&bench.archives[0]).iter().map(|(_, bytes)| bytes).sum();
        // In the end, too few blocks of the first version are needed.
        let limit = if number < 10 { 23 * MIB } else { 14 * MIB };
        assert!(held < limit, "{held} bytes after change {number}");
    }
    let expected: Vec<u8> = (0..12).flat_map(|number| noise(10 + number, MIB)).collect();
    release(&bench, ino);
    expect(&bench, ino, &expected);
}

#[test]
fn needed_versions_survive_the_loss_of_the_catalogue() {
    let (mut bench, ino, bytes) = changed_once(1);
    release(&bench, ino);
    bench.restart();
    for _ in 0..3 {
        scan(&bench);
        assert_eq!(expire(&bench).objects, 0);
    }
    assert_eq!(containers(&bench.archives[0]).len(), 2);
    let ino = bench.client().lookup(Ino::ROOT, "file").unwrap().ino;
    expect(&bench, ino, &bytes);
}

/// The catalogue is lost, and the head of an object whose sources are unknown is damaged for a
/// while.
#[test]
fn nothing_that_an_unreadable_object_may_need_is_deleted() {
    let (mut bench, ino, bytes) = changed_once(1);
    release(&bench, ino);
    let newest = container(&bench, ino);
    let archive = Arc::clone(&bench.archives[0]);
    bench.restart();
    scan(&bench);
    archive.flip((FILES, newest), 10, 1);
    assert_eq!((expire(&bench).objects, expire(&bench).objects), (0, 0));
    archive.flip((FILES, newest), 10, 1);
    assert_eq!(expire(&bench).objects, 0);
    let ino = bench.client().lookup(Ino::ROOT, "file").unwrap().ino;
    expect(&bench, ino, &bytes);
}

#[test]
fn tree_is_rebuilt_from_objects_with_sources() {
    let (bench, ino, bytes) = changed_once(2);
    release(&bench, ino);
    let lower = empty_tree();
    let rebuilt = rebuild_in(&bench, &lower);
    assert_eq!((rebuilt.added, rebuilt.problems.len()), (1, 0), "{rebuilt:?}");
    let again = fresh_over(&bench, lower);
    let ino = again.client().lookup(Ino::ROOT, "file").unwrap().ino;
    for _ in 0..2 {
        scan(&again);
        expire(&again);
    }
    expect(&again, ino, &bytes);
}

/// One archive lost the source. A rebuild must use the other one, or an earlier version.
#[test]
fn rebuild_ignores_copies_without_their_sources() {
    let (bench, ino, bytes) = changed_once(2);
    let source = sources(&bench, ino)[0];
    bench.archives[0].delete((FILES, source)).unwrap();
    let lower = empty_tree();
    rebuild_in(&bench, &lower);
    let again = fresh_over(&bench, lower);
    let ino = again.client().lookup(Ino::ROOT, "file").unwrap().ino;
    assert_eq!(again.residency(ino).unwrap().version.copies, [bench.archives[1].id()]);
    expect(&again, ino, &bytes);
}

/// The loss is reported, and the blocks that the version itself contains can be read.
#[test]
fn rebuild_reports_a_newest_version_without_its_sources() {
    let (bench, ino, bytes) = changed_once(1);
    bench.archives[0].delete((FILES, sources(&bench, ino)[0])).unwrap();
    let lower = empty_tree();
    let rebuilt = rebuild_in(&bench, &lower);
    assert_eq!((rebuilt.added, rebuilt.problems.len()), (1, 1), "{rebuilt:?}");
    let again = fresh_over(&bench, lower);
    let client = again.client();
    let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
    let file = client.open(ino, OpenMode::empty()).unwrap();
    assert!(file.read(2 * MIB, MIB as usize).unwrap() == bytes[2 * MIB as usize..3 * MIB as usize]);
    file.read(0, 1).unwrap_err();
    file.close().unwrap();
}

#[test]
fn released_only_if_each_archive_has_the_sources() {
    let (bench, ino, _) = changed_once(2);
    let source = sources(&bench, ino)[0];
    bench.archives[1].delete((FILES, source)).unwrap();
    bench.release(ino, "file").unwrap_err();
    assert!(bench.offline_blocks(ino).is_empty());
    bench.tier.scrub(&own_request()).unwrap();
    assert!(release(&bench, ino).bytes > 0);
}

#[test]
fn scrub_repairs_sources_in_either_archive() {
    for (lost, bit) in [(0, None), (1, None), (0, Some(MIB / 2)), (1, Some(3 * MIB))] {
        let (bench, ino, bytes) = changed_once(2);
        release(&bench, ino);
        let source = sources(&bench, ino)[0];
        let archive = &bench.archives[lost];
        match bit {
            Some(at) => archive.flip((FILES, source), at, 1),
            None => drop(archive.delete((FILES, source)).unwrap()),
        }
        let scrubbed = bench.tier.scrub(&own_request()).unwrap();
        assert!(scrubbed.repaired > 0 && scrubbed.damaged.is_empty(), "{scrubbed:?}");
        // The other archive alone is not needed any more.
        bench.archives[1 - lost].faults().reads_fail.store(true, Ordering::SeqCst);
        expect(&bench, ino, &bytes);
    }
}

/// The only copy of a source is damaged, but the file is still resident. Its next version must not
/// refer to the damaged source.
#[test]
fn damaged_sources_are_not_used_again() {
    let (bench, ino, bytes) = changed_once(1);
    let source = sources(&bench, ino)[0];
    bench.archives[0].flip((FILES, source), 100_000, 1);
    let scrubbed = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!(scrubbed.anew, 1, "{scrubbed:?}");
    bench.archive(ino, "file").unwrap();
    assert!(sources(&bench, ino).is_empty());
    release(&bench, ino);
    expect(&bench, ino, &bytes);
}

#[test]
fn version_with_sources_is_undeleted() {
    let (bench, ino, bytes) = changed_once(1);
    let object = bench.residency(ino).unwrap().version.object;
    bench.client().unlink(Ino::ROOT, "file").unwrap();
    told(&bench, &Command::Undelete { object, path: b"again".to_vec() });
    for _ in 0..3 {
        scan(&bench);
        expire(&bench);
    }
    let again = bench.client().lookup(Ino::ROOT, "again").unwrap().ino;
    expect(&bench, again, &bytes);
}

#[test]
fn content_of_each_kept_version_is_reported() {
    let (bench, ino, bytes) = changed_once(2);
    let newest = bench.residency(ino).unwrap().version.object;
    let read = |object: Id| {
        let mut content = Vec::new();
        for event in told(&bench, &Command::Cat { object }) {
            let Event::Content { offset, bytes, data } = event else { continue };
            assert_eq!(offset, content.len() as u64);
            let data = data.map(|data| BASE64.decode(data.as_bytes()).unwrap());
            content.extend(data.unwrap_or_else(|| vec![0; bytes as usize]));
        }
        content
    };
    let first = rows(&bench).into_iter().find(|row| row.version.object != newest).unwrap();
    assert!(read(first.version.object) == noise(1, 4 * MIB));
    // Each archive lacks another container.
    let [source, own] = [sources(&bench, ino)[0], container(&bench, ino)];
    bench.archives[0].delete((FILES, source)).unwrap();
    bench.archives[1].delete((FILES, own)).unwrap();
    assert!(read(newest) == bytes);
}

/// Sources must be in every archive that receives the new version.
#[test]
fn new_archive_gets_a_complete_version() {
    let (bench, ino, mut bytes) = changed_once(1);
    let other = Arc::new(MemoryArchive::new(Id([9; 16]), "other"));
    bench.archives[0].faults().full.store(true, Ordering::SeqCst);
    bench.tier.attach(Arc::clone(&other) as Arc<dyn Archive>);
    bytes[..3].copy_from_slice(b"new");
    change(&bench, ino, 0, b"new");
    assert_eq!(containers(&other).len(), 1);
    release(&bench, ino);
    bench.archives[0].faults().reads_fail.store(true, Ordering::SeqCst);
    expect(&bench, ino, &bytes);
}

/// A file that was shortened within a block, and one that grew by a hole.
#[test]
fn resized_files_have_their_bytes() {
    for size in [MIB + 10, 2 * MIB, 2 * MIB + 1, 6 * MIB, 7 * MIB + 5] {
        let (bench, ino, mut bytes) = changed_once(1);
        release(&bench, ino);
        bench.client().truncate(ino, size).unwrap();
        bytes.resize(size as usize, 0);
        bench.archive(ino, "file").unwrap();
        release(&bench, ino);
        assert!(!sources(&bench, ino).is_empty(), "{size}");
        expect(&bench, ino, &bytes);
    }
}

/// A pending version protects its sources before it is written.
#[test]
fn row_with_sources_is_written_only_if_they_have_rows() {
    let (bench, ino, _) = changed_once(1);
    let archive = Arc::clone(&bench.archives[0]) as Arc<dyn Archive>;
    let version = bench.residency(ino).unwrap().version;
    let records = ObjectReader::open(&archive, &version).unwrap().sources().to_vec();
    let all = rows(&bench);
    let source = all.iter().find(|row| row.version.object.0 == records[0].object).unwrap();
    let catalogue = bench.tier.catalogue();
    let new = |id: u8| {
        let mut row = ObjectRow { state: ObjectState::Pending, ..source.clone() };
        row.version.object = Id([id; 16]);
        row.version.location.container = Id([id; 16]);
        row.sources = Some(vec![source.version.location.container]);
        row
    };
    assert!(catalogue.put_with_sources(&new(1), &records).unwrap());
    let (removed, unused) = catalogue.remove(std::slice::from_ref(source)).unwrap();
    assert!(removed.is_empty() && unused.is_empty(), "another row needs it");
    let newest = all.iter().find(|row| row.version.object == version.object).unwrap();
    let gone = [newest.clone(), source.clone(), new(1)];
    assert_eq!(catalogue.remove(&gone).unwrap().0.len(), 3);
    assert!(!catalogue.put_with_sources(&new(2), &records).unwrap());
    let pending = ObjectRow { state: ObjectState::Pending, ..source.clone() };
    catalogue.put(&[pending]).unwrap();
    assert!(!catalogue.put_with_sources(&new(2), &records).unwrap());
}

/// The engine is killed after the file's xattr refers to the new version, and before the catalogue
/// records it.
#[test]
fn version_that_a_kill_left_pending_keeps_its_sources() {
    let lower = Arc::new(Meddled::default());
    let first = Bench::with(lower.clone(), settings(1), 1);
    let mut bytes = noise(1, 4 * MIB);
    let ino = first.client().file(Ino::ROOT, "file", &bytes).unwrap();
    first.archive(ino, "file").unwrap();
    write(&first, ino, 2 * MIB, b"something");
    bytes[2 * MIB as usize..][..9].copy_from_slice(b"something");
    let (tier, kept) = (Arc::clone(&first.tier), Arc::new(Mutex::new(None)));
    let keep = Arc::clone(&kept);
    lower.at(ino, move || *keep.lock() = Some(copied(tier.catalogue())));
    first.archive(ino, "file").unwrap();
    release(&first, ino);
    first.tier.shutdown().unwrap();
    let catalogue = kept.lock().take().unwrap();
    assert_eq!(catalogue.pending().unwrap().len(), 1);
    let mut bench = first;
    (bench.tier, bench.fs) =
        open(&bench.lower, &settings(1), &bench.archives, catalogue, &bench.around);
    for _ in 0..3 {
        scan(&bench);
        assert_eq!(expire(&bench).objects, 0);
    }
    let ino = bench.client().lookup(Ino::ROOT, "file").unwrap().ino;
    expect(&bench, ino, &bytes);
}

#[test]
fn drained_archive_is_detached_only_if_the_other_has_the_sources() {
    let bench = Bench::with(Arc::new(MemFs::default()), settings(1), 2);
    let mut bytes = noise(1, 4 * MIB);
    let ino = bench.client().file(Ino::ROOT, "file", &bytes).unwrap();
    bench.archive(ino, "file").unwrap();
    change(&bench, ino, MIB, b"something");
    bytes[MIB as usize..][..9].copy_from_slice(b"something");
    release(&bench, ino);
    let drain = |bench: &Bench| {
        let id = bench.archives[0].id();
        bench.tier.drain(id, &own_request(), None, &mut |_| Ok(())).unwrap()
    };
    let drained = drain(&bench);
    assert!(drained.damaged.is_empty() && drained.made > 0, "{drained:?}");
    // The drained archive is not needed any more.
    bench.archives[0].faults().reads_fail.store(true, Ordering::SeqCst);
    expect(&bench, ino, &bytes);
    bench.archives[0].faults().reads_fail.store(false, Ordering::SeqCst);
    let source = sources(&bench, ino)[0];
    assert!(containers(&bench.archives[1]).iter().any(|(id, _)| *id == source));
}

/// Encrypted archives read other containers with other keys.
#[test]
fn sources_in_encrypted_archives_are_read() {
    let plain = Bench::with(Arc::new(MemFs::default()), settings(1), 1);
    let mut bench = Bench::with(Arc::new(MemFs::default()), settings(1), 0);
    for archive in sealed(&plain, &plain.archives) {
        bench.tier.attach(archive);
    }
    bench.archives.clone_from(&plain.archives);
    let mut bytes = noise(1, 4 * MIB);
    let ino = bench.client().file(Ino::ROOT, "file", &bytes).unwrap();
    bench.archive(ino, "file").unwrap();
    change(&bench, ino, 3 * MIB, b"something");
    bytes[3 * MIB as usize..][..9].copy_from_slice(b"something");
    release(&bench, ino);
    let lengths: Vec<u64> =
        containers(&plain.archives[0]).iter().map(|(_, bytes)| *bytes).collect();
    assert!(lengths.iter().sum::<u64>() < 6 * MIB, "{lengths:?}");
    expect(&bench, ino, &bytes);
}

/// An archive lost the first version, so a new version can't refer to it there.
#[test]
fn version_is_complete_if_an_archive_lost_a_source() {
    let (bench, ino, mut bytes) = changed_once(2);
    let source = sources(&bench, ino)[0];
    bench.archives[1].delete((FILES, source)).unwrap();
    bytes[..3].copy_from_slice(b"new");
    change(&bench, ino, 0, b"new");
    assert!(sources(&bench, ino).is_empty());
    release(&bench, ino);
    bench.archives[0].faults().reads_fail.store(true, Ordering::SeqCst);
    expect(&bench, ino, &bytes);
}

/// A recall finds that a block is damaged. After a program wrote the same bytes again, the next
/// version must contain them.
#[test]
fn block_that_a_recall_found_damaged_is_archived_again() {
    let (bench, ino, bytes) = changed_once(1);
    let source = sources(&bench, ino)[0];
    release(&bench, ino);
    bench.archives[0].flip((FILES, source), 100_000, 1);
    bench.client().contents(ino).unwrap_err();
    write(&bench, ino, 0, &bytes);
    bench.archive(ino, "file").unwrap();
    assert!(sources(&bench, ino).is_empty());
    release(&bench, ino);
    expect(&bench, ino, &bytes);
}

/// Earlier versions were needed only as sources when the catalogue was lost. They are not reported
/// as damaged, and the archive can be drained.
#[test]
fn versions_that_were_only_sources_are_found_as_such() {
    let mut bench = bench(1);
    let ino = bench.client().file(Ino::ROOT, "file", &noise(1, 2 * MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    for number in 0..4 {
        change(&bench, ino, number % 2 * MIB, &noise(10 + number, MIB));
    }
    let bytes = [noise(12, MIB), noise(13, MIB)].concat();
    scan(&bench);
    expire(&bench);
    expire(&bench);
    assert_eq!(containers(&bench.archives[0]).len(), 2);
    release(&bench, ino);
    let lower = empty_tree();
    let rebuilt = rebuild_in(&bench, &lower);
    assert_eq!((rebuilt.added, rebuilt.problems.len()), (1, 0), "{rebuilt:?}");
    bench.restart();
    scan(&bench);
    let scrubbed = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.short, &scrubbed.damaged[..]), (0, &[][..]), "{scrubbed:?}");
    let states: Vec<_> = rows(&bench).iter().map(|row| row.state).collect();
    assert!(states.contains(&ObjectState::Source), "{states:?}");
    expect(&bench, bench.client().lookup(Ino::ROOT, "file").unwrap().ino, &bytes);
}
