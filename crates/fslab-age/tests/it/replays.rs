//! A replay produces the same tree with any number of threads, on any target, and after any kill.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fslab_age::Error;
use fslab_age::replay::{Data, Observer, Replayed, Replayer, Settings, WhenFull};
use fslab_age::score::{Rules, score_tree, tree_checksum};
use fslab_age::workload::{Operation, OperationKind, Population};
use fslab_ext2::{Ext2, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::{
    Attr, Capacity, Entry, Errno, FileSystem, Handle, Ino, MemFs, MemoryDevice, Name, OpenMode,
    Opened, RenameMode, Request, SetAttr, WriteOptions,
};
use fslab_vfs_testing::environment::seed;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::support::{operations, settings, small, stream};

fn checksum(operations: &[Operation]) -> String {
    let mut population = Population::default();
    operations.iter().for_each(|operation| population.apply(operation).unwrap());
    population.checksum().unwrap()
}

fn replay(target: &dyn FileSystem, operations: &[Operation], settings: Settings) -> Replayed {
    let mut replayer = Replayer::new(target, settings);
    assert!(replayer.run(stream(operations), &mut ()).unwrap());
    *replayer.replayed()
}

fn engine(bytes: u64) -> Ext2 {
    let device = Arc::new(MemoryDevice::new(bytes));
    mkfs(&*device, &MkfsOptions { bytes_per_inode: 2048, ..MkfsOptions::default() }).unwrap();
    Ext2::open(device, VolumeOptions::default()).unwrap()
}

/// Makes a random workload with all kinds of operations, such as moved directories and truncated
/// files.
fn varied(seed: u64, count: usize) -> Vec<Operation> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut population = Population::default();
    let mut operations: Vec<Operation> = Vec::new();
    let mut numbers = 1..;
    while operations.len() < count {
        let all: Vec<u64> = population.members().map(|(number, _)| number).chain([0]).collect();
        let any = all[random.random_range(0..all.len())];
        let kind = OperationKind::ALL[random.random_range(0..OperationKind::ALL.len())];
        let file = if kind.makes() { numbers.next().unwrap() } else { any };
        let directory = all[random.random_range(0..all.len())];
        let most = if kind == OperationKind::Symlink { 4096 } else { 20_000 };
        let length = random.random_range(1..most);
        let offset = random.random_range(0..30_000);
        let time_ns = operations.len() as u64 * 1_000_000_000_000;
        let (mode, uid, gid) = (0o755, file as u32 % 3, file as u32 % 5);
        let name = format!("{}~{file}", operations.len()).into_bytes().into();
        let operation =
            Operation { time_ns, kind, file, directory, offset, length, mode, uid, gid, name };
        let mut tried = population.clone();
        if file != 0 && tried.apply(&operation).is_ok() {
            population = tried;
            operations.push(operation);
        }
    }
    operations
}

#[test]
fn workload_makes_the_same_tree_on_all_targets_and_thread_counts() {
    for operations in [operations(small("developer"), 3), varied(11, 400)] {
        let expected = checksum(&operations);
        for threads in [1, 4] {
            let memory = MemFs::default();
            replay(&memory, &operations, settings(threads));
            assert_eq!(tree_checksum(&memory, true).unwrap(), expected, "{threads} threads");
            let ext2 = engine(64 << 20);
            let replayed = replay(&ext2, &operations, settings(threads));
            assert_eq!(tree_checksum(&ext2, true).unwrap(), expected, "{threads} threads");
            assert_eq!(replayed.operations, operations.len() as u64);
            assert_eq!((replayed.no_space, replayed.left_out, replayed.repeated), (0, 0, 0));
        }
        let sizes = Settings { data: Data::None, ..settings(2) };
        let memory = MemFs::default();
        replay(&memory, &operations, sizes);
        assert_eq!(tree_checksum(&memory, true).unwrap(), expected, "sizes alone");
    }
}

