//! Archives whose containers are in cold storage, and must be staged before they can be read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fslab_tier::archive::ContainerKind;
use fslab_tier::command::{Command, Event};
use fslab_tier::{Id, Settings, own_request};
use fslab_vfs::{Errno, FileSystem, Ino, MemFs, OpenMode};

use crate::support::{Bench, Hands, MIB, TIER, noise, problems, told, until};

/// The reason that [`fslab_tier::archive::testing::MemoryArchive`] gives.
const REASON: &str = "the archive is restoring it, expected until 2030-03-17T17:46:40Z";

/// A tier with an offline `file`, all of whose copies are in cold storage.
struct Cold {
    bench: Bench,
    hands: Arc<Hands>,
    ino: Ino,
}

impl Cold {
    fn new(copies: usize) -> Self {
        Self::with(settings(copies), copies as u8)
    }

    fn with(settings: Settings, archives: u8) -> Self {
        let hands = Arc::new(Hands::default());
        let lower = Arc::new(MemFs::default());
        let bench = Bench::by_clock(lower, settings, archives, hands.clone());
        let ino = bench.offline(&bench.client(), "file", &noise(1, MIB));
        let cold = Self { bench, hands, ino };
        (0..archives.into()).for_each(|archive| cold.set(archive, true));
        cold
    }

    fn set(&self, archive: usize, is_cold: bool) {
        self.bench.archives[archive].faults().is_cold.store(is_cold, Ordering::SeqCst);
    }

    /// Returns the containers that an archive was asked to stage.
    fn staged(&self, archive: usize) -> Vec<Id> {
        let faults = self.bench.archives[archive].faults();
        let staged = faults.staged.lock();
        assert!(staged.iter().all(|(kind, _)| *kind == ContainerKind::Files));
        staged.iter().map(|(_, container)| *container).collect()
    }

    fn container(&self) -> Id {
        self.bench.residency(self.ino).unwrap().version.location.container
    }

    /// Returns what the queue reports about waiting recalls.
    fn queue(&self) -> Vec<(u64, bool, Option<String>, Option<i64>)> {
        let told = told(&self.bench, &Command::Queue).into_iter();
        told.map(|event| match event {
            Event::Waiting { waiters, away, later, expected, .. } => {
                (waiters, away, later, expected)
            }
            event => panic!("{event:?}"),
        })
        .collect()
    }

    /// Reads the file while `during` runs.
    fn read(&self, during: impl FnOnce()) -> Result<Vec<u8>, Errno> {
        let fs = &self.bench.fs;
        let opened = fs.open(&own_request(), self.ino, OpenMode::empty()).unwrap();
        let read = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut buffer = vec![0; MIB as usize];
                fs.read(&own_request(), self.ino, opened.handle, 0, &mut buffer)?;
                Ok::<_, fslab_vfs::Error>(buffer)
            });
            let _thawed = Thawed(self);
            during();
            reader.join().unwrap()
        });
        fs.release(&own_request(), self.ino, opened.handle).unwrap();
        read.map_err(|error| error.errno())
    }
}

/// Ends the wait of a reader if a test fails. Otherwise the test would wait for the reader forever.
struct Thawed<'a>(&'a Cold);

impl Drop for Thawed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (0..self.0.bench.archives.len()).for_each(|archive| self.0.set(archive, false));
            self.0.hands.turn(Duration::from_secs(60));
        }
    }
}

/// The tests turn the clock during calls, so calls have no time limit.
fn settings(copies: usize) -> Settings {
    Settings { copies, ahead: 0, call_limit: Duration::MAX, ..Settings::of(TIER) }
}

#[test]
fn reader_waits_until_its_container_is_staged() {
    let cold = Cold::new(1);
    let read = cold.read(|| {
        let expected = (1, true, Some(REASON.to_owned()), Some(1_900_000_000));
        until(|| cold.queue() == [expected.clone()]);
        // Restores take hours. A recall asks again at intervals, always for the same container.
        let staged = cold.staged(0).len();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(cold.staged(0).len(), staged, "the clock stands still");
        for asked in 2..6 {
            cold.hands.turn(Duration::from_secs(60));
            until(|| cold.staged(0).len() >= asked);
        }
        cold.set(0, false);
        cold.hands.turn(Duration::from_secs(60));
    });
    assert!(read == Ok(noise(1, MIB)), "{:?}", read.err());
    assert!(cold.staged(0).iter().all(|container| *container == cold.container()));
    assert_eq!(cold.bench.counted("tier_failed_recalls"), 0);
    assert!(cold.queue().is_empty());
}

