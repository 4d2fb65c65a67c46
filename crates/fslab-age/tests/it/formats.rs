//! Workload and snapshot files: round trips, and errors for damaged files.

use std::path::{Path, PathBuf};

use fslab_age::profile::PROFILES;
use fslab_age::snapshot::{Entry, EntryKind, ExtentList, SnapshotReader, SnapshotWriter, Taken};
use fslab_age::table::{Row, Writer};
use fslab_age::workload::{
    Operation, OperationKind, Population, Provenance, WorkloadReader, identity, identity_of_file,
    write,
};
use fslab_age::{DAY_NS, Error};
use fslab_vfs_testing::environment::cases;
use proptest::prelude::*;

use crate::support::{operations, small, stream};

fn golden() -> PathBuf {
    PathBuf::from("testdata/workload-v1.parquet")
}

fn provenance() -> Provenance {
    Provenance {
        source: "a test".to_owned(),
        seed: 7,
        volume_bytes: 1 << 20,
        made_by: "fslab 0.1.0".to_owned(),
    }
}

/// Returns one operation of each kind, as in the golden file.
fn every_kind() -> Vec<Operation> {
    let at = |time_ns, kind, file| Operation { time_ns, kind, file, ..Operation::default() };
    let second = 1_000_000_000;
    vec![
        Operation { mode: 0o755, uid: 1, gid: 2, ..at(0, OperationKind::MakeDirectory, 1) },
        Operation {
            directory: 1,
            mode: 0o644,
            name: b"a \xff name".to_vec().into(),
            ..at(second, OperationKind::Create, 2)
        },
        Operation { length: 100_000, ..at(2 * second, OperationKind::Write, 2) },
        Operation { length: 5000, ..at(3 * second, OperationKind::Truncate, 2) },
        Operation { offset: 9000, length: 10, ..at(DAY_NS, OperationKind::Write, 2) },
        Operation { name: b"new".to_vec().into(), ..at(DAY_NS + 1, OperationKind::Rename, 2) },
        Operation { length: 12, ..at(DAY_NS + 2, OperationKind::Symlink, 3) },
        at(DAY_NS + 3, OperationKind::Remove, 3),
        at(DAY_NS + 4, OperationKind::RemoveDirectory, 1),
    ]
}

fn read(path: &Path) -> Vec<Operation> {
    WorkloadReader::open(path).unwrap().map(|operation| operation.unwrap()).collect()
}

/// Run `FSLAB_BLESS=1 cargo test -p fslab-age` to write the golden file. When the format changes,
/// keep this file and add another.
#[test]
fn the_golden_file_of_version_1_is_read() {
    if std::env::var_os("FSLAB_BLESS").is_some() {
        write(&golden(), &provenance(), stream(&every_kind())).unwrap();
    }
    let reader = WorkloadReader::open(&golden()).unwrap();
    assert_eq!(reader.provenance(), &provenance());
    assert_eq!(read(&golden()), every_kind());
    let mut population = Population::default();
    every_kind().iter().for_each(|operation| population.apply(operation).unwrap());
    assert_eq!(population.path(2).unwrap(), b"new");
    assert_eq!((population.len(), population.get(2).unwrap().size), (1, 9010));
}

fn golden_snapshot(version: u32) -> PathBuf {
    let name = format!("testdata/snapshot-v{version}.parquet");
    PathBuf::from(name)
}

fn read_snapshot(path: &Path) -> (Taken, Vec<Entry>) {
    let reader = SnapshotReader::open(path).unwrap();
    (reader.taken().clone(), reader.map(|entry| entry.unwrap()).collect())
}

/// A snapshot of version 1 has neither generations nor extents; both are read as unknown. The file
/// was imported from a CSV list by the last fslab that wrote version 1.
#[test]
fn the_golden_snapshot_of_version_1_is_read() {
    let (taken, entries) = read_snapshot(&golden_snapshot(1));
    assert_eq!((taken.taken_ns, taken.source.as_str()), (1_000_000_000_000, "CSV list.csv"));
    let told = |entry: &Entry| (entry.inode, entry.size, entry.mode, entry.uid, entry.born_ns);
    let files = entries.iter().filter(|entry| entry.kind == EntryKind::File);
    assert_eq!(
        files.map(told).collect::<Vec<_>>(),
        [(3, 123_456_789, 0o4755, 1000, 50_000_000_000), (7, 100, 0o600, 3, 4_500_000_000)]
    );
    assert_eq!(entries.len(), 5);
    assert!(entries.iter().all(|entry| entry.generation == 0 && entry.extents.is_empty()));
}