/// An observer that records the days on which it is called.
#[derive(Default)]
struct Days(Vec<u64>);

impl Observer for Days {
    fn day(&mut self, day: u64) -> fslab_age::Result<()> {
        self.0.push(day);
        Ok(())
    }
}

/// The workload has twelve days; the last observation shows the final state.
#[test]
fn observer_is_called_every_n_days_and_at_the_end() {
    let operations = operations(small("developer"), 3);
    for (every, expected) in [(0, &[][..]), (5, &[5, 10, 12]), (6, &[6, 12]), (40, &[12])] {
        let memory = MemFs::default();
        let settings = Settings { observe_every_days: every, ..settings(1) };
        let mut days = Days::default();
        Replayer::new(&memory, settings).run(stream(&operations), &mut days).unwrap();
        assert_eq!(days.0, expected, "every {every} days");
    }
}

#[test]
fn an_aged_engine_has_a_score() {
    let ext2 = engine(64 << 20);
    replay(&ext2, &operations(small("stress").on_volume(48 << 20), 3), settings(1));
    let score =
        score_tree(&ext2, Rules { block_bytes: 4096, group_bytes: None, map_bytes: None }).unwrap();
    let value = score.total.score().unwrap();
    assert!(score.total.files > 100 && (0.5..0.9999).contains(&value), "{score:?}");
    assert!(score.distances.figures().unwrap().pairs > 50);
    let memory = MemFs::default();
    let answer =
        score_tree(&memory, Rules { block_bytes: 4096, group_bytes: None, map_bytes: None });
    assert!(answer.unwrap_err().to_string().contains("can't read the layout of files"));
}

#[test]
fn full_target_stops_the_replay_or_is_counted() {
    let operations = operations(small("stress"), 3);
    let tight = || MemFs::new(Capacity { bytes: 16 << 20, inodes: 1 << 20 });
    let memory = tight();
    let mut replayer = Replayer::new(&memory, settings(1));
    let error = replayer.run(stream(&operations), &mut ()).unwrap_err();
    assert!(matches!(&error, Error::Target { .. }), "{error}");
    assert!(error.to_string().contains("No space left"), "{error}");
    let replayed =
        replay(&tight(), &operations, Settings { when_full: WhenFull::Skip, ..settings(2) });
    assert!(replayed.no_space > 0 && replayed.operations == operations.len() as u64);
}

/// A file system that frees the space of removed or truncated files only at a sync, like Btrfs.
struct Pinning<'a> {
    inner: &'a MemFs,
    bytes: u64,
    /// The number of bytes that a sync would free; the lock serialises changes.
    pinned: Mutex<u64>,
    syncs: AtomicU64,
}

impl<'a> Pinning<'a> {
    fn new(inner: &'a MemFs, bytes: u64) -> Self {
        Self { inner, bytes, pinned: Mutex::new(0), syncs: AtomicU64::new(0) }
    }

    fn used(&self, request: &Request) -> Answer<u64> {
        let told = self.inner.statfs(request, Ino::ROOT)?;
        Ok((told.blocks - told.blocks_free) * u64::from(told.fragment_size))
    }

    /// Performs a change that allocates at most `bytes` bytes. Space that it frees remains
    /// allocated until the next sync.
    fn change<T>(
        &self,
        request: &Request,
        bytes: u64,
        change: impl FnOnce() -> Answer<T>,
    ) -> Answer<T> {
        let mut pinned = self.pinned.lock().unwrap();
        let before = self.used(request)?;
        if before + *pinned + bytes > self.bytes {
            return Err(Errno::NOSPC.into());
        }
        let answer = change();
        *pinned += before.saturating_sub(self.used(request)?);
        answer
    }
}

