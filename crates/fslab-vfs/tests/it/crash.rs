//! Tests the test doubles that simulate crashes: which data they may lose or must keep, and whether
//! they detect protocols that lack a sync.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use fslab_vfs::{
    BlockDevice, FallocateMode, FileKind, FileSystem, Ino, OpenMode, RenameMode, SetAttr,
};
use fslab_vfs_testing::client::{Client, File};
use fslab_vfs_testing::conformance::run_all;
use fslab_vfs_testing::crash::{CrashDevice, CrashFs, Order, Plan, State};
use fslab_vfs_testing::environment;
use fslab_vfs_testing::model::{ModelConfig, check_against_model};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const ORDERS: [Order; 2] = [Order::Independent, Order::Journal];

#[test]
fn crash_fs_passes_the_suite_and_agrees_with_the_model() {
    let make = || Box::new(CrashFs::default()) as Box<dyn FileSystem>;
    let report = run_all(&make, &[]);
    assert!(report.is_success(), "{report}");
    let answer = check_against_model(&make, &ModelConfig::from_environment(100));
    assert!(answer.is_ok(), "{}", answer.unwrap_err());
}

/// Visible properties of a file: kind, permissions, links, size, bytes or target, xattrs.
type Facts = (FileKind, u32, u32, u64, Vec<u8>, Vec<(String, Vec<u8>)>);

/// All files of a file system by path.
fn tree(subject: &dyn FileSystem) -> BTreeMap<String, Facts> {
    let client = Client::new(subject);
    let mut found = BTreeMap::new();
    let mut directories = vec![(Ino::ROOT, String::new())];
    while let Some((directory, path)) = directories.pop() {
        for name in client.names(directory).unwrap() {
            let attr = client.lookup(directory, &name).unwrap();
            let path = format!("{path}/{name}");
            let bytes = match attr.kind {
                FileKind::Regular => client.contents(attr.ino).unwrap(),
                FileKind::Symlink => client.readlink(attr.ino).unwrap().into_encoded_bytes(),
                _ => Vec::new(),
            };
            let xattrs = client.listxattr(attr.ino).unwrap().into_iter();
            let xattrs = xattrs.map(|name| {
                let value = client.getxattr(attr.ino, &name).unwrap();
                (name, value)
            });
            let (permissions, size) = (attr.permissions.bits(), attr.size);
            let facts = (attr.kind, permissions, attr.links, size, bytes, xattrs.collect());
            found.insert(path.clone(), facts);
            if attr.kind == FileKind::Directory {
                directories.push((attr.ino, path));
            }
        }
    }
    found
}

fn same(found: &BTreeMap<String, Facts>, lived: &BTreeMap<String, Facts>) -> Result<(), String> {
    let paths = |tree: &BTreeMap<String, Facts>| tree.keys().cloned().collect::<Vec<_>>();
    if paths(found) != paths(lived) {
        return Err(format!("{:?}, not {:?}", paths(found), paths(lived)));
    }
    for (path, facts) in found {
        let lived = &lived[path];
        if facts != lived {
            let pairs = facts.4.iter().zip(&lived.4).enumerate();
            let differ: Vec<_> = pairs.filter(|(_, (found, lived))| found != lived).collect();
            let at = (differ.first(), differ.last());
            let short = |facts: &Facts| (facts.0, facts.1, facts.2, facts.3, facts.5.clone());
            return Err(format!("{path}: {:?}, not {:?}; {at:?}", short(facts), short(lived)));
        }
    }
    Ok(())
}

/// Makes one random change, which may fail.
fn change_something(client: &Client<'_>, draws: &mut Pcg64Mcg) -> fslab_vfs::Result<()> {
    let name = |draws: &mut Pcg64Mcg| ["a", "b", "c", "d"][draws.random_range(0..4)];
    let (one, other) = (name(draws), name(draws));
    let (offset, length) = (draws.random_range(0..20_000), draws.random_range(1..9000));
    let Ok(attr) = client.lookup(Ino::ROOT, one) else {
        return match draws.random_range(0..4) {
            0 => client.mkdir(Ino::ROOT, one).map(drop),
            1 => client.symlink(Ino::ROOT, one, other).map(drop),
            _ => client.file(Ino::ROOT, one, &vec![7; length]).map(drop),
        };
    };
    match draws.random_range(0..7) {
        0 => client.unlink(Ino::ROOT, one),
        1 => client.rename(Ino::ROOT, one, Ino::ROOT, other),
        2 => client.rename_with(Ino::ROOT, one, Ino::ROOT, other, RenameMode::EXCHANGE),
        3 => client.link(attr.ino, Ino::ROOT, other).map(drop),
        4 => client.setxattr(attr.ino, "user.x", &[offset as u8]),
        5 => client.chmod(attr.ino, 0o600 + length as u32 % 64).map(drop),
        _ if attr.kind == FileKind::Directory => client.rmdir(Ino::ROOT, one),
        _ => change_contents(client, attr.ino, (offset, length), draws),
    }
}

