//! Plans, compared with what the commands then cause in directory archives.

use std::sync::Arc;

use fslab_tier::archive::{Archive, DirectoryArchive, EncryptedArchive, Key, Traffic, Usage};
use fslab_tier::catalogue::Catalogue;
use fslab_tier::command::{Bound, Command, Event, Plan, execute};
use fslab_tier::stored::TreeMark;
use fslab_tier::{Id, Settings, Tier, TierFs, own_request};
use fslab_vfs::{FileSystem, Ino, MemFs};
use fslab_vfs_testing::client::Client;
use tempfile::TempDir;

use crate::support::{Bench, MIB, TIER, noise, open_over};

/// A tier over memory, with archives in directories.
struct World {
    tier: Arc<Tier>,
    fs: Arc<TierFs>,
    _scratch: TempDir,
}

impl World {
    fn new(settings: &Settings, archives: u8, key: Option<[u8; 32]>) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let around = Bench::new().around;
        let archives = (0..archives).map(|number| {
            let (root, id) = (scratch.path().join(number.to_string()), Id([number + 1; 16]));
            let key = key.map(Key::new);
            DirectoryArchive::init(&root, id, TIER, key.as_ref()).unwrap();
            let archive: Arc<dyn Archive> = Arc::new(DirectoryArchive::open(&root, TIER).unwrap());
            match key {
                Some(key) => {
                    let identities = Arc::clone(&around.identities);
                    Arc::new(EncryptedArchive::new(archive, key, identities)) as Arc<dyn Archive>
                }
                None => archive,
            }
        });
        let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
        around.marks.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
        let catalogue = Catalogue::in_memory().unwrap();
        let (tier, fs) = open_over(&lower, settings, archives.collect(), catalogue, &around);
        Self { tier, fs, _scratch: scratch }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Ino {
        Client::new(&*self.fs).file(Ino::ROOT, name, bytes).unwrap()
    }

    /// Makes files of many sizes, which can't be compressed.
    fn files(&self) {
        let sizes = [0, 1, 300, 65_536, 65_537, 70_000, MIB, 3 * MIB + 9, 9 * MIB];
        for (number, size) in (0..).zip(sizes) {
            self.file(&format!("file{number}"), &noise(number, size));
        }
        // More than the size of a bundle.
        for number in 100..260 {
            self.file(&format!("small{number}"), &noise(number, 60_000));
        }
    }

    fn told(&self, command: &Command) -> Vec<Event> {
        let mut told = Vec::new();
        let mut tell = |event| {
            told.push(event);
            true
        };
        execute(&self.tier, command, &own_request(), &mut tell).unwrap();
        told
    }

    fn plan(&self, command: &Command) -> Plan {
        let before = self.usage();
        let mut told = self.told(&Command::DryRun { of: Box::new(command.clone()) });
        // The dry run of a release opens copies.
        if !matches!(command, Command::Release { .. }) {
            assert_eq!(self.usage(), before, "the dry run sends no request");
        }
        match told.pop().unwrap() {
            Event::Plan(plan) => plan,
            event => panic!("{event:?}"),
        }
    }

    fn usage(&self) -> Vec<(Id, Traffic)> {
        self.tier.traffic().into_iter().map(|(id, _, usage)| (id, usage.traffic)).collect()
    }

    /// Returns the plan of a command, and the traffic that the command then causes.
    fn planned_and_caused(&self, command: &Command) -> (Plan, Vec<(Id, Traffic)>) {
        let (plan, before) = (self.plan(command), self.usage());
        let problems = self.told(command).into_iter();
        let problems: Vec<_> =
            problems.filter(|event| matches!(event, Event::Problem { .. })).collect();
        assert!(problems.is_empty(), "{problems:?}");
        let caused = self.usage().into_iter().zip(before);
        let caused = caused.map(|((id, now), (_, before))| (id, less(now, before)));
        let caused = caused.filter(|(_, caused)| *caused != Traffic::default());
        (plan, caused.collect())
    }
}

fn less(now: Traffic, before: Traffic) -> Traffic {
    Traffic {
        put_requests: now.put_requests - before.put_requests,
        get_requests: now.get_requests - before.get_requests,
        list_requests: now.list_requests - before.list_requests,
        delete_requests: now.delete_requests - before.delete_requests,
        sent_bytes: now.sent_bytes - before.sent_bytes,
        received_bytes: now.received_bytes - before.received_bytes,
    }
}

fn numbers(traffic: &Traffic) -> [u64; 6] {
    let Traffic { put_requests, get_requests, list_requests, delete_requests, .. } = *traffic;
    let Traffic { sent_bytes, received_bytes, .. } = *traffic;
    [put_requests, get_requests, list_requests, delete_requests, sent_bytes, received_bytes]
}