impl FileSystem for Pinning<'_> {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(self.inner)
    }

    fn unlink(&self, request: &Request, parent: Ino, name: Name<'_>) -> Answer<()> {
        self.change(request, 0, || self.inner.unlink(request, parent, name))
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Answer<Attr> {
        self.change(request, 0, || self.inner.setattr(request, ino, handle, changes))
    }

    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Answer<usize> {
        let bytes = data.len() as u64 + 4096;
        self.change(request, bytes, || {
            self.inner.write(request, ino, handle, offset, data, options)
        })
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> Answer<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        *self.pinned.lock().unwrap() = 0;
        self.inner.syncfs(request, ino)
    }
}

/// Returns operations that make, truncate and remove files of 1 MiB, with at most `living` files at
/// a time.
fn churn(files: u64, living: u64) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut push = |file: u64, kind| {
        let time_ns = operations.len() as u64;
        let length = if kind == OperationKind::Write { 1 << 20 } else { 0 };
        operations.push(Operation { time_ns, kind, file, length, ..Operation::default() });
    };
    for file in 1..=files {
        if file > living {
            let oldest = file - living;
            if file % 3 == 0 {
                push(oldest, OperationKind::Truncate);
            }
            push(oldest, OperationKind::Remove);
        }
        push(file, OperationKind::Create);
        push(file, OperationKind::Write);
    }
    operations
}

/// A target that frees space at a sync is not treated as full at its first `ENOSPC`.
#[test]
fn target_that_frees_space_at_a_sync_is_not_full() {
    let operations = churn(200, 10);
    let expected = checksum(&operations);
    for threads in [1, 4] {
        let memory = MemFs::default();
        let disk = Pinning::new(&memory, 16 << 20);
        // Only a lack of space triggers syncs.
        let settings = Settings { sync_every_ns: u64::MAX / 4, ..settings(threads) };
        let replayed = replay(&disk, &operations, settings);
        assert_eq!(tree_checksum(&memory, true).unwrap(), expected, "{threads} threads");
        assert!(replayed.late > 10 && replayed.no_space == 0, "{replayed:?}");
    }
}

/// A target that is really full is not synced for each operation.
#[test]
fn full_target_is_synced_rarely() {
    let operations = churn(1000, 1000);
    let memory = MemFs::default();
    let disk = Pinning::new(&memory, 16 << 20);
    let sync_every_ns = u64::MAX / 4;
    let settings = Settings { sync_every_ns, when_full: WhenFull::Skip, ..settings(1) };
    let replayed = replay(&disk, &operations, settings);
    let syncs = disk.syncs.load(Ordering::Relaxed);
    assert!(replayed.no_space > 900 && syncs < 10, "{syncs} syncs, {replayed:?}");
}

/// A file system that permits a number of changes and syncs and then fails all further ones. The
/// target is then in the same state as after a kill of the replay.
struct Mortal<'a> {
    inner: &'a dyn FileSystem,
    life: AtomicU64,
}

impl Mortal<'_> {
    fn live(&self) -> fslab_vfs::Result<()> {
        let left =
            self.life.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |life| life.checked_sub(1));
        left.map(|_life| ()).map_err(|_dead| Errno::IO.into())
    }
}

type Answer<T> = fslab_vfs::Result<T>;