fn change_contents(
    client: &Client<'_>,
    ino: Ino,
    (offset, length): (u64, usize),
    draws: &mut Pcg64Mcg,
) -> fslab_vfs::Result<()> {
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    match draws.random_range(0..7) {
        0 => file.truncate(offset).map(drop),
        1 => file.fallocate(offset, length as u64, punch),
        2 => file.fallocate(offset, length as u64, FallocateMode::ZERO_RANGE),
        3 => file.fsync(offset.is_multiple_of(2)),
        _ => file.write(offset, &vec![offset as u8; length]).map(drop),
    }
}

/// The recorded effects are complete: applied one after the other, they give the same file system.
#[test]
fn complete_log_reproduces_the_whole_file_system() {
    let seed = environment::seed();
    let mut draws = Pcg64Mcg::seed_from_u64(seed);
    for round in 0..60 {
        let crash = CrashFs::default();
        let client = Client::new(&crash);
        for _ in 0..30 {
            change_something(&client, &mut draws).ok();
        }
        let log = crash.log();
        let last = log.points() - 1;
        let all = Plan { seed, subsets: 0, prefixes: 0 };
        for order in ORDERS {
            let mut checked = 0;
            log.for_each_state(order, &all, &|point| point == last, &mut |state| {
                if format!("{}", state.survivors) == "everything survives" {
                    checked += 1;
                    return same(&tree(&state.open().unwrap()), &tree(&crash))
                        .map_err(|difference| format!("round {round}: {difference}"));
                }
                Ok(())
            })
            .unwrap();
            assert_eq!(checked, 1);
        }
    }
}

#[test]
fn syncfs_leaves_one_state() {
    let crash = CrashFs::default();
    let client = Client::new(&crash);
    let mut draws = Pcg64Mcg::seed_from_u64(1);
    for _ in 0..30 {
        change_something(&client, &mut draws).ok();
    }
    crash.syncfs(&client.request(), Ino::ROOT).unwrap();
    let log = crash.log();
    let last = log.points() - 1;
    let mut states = Vec::new();
    log.for_each_state(Order::Independent, &Plan::full(1), &|point| point == last, &mut |state| {
        states.push(tree(&state.open().unwrap()));
        Ok(())
    })
    .unwrap();
    assert_eq!(states, [tree(&crash)]);
}

/// Returns all different trees that a crash at or after a point of the log can leave.
fn after(crash: &CrashFs, point: usize, order: Order) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let plan = Plan { subsets: 400, ..Plan::full(3) };
    let mut visit = |state: &State| {
        let tree = tree(&state.open().unwrap());
        let shown = tree.into_iter().map(|(path, (_, _, _, size, bytes, xattrs))| {
            let bytes: BTreeSet<u8> = bytes.into_iter().collect();
            format!("{path} {size} {bytes:?} {}", xattrs.len())
        });
        found.insert(shown.collect::<Vec<_>>().join("; "));
        Ok(())
    };
    crash.log().for_each_state(order, &plan, &|at| at >= point, &mut visit).unwrap();
    found
}

/// Creates a file of one sector and syncs it and its name.
fn synced_file<'c>(client: &'c Client<'_>, name: &str, byte: u8) -> File<'c> {
    let (_, file) = client.create(Ino::ROOT, name, 0o644, OpenMode::empty()).unwrap();
    file.write_all(0, &[byte; 512]).unwrap();
    file.fsync(false).unwrap();
    client.sync_directory(Ino::ROOT).unwrap();
    file
}

