//! Tests that failing archives cause no loss of data and no wrong reads.

use fslab_vfs_testing::scratch;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fslab_tier::archive::{Archive, ContainerKind, DirectoryArchive};
use fslab_tier::{Id, Settings, own_request};
use fslab_vfs::{Errno, Ino, MemFs, OpenMode};
use fslab_vfs_testing::skip::skip;

use crate::bundles::bundled;
use crate::support::{Bench, Hands, MIB, TIER, noise};

#[test]
fn flipped_and_missing_bytes_are_never_shown() {
    let bench = Bench::new();
    let client = bench.client();
    let data = noise(20, 3 * MIB);
    let ino = bench.offline(&client, "file", &data);
    let faults = bench.archives[0].faults();
    for fault in [&faults.flips, &faults.short, &faults.reads_fail] {
        fault.store(true, Ordering::SeqCst);
        let file = client.open(ino, OpenMode::empty()).unwrap();
        assert_eq!(file.read(MIB, 10).unwrap_err().errno(), Errno::IO);
        file.close().unwrap();
        fault.store(false, Ordering::SeqCst);
    }
    assert_eq!(client.contents(ino).unwrap(), data);
}

#[test]
fn archiving_to_a_full_archive_keeps_the_file_and_leaves_no_object() {
    let bench = Bench::new();
    let client = bench.client();
    let data = noise(21, 3 * MIB);
    let ino = client.file(Ino::ROOT, "file", &data).unwrap();
    bench.archives[0].faults().full.store(true, Ordering::SeqCst);
    let error = bench.archive(ino, "file").unwrap_err().to_string();
    assert!(error.starts_with("archive a0, object "), "{error}");
    assert_eq!(bench.archives[0].containers(), 0);
    assert!(bench.release(ino, "file").is_err());
    assert_eq!(client.contents(ino).unwrap(), data);
    let mut rows = 0;
    let count = &mut |_| {
        rows += 1;
        Ok(())
    };
    bench.tier.catalogue().for_each(count).unwrap();
    assert_eq!(rows, 0);
}

/// If an archive is full or damages copies, copies are written to the next archive, and to the
/// failed one again after its back-off.
#[test]
fn copies_fail_over_from_a_full_or_damaging_archive() {
    let clock = Arc::new(Hands::default());
    let lower = Arc::new(MemFs::default());
    let bench = Bench::by_clock(lower, Settings::of(TIER), 2, Arc::clone(&clock) as Arc<_>);
    let client = bench.client();
    let containers = || [0, 1].map(|number| bench.archives[number].containers());
    let archive = |name: &str| {
        let ino = client.file(Ino::ROOT, name, &noise(21, 3 * MIB)).unwrap();
        bench.archive(ino, name).map(|_| ino)
    };
    let [first, second] = [0, 1].map(|number| bench.archives[number].faults());
    first.full.store(true, Ordering::SeqCst);
    let ino = archive("whole").unwrap();
    bench.release(ino, "whole").unwrap();
    assert_eq!(client.contents(ino).unwrap(), noise(21, 3 * MIB));
    assert_eq!(containers(), [0, 1]);
    first.full.store(false, Ordering::SeqCst);
    archive("while it rests").unwrap();
    assert_eq!(containers(), [0, 2]);
    clock.turn(Duration::from_secs(601));
    archive("rested").unwrap();
    assert_eq!(containers(), [1, 2]);
    // From now on, bytes that are read back from the first archive differ from the written ones.
    first.flips.store(true, Ordering::SeqCst);
    archive("flipped").unwrap();
    assert_eq!(containers(), [1, 3]);
    clock.turn(Duration::from_secs(601));
    first.flips.store(false, Ordering::SeqCst);
    [&first, &second].iter().for_each(|faults| faults.full.store(true, Ordering::SeqCst));
    let error = archive("nowhere").unwrap_err().to_string();
    assert!(
        error.starts_with("archive a1, object "),
        "the error is that of the last archive tried: {error}"
    );
    assert_eq!(containers(), [1, 3]);
}

#[test]
fn bundles_and_trees_skip_a_full_archive() {
    let settings = Settings { bundled: 64 << 10, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 2);
    bench.archives[0].faults().full.store(true, Ordering::SeqCst);
    bundled(&bench, 5);
    assert_eq!((bench.archives[0].containers(), bench.archives[1].containers()), (0, 1));
    bench.tier.archive_tree(&own_request()).unwrap();
    assert_eq!((bench.archives[0].containers(), bench.archives[1].containers()), (0, 2));
}

