//! Tests mounts with `-o keep`: the next daemon continues with all completed changes, no matter
//! when the earlier daemon is killed.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use fslab_ext2::check::check;
use fslab_ext2::{Error, Ext2, KEPT_WORDS, VolumeOptions, mkfs};
use fslab_sys::shared_memory::SharedMemory;
use fslab_vfs::{BlockDevice, FileSystem, Ino, MemFs, MemoryDevice, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::overtaking::Verdict;
use fslab_vfs_testing::environment::{number, seed};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::script::{Script, compare};
use crate::support::{Access, Watch, Watched, options};

const IMAGE_BYTES: u64 = 256 << 20;
const SMALL_BYTES: u64 = 4 << 20;
/// Number of words of shared memory in tests that should fill its halves often.
const FEW_WORDS: usize = 64 + 2 * (2 << 20) / 8;

pub fn shared(words: usize) -> Arc<SharedMemory> {
    Arc::new(SharedMemory::new("fslab-test", words).unwrap())
}

fn kept(device: &Arc<dyn BlockDevice>, memory: &Arc<SharedMemory>) -> Ext2 {
    let options = VolumeOptions { dirty_bytes_max: 256 << 10, ..VolumeOptions::default() };
    Ext2::open_kept(Arc::clone(device), options, Arc::clone(memory)).unwrap()
}

/// Asserts that a check finds no problem on the device, to which everything has been written.
#[track_caller]
fn is_whole(device: &Arc<dyn BlockDevice>, when: &str) {
    let report = check(Arc::clone(device)).unwrap();
    assert!(report.findings.is_empty(), "{when}: {:?}", report.findings.first());
}

fn new_device(bytes: u64, block_bytes: u32) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(bytes);
    mkfs(&device, &options(block_bytes)).unwrap();
    Arc::new(device)
}

/// A tree like that of a new file system.
fn new_model() -> MemFs {
    let model = MemFs::default();
    let client = Client::new(&model);
    let directory = client.mkdir(Ino::ROOT, "lost+found").unwrap();
    client.chmod(directory, 0o700).unwrap();
    drop(client);
    model
}

/// The daemon is killed between operations, some of them syncs of a file or of everything.
#[test]
fn next_daemon_continues_with_all_completed_changes() {
    let rounds = number("FSLAB_TAKEOVERS").unwrap_or(60);
    for (words, block_bytes) in [(FEW_WORDS, 1024), (KEPT_WORDS, 4096)] {
        let (device, memory) = (new_device(IMAGE_BYTES, block_bytes), shared(words));
        let model = new_model();
        let model = Client::new(&model);
        let (mut script, mut random) = (Script::new(seed()), Pcg64::seed_from_u64(seed()));
        for round in 0..rounds {
            let when = format!("{block_bytes}-byte blocks, round {round}");
            let ext2 = kept(&device, &memory);
            let client = Client::new(&ext2);
            compare(&client, &model, &when);
            let left = Ext2::superblock(&ext2).raw().s_free_blocks_count.get();
            assert!(left > 10_000 / (block_bytes / 1024), "{when}: the image is nearly full");
            for _ in 0..random.random_range(1..4) {
                script.run(&client, &model, random.random_range(1..6));
                match random.random_range(0..4) {
                    0 => ext2.sync().unwrap(),
                    1 => sync_a_new_file(
                        &client,
                        &model,
                        &format!("synced-{}", random.random::<u64>()),
                    ),
                    _ => {}
                }
            }
        }
        let ext2 = kept(&device, &memory);
        compare(&Client::new(&ext2), &model, "at the end");
        ext2.shutdown().unwrap();
        is_whole(&device, "at the end");
    }
}

fn sync_a_new_file(subject: &Client<'_>, model: &Client<'_>, name: &str) {
    for client in [subject, model] {
        let (_, file) = client.create(Ino::ROOT, name, 0o600, OpenMode::EXCLUSIVE).unwrap();
        file.write_all(0, name.as_bytes()).unwrap();
        file.fsync(false).unwrap();
    }
}

/// Kills the daemon before one of its requests to the device: from then on, nothing that it does
/// has an effect.
struct Killer {
    memory: Arc<SharedMemory>,
    /// Number of requests before the one at which the daemon is killed; negative if it is not.
    left: AtomicI64,
    /// The content of the shared memory at the kill.
    words: Mutex<Option<Vec<u64>>>,
}