#[test]
fn data_size_and_xattrs_survive_independently() {
    let crash = CrashFs::default();
    let client = Client::new(&crash);
    let file = synced_file(&client, "f", 1);
    let point = crash.position();
    file.write_all(512, &[2; 512]).unwrap();
    client.setxattr(file.ino, "user.x", b"1").unwrap();
    let independent: Vec<_> = after(&crash, point, Order::Independent).into_iter().collect();
    let expected = [
        "/f 1024 {0, 1} 0",
        "/f 1024 {0, 1} 1",
        "/f 1024 {1, 2} 0",
        "/f 1024 {1, 2} 1",
        "/f 512 {1} 0",
        "/f 512 {1} 1",
    ];
    assert_eq!(independent, expected);
    // In journal order, a new size never survives without its bytes (`data=ordered`). But an xattr
    // may survive without the size (delayed allocation).
    let journal: Vec<_> = after(&crash, point, Order::Journal).into_iter().collect();
    assert_eq!(journal, [expected[2], expected[3], expected[4], expected[5]]);
}

#[test]
fn data_tears_between_sectors_only() {
    let crash = CrashFs::default();
    let client = Client::new(&crash);
    let file = synced_file(&client, "f", 1);
    file.write_all(0, &[1; 1536]).unwrap();
    file.fsync(false).unwrap();
    let point = crash.position();
    file.write_all(100, &[2; 1000]).unwrap();
    let mut seen = BTreeSet::new();
    let mut visit = |state: &State| {
        let memory = state.open().unwrap();
        let client = Client::new(&memory);
        let bytes = client.contents(client.lookup(Ino::ROOT, "f").unwrap().ino).unwrap();
        let torn = |sector: usize, range: std::ops::Range<usize>| {
            let new = bytes[range.clone()].iter().all(|byte| *byte == 2);
            let old = bytes[range].iter().all(|byte| *byte == 1);
            assert!(new || old, "sector {sector} is torn");
            new
        };
        seen.insert((torn(0, 100..512), torn(1, 512..1024), torn(2, 1024..1100)));
        assert!(bytes[..100].iter().chain(&bytes[1100..]).all(|byte| *byte == 1));
        Ok(())
    };
    let plan = Plan::full(1);
    crash.log().for_each_state(Order::Journal, &plan, &|at| at >= point, &mut visit).unwrap();
    assert_eq!(seen.len(), 8, "every combination of three sectors");
}

#[test]
fn independent_order_may_lose_names_until_their_directory_syncs() {
    let crash = CrashFs::default();
    let client = Client::new(&crash);
    let (_, file) = client.create(Ino::ROOT, "f", 0o644, OpenMode::empty()).unwrap();
    file.write_all(0, &[1; 10]).unwrap();
    file.fsync(false).unwrap();
    let point = crash.position();
    let lost = after(&crash, point, Order::Independent);
    assert_eq!(lost.into_iter().collect::<Vec<_>>(), ["", "/f 10 {1} 0"]);
    let journal = after(&crash, point, Order::Journal);
    assert_eq!(journal.into_iter().collect::<Vec<_>>(), ["/f 10 {1} 0"]);
    client.sync_directory(Ino::ROOT).unwrap();
    let point = crash.position();
    client.rename(Ino::ROOT, "f", Ino::ROOT, "g").unwrap();
    let renamed = after(&crash, point, Order::Independent);
    assert_eq!(renamed.into_iter().collect::<Vec<_>>(), ["/f 10 {1} 0", "/g 10 {1} 0"]);
}

#[test]
fn new_data_is_not_seen_in_space_that_was_not_yet_freed() {
    for order in ORDERS {
        let crash = CrashFs::default();
        let client = Client::new(&crash);
        let file = synced_file(&client, "f", 1);
        let point = crash.position();
        file.truncate(0).unwrap();
        file.write_all(0, &[2; 100]).unwrap();
        for state in after(&crash, point, order) {
            let whole = ["/f 512 {1} 0", "/f 0 {} 0", "/f 100 {2} 0"].contains(&state.as_str());
            let late = order == Order::Independent && state == "/f 100 {0} 0";
            assert!(whole || late, "{order:?}: {state}");
        }
    }
}

