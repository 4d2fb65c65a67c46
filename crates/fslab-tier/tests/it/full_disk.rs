//! Tiers over a file system that is nearly full, and over one on which releases free no space.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_tier::command::{Command, Event};
use fslab_tier::{Archived, own_request};
use fslab_vfs::{Capacity, Errno, FileSystem, Ino, MemFs, OpenMode, Request, Result, StatFs};

use crate::support::{Bench, MIB, noise, told};

fn problems(told: &[Event]) -> Vec<String> {
    let what = |event: &Event| match event {
        Event::Problem { what } => Some(what.clone()),
        _ => None,
    };
    told.iter().filter_map(what).collect()
}

fn free_bytes(bench: &Bench) -> u64 {
    let stat = bench.lower.statfs(&own_request(), Ino::ROOT).unwrap();
    stat.blocks_free * u64::from(stat.fragment_size)
}

/// Makes an offline file of 6 MiB on a file system of 10 MiB with 3 MiB free.
fn nearly_full() -> (Bench, Ino, Vec<u8>) {
    with_free_space(3 * MIB)
}

fn with_free_space(free: u64) -> (Bench, Ino, Vec<u8>) {
    let memory = MemFs::new(Capacity { bytes: 10 * MIB, inodes: 100 });
    let bench = Bench::over(Arc::new(memory));
    let data = noise(400, 6 * MIB);
    let ino = bench.offline(&bench.client(), "offline", &data);
    bench.client().file(Ino::ROOT, "resident", &noise(401, 10 * MIB - free)).unwrap();
    (bench, ino, data)
}

#[test]
fn changed_offline_file_is_archived_without_a_recall() {
    let (bench, ino, mut data) = nearly_full();
    let client = bench.client();
    // The first change is within the first block, which is recalled for it. The second is at the
    // end.
    for (offset, change) in [(10, b"changed".to_vec()), (6 * MIB, b"appended".to_vec())] {
        let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
        file.write_all(offset, &change).unwrap();
        file.close().unwrap();
        data.resize(data.len().max(offset as usize + change.len()), 0);
        data[offset as usize..offset as usize + change.len()].copy_from_slice(&change);
    }
    let free = free_bytes(&bench);
    let archived = bench.archive(ino, "offline").unwrap();
    assert_eq!(archived, Archived::Now { bytes: data.len() as u64 });
    assert_eq!(bench.offline_blocks(ino), [1, 2, 3, 4, 5]);
    assert_eq!(free_bytes(&bench), free);
    assert!(!bench.is_changed(ino));
    bench.release(ino, "offline").unwrap();
    assert_eq!(bench.offline_blocks(ino), [0, 1, 2, 3, 4, 5, 6]);
    client.unlink(Ino::ROOT, "resident").unwrap();
    assert!(client.contents(ino).unwrap() == data);
}

#[test]
fn bulk_recall_that_does_not_fit_is_refused_before_it_starts() {
    let (bench, ino, data) = nearly_full();
    let recall = |range| Command::Recall { paths: vec![b"offline".to_vec()], range, rate: 0 };
    let problems = problems(&told(&bench, &recall(None)));
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.starts_with("offline: "), "{problem}");
    assert!(problem.contains("6291456 bytes") && problem.contains("3145728"), "{problem}");
    assert_eq!(bench.offline_blocks(ino), [0, 1, 2, 3, 4, 5]);
    // A range that fits is recalled. The rest is recalled once there is space.
    assert_eq!(self::problems(&told(&bench, &recall(Some((0, 2 * MIB))))), [""; 0]);
    assert_eq!(bench.offline_blocks(ino), [2, 3, 4, 5]);
    bench.client().unlink(Ino::ROOT, "resident").unwrap();
    assert_eq!(self::problems(&told(&bench, &recall(None))), [""; 0]);
    assert!(bench.client().contents(ino).unwrap() == data);
}

/// A file system whose blocks are shared with a snapshot, so that releases free no space.
#[derive(Default)]
struct Snapshot {
    memory: MemFs,
    syncs: AtomicU64,
}

impl FileSystem for Snapshot {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn statfs(&self, request: &Request, ino: Ino) -> Result<StatFs> {
        let stat = self.memory.statfs(request, ino)?;
        let blocks = 100 * MIB / u64::from(stat.fragment_size);
        Ok(StatFs { blocks, blocks_free: blocks / 10, blocks_available: blocks / 10, ..stat })
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.memory.syncfs(request, ino)
    }
}

#[test]
fn policy_stops_where_releasing_frees_nothing() {
    const FILES: u64 = 40;
    let lower = Arc::new(Snapshot::default());
    let bench = Bench::over(lower.clone());
    let client = bench.client();
    for number in 0..FILES {
        let name = format!("file{number}");
        let ino = client.file(Ino::ROOT, &name, &[7; MIB as usize]).unwrap();
        bench.archive(ino, &name).unwrap();
    }
    let rules = "[watermarks]\nhigh = 0.8\nlow = 0.4\n[[rule]]\naction = 'release'\n".to_owned();
    let policy = Command::Policy { rules: Some((rules, "test".to_owned())), dry_run: false };
    let told = told(&bench, &policy);
    let problems = problems(&told);
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.contains("snapshots"), "{problem}");
    let Some(Event::Total { figures }) = told.last() else { panic!("{told:?}") };
    let released = figures.iter().find(|(name, _)| name == "released").unwrap().1;
    assert!((1..=FILES / 2).contains(&released), "{released} files released");
    assert!(lower.syncs.load(Ordering::SeqCst) > 0);
}

/// Two of six blocks can be stored. A third one would fit in part.
#[test]
fn offline_file_is_read_whole_although_it_does_not_fit() {
    let (bench, ino, data) = with_free_space(2 * MIB + MIB / 2);
    let client = bench.client();
    for _ in 0..2 {
        assert!(client.contents(ino).unwrap() == data);
    }
    assert_eq!(bench.offline_blocks(ino).len(), 4);
    assert_eq!(free_bytes(&bench), MIB / 2);
    assert_eq!(
        (bench.counted("tier_unstored_bytes"), bench.counted("tier_failed_recalls")),
        (4 * MIB, 0)
    );
    assert!(!bench.is_changed(ino));
    client.unlink(Ino::ROOT, "resident").unwrap();
    assert!(client.contents(ino).unwrap() == data);
    let recall = Command::Recall { paths: vec![b"offline".to_vec()], range: None, rate: 0 };
    assert!(problems(&told(&bench, &recall)).is_empty());
    assert_eq!(bench.offline_blocks(ino), [0_u64; 0]);
    assert!(bench.below().contents(ino).unwrap() == data);
}

/// The block is in memory, but the other bytes of the block could not be stored.
#[test]
fn change_within_a_block_that_can_not_be_stored_fails() {
    let (bench, ino, data) = nearly_full();
    let client = bench.client();
    assert!(client.contents(ino).unwrap() == data);
    let last = *bench.offline_blocks(ino).last().unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    let error = file.write_all(last * MIB + 10, b"changed").unwrap_err();
    assert_eq!(error.errno(), Errno::NOSPC);
    file.close().unwrap();
    assert!(client.contents(ino).unwrap() == data);
    client.unlink(Ino::ROOT, "resident").unwrap();
    let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(last * MIB + 10, b"changed").unwrap();
    file.close().unwrap();
    let mut data = data;
    data[(last * MIB) as usize + 10..][..7].copy_from_slice(b"changed");
    assert!(client.contents(ino).unwrap() == data);
}