fn planned(plan: &Plan) -> Vec<(Id, Traffic)> {
    let planned = plan.archives.iter().map(|planned| (planned.archive, planned.traffic));
    let mut planned: Vec<_> =
        planned.filter(|(_, traffic)| *traffic != Traffic::default()).collect();
    planned.sort_by_key(|(id, _)| *id);
    planned
}

/// Checks that no number of one list is greater than in another one.
#[track_caller]
fn check_at_most(less: &[(Id, Traffic)], most: &[(Id, Traffic)]) {
    let ids = |list: &[(Id, Traffic)]| list.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(ids(less), ids(most));
    for ((_, less), (_, most)) in less.iter().zip(most) {
        let are_ordered = numbers(less).into_iter().zip(numbers(most)).all(|(a, b)| a <= b);
        assert!(are_ordered, "{less:?} exceeds {most:?}");
    }
}

fn archive() -> Command {
    Command::Archive { paths: vec![Vec::new()], rate: 0, bundled: None }
}

fn release() -> Command {
    Command::Release { paths: vec![Vec::new()], keep_bytes: 0 }
}

fn recall(range: Option<(u64, u64)>) -> Command {
    Command::Recall { paths: vec![Vec::new()], range, rate: 0 }
}

fn settings(copies: usize) -> Settings {
    Settings { copies, ..Settings::of(TIER) }
}

#[test]
fn archiving_and_release_cause_exactly_the_planned_traffic() {
    for (copies, key) in [(1, None), (2, None), (1, Some([5; 32]))] {
        let world = World::new(&settings(copies), copies as u8 + 1, key);
        world.files();
        let client = Client::new(&*world.fs);
        let first = world.file("linked", &noise(7, 2 * MIB));
        client.link(first, Ino::ROOT, "other name").unwrap();
        let (plan, caused) = world.planned_and_caused(&archive());
        assert_eq!(planned(&plan), caused, "{copies} copies, key {key:?}");
        assert_eq!(caused.len(), copies, "only the first archives receive copies");
        assert_eq!((plan.bound, plan.files), (Bound::AtMost, 170));
        let stored: u64 = plan.archives.iter().map(|planned| planned.stored_bytes).sum();
        assert!(stored >= plan.bytes * copies as u64, "{plan:?}");
        assert!(caused.iter().all(|(_, caused)| caused.put_requests < 20), "files are bundled");
        assert_eq!(planned(&world.plan(&archive())), [], "nothing is left to archive");

        let (plan, caused) = world.planned_and_caused(&release());
        // Threads that release files of one bundle share the reads of its container.
        match key {
            None => assert_eq!(planned(&plan), caused, "{copies} copies"),
            Some(_) => check_at_most(&caused, &planned(&plan)),
        }
        assert!(plan.freed_bytes > 20 * MIB && plan.needed_bytes == 0, "{plan:?}");
    }
}

#[test]
fn recall_causes_exactly_the_planned_traffic() {
    for range in [None, Some((MIB, 1)), Some((0, 1))] {
        let world = World::new(&settings(1), 1, None);
        world.files();
        world.told(&archive());
        world.told(&release());
        let (plan, caused) = world.planned_and_caused(&recall(range));
        assert_eq!(planned(&plan), caused, "{range:?}");
        assert!(plan.files > 0 && plan.needed_bytes == plan.bytes, "{plan:?}");
    }
}

#[test]
fn recall_from_an_encrypted_archive_causes_at_most_the_planned_traffic() {
    let world = World::new(&settings(1), 1, Some([5; 32]));
    world.files();
    world.told(&archive());
    world.told(&release());
    let (plan, caused) = world.planned_and_caused(&recall(None));
    check_at_most(&caused, &planned(&plan));
    let gets = |list: &[(Id, Traffic)]| list[0].1.get_requests;
    assert_eq!(gets(&caused), gets(&planned(&plan)));
}

#[test]
fn versions_with_sources_cause_at_most_the_planned_traffic() {
    for (copies, key) in [(1, None), (2, None), (1, Some([5; 32]))] {
        let settings = Settings { deltas: true, ..settings(copies) };
        let world = World::new(&settings, copies as u8, key);
        let ino = world.file("file", &noise(1, 9 * MIB + 7));
        let client = Client::new(&*world.fs);
        world.told(&archive());
        for (number, is_offline) in [(2, false), (5, true), (2, true)] {
            let file = client.open(ino, fslab_vfs::OpenMode::READ_WRITE).unwrap();
            file.write_all(number * MIB, &noise(number, MIB)).unwrap();
            file.close().unwrap();
            let (plan, caused) = world.planned_and_caused(&archive());
            check_at_most(&caused, &planned(&plan));
            let sent: u64 = caused.iter().map(|(_, caused)| caused.sent_bytes).sum();
            assert!(sent < 2 * MIB * copies as u64, "{caused:?}");
            if is_offline {
                let (plan, caused) = world.planned_and_caused(&release());
                check_at_most(&caused, &planned(&plan));
                let (plan, caused) = world.planned_and_caused(&recall(Some((0, 4 * MIB))));
                check_at_most(&caused, &planned(&plan));
            }
        }
    }
}