/// The sync of another file makes the punch durable, but not the data that was written before the
/// punch. That data must not appear in the hole.
#[test]
fn synced_older_data_does_not_reappear_in_a_punched_hole() {
    let crash = CrashFs::default();
    let client = Client::new(&crash);
    let [file, other] = ["f", "g"].map(|name| synced_file(&client, name, 1));
    // The size is synced first, because the sync of a growing size would include the data.
    file.truncate(8192).unwrap();
    file.fsync(false).unwrap();
    file.write_all(0, &[2; 8192]).unwrap();
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    file.fallocate(0, 8192, punch).unwrap();
    client.setxattr(other.ino, "user.x", b"1").unwrap();
    other.fsync(false).unwrap();
    file.fsync(false).unwrap();
    let left = after(&crash, crash.position(), Order::Journal);
    assert!(left.iter().all(|state| state.contains("/f 8192 {0} 0")), "{left:?}");
    assert_eq!(left.len(), 1);
}

#[test]
fn writes_through_a_sync_descriptor_are_durable() {
    for (flags, xattr_stays) in
        [(OpenMode::DATA_SYNC, false), (OpenMode::DATA_SYNC | OpenMode::SYNC, true)]
    {
        let crash = CrashFs::default();
        let client = Client::new(&crash);
        synced_file(&client, "f", 1).close().unwrap();
        let ino = client.lookup(Ino::ROOT, "f").unwrap().ino;
        client.setxattr(ino, "user.x", b"1").unwrap();
        let file = client.open(ino, OpenMode::READ_WRITE | flags).unwrap();
        file.write_all(512, &[2; 100]).unwrap();
        let states = after(&crash, crash.position(), Order::Independent);
        let lost = states.contains("/f 612 {1, 2} 0");
        assert!(states.contains("/f 612 {1, 2} 1"));
        assert_eq!((states.len(), lost), if xattr_stays { (1, false) } else { (2, true) });
    }
}

// Tests of protocols, with and without the sync that makes them correct.