impl Watch for Killer {
    fn see(&self, access: Access<'_>) -> fslab_vfs::Result<Verdict> {
        let mut words = self.words.lock().unwrap();
        if words.is_none() && self.left.load(Ordering::Relaxed) >= 0 {
            let left = self.left.fetch_sub(1, Ordering::Relaxed);
            *words = (left == 0).then(|| words_of(&self.memory));
        }
        let changes = !matches!(access, Access::DataRead);
        Ok(if words.is_some() && changes { Verdict::Skip } else { Verdict::Do })
    }
}

impl Killer {
    /// Lets the device work again, and restores the shared memory as it was at the kill. Returns
    /// whether there was a kill.
    fn revive(&self) -> bool {
        self.left.store(-1, Ordering::Relaxed);
        let Some(words) = self.words.lock().unwrap().take() else { return false };
        restore(&self.memory, &words);
        true
    }
}

fn words_of(memory: &SharedMemory) -> Vec<u64> {
    memory.words().iter().map(|word| word.load(Ordering::Relaxed)).collect()
}

fn restore(memory: &SharedMemory, words: &[u64]) {
    let both = memory.words().iter().zip(words);
    both.for_each(|(word, old)| word.store(*old, Ordering::Relaxed));
}

/// Runs a script on a kept file system and the model, and kills the daemon in its last action.
/// Returns whether the daemon was killed.
fn kill_once(action: Action, random: &mut Pcg64, when: &str) -> bool {
    let (memory, model) = (shared(FEW_WORDS), new_model());
    let disk = MemoryDevice::new(16 << 20);
    mkfs(&disk, &options(1024)).unwrap();
    let words = Mutex::new(None);
    let watch = Killer { memory: Arc::clone(&memory), left: AtomicI64::new(-1), words };
    let watched = Arc::new(Watched { memory: disk, watch });
    let device: Arc<dyn BlockDevice> = Arc::clone(&watched) as Arc<dyn BlockDevice>;
    let (ext2, model) = (kept(&device, &memory), Client::new(&model));
    let client = Client::new(&ext2);
    let mut script = Script::new(random.random());
    script.run_small(&client, &model, random.random_range(1..40));
    if random.random() {
        ext2.sync().unwrap();
        script.run_small(&client, &model, random.random_range(1..20));
    }
    let (_, file) = client.create(Ino::ROOT, "last", 0o600, OpenMode::EXCLUSIVE).unwrap();
    model.create(Ino::ROOT, "last", 0o600, OpenMode::EXCLUSIVE).unwrap().1.close().unwrap();
    let left = &watched.watch.left;
    left.store(random.random_range(0..action.requests()), Ordering::Relaxed);
    match action {
        Action::Sync => ext2.sync().unwrap(),
        Action::FileSync => file.fsync(false).unwrap(),
        Action::Changes => script.run(&client, &model, 20),
    }
    drop(file);
    drop(client);
    let is_killed = watched.watch.revive();
    let next = kept(&device, &memory);
    if is_killed && action != Action::Changes {
        compare(&Client::new(&next), &model, when);
    }
    next.shutdown().unwrap();
    is_whole(&device, when);
    is_killed
}

/// The action during which the daemon is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Sync,
    FileSync,
    /// Operations that change something. Some of them flush everything first.
    Changes,
}

impl Action {
    /// Number of requests to the device that the action usually makes.
    fn requests(self) -> i64 {
        match self {
            Self::Sync => 25,
            Self::FileSync => 8,
            Self::Changes => 60,
        }
    }
}

/// After a kill in a sync, the next daemon finds all changes. After a kill in another operation,
/// the file system is consistent.
#[test]
fn daemon_may_be_killed_at_any_request_to_the_device() {
    let kills = number("FSLAB_TAKEOVERS").unwrap_or(60);
    let mut random = Pcg64::seed_from_u64(seed());
    for action in [Action::Sync, Action::FileSync, Action::Changes] {
        let happened = (0..kills).filter(|kill| {
            let when = format!("FSLAB_SEED={}, {action:?}, kill {kill}", seed());
            kill_once(action, &mut random, &when)
        });
        let happened = happened.count() as u64;
        assert!(happened * 2 > kills, "{action:?}: only {happened} of {kills} daemons were killed");
    }
}