/// `FSLAB_BLESS=1` writes the golden file, as for workloads.
#[test]
fn the_golden_snapshot_of_version_2_is_read() {
    let extents = ExtentList::parse(&b"0:8192:4096:0 8192:65536:4096:2049".to_vec().into());
    let file = Entry {
        inode: 12,
        directory: 11,
        size: 12_288,
        stored: 8192,
        modified_ns: 7,
        changed_ns: 8,
        born_ns: 6,
        mode: 0o644,
        uid: 1,
        gid: 2,
        links: 1,
        blocks: 2,
        breaks: 1,
        generation: u32::MAX,
        name: b"a \xff name".to_vec().into(),
        extents: extents.unwrap().to_text(),
        ..Entry::default()
    };
    let kind = EntryKind::Directory;
    let directory = Entry { inode: 11, kind, generation: 3, ..Entry::default() };
    let expected = [directory, file];
    let taken = Taken { taken_ns: 9, source: "a test".to_owned(), ..Taken::default() };
    let path = golden_snapshot(2);
    if std::env::var_os("FSLAB_BLESS").is_some() {
        let mut writer = SnapshotWriter::new(&path);
        expected.iter().for_each(|entry| writer.push(entry.clone()).unwrap());
        writer.finish(&taken).unwrap();
    }
    assert_eq!(read_snapshot(&path), (taken, expected.to_vec()));
}

/// The reader refuses invalid lists of extents and reports the row.
#[test]
fn snapshots_with_invalid_extents_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("snapshot");
    for (extents, good) in [("0:1:2:3", true), ("0:1:2", false), ("0:1:2:3 1:1:2:3", false)] {
        let extents = extents.as_bytes().to_vec().into();
        let mut writer = SnapshotWriter::new(&path);
        writer.push(Entry { inode: 1, extents, ..Entry::default() }).unwrap();
        writer.finish(&Taken::default()).unwrap();
        let answer = SnapshotReader::open(&path).unwrap().next().unwrap();
        assert_eq!(answer.is_ok(), good, "{answer:?}");
        let Err(error) = answer else { continue };
        assert!(matches!(error, Error::Row { row: 0, .. }), "{error}");
    }
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let numbers = (any::<u64>(), 1..u64::MAX, any::<u64>(), 0..1_u64 << 62, 0..1_u64 << 62);
    let owners = (0..0o10_000_u32, any::<u32>(), any::<u32>());
    let name = proptest::collection::vec(1..b'/', 3..20);
    let kind = proptest::sample::select(OperationKind::ALL.as_slice());
    (numbers, owners, name, kind).prop_map(|(numbers, (mode, uid, gid), name, kind)| {
        let (time_ns, file, directory, offset, mut length) = numbers;
        if kind == OperationKind::Symlink {
            length = length % 4095 + 1;
        }
        let name = name.into();
        Operation { time_ns, kind, file, directory, offset, length, mode, uid, gid, name }
    })
}

proptest! {
    #![proptest_config(cases(16))]
    #[test]
    fn written_records_are_read_back(
        operations in proptest::collection::vec(any_operation(), 0..50),
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("workload");
        write(&path, &provenance(), stream(&operations)).unwrap();
        prop_assert_eq!(read(&path), operations);
    }
}

#[test]
fn workloads_span_row_groups_and_depend_only_on_the_seed() {
    let scratch = tempfile::tempdir().unwrap();
    let [one, two, other] = ["1", "2", "3"].map(|name| scratch.path().join(name));
    let mut profile = small("developer");
    profile.days = 200;
    profile.operations_per_file = 0.6;
    let made = operations(profile.clone(), 5);
    assert!(made.len() > 100_000, "{} are too few for two row groups", made.len());
    write(&one, &provenance(), stream(&made)).unwrap();
    assert_eq!(read(&one), made);
    write(&two, &provenance(), stream(&operations(profile.clone(), 5))).unwrap();
    write(&other, &provenance(), stream(&operations(profile, 6))).unwrap();
    let [one, two, other] = [one, two, other].map(|path| identity_of_file(&path).unwrap());
    assert!(one == two && one != other);
}