#[test]
fn compressible_and_sparse_files_cause_at_most_the_planned_traffic() {
    let world = World::new(&settings(1), 1, None);
    for (number, size) in (0..).zip([100, 50_000, 200_000, 5 * MIB + 3]) {
        let mut bytes = noise(number, size);
        bytes.iter_mut().skip(1).step_by(2).for_each(|byte| *byte = 0);
        world.file(&format!("file{number}"), &bytes);
    }
    let sparse = world.file("sparse", &[]);
    let client = Client::new(&*world.fs);
    client.open(sparse, fslab_vfs::OpenMode::READ_WRITE).unwrap().write(40 * MIB, b"end").unwrap();
    let (plan, caused) = world.planned_and_caused(&archive());
    check_at_most(&caused, &planned(&plan));
    assert!(planned(&plan)[0].1.sent_bytes < 10 * MIB, "holes are not sent: {plan:?}");
    world.told(&release());
    let (plan, caused) = world.planned_and_caused(&recall(None));
    check_at_most(&caused, &planned(&plan));
}

#[test]
fn changed_offline_file_is_planned_with_the_reads_of_its_offline_blocks() {
    let world = World::new(&settings(1), 1, None);
    let ino = world.file("file", &noise(1, 5 * MIB));
    world.told(&archive());
    world.told(&release());
    let client = Client::new(&*world.fs);
    client.open(ino, fslab_vfs::OpenMode::READ_WRITE).unwrap().write(5 * MIB, b"more").unwrap();
    let (plan, caused) = world.planned_and_caused(&archive());
    check_at_most(&caused, &planned(&plan));
    let [planned, caused] = [&planned(&plan), &caused].map(|list| list[0].1);
    assert_eq!(caused.put_requests, planned.put_requests);
    assert!(caused.received_bytes > 10 * MIB, "offline blocks are read, and the copy is verified");
}

#[test]
fn scrub_causes_at_least_the_planned_traffic() {
    let world = World::new(&settings(2), 2, None);
    world.files();
    world.told(&archive());
    let (plan, caused) = world.planned_and_caused(&Command::Scrub { rate: 0 });
    assert_eq!(plan.bound, Bound::AtLeast);
    check_at_most(&planned(&plan), &caused);
    let [planned, caused] = [&planned(&plan), &caused].map(|list| list[0].1);
    // Beside the planned traffic, a scrub reads only the lists of bundles and of trees.
    assert!(caused.get_requests - planned.get_requests <= 20, "{planned:?} {caused:?}");
    assert!(caused.received_bytes - planned.received_bytes < MIB, "{planned:?} {caused:?}");
}

#[test]
fn duration_is_unknown_until_transfers_were_measured() {
    let world = World::new(&settings(1), 1, None);
    world.files();
    assert_eq!(world.plan(&archive()).estimated_seconds, None);
    world.told(&archive());
    world.file("new", &noise(1, MIB));
    let seconds = world.plan(&archive()).estimated_seconds.unwrap();
    assert!(seconds > 0.0 && seconds < 60.0, "{seconds}");
}

/// Traffic is recorded in the catalogue, once.
#[test]
fn traffic_includes_earlier_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("archive");
    DirectoryArchive::init(&root, Id([1; 16]), TIER, None).unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    let around = Bench::new().around;
    around.marks.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let path = scratch.path().join("catalogue");
    let mut puts = Vec::new();
    for number in 0..3 {
        let archive: Arc<dyn Archive> = Arc::new(DirectoryArchive::open(&root, TIER).unwrap());
        let catalogue = Catalogue::open(&path).unwrap();
        let (tier, fs) = open_over(&lower, &settings(1), vec![archive], catalogue, &around);
        let name = format!("file{number}");
        let ino = Client::new(&*fs).file(Ino::ROOT, &name, &noise(number, MIB)).unwrap();
        tier.archive(ino, name.as_bytes(), &own_request()).unwrap();
        let Usage { traffic, .. } = tier.archive_states().unwrap()[0].traffic;
        puts.push(traffic.put_requests);
        tier.shutdown().unwrap();
    }
    assert_eq!(puts, [1, 2, 3]);
}