#[test]
fn open_files_without_a_name_are_kept_until_the_kernel_forgets_them() {
    let (device, memory) = (new_device(SMALL_BYTES, 1024), shared(KEPT_WORDS));
    let ext2 = kept(&device, &memory);
    let client = Client::new(&ext2);
    let free = || client.subject().statfs(&client.request(), Ino::ROOT).unwrap().files_free;
    let before = free();
    let (removed, file) = client.create(Ino::ROOT, "removed", 0o600, OpenMode::EXCLUSIVE).unwrap();
    file.write_all(0, &[7; 5000]).unwrap();
    client.unlink(Ino::ROOT, "removed").unwrap();
    let cached = client.file(Ino::ROOT, "cached", b"bytes").unwrap();
    let next = kept(&device, &memory);
    let client = Client::new(&next);
    // The kernel has not forgotten the files, so it still refers to both.
    let again = client.open(removed.ino, OpenMode::READ_WRITE).unwrap();
    assert_eq!(again.read(0, 5000).unwrap(), [7; 5000]);
    again.close().unwrap();
    assert_eq!(client.attr(removed.ino).unwrap().links, 0);
    client.unlink(Ino::ROOT, "cached").unwrap();
    assert_eq!(client.attr(cached).unwrap().links, 0);
    next.forget(removed.ino, 5);
    next.forget(cached, 3);
    client.attr(removed.ino).unwrap_err();
    client.attr(cached).unwrap_err();
    let free = next.statfs(&client.request(), Ino::ROOT).unwrap().files_free;
    assert_eq!(free, before);
    next.shutdown().unwrap();
    is_whole(&device, "at the end");
}

/// If the shared memory has no room for the changes, no daemon can take over. The next change first
/// writes them to the device, so that a takeover is possible again.
#[test]
fn too_many_changes_prevent_a_takeover_until_they_are_written() {
    const WORDS: usize = 64 + 2 * (64 << 10) / 8;
    let (device, memory) = (new_device(SMALL_BYTES, 1024), shared(WORDS));
    let ext2 = kept(&device, &memory);
    let client = Client::new(&ext2);
    let mut prevented = 0;
    for number in 1..=200 {
        client.symlink(Ino::ROOT, format!("{number}"), "t".repeat(900)).unwrap();
        let words = words_of(&memory);
        let options = VolumeOptions::default();
        match Ext2::open_kept(new_copy(&device), options, Arc::clone(&memory)) {
            Ok(next) => assert_eq!(Client::new(&next).names(Ino::ROOT).unwrap().len(), number + 1),
            Err(Error::NotKept) => prevented += 1,
            Err(error) => panic!("{error}"),
        }
        restore(&memory, &words);
    }
    assert!((1..20).contains(&prevented), "{prevented}");
}

#[test]
fn records_of_another_file_system_or_damaged_ones_are_refused() {
    let (device, memory) = (new_device(SMALL_BYTES, 1024), shared(KEPT_WORDS));
    let ext2 = kept(&device, &memory);
    Client::new(&ext2).file(Ino::ROOT, "name", b"bytes").unwrap();
    let words = words_of(&memory);
    let open = |device: &Arc<dyn BlockDevice>| {
        let options = VolumeOptions::default();
        Ext2::open_kept(Arc::clone(device), options, Arc::clone(&memory)).map(drop)
    };
    let other = MemoryDevice::new(SMALL_BYTES);
    let uuid = [9; 16];
    mkfs(&other, &fslab_ext2::MkfsOptions { uuid, ..options(1024) }).unwrap();
    let other: Arc<dyn BlockDevice> = Arc::new(other);
    assert!(matches!(open(&other), Err(Error::NotKept)));
    let mut random = Pcg64::seed_from_u64(seed());
    let mut refused = 0;
    for round in 0..200 {
        restore(&memory, &words);
        let used = words.iter().rposition(|word| *word != 0).unwrap();
        // The header is in the first words.
        let at = random.random_range(0..=if round % 2 == 0 { 5 } else { used });
        memory.words()[at].store(random.random(), Ordering::Relaxed);
        // Damaged bytes of a block can't be recognised, but nothing may panic.
        refused += usize::from(open(&new_copy(&device)).is_err());
    }
    assert!(refused > 50, "{refused}");
}

fn new_copy(device: &Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    let copy = MemoryDevice::new(device.size());
    let mut bytes = vec![0; 1 << 20];
    for offset in (0..device.size()).step_by(bytes.len()) {
        device.read_at(offset, &mut bytes).unwrap();
        if bytes.iter().any(|byte| *byte != 0) {
            copy.write_at(offset, &bytes).unwrap();
        }
    }
    Arc::new(copy)
}