/// Verification drops cached pages first. Otherwise it would not detect data that the disk has lost
/// but a cache still has, for example the cache of an NFS client.
#[test]
fn copies_are_read_back_from_the_disk() {
    // The build directory is on a disk, so its pages can be dropped from memory.
    let scratch = tempfile::TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let root = scratch.path().join("archive");
    DirectoryArchive::init(&root, Id([1; 16]), TIER, None).unwrap();
    let archive = DirectoryArchive::open(&root, TIER).unwrap();
    let (kind, container) = (ContainerKind::Files, Id([7; 16]));
    let mut upload = archive.begin((kind, container)).unwrap();
    upload.write(&noise(1, MIB)).unwrap();
    upload.finish().unwrap();
    let path = root.join("files/07").join(container.to_string());
    let cached = || fslab_sys::page_cache::cachestat(File::open(&path).unwrap(), 0);
    match cached() {
        Ok(before) if before.cached >= 256 => {}
        found => return skip(module_path!(), &format!("nothing is in the cache: {found:?}")),
    }
    archive.forget((kind, container));
    assert_eq!(cached().unwrap().cached, 0);
}

#[test]
fn scrub_repairs_a_damaged_copy_from_an_intact_one() {
    let settings = Settings { copies: 2, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 2);
    let client = bench.client();
    let data = noise(22, 2 * MIB);
    let ino = bench.offline(&client, "file", &data);
    bench.archives[0].damage(100_000 + MIB as usize);
    let scrubbed = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.copies, scrubbed.repaired, scrubbed.damaged.len()), (2, 1, 0));
    let again = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!((again.copies, again.repaired), (2, 0));
    bench.archives[1].faults().reads_fail.store(true, Ordering::SeqCst);
    assert_eq!(client.contents(ino).unwrap(), data);
}

#[test]
fn block_damaged_in_both_copies_is_reported_and_unreadable() {
    let settings = Settings { copies: 2, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 2);
    let client = bench.client();
    let ino = bench.offline(&client, "file", &noise(23, 2 * MIB));
    bench.archives.iter().for_each(|archive| archive.damage(100_000 + MIB as usize));
    let scrubbed = bench.tier.scrub(&own_request()).unwrap();
    assert_eq!((scrubbed.repaired, scrubbed.damaged.len()), (0, 2));
    let file = client.open(ino, OpenMode::empty()).unwrap();
    assert_eq!(file.read(MIB - 1, 2).map(drop).unwrap_err().errno(), Errno::IO);
    assert_eq!(file.read(MIB + 1, 9).unwrap(), noise(23, 2 * MIB)[MIB as usize + 1..][..9]);
    file.close().unwrap();
}

#[test]
fn file_is_not_released_while_a_copy_is_damaged() {
    let settings = Settings { copies: 2, ..Settings::of(TIER) };
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 2);
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "file", &noise(24, MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    bench.archives[1].damage(20);
    let error = bench.release(ino, "file").unwrap_err().to_string();
    assert!(error.starts_with("archive a1"), "{error}");
    assert_eq!(bench.offline_blocks(ino), [0_u64; 0]);
}

#[test]
fn old_versions_expire_after_their_retention_time() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = bench.offline(&client, "file", &noise(25, MIB));
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"new").unwrap();
    file.close().unwrap();
    bench.archive(ino, "file").unwrap();
    let archive = &bench.archives[0];
    assert_eq!(
        (archive.containers(), bench.tier.expire(&fslab_tier::own_request()).unwrap().containers),
        (2, 0)
    );
    client.unlink(Ino::ROOT, "file").unwrap();
    assert_eq!(bench.tier.expire(&fslab_tier::own_request()).unwrap().containers, 0);
    bench.dates.0.store(31 * 24 * 3600, Ordering::SeqCst);
    assert_eq!(bench.tier.expire(&fslab_tier::own_request()).unwrap().containers, 2);
    assert_eq!(archive.containers(), 0);
}

#[test]
fn object_that_a_file_refers_to_never_expires() {
    let bench = Bench::new();
    let client = bench.client();
    let data = noise(26, MIB);
    let ino = bench.offline(&client, "file", &data);
    let mut rows = Vec::new();
    let mut keep = |row: fslab_tier::catalogue::ObjectRow| {
        rows.push(fslab_tier::catalogue::ObjectRow {
            state: fslab_tier::catalogue::ObjectState::Removed,
            ..row
        });
        Ok(())
    };
    bench.tier.catalogue().for_each(&mut keep).unwrap();
    bench.tier.catalogue().put(&rows).unwrap();
    bench.dates.0.store(31 * 24 * 3600, Ordering::SeqCst);
    assert_eq!(bench.tier.expire(&fslab_tier::own_request()).unwrap().containers, 0);
    assert_eq!(client.contents(ino).unwrap(), data);
}