/// The identity depends neither on the footer nor on the storage of rows.
#[test]
fn identity_depends_only_on_the_operations() {
    const GOLDEN: &str = "deec5ce637cffd33b4c3fe02697fdc8de6c2590e84779d0d14500d55ae0d3685";
    assert_eq!(identity_of_file(&golden()).unwrap(), GOLDEN);
    assert_eq!(identity(stream(&every_kind())).unwrap(), GOLDEN);
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("workload");
    let told = Provenance {
        made_by: "fslab 99".to_owned(),
        source: "x".repeat(5000),
        seed: 8,
        ..provenance()
    };
    write(&path, &told, stream(&every_kind())).unwrap();
    assert!(std::fs::read(&path).unwrap() != std::fs::read(golden()).unwrap());
    assert_eq!(identity_of_file(&path).unwrap(), GOLDEN);
    for place in 0..every_kind().len() {
        let mut other = every_kind();
        other[place].uid += 1;
        assert_ne!(identity(stream(&other)).unwrap(), GOLDEN, "operation {place}");
    }
    // The bytes of a name cannot be mistaken for the numbers after it.
    let named = |name: &[u8]| Operation { name: name.to_vec().into(), ..Operation::default() };
    let [one, other] = [[named(b"ab"), named(b"")], [named(b"a"), named(b"b")]];
    assert_ne!(identity(stream(&one)).unwrap(), identity(stream(&other)).unwrap());
}

/// The hashes are equal on all machines and in all versions. Changing a profile or its random
/// numbers would change workloads that users identify by these hashes.
#[test]
fn profiles_generate_workloads_with_recorded_hashes() {
    let made = PROFILES.iter().map(|profile| {
        let made = operations(small(profile.name), 1997);
        (profile.name, identity(stream(&made)).unwrap())
    });
    let made: Vec<_> = made.collect();
    let made: Vec<_> = made.iter().map(|(name, hash)| (*name, hash.as_str())).collect();
    let golden = [
        ("smith97", "e985a6ffb091ad359e9e5ba8b680d49cc52f91776683ea013471c2e096a6dcdd"),
        ("developer", "864ee6373bed938fe87368f8355c926b0fc86cdd28ef0221f6027ca8dbee7f68"),
        ("mail", "d487325b330fb8e505ce65a1989a25506f1b0dbf948ee26084b975f246556e90"),
        ("server", "dfb36953c1c94b53ef26a37b2f62b96e9b15b09550f62da17bf2f4d0699beb87"),
        ("stress", "f99bc27b2572f3b64a00f7641b18a81478a111b1bd100aed3e4fd6deaea64f68"),
    ];
    assert_eq!(made, golden);
}

/// Damages every third byte of a file, one at a time. The result may be an error, but not a panic.
#[test]
fn damaged_files_are_errors() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("damaged");
    let good = std::fs::read(golden()).unwrap();
    let mut refused = 0;
    for place in (0..good.len()).step_by(3) {
        let mut bytes = good.clone();
        bytes[place] ^= 0x41;
        std::fs::write(&path, &bytes).unwrap();
        let answer =
            WorkloadReader::open(&path).and_then(|reader| reader.collect::<Result<Vec<_>, _>>());
        refused += usize::from(answer.is_err());
    }
    assert!(refused > good.len() / 12, "only {refused} of {} flips were noticed", good.len() / 3);
    for length in (0..good.len()).step_by(97) {
        std::fs::write(&path, &good[..length]).unwrap();
        assert!(WorkloadReader::open(&path).is_err(), "cut to {length} bytes");
    }
}

