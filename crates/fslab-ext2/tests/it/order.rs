//! Tests the order of writes to the device. Mass deletion needs no intermediate flush and loses no
//! remaining file. Bytes of one file never appear in another.

use std::collections::HashSet;
use std::sync::Arc;

use fslab_ext2::alloc::Clustering;
use fslab_ext2::{Ext2, MkfsOptions, VolumeOptions, mkfs};
use fslab_vfs::{Attr, BlockDevice, Extent, FileSystem, Ino, OpenMode};
use fslab_vfs_testing::client::{Client, File};
use fslab_vfs_testing::crash::{CrashDevice, DeviceState, Plan};
use fslab_vfs_testing::environment::seed;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::power::{image_of, repair};
use crate::support::{Image, has, options};

const BLOCK: usize = 1024;
/// Maximum number of points at which the power is cut.
const CUTS: usize = 16;

/// Makes a new file system on a recording device.
fn recorded(bytes: u64, options: &MkfsOptions) -> (Arc<CrashDevice>, Ext2) {
    recorded_with(bytes, options, VolumeOptions::default())
}

fn recorded_with(
    bytes: u64,
    options: &MkfsOptions,
    volume: VolumeOptions,
) -> (Arc<CrashDevice>, Ext2) {
    let device = Arc::new(CrashDevice::new(bytes, BLOCK as u64).unwrap());
    mkfs(&*device, options).unwrap();
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    (device, Ext2::open(shared, volume).unwrap())
}

