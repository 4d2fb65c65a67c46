//! Tests that the records of a volume describe its whole state.

use std::sync::Arc;

use fslab_sys::shared_memory::SharedMemory;
use fslab_vfs::{BlockDevice, Errno, Ino, MemoryDevice, OpenMode};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::seed;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::record::Record;
use super::state::KeptChanges;
use super::{Halves, KEPT_WORDS};
use crate::fs::Ext2;
use crate::group::Group;
use crate::mkfs::{MkfsOptions, mkfs};
use crate::types::{BlockSize, InodeNo};
use crate::volume::{Volume, VolumeOptions};

fn memory() -> Arc<SharedMemory> {
    Arc::new(SharedMemory::new("fslab-test", KEPT_WORDS).unwrap())
}

fn device() -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(32 << 20);
    let block_size = BlockSize::new(1024).unwrap();
    mkfs(&device, &MkfsOptions { block_size, ..MkfsOptions::default() }).unwrap();
    Arc::new(device)
}

/// Returns all records of a volume's state in a fixed order. The volume records its groups only
/// after a change, so the groups in memory are used instead.
fn state(volume: &Volume, memory: &Arc<SharedMemory>) -> Vec<String> {
    let mut kept = KeptChanges::new(Halves::new(Arc::clone(memory)));
    volume.put_everything(&mut kept);
    let (block, inode) = (volume.block_size().bytes(), volume.geometry().inode_size as usize);
    let records = super::record::parse(kept.buffer.words(), block, inode).map(Option::unwrap);
    let mut records: Vec<_> = records
        .filter(|record| !matches!(record, Record::Group { .. }))
        .map(|record| format!("{record:?}"))
        .collect();
    records.sort();
    let groups = volume.space.groups();
    records.extend(groups.iter().map(|group| format!("{group:?}")));
    records
}

/// Changes a random name.
fn change(client: &Client<'_>, random: &mut Pcg64) {
    let names = client.names(Ino::ROOT).unwrap();
    let other = format!("{:0>30}", random.random_range(0..400));
    let one = names.get(random.random_range(0..names.len().max(1))).unwrap_or(&other).clone();
    let answer = match random.random_range(0..8) {
        0 => client.mkdir(Ino::ROOT, &other).map(drop),
        1 | 2 => client.file(Ino::ROOT, &other, &[1; 20_000]).map(drop),
        3 => client.rename(Ino::ROOT, &one, Ino::ROOT, &other),
        4 => client.unlink(Ino::ROOT, &one),
        5 => client.rmdir(Ino::ROOT, &one),
        6 => client.symlink(Ino::ROOT, &other, "t".repeat(500)).map(drop),
        _ => client
            .lookup(Ino::ROOT, &one)
            .and_then(|found| client.truncate(found.ino, random.random_range(0..30_000)))
            .map(drop),
    };
    // A name may be missing, exist already or have the wrong kind, so these errors are expected.
    let errno = answer.err().map(|error| error.errno());
    let expected =
        [Errno::NOENT, Errno::EXIST, Errno::ISDIR, Errno::NOTDIR, Errno::NOTEMPTY, Errno::INVAL];
    assert!(errno.is_none_or(|errno| expected.contains(&errno)), "{errno:?}");
}

/// A volume restored from the records of single operations has the same changed blocks with the
/// same roles, delayed inodes, freed blocks, orphans and counts as the original.
#[test]
fn restored_state_equals_the_recorded_one() {
    let (device, memory) = (device(), memory());
    let options = VolumeOptions::default();
    let ext2 = Ext2::open_kept(Arc::clone(&device), options, Arc::clone(&memory)).unwrap();
    let client = Client::new(&ext2);
    let mut random = Pcg64::seed_from_u64(seed());
    let mut open = Vec::new();
    for round in 0..400 {
        (0..random.random_range(1..8)).for_each(|_| change(&client, &mut random));
        match random.random_range(0..12) {
            0 => ext2.sync().unwrap(),
            1 | 2 => {
                let name = format!("open-{round}");
                let flags = OpenMode::EXCLUSIVE;
                let (_, file) = client.create(Ino::ROOT, &name, 0o600, flags).unwrap();
                file.fsync(false).unwrap();
                client.unlink(Ino::ROOT, &name).unwrap();
                open.push(file);
            }
            3 => drop(open.pop()),
            _ => {}
        }
        let volume = ext2.volume();
        let identity = volume.superblock.uuid_tag().into();
        let (words, _) = Halves::new(Arc::clone(&memory)).read(identity).unwrap();
        let mut restored = Volume::open(Arc::clone(&device), VolumeOptions::default()).unwrap();
        restored.restore(&words).unwrap();
        let when = format!("FSLAB_SEED={}, round {round}", seed());
        assert_eq!(state(&restored, &memory), state(&volume, &memory), "{when}");
    }
}

/// A flush within an operation must not make blocks reusable that the operation has freed. The next
/// daemon may restore the state before the operation, in which they are in use.
#[test]
fn flush_within_an_operation_does_not_free_its_blocks() {
    let (device, memory) = (device(), memory());
    let mut volume = Volume::open(Arc::clone(&device), VolumeOptions::default()).unwrap();
    volume.keep_changes(memory).unwrap();
    let before = volume.space.totals();
    let root = volume.inode(InodeNo::ROOT).unwrap();
    let (no, _) = volume.take_inode(InodeNo::ROOT, root.kind).unwrap();
    volume.commit();
    volume.space.free_inode(&mut volume.cache, no, root.kind).unwrap();
    volume.flush_within_operation().unwrap();
    assert!(volume.space.is_waiting());
    volume.commit();
    volume.flush().unwrap();
    assert!(!volume.space.is_waiting());
    assert_eq!(volume.space.totals(), before);
    let on_device = Group::read_all(&*device, volume.geometry()).unwrap();
    assert_eq!(volume.space.groups(), on_device);
}

/// No change follows, with which the errors would be recorded.
#[test]
fn damage_found_by_a_reader_is_known_to_the_next_daemon() {
    const NAME: &str = "name-in-a-damaged-block";
    let (device, memory) = (device(), memory());
    let ext2 = Ext2::open(Arc::clone(&device), VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    let directory = client.mkdir(Ino::ROOT, "directory").unwrap();
    client.file(directory, NAME, b"bytes").unwrap();
    ext2.sync().unwrap();
    drop(client);
    drop(ext2);
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let name = bytes.windows(NAME.len()).position(|part| part == NAME.as_bytes()).unwrap();
    // The length of the entry.
    device.write_at(name as u64 - 4, &[0; 2]).unwrap();
    let open = || {
        let memory = Arc::clone(&memory);
        Ext2::open_kept(Arc::clone(&device), VolumeOptions::default(), memory).unwrap()
    };
    let has_errors = || {
        let mut state = [0; 2];
        // `s_state` of the superblock.
        device.read_at(1024 + 58, &mut state).unwrap();
        state[0] & 2 != 0
    };
    let first = open();
    let client = Client::new(&first);
    let directory = client.lookup(Ino::ROOT, "directory").unwrap().ino;
    client.names(directory).unwrap_err();
    assert!(!has_errors());
    drop(client);
    // As if the daemon were killed.
    std::mem::forget(first);
    drop(open());
    assert!(has_errors());
}