#[test]
fn impossible_operations_are_refused() {
    let make = |file, kind| Operation { file, kind, ..Operation::default() };
    let cases = [
        (vec![make(1, OperationKind::Write)], "file that does not exist"),
        (vec![make(1, OperationKind::Create), make(1, OperationKind::Create)], "already"),
        (
            vec![Operation { directory: 9, ..make(1, OperationKind::Create) }],
            "directory does not exist",
        ),
        (
            vec![make(1, OperationKind::Create), make(1, OperationKind::RemoveDirectory)],
            "as a file",
        ),
        (
            vec![
                make(1, OperationKind::MakeDirectory),
                Operation { directory: 1, ..make(2, OperationKind::MakeDirectory) },
                Operation { directory: 2, ..make(1, OperationKind::Rename) },
            ],
            "into itself",
        ),
        (
            vec![
                make(1, OperationKind::MakeDirectory),
                Operation { directory: 1, ..make(2, OperationKind::Create) },
                make(1, OperationKind::RemoveDirectory),
            ],
            "not empty",
        ),
    ];
    for (operations, what) in cases {
        let mut population = Population::default();
        let failed = operations.iter().find_map(|operation| population.apply(operation).err());
        let message = failed.unwrap().to_string();
        assert!(message.contains(what), "{message}");
    }
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("bad");
    let slash = Operation { name: b"a/b".to_vec().into(), ..make(1, OperationKind::Create) };
    write(&path, &provenance(), stream(&[slash])).unwrap();
    let answer = WorkloadReader::open(&path).unwrap().next().unwrap();
    assert!(matches!(answer, Err(Error::Row { row: 0, .. })), "{answer:?}");
}

/// Missing or unreadable numbers in a footer are errors; they are not read as zeros.
#[test]
fn incomplete_footers_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("file");
    let of_workload = [("source", "a test"), ("seed", "7"), ("volume_bytes", "0"), ("made_by", "")];
    let of_snapshot = [
        ("source", "a test"),
        ("taken_ns", "-5"),
        ("names", "plain"),
        ("volume_bytes", "0"),
        ("used_bytes", "0"),
    ];
    check_footers::<Operation>(&path, &of_workload, &|path| {
        WorkloadReader::open(path).map(|_reader| ())
    });
    check_footers::<Entry>(&path, &of_snapshot, &|path| {
        SnapshotReader::open(path).map(|_reader| ())
    });
}

type Open<'a> = &'a dyn Fn(&Path) -> fslab_age::Result<()>;

/// Opens files that lack one key of the footer, and files in which one number of the footer is
/// invalid.
fn check_footers<R: Row>(path: &Path, facts: &[(&'static str, &'static str)], open: Open<'_>) {
    let write =
        |facts: &[(&str, String)]| Writer::<R>::create(path).unwrap().finish(facts).unwrap();
    let owned = |text: &str| text.to_owned();
    let good: Vec<_> = facts.iter().map(|(key, value)| (*key, owned(value))).collect();
    write(&good);
    open(path).unwrap();
    for place in 0..good.len() {
        let key = good[place].0;
        let mut without = good.clone();
        without.remove(place);
        write(&without);
        let message = open(path).unwrap_err().to_string();
        let told = format!("its footer key `{key}` is missing");
        assert!(message.contains(&told) && message.lines().count() == 1, "{message}");
        if matches!(key, "source" | "made_by") {
            continue;
        }
        for wrong in ["", "12 monkeys", "1e3", "99999999999999999999999", "\n\n"] {
            let mut damaged = good.clone();
            damaged[place].1 = owned(wrong);
            write(&damaged);
            let message = open(path).unwrap_err().to_string();
            let told = format!("its footer key `{key}` is '");
            assert!(message.contains(&told) && message.lines().count() == 1, "{message}");
        }
    }
}

/// A refused operation may leave a cyclic tree. The computation of its checksum returns an error
/// instead of looping forever.
#[test]
fn checksum_of_a_cyclic_tree_is_an_error() {
    let make = |file, directory| Operation { file, directory, ..Operation::default() };
    let mut population = Population::default();
    population.apply(&make(1, 0)).unwrap();
    population.apply(&make(2, 1)).unwrap();
    assert!(population.checksum().is_ok());
    let into_itself = Operation { kind: OperationKind::Rename, ..make(1, 2) };
    population.apply(&into_itself).unwrap_err();
    assert!(matches!(population.checksum(), Err(Error::NoPath { .. })));
}