#[test]
fn readable_copy_is_preferred_to_staging() {
    let cold = Cold::new(2);
    cold.set(1, false);
    let read = cold.read(|| {});
    assert!(read == Ok(noise(1, MIB)), "{:?}", read.err());
    assert!(cold.staged(0).is_empty() && cold.staged(1).is_empty());
}

#[test]
fn only_one_of_several_cold_copies_is_staged() {
    let cold = Cold::new(2);
    let read = cold.read(|| {
        until(|| !cold.staged(0).is_empty());
        cold.set(0, false);
        cold.hands.turn(Duration::from_secs(60));
    });
    assert!(read == Ok(noise(1, MIB)), "{:?}", read.err());
    assert!(cold.staged(1).is_empty());
}

/// No program should wait for an archive that will never stage a container.
#[test]
fn refused_staging_fails_the_read_without_marking_damage() {
    let cold = Cold::new(1);
    cold.bench.archives[0].faults().stages_nothing.store(true, Ordering::SeqCst);
    assert_eq!(cold.read(|| {}), Err(Errno::IO));
    let object = cold.bench.residency(cold.ino).unwrap().version.object;
    assert!(!cold.bench.tier.catalogue().is_damaged(object).unwrap());
    cold.set(0, false);
    assert!(cold.read(|| {}) == Ok(noise(1, MIB)));
}

/// Otherwise each run of a policy could pay for a restore.
#[test]
fn archiving_a_changed_file_stages_nothing() {
    let cold = Cold::new(1);
    cold.set(0, false);
    let other = cold.bench.offline(&cold.bench.client(), "other", &noise(2, 2 * MIB));
    let client = cold.bench.client();
    client.open(other, OpenMode::WRITE_ONLY).unwrap().write_all(0, &noise(3, MIB)).unwrap();
    cold.set(0, true);
    let error = cold.bench.archive(other, "other").unwrap_err().to_string();
    assert_eq!(error, "other: blocks of it are in cold storage; recall the file first");
    assert!(cold.staged(0).is_empty());
    assert!(cold.bench.is_changed(other));
}

/// The sums of a readable copy show whether the file still has the archived bytes.
#[test]
fn file_is_released_if_one_of_its_copies_can_be_read() {
    let cold = Cold::new(2);
    (0..2).for_each(|archive| cold.set(archive, false));
    let ino = cold.bench.client().file(Ino::ROOT, "other", &noise(2, MIB)).unwrap();
    cold.bench.archive(ino, "other").unwrap();
    (0..2).for_each(|archive| cold.set(archive, true));
    let error = cold.bench.release(ino, "other").unwrap_err().to_string();
    assert!(error.contains("cold storage"), "{error}");
    assert!(cold.bench.offline_blocks(ino).is_empty());
    cold.set(1, false);
    assert!(cold.bench.release(ino, "other").unwrap().bytes > 0);
    assert_eq!(cold.bench.offline_blocks(ino), [0]);
}

/// After the loss of the catalogue, a scan finds cold copies by the compact residencies of files.
#[test]
fn scan_keeps_the_cold_copies_of_files() {
    let mut cold = Cold::new(2);
    cold.set(1, false);
    cold.bench.restart();
    let scanned = cold.bench.tier.scan(&own_request()).unwrap();
    assert!(scanned.damaged.is_empty(), "{scanned:?}");
    let object = cold.bench.residency(cold.ino).unwrap().version.object;
    let row = cold.bench.tier.catalogue().get(object).unwrap().unwrap();
    assert_eq!(row.version.copies.len(), 2);
    assert!(cold.staged(0).is_empty());
}