/// Cuts the power at some points since `begin`, repairs each state and passes it to `look`. Returns
/// the number of states.
#[track_caller]
fn after_cuts(
    device: &CrashDevice,
    bytes: u64,
    begin: usize,
    look: &mut dyn FnMut(&Client<'_>) -> Result<(), String>,
) -> usize {
    let seed = seed();
    let log = device.log();
    let all: Vec<usize> =
        log.points_before_flushes().into_iter().filter(|point| *point > begin).collect();
    let mut random = Pcg64::seed_from_u64(seed);
    let points: HashSet<usize> = all.sample(&mut random, CUTS).copied().collect();
    let mut see = |state: &DeviceState| {
        let image: Image = image_of(state, bytes);
        repair(&image)?;
        image.check("repaired by e2fsck");
        look(&Client::new(&image.open()))
    };
    let plan = Plan { seed, subsets: 6, prefixes: 2 };
    log.for_each_state(&plan, &|point| points.contains(&point), &mut see)
        .unwrap_or_else(|problem| panic!("FSLAB_SEED={seed}: {problem}"))
}

/// Cuts the power at some points since `begin`. Asserts that each file then has one of its names in
/// one of these directories of the root.
#[track_caller]
fn lose_none(
    device: &CrashDevice,
    bytes: u64,
    begin: usize,
    directories: &[&str],
    files: &[Vec<String>],
) {
    after_cuts(device, bytes, begin, &mut |client| {
        let mut places = Vec::new();
        for name in directories {
            let found = client.lookup(Ino::ROOT, name).map_err(|error| error.to_string())?;
            places.push(found.ino);
        }
        let is_there =
            |name: &String| places.iter().any(|place| client.exists(*place, name).unwrap());
        let lost = files.iter().find(|names| !names.iter().any(is_there));
        lost.map_or(Ok(()), |names| Err(format!("{names:?} are lost")))
    });
}

/// Passes the states after power cuts at all points since `begin` to `look`, without repair.
#[track_caller]
fn in_all_states(
    device: &CrashDevice,
    begin: usize,
    look: &mut dyn FnMut(&Ext2) -> Result<(), String>,
) {
    let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let mut see = |state: &DeviceState| {
        look(&Ext2::open(Arc::new(state.open().unwrap()), read_only.clone()).unwrap())
    };
    let plan = Plan { seed: seed(), subsets: 20, prefixes: 20 };
    device
        .log()
        .for_each_state(&plan, &|point| point > begin, &mut see)
        .unwrap_or_else(|problem| panic!("FSLAB_SEED={}: {problem}", plan.seed));
}

/// During mass deletion, leaves are merged constantly and gaps are filled from the directory's end.
#[test]
fn mass_deletion_needs_no_flush_and_keeps_the_other_names() {
    const NAMES: u32 = 3000;
    const BYTES: u64 = 8 << 20;
    if !has("e2fsck") {
        return;
    }
    let (device, ext2) =
        recorded(BYTES, &MkfsOptions { bytes_per_inode: 1024, ..options(BLOCK as u32) });
    let name = |index: u32| format!("name{index:06}-of-some-length");
    let client = Client::new(&ext2);
    let names = client.mkdir(Ino::ROOT, "names").unwrap();
    for index in 0..NAMES {
        client.file(names, name(index), b"").unwrap();
    }
    let gone = client.mkdir(Ino::ROOT, "gone").unwrap();
    for index in 0..NAMES / 10 {
        client.file(gone, name(index), b"").unwrap();
    }
    // Without the client's references, the files are deleted with their names.
    drop(client);
    ext2.sync().unwrap();
    let client = Client::new(&ext2);
    let (begin, full) = (device.position(), client.attr(names).unwrap().size);
    let is_kept = |index: u32| index.is_multiple_of(NAMES / 30);
    for index in (0..NAMES).filter(|index| !is_kept(*index)) {
        client.unlink(names, name(index)).unwrap();
    }
    // Also remove a directory of many blocks with all its names.
    (0..NAMES / 10).for_each(|index| client.unlink(gone, name(index)).unwrap());
    client.rmdir(Ino::ROOT, "gone").unwrap();
    let flushed = device.log().points_before_flushes().into_iter().filter(|point| *point > begin);
    assert_eq!(flushed.count(), 0, "flushes while names were deleted");
    let size = client.attr(names).unwrap().size;
    assert!(size <= 8 * BLOCK as u64, "30 names of {NAMES} take {size} bytes of {full}");
    ext2.sync().unwrap();
    let kept: Vec<_> = (0..NAMES).filter(|at| is_kept(*at)).map(|at| vec![name(at)]).collect();
    lose_none(&device, BYTES, begin, &["names"], &kept);
}

/// Leaves are split, merged and moved from the directory's end into gaps, all between two flushes.
/// The remaining names must exist after every power cut.
#[test]
fn power_cut_after_leaf_splits_and_merges_loses_no_name() {
    const KEPT: u32 = 900;
    const PASSING: u32 = 1800;
    const BYTES: u64 = 8 << 20;
    if !has("e2fsck") {
        return;
    }
    let (device, ext2) =
        recorded(BYTES, &MkfsOptions { bytes_per_inode: 1024, ..options(BLOCK as u32) });
    let mut random = Pcg64::seed_from_u64(seed());
    let kept = |index: u32| format!("kept{index:06}-of-some-length");
    let client = Client::new(&ext2);
    let names = client.mkdir(Ino::ROOT, "names").unwrap();
    for index in 0..KEPT {
        client.file(names, kept(index), b"").unwrap();
    }
    drop(client);
    ext2.sync().unwrap();
    let begin = device.position();
    // `passing` is the number of new names. Old names whose number modulo 4 equals `goes` are
    // removed together with the new ones.
    for (passing, goes) in [(PASSING, 3), (PASSING / 2, 2)] {
        let mut gone: Vec<String> =
            (0..passing).map(|index| format!("passing{index:06}-{passing}")).collect();
        for name in &gone {
            // Dropping this file's own client drops all references to the file.
            Client::new(&ext2).file(names, name, b"").unwrap();
        }
        gone.extend((0..KEPT).filter(|index| index % 4 == goes).map(kept));
        gone.shuffle(&mut random);
        for name in &gone {
            Client::new(&ext2).unlink(names, name).unwrap();
        }
    }
    ext2.sync().unwrap();
    let kept: Vec<_> = (0..KEPT).filter(|at| at % 4 < 2).map(|at| vec![kept(at)]).collect();
    lose_none(&device, BYTES, begin, &["names"], &kept);
}

/// Names are moved between blocks, and other names are put into the freed space.
#[test]
fn moved_name_exists_in_at_least_one_place_after_a_power_cut() {
    const FILES: usize = 120;
    const MOVES: usize = 100;
    const BYTES: u64 = 4 << 20;
    if !has("e2fsck") {
        return;
    }
    let (device, ext2) =
        recorded(BYTES, &MkfsOptions { bytes_per_inode: 4096, ..options(BLOCK as u32) });
    let client = Client::new(&ext2);
    let directories = ["a", "b"].map(|name| client.mkdir(Ino::ROOT, name).unwrap());
    // The current directory of each file, and all names that the file ever had.
    let mut places: Vec<usize> = (0..FILES).map(|file| file % 2).collect();
    let mut names: Vec<Vec<String>> =
        (0..FILES).map(|file| vec![format!("file{file}-{:n<40}", "")]).collect();
    for (names, place) in names.iter().zip(&places) {
        client.file(directories[*place], &names[0], b"").unwrap();
    }
    ext2.sync().unwrap();
    let begin = device.position();
    let mut random = Pcg64::seed_from_u64(seed());
    for count in 0..MOVES {
        let (file, to) = (random.random_range(0..FILES), random.random_range(0..2));
        let new = format!("moved{count}-{:n<40}", "");
        let (from, old) = (directories[places[file]], names[file].last().unwrap());
        client.rename(from, old, directories[to], &new).unwrap();
        places[file] = to;
        names[file].push(new);
    }
    ext2.sync().unwrap();
    lose_none(&device, BYTES, begin, &["a", "b"], &names);
}

/// Names are moved between leaves of one directory. Then most leaves are merged and the others are
/// moved to the directory's beginning, all between two flushes. A last block that had received
/// names must also be written at its old position when it is moved.
#[test]
fn moved_names_survive_power_cuts_while_leaves_are_merged() {
    const KEPT: usize = 400;
    const PASSING: usize = 700;
    const MOVES: usize = 10;
    const ROUNDS: usize = 4;
    const BYTES: u64 = 4 << 20;
    if !has("e2fsck") {
        return;
    }
    let (device, ext2) =
        recorded(BYTES, &MkfsOptions { bytes_per_inode: 2048, ..options(BLOCK as u32) });
    let mut random = Pcg64::seed_from_u64(seed());
    let client = Client::new(&ext2);
    let directory = client.mkdir(Ino::ROOT, "names").unwrap();
    let long = |kind: &str, number: usize| format!("{kind}{number}-{:n<40}", "");
    // All names that each file has had so far.
    let mut names: Vec<Vec<String>> = (0..KEPT).map(|file| vec![long("kept", file)]).collect();
    for names in &names {
        client.file(directory, &names[0], b"").unwrap();
    }
    ext2.sync().unwrap();
    let begin = device.position();
    for round in 0..ROUNDS {
        let mut passing: Vec<String> =
            (0..PASSING).map(|index| long("passing", round * PASSING + index)).collect();
        for name in &passing {
            // Dropping this file's own client drops all references to the file.
            Client::new(&ext2).file(directory, name, b"").unwrap();
        }
        ext2.sync().unwrap();
        for count in 0..MOVES {
            let file = random.random_range(0..KEPT);
            let new = long("moved", round * MOVES + count);
            client.rename(directory, names[file].last().unwrap(), directory, &new).unwrap();
            names[file].push(new);
        }
        passing.shuffle(&mut random);
        for name in &passing {
            Client::new(&ext2).unlink(directory, name).unwrap();
        }
        ext2.sync().unwrap();
    }
    lose_none(&device, BYTES, begin, &["names"], &names);
}

/// The states are examined without a repair, because a repair would remove such names.
#[test]
fn no_name_is_on_the_device_before_its_inode() {
    const NAMES: u32 = 20;
    let (device, ext2) = recorded(2 << 20, &options(BLOCK as u32));
    let client = Client::new(&ext2);
    ext2.sync().unwrap();
    let begin = device.position();
    for index in 0..NAMES {
        client.file(Ino::ROOT, format!("{index}"), b"").unwrap();
    }
    ext2.sync().unwrap();
    let (log, mut seen) = (device.log(), 0);
    let plan = Plan { seed: seed(), subsets: 40, prefixes: 40 };
    let read_only = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let mut see = |state: &DeviceState| {
        let ext2 = Ext2::open(Arc::new(state.open().unwrap()), read_only.clone()).unwrap();
        let client = Client::new(&ext2);
        for listed in client.list(Ino::ROOT).map_err(|error| error.to_string())? {
            seen += 1;
            client
                .lookup(Ino::ROOT, &listed.name)
                .map_err(|error| format!("{}: {error}", listed.name.display()))?;
        }
        Ok(())
    };
    log.for_each_state(&plan, &|point| point > begin, &mut see)
        .unwrap_or_else(|problem| panic!("FSLAB_SEED={}: {problem}", plan.seed));
    assert!(seen > NAMES, "only {seen} names were on the device at any point");
}

/// The free blocks do not suffice for a write, so it must wait midway until the blocks of a removed
/// file can be reused. The blocks mapped until then reach the device before the new size. e2fsck
/// corrects the size.
#[test]
fn bytes_of_a_removed_file_never_appear_after_a_power_cut() {
    const BYTES: u64 = 2 << 20;
    const KEPT: usize = 20 * BLOCK;
    const ADDED: usize = 64 * BLOCK;
    if !has("e2fsck") {
        return;
    }
    let (device, ext2) =
        recorded(BYTES, &MkfsOptions { reserved_percent: 0, ..options(BLOCK as u32) });
    let client = Client::new(&ext2);
    let kept = client.file(Ino::ROOT, "kept", &[b'k'; KEPT]).unwrap();
    client.file(Ino::ROOT, "small", &[b'-'; 6 * BLOCK]).unwrap();
    let (_, secret) = client.create(Ino::ROOT, "secret", 0o600, OpenMode::EXCLUSIVE).unwrap();
    let mut size = 0;
    while let Ok(length) = secret.write(size, &[b's'; BLOCK]) {
        size += length as u64;
    }
    secret.close().unwrap();
    client.unlink(Ino::ROOT, "small").unwrap();
    // Without the client's reference, the file is deleted with its name.
    drop(client);
    ext2.sync().unwrap();
    let client = Client::new(&ext2);
    client.unlink(Ino::ROOT, "secret").unwrap();
    let begin = device.position();
    let handle = client.open(kept, OpenMode::READ_WRITE).unwrap();
    handle.write_all(KEPT as u64, &[b'a'; ADDED]).unwrap();
    handle.fsync(false).unwrap();
    let mut rounded = 0;
    after_cuts(&device, BYTES, begin, &mut |client| {
        let kept = client.lookup(Ino::ROOT, "kept").map_err(|error| error.to_string())?.ino;
        let contents = client.contents(kept).map_err(|error| error.to_string())?;
        let (before, added) = contents.split_at(KEPT);
        rounded += u32::from(!added.is_empty() && added.len() < ADDED);
        let foreign = added.iter().filter(|byte| **byte != b'a').count();
        match foreign {
            0 if before == [b'k'; KEPT] => Ok(()),
            _ => Err(format!("{foreign} of {} added bytes were never written", added.len())),
        }
    });
    assert!(rounded > 0, "no cut fell between the pointers and the size");
}

/// The first inode of the superblock's orphan list must exist on the device. It must not be deleted
/// or have a name there.
#[test]
fn orphan_list_head_is_an_orphan_at_every_power_cut() {
    let (device, ext2) = recorded(2 << 20, &options(BLOCK as u32));
    let client = Client::new(&ext2);
    let orphan = || client.tmpfile(Ino::ROOT, 0o600, OpenMode::READ_WRITE).unwrap();
    let named = |name: &str| {
        client.create(Ino::ROOT, name, 0o600, OpenMode::EXCLUSIVE).map(|(_, file)| file).unwrap()
    };
    let end = |(attr, file): (Attr, File<'_>)| {
        file.close().unwrap();
        client.forget(attr.ino);
    };
    ext2.sync().unwrap();
    let begin = device.position();
    let (first, second, third) = (orphan(), orphan(), orphan());
    let unlinked = named("unlinked");
    ext2.sync().unwrap();
    // An inode in the middle of the list is deleted, and new ones are added.
    end(second);
    client.unlink(Ino::ROOT, "unlinked").unwrap();
    let fourth = orphan();
    ext2.sync().unwrap();
    // The newest orphan is deleted while others are added, and then all are deleted.
    end(fourth);
    let fifth = orphan();
    ext2.sync().unwrap();
    unlinked.close().unwrap();
    [first, third, fifth].into_iter().for_each(end);
    ext2.sync().unwrap();
    let mut seen = 0;
    in_all_states(&device, begin, &mut |ext2| {
        let head = ext2.superblock().raw().s_last_orphan.get();
        if head == 0 {
            return Ok(());
        }
        seen += 1;
        match Client::new(ext2).attr(Ino(head.into())) {
            Ok(attr) if attr.links == 0 => Ok(()),
            Ok(attr) => Err(format!("inode {head} has {} links", attr.links)),
            Err(error) => Err(format!("inode {head}: {error}")),
        }
    });
    assert!(seen > 20, "only {seen} states had a list");
}

/// A write relocates the file's blocks and then needs their old addresses. The blocks at these
/// addresses must not be overwritten while the device refers to them for synced data.
#[test]
fn synced_bytes_survive_a_write_that_moves_their_blocks() {
    const KEPT: usize = 5;
    const ADDED: usize = 6;
    let smart = VolumeOptions { clustering: Clustering::Smart, ..VolumeOptions::default() };
    let small = MkfsOptions { reserved_percent: 0, ..options(BLOCK as u32) };
    let (device, ext2) = recorded_with(2 << 20, &small, smart);
    let client = Client::new(&ext2);
    let (attr, kept) = client.create(Ino::ROOT, "kept", 0o600, OpenMode::EXCLUSIVE).unwrap();
    kept.write_all(0, &[b'k'; KEPT * BLOCK]).unwrap();
    // The free space suffices for one new block and for relocating all blocks, and is then used up.
    let room = client.file(Ino::ROOT, "room", &[b'r'; (KEPT + 2) * BLOCK]).unwrap();
    let (_, filler) = client.create(Ino::ROOT, "filler", 0o600, OpenMode::EXCLUSIVE).unwrap();
    let mut size = 0;
    while let Ok(length) = filler.write(size, &[b'f'; BLOCK]) {
        size += length as u64;
    }
    client.forget(room);
    client.unlink(Ino::ROOT, "room").unwrap();
    ext2.sync().unwrap();
    let places = || ext2.layout().unwrap().extents(attr.ino).unwrap();
    let (begin, before) = (device.position(), places());
    kept.write_all((KEPT * BLOCK) as u64, &[b'a'; ADDED * BLOCK]).unwrap();
    let overlap = |one: &Extent, other: &Extent| one.physical.abs_diff(other.physical) < one.length;
    let after = places();
    let moved = after[0].physical != before[0].physical;
    assert!(moved && after[1..].iter().any(|place| overlap(&before[0], place)), "{after:?}");
    in_all_states(&device, begin, &mut |ext2| {
        let client = Client::new(ext2);
        let ino = client.lookup(Ino::ROOT, "kept").map_err(|error| error.to_string())?.ino;
        let contents = client.contents(ino).map_err(|error| error.to_string())?;
        match contents[..KEPT * BLOCK] == [b'k'; KEPT * BLOCK] {
            true => Ok(()),
            false => Err("synced bytes were written over".to_owned()),
        }
    });
}

/// An extended attribute in a block has its old or new value at every point, even if the inode has
/// gained room for it meanwhile. This holds whether the attribute remains in the block or must be
/// moved into the inode.
#[test]
fn xattr_has_its_old_or_new_value_at_every_power_cut() {
    let (device, ext2) = recorded(2 << 20, &options(BLOCK as u32));
    let client = Client::new(&ext2);
    let file = client.file(Ino::ROOT, "file", b"").unwrap();
    client.setxattr(file, "user.a", &[b'a'; 60]).unwrap();
    client.setxattr(file, "user.b", &[1; 12]).unwrap();
    client.setxattr(file, "user.c", &[b'c'; 900]).unwrap();
    client.removexattr(file, "user.a").unwrap();
    ext2.sync().unwrap();
    let begin = device.position();
    // The last value no longer fits the block.
    let values = [vec![1; 12], vec![2; 12], vec![3; 60]];
    for value in &values[1..] {
        client.setxattr(file, "user.b", value).unwrap();
        ext2.sync().unwrap();
    }
    assert_eq!(client.getxattr(file, "user.b").unwrap(), values[2]);
    in_all_states(&device, begin, &mut |ext2| {
        let client = Client::new(ext2);
        let file = client.lookup(Ino::ROOT, "file").map_err(|error| error.to_string())?.ino;
        let value =
            |name: &str| client.getxattr(file, name).map_err(|error| format!("{name}: {error}"));
        let (changed, other) = (value("user.b")?, value("user.c")?);
        match values.contains(&changed) && other == [b'c'; 900] {
            true => Ok(()),
            false => Err(format!("{} and {} bytes", changed.len(), other.len())),
        }
    });
}
