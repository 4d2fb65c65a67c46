//! Tests the fsync of one file. It writes few blocks, no matter how much else is dirty, and the
//! synced file survives every power cut.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_ext2::dir::Hasher;
use fslab_ext2::{Ext2, HashVersion, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::{BlockDevice, FallocateMode, Ino, MemoryDevice, OpenMode, SetAttr};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::crash::overtaking::Verdict;
use fslab_vfs_testing::crash::{CrashDevice, Plan};
use fslab_vfs_testing::environment::seed;

use crate::power::{image_of, repair};
use crate::support::{Access, Watch, Watched, has, options};

const BLOCK: usize = 4096;
/// Number of dirty files in addition to the synced one.
const OTHERS: u32 = 20_000;

/// A device in memory that counts the bytes of metadata written.
type CountingDevice = Watched<AtomicU64>;

impl Watch for AtomicU64 {
    fn see(&self, access: Access<'_>) -> fslab_vfs::Result<Verdict> {
        if let Access::Write { bytes, is_metadata: true, .. } = access {
            self.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(Verdict::Do)
    }
}

/// Makes a file system with a durable file and a durable directory on a [`CountingDevice`].
fn counted() -> (Arc<CountingDevice>, Ext2) {
    let memory = MemoryDevice::new(256 << 20);
    mkfs(&memory, &options(BLOCK as u32)).unwrap();
    let device = Arc::new(Watched { memory, watch: AtomicU64::new(0) });
    let shared: Arc<dyn BlockDevice> = device.clone();
    let volume = VolumeOptions { dirty_bytes_max: 256 << 20, ..VolumeOptions::default() };
    (device, Ext2::open(shared, volume).unwrap())
}

/// Makes many files without syncing any.
fn dirty(client: &Client<'_>, directory: Ino) {
    for number in 0..OTHERS {
        client.file(directory, format!("other{number}"), b"o").unwrap();
    }
}

fn blocks_written(device: &CountingDevice, work: impl FnOnce()) -> u64 {
    let before = device.watch.load(Ordering::Relaxed);
    work();
    (device.watch.load(Ordering::Relaxed) - before).div_ceil(BLOCK as u64)
}

#[test]
fn fsync_of_an_append_writes_few_blocks_beside_many_dirty_inodes() {
    let (device, ext2) = counted();
    let client = Client::new(&ext2);
    let (_, file) = client.create(Ino::ROOT, "file", 0o600, OpenMode::EXCLUSIVE).unwrap();
    // The next blocks of the file are mapped by an indirect block.
    file.write_all(0, &[b'f'; 14 * BLOCK]).unwrap();
    let others = client.mkdir(Ino::ROOT, "others").unwrap();
    ext2.sync().unwrap();
    dirty(&client, others);
    let first = blocks_written(&device, || {
        file.write_all(14 * BLOCK as u64, &[b'a'; BLOCK]).unwrap();
        file.fsync(false).unwrap();
    });
    let second = blocks_written(&device, || {
        file.write_all(15 * BLOCK as u64, &[b'a'; BLOCK]).unwrap();
        file.fsync(false).unwrap();
    });
    let in_place = blocks_written(&device, || {
        file.write_all(0, &[b'b'; BLOCK]).unwrap();
        file.fsync(false).unwrap();
    });
    let all = blocks_written(&device, || ext2.sync().unwrap());
    println!("blocks: {first} and {second} for an append, {in_place} in place, {all} for all");
    assert!(first <= 3, "{first} blocks: superblock, indirect block, inode");
    assert!(second <= 2 && in_place <= 1, "{second} blocks, {in_place} in place");
    assert!(all > u64::from(OTHERS) / 16, "{all} blocks of the others");
}

#[test]
fn fsync_of_a_new_file_writes_few_blocks_beside_many_dirty_inodes() {
    let (device, ext2) = counted();
    let client = Client::new(&ext2);
    let [mine, others] = ["mine", "others"].map(|it| client.mkdir(Ino::ROOT, it).unwrap());
    ext2.sync().unwrap();
    dirty(&client, others);
    let apart = blocks_written(&device, || {
        let ino = client.file(mine, "new", &[b'n'; 2 * BLOCK]).unwrap();
        client.open(ino, OpenMode::READ_WRITE).unwrap().fsync(false).unwrap();
    });
    assert!(apart <= 4, "{apart} blocks: superblock, two inodes, name");
    let nested = blocks_written(&device, || {
        let above = client.mkdir(mine, "above").unwrap();
        let below = client.mkdir(above, "below").unwrap();
        let ino = client.file(below, "new", &[b'n'; 2 * BLOCK]).unwrap();
        client.open(ino, OpenMode::READ_WRITE).unwrap().fsync(false).unwrap();
    });
    assert!(nested <= 8, "{nested} blocks: four inodes, three directories");
    // The directory of the other files is not on the device yet. The fsync writes the directory's
    // blocks but not the inodes of these files.
    let beside = |name: &str| {
        blocks_written(&device, || {
            let ino = client.file(others, name, b"n").unwrap();
            client.open(ino, OpenMode::READ_WRITE).unwrap().fsync(false).unwrap();
        })
    };
    let (first, second) = (beside("first"), beside("second"));
    println!("blocks: {apart} apart, {nested} nested, {first} and {second} beside the others");
    assert!(first <= 300, "{first} blocks");
    assert!(second <= 5, "{second} blocks: inodes, name, index");
    let directory = blocks_written(&device, || client.sync_directory(mine).unwrap());
    assert!(directory <= 8, "{directory} blocks");
}

/// Cuts the power at all points after an fsync, with unflushed writes in any order, and checks each
/// state with `look`. `prepare` creates the durable state, `work` syncs a file, and `afterwards`
/// makes later changes.
#[track_caller]
fn survives(
    block: u32,
    bytes: u64,
    prepare: impl FnOnce(&Client<'_>),
    work: impl FnOnce(&Client<'_>),
    afterwards: impl FnOnce(&Client<'_>),
    look: impl Fn(&Client<'_>) -> Result<(), String>,
) {
    survives_on(&options(block), bytes, prepare, work, afterwards, look);
}

#[track_caller]
fn survives_on(
    made: &MkfsOptions,
    bytes: u64,
    prepare: impl FnOnce(&Client<'_>),
    work: impl FnOnce(&Client<'_>),
    afterwards: impl FnOnce(&Client<'_>),
    look: impl Fn(&Client<'_>) -> Result<(), String>,
) {
    if !has("e2fsck") {
        return;
    }
    let device = Arc::new(CrashDevice::new(bytes, made.block_size.bytes_u64()).unwrap());
    mkfs(&*device, &MkfsOptions { bytes_per_inode: 2048, ..made.clone() }).unwrap();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let ext2 = Ext2::open(shared, VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    prepare(&client);
    ext2.sync().unwrap();
    work(&client);
    let synced = device.position();
    afterwards(&client);
    ext2.sync().unwrap();
    let log = device.log();
    let mut points: HashSet<usize> =
        log.points_before_flushes().into_iter().filter(|point| *point > synced).collect();
    points.insert(synced);
    let plan = Plan { seed: seed(), subsets: 6, prefixes: 3 };
    let states = log
        .for_each_state(&plan, &|point| points.contains(&point), &mut |state| {
            let image = image_of(state, bytes);
            repair(&image)?;
            image.check("repaired by e2fsck");
            look(&Client::new(&image.open()))
        })
        .unwrap_or_else(|problem| panic!("FSLAB_SEED={}: {problem}", plan.seed));
    assert!(states > points.len(), "{states} states of {} points", points.len());
}

fn has_bytes(client: &Client<'_>, path: &[&str], bytes: &[u8]) -> Result<(), String> {
    let mut at = Ino::ROOT;
    for name in path {
        at = client.lookup(at, name).map_err(|error| format!("{path:?}: {error}"))?.ino;
    }
    let contents = client.contents(at).map_err(|error| format!("{path:?}: {error}"))?;
    if contents == bytes { Ok(()) } else { Err(format!("{path:?} has other bytes")) }
}

fn sync(client: &Client<'_>, ino: Ino) {
    client.open(ino, OpenMode::READ_WRITE).unwrap().fsync(false).unwrap();
}

/// The directory was made and split into many blocks since the last sync. All of its blocks contain
/// names of files whose inodes are not on the device.
#[test]
fn synced_files_in_new_directories_survive_power_cuts() {
    let bytes: Vec<u8> = (0..20_000_u32).map(|at| (at / 7) as u8).collect();
    survives(
        1024,
        8 << 20,
        |client| {
            client.file(Ino::ROOT, "before", b"b").unwrap();
        },
        |client| {
            let above = client.mkdir(Ino::ROOT, "above").unwrap();
            let many = client.mkdir(above, "many").unwrap();
            for number in 0..300 {
                client.file(many, format!("other{number}-{:n<40}", ""), &[b'o'; 1500]).unwrap();
            }
            let first = client.file(many, "first", &bytes).unwrap();
            sync(client, first);
            for number in 300..500 {
                client.file(many, format!("other{number}-{:n<40}", ""), &[b'o'; 1500]).unwrap();
            }
            sync(client, client.file(many, "second", &bytes).unwrap());
        },
        |client| {
            let above = client.lookup(Ino::ROOT, "above").unwrap().ino;
            let many = client.lookup(above, "many").unwrap().ino;
            for number in (0..500).filter(|number| number % 5 > 0) {
                client.unlink(many, format!("other{number}-{:n<40}", "")).unwrap();
            }
        },
        |client| {
            has_bytes(client, &["before"], b"b")?;
            has_bytes(client, &["above", "many", "first"], &bytes)?;
            has_bytes(client, &["above", "many", "second"], &bytes)
        },
    );
}

/// A durable file is emptied. Its blocks must not be given to a file that is synced before the
/// truncation reaches the device. Otherwise a block would belong to both files, and a checker would
/// clone the block or clear one of the files.
#[test]
fn synced_file_shares_no_block_with_an_emptied_one() {
    // The file fills most of the volume, so the policy prefers its freed blocks.
    const ROOM: usize = 1_300_000;
    // Number of synced files. Each is small enough to need no indirect block, so its fsync is
    // independent of the truncation.
    const KEPT: u32 = 30;
    let kept = vec![b'k'; 10_000];
    survives(
        1024,
        2 << 20,
        |client| {
            client.file(Ino::ROOT, "emptied", &[b'e'; ROOM]).unwrap();
            client.file(Ino::ROOT, "old", &[b'o'; 50_000]).unwrap();
        },
        |client| {
            let emptied = client.lookup(Ino::ROOT, "emptied").unwrap().ino;
            client.set(emptied, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
            for number in 0..KEPT {
                let ino = client.file(Ino::ROOT, format!("kept{number}"), &kept).unwrap();
                sync(client, ino);
            }
        },
        |_| {},
        |client| {
            has_bytes(client, &["old"], &[b'o'; 50_000])?;
            let emptied = client.lookup(Ino::ROOT, "emptied").map_err(|error| error.to_string())?;
            let bytes = client.contents(emptied.ino).map_err(|error| error.to_string())?;
            if bytes.contains(&b'k') {
                return Err("the emptied file has bytes of another".to_owned());
            }
            (0..KEPT).try_for_each(|number| has_bytes(client, &[&format!("kept{number}")], &kept))
        },
    );
}

/// A rename over an existing name makes this name refer to a new inode. Syncing another file in the
/// same directory block must not remove the name from the device.
#[test]
fn sync_of_a_neighbour_loses_no_replaced_name() {
    survives(
        1024,
        4 << 20,
        |client| {
            let old = client.file(Ino::ROOT, "name", b"old").unwrap();
            client.forget(old);
        },
        |client| {
            client.file(Ino::ROOT, "aside", b"new").unwrap();
            client.rename(Ino::ROOT, "aside", Ino::ROOT, "name").unwrap();
            sync(client, client.file(Ino::ROOT, "neighbour", b"n").unwrap());
        },
        |_| {},
        |client| {
            has_bytes(client, &["neighbour"], b"n")?;
            has_bytes(client, &["name"], b"old").or_else(|_| has_bytes(client, &["name"], b"new"))
        },
    );
}

/// An fsync of a directory makes its names durable, together with their inodes.
#[test]
fn names_of_a_synced_directory_survive_power_cuts() {
    survives(
        1024,
        4 << 20,
        |client| {
            let directory = client.mkdir(Ino::ROOT, "directory").unwrap();
            client.file(directory, "removed", b"r").unwrap();
        },
        |client| {
            let directory = client.lookup(Ino::ROOT, "directory").unwrap().ino;
            let other = client.mkdir(Ino::ROOT, "other").unwrap();
            for number in 0..50 {
                client.file(other, format!("other{number}"), b"o").unwrap();
            }
            for number in 0..40 {
                client.file(directory, format!("new{number}-{:n<40}", ""), b"").unwrap();
            }
            client.symlink(directory, "link", "t".repeat(200)).unwrap();
            client.unlink(directory, "removed").unwrap();
            client.sync_directory(directory).unwrap();
        },
        |_| {},
        |client| {
            let directory =
                client.lookup(Ino::ROOT, "directory").map_err(|error| error.to_string())?.ino;
            let link = client.lookup(directory, "link").map_err(|error| error.to_string())?.ino;
            if client.readlink(link).map_err(|error| error.to_string())?.len() != 200 {
                return Err("the link has another target".to_owned());
            }
            if client.exists(directory, "removed").unwrap() {
                return Err("a removed name is back".to_owned());
            }
            (0..40).try_for_each(|number| {
                has_bytes(client, &["directory", &format!("new{number}-{:n<40}", "")], b"")
            })
        },
    );
}

/// A block written for one file contains neither name nor inode of unsynced files, even before a
/// checker repairs the file system.
#[test]
fn fsync_writes_no_name_or_inode_of_other_new_files() {
    const NAMES: u32 = 60;
    let device = Arc::new(CrashDevice::new(2 << 20, 1024).unwrap());
    mkfs(&*device, &options(1024)).unwrap();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let ext2 = Ext2::open(shared, VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    ext2.sync().unwrap();
    let begin = device.position();
    let (mut synced, mut unsynced) = (Vec::new(), Vec::new());
    for number in 0..NAMES {
        let ino = client.file(Ino::ROOT, format!("{number}"), b"").unwrap();
        if number % 20 == 10 {
            sync(&client, ino);
            synced.push((device.position(), number));
        } else {
            unsynced.push(ino);
        }
    }
    let (log, mut others) = (device.log(), 0);
    let plan = Plan { seed: seed(), subsets: 10, prefixes: 10 };
    let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    log.for_each_state(&plan, &|point| point > begin, &mut |state| {
        let ext2 = Ext2::open(Arc::new(state.open().unwrap()), read_only.clone()).unwrap();
        let client = Client::new(&ext2);
        for listed in client.list(Ino::ROOT).map_err(|error| error.to_string())? {
            let found = client.lookup(Ino::ROOT, &listed.name);
            found.map_err(|error| format!("{}: {error}", listed.name.display()))?;
            others += u32::from(listed.name.to_str().is_some_and(|it| it.parse::<u32>().is_ok()));
        }
        for (_, number) in synced.iter().filter(|(at, _)| *at <= state.point) {
            has_bytes(&client, &[&format!("{number}")], b"")?;
        }
        // Inodes of unsynced files are not written with others in the same block.
        match unsynced.iter().find(|ino| client.attr(**ino).is_ok()) {
            None => Ok(()),
            Some(ino) => Err(format!("inode {ino:?} is there")),
        }
    })
    .unwrap_or_else(|problem| panic!("FSLAB_SEED={}: {problem}", plan.seed));
    assert!(others > 0, "no name was on the device at any point");
}

/// The next flush writes the changes that an fsync of one file left out of a block. Until then the
/// image is not marked clean.
#[test]
fn next_flush_writes_changes_that_an_fsync_left_out() {
    const STATE_OFFSET: u64 = 1024 + 58;
    const IS_CLEAN: u8 = 1;
    let (device, ext2) = counted();
    let client = Client::new(&ext2);
    ext2.sync().unwrap();
    let is_clean = || {
        let mut state = [0];
        device.read_at(STATE_OFFSET, &mut state).unwrap();
        state[0] & IS_CLEAN != 0
    };
    let names_on_the_device = || {
        let shared: Arc<dyn BlockDevice> = device.clone();
        let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        let ext2 = Ext2::open(shared, options).unwrap();
        Client::new(&ext2).names(Ino::ROOT).unwrap()
    };
    assert!(is_clean());
    let before = names_on_the_device();
    client.file(Ino::ROOT, "another", b"a").unwrap();
    let synced = client.file(Ino::ROOT, "synced", b"s").unwrap();
    client.open(synced, OpenMode::READ_WRITE).unwrap().fsync(false).unwrap();
    let with = |more: &[&str]| {
        let mut names = before.clone();
        names.extend(more.iter().map(|name| (*name).into()));
        names.sort();
        names
    };
    let sorted = |mut names: Vec<_>| {
        names.sort();
        names
    };
    assert_eq!(sorted(names_on_the_device()), with(&["synced"]));
    assert!(!is_clean(), "the inode of another file is not on the device");
    ext2.sync().unwrap();
    assert_eq!(sorted(names_on_the_device()), with(&["another", "synced"]));
    assert!(is_clean());
}

/// Checks a condition after a power cut at any point after `prepare`, without repairing first.
fn holds_at_every_cut(
    prepare: impl FnOnce(&Client<'_>),
    work: impl FnOnce(&Client<'_>),
    look: impl Fn(&Client<'_>) -> Result<(), String>,
) {
    let device = Arc::new(CrashDevice::new(4 << 20, 1024).unwrap());
    mkfs(&*device, &options(1024)).unwrap();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let ext2 = Ext2::open(shared, VolumeOptions::default()).unwrap();
    let client = Client::new(&ext2);
    prepare(&client);
    ext2.sync().unwrap();
    let begin = device.position();
    work(&client);
    let plan = Plan { seed: seed(), subsets: 10, prefixes: 10 };
    let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let states = device
        .log()
        .for_each_state(&plan, &|point| point >= begin, &mut |state| {
            let ext2 = Ext2::open(Arc::new(state.open().unwrap()), read_only.clone()).unwrap();
            look(&Client::new(&ext2))
        })
        .unwrap_or_else(|problem| panic!("FSLAB_SEED={}: {problem}", plan.seed));
    assert!(states > 0);
}

/// A second name reaches the device only after the link count that includes it.
#[test]
fn fsync_of_a_neighbour_writes_no_name_before_its_count_of_links() {
    holds_at_every_cut(
        |client| {
            client.file(Ino::ROOT, "old", b"o").unwrap();
        },
        |client| {
            let old = client.lookup(Ino::ROOT, "old").unwrap().ino;
            client.link(old, Ino::ROOT, "second").unwrap();
            sync(client, client.file(Ino::ROOT, "neighbour", b"n").unwrap());
        },
        |client| {
            let names = client.names(Ino::ROOT).map_err(|error| error.to_string())?;
            if !names.contains(&"second".to_owned()) {
                return Ok(());
            }
            let links = client.lookup(Ino::ROOT, "second").map_err(|it| it.to_string())?.links;
            if links >= 2 { Ok(()) } else { Err(format!("two names, {links} link")) }
        },
    );
}

/// A punched hole is durable after the fsync, although a flush writes indirect blocks that lost
/// pointers only in its last steps.
#[test]
fn synced_hole_behind_an_indirect_block_survives_power_cuts() {
    const HOLE: std::ops::Range<usize> = 20 * 1024..30 * 1024;
    survives(
        1024,
        4 << 20,
        |client| {
            client.file(Ino::ROOT, "file", &[b'f'; 40 * 1024]).unwrap();
        },
        |client| {
            let ino = client.lookup(Ino::ROOT, "file").unwrap().ino;
            let file = client.open(ino, OpenMode::READ_WRITE).unwrap();
            let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            file.fallocate(HOLE.start as u64, HOLE.len() as u64, mode).unwrap();
            file.fsync(false).unwrap();
        },
        |_| {},
        |client| {
            let mut bytes = [b'f'; 40 * 1024];
            bytes[HOLE].fill(0);
            has_bytes(client, &["file"], &bytes)
        },
    );
}

/// The directory shrinks in place, which moves its last block. The remaining names must survive a
/// power cut after every fsync.
#[test]
fn fsync_of_a_shrinking_directory_keeps_the_names_that_stay() {
    const NAMES: u32 = 60;
    let name = |number: u32| format!("name{number}-{}", "n".repeat(100));
    let stays = |number: &u32| number.is_multiple_of(8);
    survives(
        1024,
        4 << 20,
        |client| {
            let directory = client.mkdir(Ino::ROOT, "directory").unwrap();
            for number in 0..NAMES {
                client.file(directory, name(number), b"n").unwrap();
            }
        },
        |_| {},
        |client| {
            let directory = client.lookup(Ino::ROOT, "directory").unwrap().ino;
            for number in (0..NAMES).filter(|number| !stays(number)) {
                client.unlink(directory, name(number)).unwrap();
                client.sync_directory(directory).unwrap();
            }
        },
        |client| {
            let found = client.lookup(Ino::ROOT, "directory").map_err(|error| error.to_string())?;
            for number in (0..NAMES).filter(stays) {
                client
                    .lookup(found.ino, name(number))
                    .map_err(|error| format!("{number}: {error}"))?;
            }
            Ok(())
        },
    );
}

/// An fsync of a directory makes moves into it fully durable. It also removes the old names from
/// the previous directory, although that directory was not synced. This includes the old name of a
/// file that was removed after its move.
#[test]
fn fsync_of_a_directory_removes_old_names_of_moved_files() {
    survives(
        1024,
        4 << 20,
        |client| {
            let [from, _] = ["from", "to"].map(|it| client.mkdir(Ino::ROOT, it).unwrap());
            for name in ["moved", "removed"] {
                let ino = client.file(from, name, name.as_bytes()).unwrap();
                client.forget(ino);
            }
        },
        |client| {
            let [from, to] = ["from", "to"].map(|it| client.lookup(Ino::ROOT, it).unwrap().ino);
            for name in ["moved", "removed"] {
                client.rename(from, name, to, name).unwrap();
            }
            client.unlink(to, "removed").unwrap();
            client.sync_directory(to).unwrap();
        },
        |_| {},
        |client| {
            has_bytes(client, &["to", "moved"], b"moved")?;
            let found = client.lookup(Ino::ROOT, "from").map_err(|error| error.to_string())?;
            match client.names(found.ino).map_err(|error| error.to_string())? {
                names if names.is_empty() => Ok(()),
                names => Err(format!("old names: {names:?}")),
            }
        },
    );
}

/// A durable name is removed and created again. The device still has the old name in another block,
/// because the leaf was split in between, or because an earlier block of a linear directory had
/// room.
#[test]
fn synced_name_that_was_removed_and_remade_exists_once() {
    const DURABLE: u32 = 30;
    let name = |number: u32| format!("name{number:02}-{}", "n".repeat(50));
    for index in [Some(HashVersion::HalfMd4), None] {
        let made = MkfsOptions { index, ..options(1024) };
        let hasher = Hasher::new(HashVersion::HalfMd4, made.signed_hash, made.hash_seed);
        let hash = |number: &u32| hasher.hash(name(*number).as_bytes()).major;
        // A split moves the names with the higher hashes.
        let again = match index {
            Some(_) => name((1..DURABLE).max_by_key(hash).unwrap()),
            None => name(DURABLE - 1),
        };
        survives_on(
            &made,
            4 << 20,
            |client| {
                let directory = client.mkdir(Ino::ROOT, "directory").unwrap();
                for number in 0..DURABLE {
                    client.file(directory, name(number), b"old").unwrap();
                }
            },
            |client| {
                let directory = client.lookup(Ino::ROOT, "directory").unwrap().ino;
                for number in DURABLE..2 * DURABLE {
                    client.file(directory, name(number), b"other").unwrap();
                }
                client.unlink(directory, name(0)).unwrap();
                client.unlink(directory, &again).unwrap();
                sync(client, client.file(directory, &again, b"again").unwrap());
            },
            |_| {},
            |client| {
                has_bytes(client, &["directory", &again], b"again")?;
                let found = client.lookup(Ino::ROOT, "directory").map_err(|it| it.to_string())?;
                let names = client.names(found.ino).map_err(|error| error.to_string())?;
                let count = names.iter().filter(|name| **name == again).count();
                if count == 1 { Ok(()) } else { Err(format!("{again} is there {count} times")) }
            },
        );
    }
}

/// The way in which a directory gains a name.
#[derive(Clone, Copy, Debug)]
enum Gains {
    New,
    Moved,
    Linked,
}

/// A directory that has shrunk must grow again for a new name. Growing flushes everything before
/// the name exists, so this flush does not include the name.
#[test]
fn synced_name_survives_a_flush_within_its_operation() {
    let name = |number: u32| format!("name{number:03}-{}", "n".repeat(50));
    for gains in [Gains::New, Gains::Moved, Gains::Linked] {
        let synced = RefCell::new(String::new());
        survives(
            1024,
            4 << 20,
            |client| {
                let [directory, aside] =
                    ["directory", "aside"].map(|name| client.mkdir(Ino::ROOT, name).unwrap());
                for number in 0..100 {
                    client.file(directory, name(number), b"bytes").unwrap();
                    client.file(aside, name(100 + number), b"bytes").unwrap();
                }
            },
            |client| {
                let find = |name: &str| client.lookup(Ino::ROOT, name).unwrap().ino;
                let [directory, aside] = ["directory", "aside"].map(find);
                let size = || client.attr(directory).unwrap().size;
                let at_first = size();
                let mut numbers = 0..100;
                while size() == at_first {
                    client.unlink(directory, name(numbers.next().unwrap())).unwrap();
                }
                let (small, mut numbers) = (size(), 100..200);
                while size() == small {
                    let name = name(numbers.next().unwrap());
                    let old = client.lookup(aside, &name).unwrap().ino;
                    let ino = match gains {
                        Gains::New => client.file(directory, &name, b"bytes").unwrap(),
                        Gains::Moved => {
                            client.rename(aside, &name, directory, &name).unwrap();
                            old
                        }
                        Gains::Linked => {
                            client.link(old, directory, &name).unwrap();
                            old
                        }
                    };
                    if size() > small {
                        sync(client, ino);
                        synced.replace(name);
                    }
                }
            },
            |client| {
                client.file(Ino::ROOT, "later", b"later").unwrap();
            },
            |client| {
                has_bytes(client, &["directory", &synced.borrow()], b"bytes")
                    .map_err(|error| format!("{gains:?}: {error}"))
            },
        );
    }
}