/// Objects that no file needs may be in cold storage. The scan reports them and continues.
#[test]
fn scan_reports_unknown_cold_objects_once() {
    let mut cold = Cold::new(1);
    cold.set(0, false);
    for number in 0..3 {
        let name = format!("removed{number}");
        let client = cold.bench.client();
        cold.bench.offline(&client, &name, &noise(number, 2 * MIB));
        client.unlink(Ino::ROOT, &name).unwrap();
    }
    cold.set(0, true);
    cold.bench.restart();
    let scanned = cold.bench.tier.scan(&own_request()).unwrap();
    let [damaged] = &scanned.damaged[..] else { panic!("{scanned:?}") };
    assert!(damaged.starts_with("file: its object is not in the catalogue"), "{damaged}");
    let [missing] = &scanned.missing[..] else { panic!("{scanned:?}") };
    assert!(missing.contains("objects in cold storage"), "{missing}");
}

/// A command for many files does not wait for one of them. It reports when to try again.
#[test]
fn recalling_by_command_stages_each_file_and_reports_it() {
    let cold = Cold::new(1);
    cold.set(0, false);
    cold.bench.offline(&cold.bench.client(), "other", &noise(2, MIB));
    cold.set(0, true);
    let recall = Command::Recall { paths: vec![Vec::new()], range: None, rate: 0 };
    let mut told = told_of(&cold.bench, &recall);
    told.sort();
    let expected = |name: &str| format!("{name}: {REASON}; recall the file again later");
    assert_eq!(told, [expected("file"), expected("other")]);
    let mut staged = cold.staged(0);
    staged.sort();
    staged.dedup();
    assert_eq!(staged.len(), 2);
    cold.set(0, false);
    assert_eq!(told_of(&cold.bench, &recall), Vec::<String>::new());
    assert!(cold.bench.offline_blocks(cold.ino).is_empty());
}

/// The command should not fail because a restore ended between the read and the question.
#[test]
fn container_that_just_became_readable_is_read_at_once() {
    let cold = Cold::new(1);
    cold.bench.archives[0].faults().stages_at_once.store(true, Ordering::SeqCst);
    let recall = Command::Recall { paths: vec![Vec::new()], range: None, rate: 0 };
    assert_eq!(told_of(&cold.bench, &recall), Vec::<String>::new());
    assert!(cold.bench.offline_blocks(cold.ino).is_empty());
}

/// Returns the problems that a command reports.
fn told_of(bench: &Bench, command: &Command) -> Vec<String> {
    problems(told(bench, command))
}

/// A scrub does not pay for restores. It neither reports cold copies as damaged nor replaces them.
#[test]
fn scrub_counts_cold_copies_without_reading_them() {
    let cold = Cold::with(settings(2), 3);
    let copies = cold.bench.residency(cold.ino).unwrap().version.copies;
    assert_eq!(copies.len(), 2);
    for archive in 0..3 {
        let is_cold = cold.bench.archives[archive].faults();
        is_cold.is_cold.store(archive == 0, Ordering::SeqCst);
    }
    for are_all_cold in [false, true] {
        (1..3).for_each(|archive| cold.set(archive, are_all_cold));
        let scrubbed = cold.bench.tier.scrub(&own_request()).unwrap();
        let verified = if are_all_cold { 0 } else { 1 };
        assert_eq!((scrubbed.copies, scrubbed.cold), (verified, 2 - verified));
        assert_eq!((scrubbed.made, scrubbed.short, scrubbed.anew), (0, 0, 0));
        assert!(scrubbed.damaged.is_empty() && scrubbed.missing.is_empty(), "{scrubbed:?}");
    }
    assert!((0..3).all(|archive| cold.staged(archive).is_empty()));
    assert_eq!(cold.bench.residency(cold.ino).unwrap().version.copies, copies);
}

/// A drain leads to the loss of an archive, so it relies only on copies that it read.
#[test]
fn drain_does_not_count_cold_copies() {
    let cold = Cold::with(settings(2), 3);
    let copies = cold.bench.residency(cold.ino).unwrap().version.copies;
    let number = |id: &Id| usize::from(id.0[0] - 1);
    (0..3).for_each(|archive| cold.set(archive, archive == number(&copies[1])));
    let tier = &cold.bench.tier;
    let drained = tier.drain(copies[0], &own_request(), None, &mut |_| Ok(())).unwrap();
    assert_eq!((drained.cold, drained.made, drained.short), (1, 1, 1), "{drained:?}");
}