/// Replaces the contents of the file `f` by copies of a byte. The last argument states whether the
/// protocol includes its first sync.
type Protocol = fn(&Client<'_>, u8, bool);

/// Writes the new contents under another name, then renames the file over the old one.
fn replace_by_rename(client: &Client<'_>, byte: u8, with_sync: bool) {
    let (_, file) = client.create(Ino::ROOT, "new", 0o644, OpenMode::empty()).unwrap();
    file.write_all(0, &[byte; 2000]).unwrap();
    if with_sync {
        file.fsync(false).unwrap();
    }
    client.rename(Ino::ROOT, "new", Ino::ROOT, "f").unwrap();
    client.sync_directory(Ino::ROOT).unwrap();
}

/// Writes the new contents to a journal and then in place, then empties the journal.
fn double_write(client: &Client<'_>, byte: u8, with_sync: bool) {
    let open = |name| {
        let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
        client.open(ino, OpenMode::READ_WRITE).unwrap()
    };
    let (journal, file) = (open("journal"), open("f"));
    let mut record = vec![byte; 2000];
    record.extend(checksum(&record));
    journal.write_all(0, &record).unwrap();
    if with_sync {
        journal.fsync(false).unwrap();
    }
    file.write_all(0, &record[..2000]).unwrap();
    file.fsync(false).unwrap();
    journal.truncate(0).unwrap();
    journal.fsync(false).unwrap();
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(bytes).to_le_bytes()
}

/// Reads `f` as a program would after a crash: a complete record in the journal takes precedence.
fn recovered(state: &dyn FileSystem) -> Vec<u8> {
    let client = Client::new(state);
    let read = |name| match client.lookup(Ino::ROOT, name) {
        Ok(attr) => client.contents(attr.ino).unwrap(),
        Err(_) => Vec::new(),
    };
    let mut record = read("journal");
    match record.split_off(record.len().min(2000)) {
        sum if sum == checksum(&record) => record,
        _ => read("f"),
    }
}

/// Replaces the contents three times. After a crash at any point, the old or the new contents are
/// complete. After a crash at the end of the protocol, the new contents are.
fn survives(protocol: Protocol, with_sync: bool, order: Order) -> Result<usize, String> {
    let crash = CrashFs::default();
    let client = Client::new(&crash);
    for (name, bytes) in [("f", &[1; 2000][..]), ("journal", &[])] {
        client.file(Ino::ROOT, name, bytes).unwrap();
    }
    crash.syncfs(&client.request(), Ino::ROOT).unwrap();
    let mut done = vec![crash.position()];
    for byte in 2..5 {
        protocol(&client, byte, with_sync);
        done.push(crash.position());
    }
    let mut visit = |state: &State| {
        let through = 1 + done[1..].iter().filter(|end| **end <= state.point).count() as u8;
        let found = recovered(&state.open().unwrap());
        let is_all = |byte: u8| found == vec![byte; 2000];
        if is_all(through) || is_all(through + 1) {
            return Ok(());
        }
        Err(format!("{} bytes that begin {:?}, not {through}", found.len(), found.first()))
    };
    crash.log().for_each_state(order, &Plan::full(7), &|point| point >= done[0], &mut visit)
}

#[test]
fn missing_fsync_is_caught_and_correct_protocol_passes() {
    for (name, protocol) in
        [("rename", replace_by_rename as Protocol), ("double write", double_write as Protocol)]
    {
        for order in ORDERS {
            let states = survives(protocol, true, order).unwrap();
            assert!(states > 50, "{name}: {states} states");
            let caught = survives(protocol, false, order).unwrap_err();
            eprintln!("{name}, {order:?}, without its fsync: {caught}");
        }
    }
}

// Tests of the test double of a block device.

const DEVICE_BYTES: u64 = 16 << 10;

/// Writes a record and then the sector that makes it valid.
fn commit(device: &CrashDevice, byte: u8, with_flush: bool) {
    device.write_at(512, &[byte; 4096]).unwrap();
    if with_flush {
        device.flush().unwrap();
    }
    device.write_at(0, &[byte; 512]).unwrap();
    device.flush().unwrap();
}

fn device_survives(with_flush: bool) -> Result<usize, String> {
    let device = CrashDevice::new(DEVICE_BYTES, 512).unwrap();
    commit(&device, 1, with_flush);
    let start = device.position();
    device.discard(8192, 4096).unwrap();
    commit(&device, 2, with_flush);
    let end = device.position();
    device.log().for_each_state(&Plan::full(5), &|point| point >= start, &mut |state| {
        let found = state.open().unwrap();
        let mut bytes = vec![0; DEVICE_BYTES as usize];
        found.read_at(0, &mut bytes).unwrap();
        // The new record overwrites the old one in place. So the body is checked only if the head
        // is new (2).
        match bytes[0] {
            1 if state.point >= end => Err("the second record is lost".to_owned()),
            2 if bytes[512..4608].iter().any(|byte| *byte != 2) => Err("torn record".to_owned()),
            1 | 2 => Ok(()),
            other => Err(format!("a head of {other}")),
        }
    })
}

#[test]
fn missing_flush_is_caught_and_correct_protocol_passes() {
    assert!(device_survives(true).unwrap() > 20);
    let caught = device_survives(false).unwrap_err();
    assert!(caught.starts_with("torn record"), "{caught}");
    assert!(CrashDevice::new(1000, 512).is_err());
}

#[test]
fn crash_device_keeps_flushed_writes_and_reorders_others() {
    let device = CrashDevice::new(DEVICE_BYTES, 512).unwrap();
    device.write_at(0, &[1; 1024]).unwrap();
    device.flush().unwrap();
    let start = device.position();
    device.write_at(0, &[2; 512]).unwrap();
    device.write_at(512, &[2; 512]).unwrap();
    let mut seen = BTreeSet::new();
    let mut visit = |state: &fslab_vfs_testing::crash::DeviceState| {
        let mut bytes = [0; 1024];
        state.open().unwrap().read_at(0, &mut bytes).unwrap();
        seen.insert((bytes[0], bytes[1023]));
        Ok(())
    };
    device.log().for_each_state(&Plan::full(1), &|point| point >= start, &mut visit).unwrap();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(1, 1), (1, 2), (2, 1), (2, 2)]);
}

#[test]
fn changes_of_attributes_survive_in_order() {
    let crash = CrashFs::default();
    let client = Client::new(&crash);
    let file = synced_file(&client, "f", 1);
    let point = crash.position();
    client.set(file.ino, &SetAttr { uid: Some(7), ..SetAttr::default() }).unwrap();
    client.setxattr(file.ino, "user.x", b"1").unwrap();
    let mut visit = |state: &State| {
        let memory = state.open().unwrap();
        let client = Client::new(&memory);
        let attr = client.lookup(Ino::ROOT, "f").unwrap();
        let xattrs = client.listxattr(attr.ino).unwrap().len();
        if xattrs == 1 && attr.uid != 7 { Err("out of order".to_owned()) } else { Ok(()) }
    };
    let plan = Plan::full(1);
    crash.log().for_each_state(Order::Independent, &plan, &|at| at >= point, &mut visit).unwrap();
}