impl FileSystem for Mortal<'_> {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(self.inner)
    }

    fn mkdir(&self, request: &Request, parent: Ino, name: Name<'_>, mode: u32) -> Answer<Entry> {
        self.live()?;
        self.inner.mkdir(request, parent, name, mode)
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Answer<(Entry, Opened)> {
        self.live()?;
        self.inner.create(request, parent, name, mode, flags)
    }

    fn unlink(&self, request: &Request, parent: Ino, name: Name<'_>) -> Answer<()> {
        self.live()?;
        self.inner.unlink(request, parent, name)
    }

    fn rmdir(&self, request: &Request, parent: Ino, name: Name<'_>) -> Answer<()> {
        self.live()?;
        self.inner.rmdir(request, parent, name)
    }

    fn rename(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Answer<()> {
        self.live()?;
        self.inner.rename(request, parent, name, new_parent, new_name, mode)
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Answer<Attr> {
        self.live()?;
        self.inner.setattr(request, ino, handle, changes)
    }

    fn write(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Answer<usize> {
        self.live()?;
        self.inner.write(request, ino, handle, offset, data, options)
    }

    fn syncfs(&self, request: &Request, ino: Ino) -> Answer<()> {
        self.live()?;
        self.inner.syncfs(request, ino)
    }
}

fn with_checkpoint(path: &Path, threads: usize) -> Settings {
    let checkpoint = Some(path.to_owned());
    Settings { checkpoint, checkpoint_every: 60, ..settings(threads) }
}

#[test]
fn replay_killed_anywhere_resumes_to_the_same_tree() {
    let seed = seed();
    let mut random = Pcg64::seed_from_u64(seed);
    let scratch = tempfile::tempdir().unwrap();
    for round in 0..50 {
        let operations = varied(random.random(), 300);
        let expected = checksum(&operations);
        let memory = MemFs::default();
        let threads = random.random_range(1..4);
        let path = scratch.path().join(format!("{round}"));
        // The replay is killed up to three times, after random numbers of changes.
        for _ in 0..random.random_range(1..4) {
            let life = AtomicU64::new(random.random_range(0..500));
            let mortal = Mortal { inner: &memory, life };
            let mut replayer = Replayer::new(&mortal, with_checkpoint(&path, threads));
            if replayer.run(stream(&operations), &mut ()).is_ok() {
                break;
            }
        }
        let replayed = replay(&memory, &operations, with_checkpoint(&path, threads));
        let problem = format!("FSLAB_SEED={seed}, round {round}, {replayed:?}");
        assert_eq!(tree_checksum(&memory, true).unwrap(), expected, "{problem}");
        assert_eq!(replayed.operations, operations.len() as u64, "{problem}");
    }
}

/// If its whole tree was deleted, a replay restarts; if a part was deleted, it fails.
#[test]
fn replay_restarts_after_its_tree_was_deleted() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("checkpoint");
    let operations = operations(small("developer"), 9);
    let settings = || Settings { checkpoint_every: 300, ..with_checkpoint(&path, 2) };
    let done = MemFs::default();
    replay(&done, &operations, settings());
    let anew = MemFs::default();
    let replayed = replay(&anew, &operations, settings());
    assert_eq!((replayed.operations, replayed.repeated), (operations.len() as u64, 0));
    assert_eq!(tree_checksum(&anew, true).unwrap(), checksum(&operations));
    // The checkpoint is at the end of the workload, but the target contains only one entry.
    let partly = MemFs::default();
    let first = Operation { name: b"left".to_vec().into(), ..operations[0].clone() };
    replay(&partly, &[first], crate::support::settings(1));
    let mut replayer = Replayer::new(&partly, settings());
    let answer = replayer.run(stream(&operations), &mut ());
    let message = answer.unwrap_err().to_string();
    assert!(message.contains("to start from the beginning, delete all of them"), "{message}");
}

#[test]
fn checkpoint_of_another_workload_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("checkpoint");
    let operations = varied(1, 100);
    let memory = MemFs::default();
    replay(&memory, &operations, with_checkpoint(&path, 1));
    let mut other = with_checkpoint(&path, 1);
    other.workload_hash = "other".to_owned();
    let refused = |settings| {
        let mut replayer = Replayer::new(&memory, settings);
        replayer.run(stream(&operations), &mut ()).unwrap_err().to_string()
    };
    assert!(refused(other).contains("another workload"));
    assert!(refused(Settings { data: Data::None, ..with_checkpoint(&path, 1) }).contains("--data"));
    std::fs::write(&path, "{").unwrap();
    assert!(refused(with_checkpoint(&path, 1)).contains("not a checkpoint"));
}
