//! Snapshots, their differences, and workloads derived from them.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;

use fslab_age::derive::{Days, Model, Options, ShortLived, derive};
use fslab_age::diff::{Change, Diff, Differences, Summary};
use fslab_age::replay::Replayer;
use fslab_age::score::tree_checksum;
use fslab_age::snapshot::{
    Capture, Entry, EntryKind, Every, ExtentList, History, NameKey, SnapshotReader, SnapshotWriter,
    Taken, capture, import_csv, write_synthetic_pair,
};
use fslab_age::verify::{Limits, verify};
use fslab_age::workload::{OperationKind, Population, WorkloadReader};
use fslab_vfs::MemFs;
use fslab_vfs_testing::environment::cases;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::support::{settings, small};

const DAY_NS: i64 = 86_400_000_000_000;

fn options() -> Options {
    Options {
        seed: 1,
        rewrite_all: false,
        inodes_per_directory: None,
        short_lived: None,
        volume_bytes: 0,
    }
}

fn write(path: &Path, day: i64, entries: &[Entry]) {
    let mut writer = SnapshotWriter::new(path);
    entries.iter().for_each(|entry| writer.push(entry.clone()).unwrap());
    let taken_ns = day * DAY_NS;
    writer.finish(&Taken { taken_ns, ..Taken::default() }).unwrap();
}

fn read(path: &Path) -> Vec<Entry> {
    SnapshotReader::open(path).unwrap().map(|entry| entry.unwrap()).collect()
}

/// Computes the expected differences with maps of all entries.
fn naive(before: &[Entry], after: &[Entry]) -> (Vec<Change>, Summary) {
    let map = |entries: &[Entry]| -> BTreeMap<(bool, u64), Entry> {
        entries.iter().map(|entry| (entry.key(), entry.clone())).collect()
    };
    let (before, after) = (map(before), map(after));
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let (mut changes, mut summary) = (Vec::new(), Summary::default());
    for key in keys {
        match (before.get(key).cloned(), after.get(key).cloned()) {
            (Some(old), None) => changes.push(Change::Deleted(old)),
            (None, Some(new)) => changes.push(Change::Created(new)),
            (Some(old), Some(new)) if old.born_ns != new.born_ns => {
                changes.extend([Change::Deleted(old), Change::Created(new)]);
            }
            (Some(old), Some(new)) if old == new => summary.unchanged += 1,
            (Some(old), Some(new)) => {
                let what = Differences::between(&old, &new);
                changes.push(Change::Changed { before: old, after: new, what });
            }
            (None, None) => {}
        }
    }
    changes.iter().for_each(|change| summary.add(change));
    (changes, summary)
}

fn diff(before: &Path, after: &Path) -> (Vec<Change>, Summary) {
    let open = |path| SnapshotReader::open(path).unwrap();
    let mut diff = Diff::new(open(before), open(after));
    let changes: Vec<_> = diff.by_ref().map(|change| change.unwrap()).collect();
    let mut summary = Summary { unchanged: diff.unchanged(), ..Summary::default() };
    changes.iter().for_each(|change| summary.add(change));
    (changes, summary)
}

/// Makes a tree of `count` entries in 20 directories, and a later state of this tree.
fn two_trees(seed: u64, count: u64) -> (Vec<Entry>, Vec<Entry>) {
    let mut random = Pcg64::seed_from_u64(seed);
    let directory = |inode| Entry {
        inode,
        kind: EntryKind::Directory,
        born_ns: 1,
        name: format!("d{inode}").into_bytes().into(),
        ..Entry::default()
    };
    let mut before: Vec<_> = (1..=20).map(directory).collect();
    for inode in 21..=count {
        before.push(Entry {
            inode,
            directory: random.random_range(0..=20),
            size: random.random_range(0..100_000),
            born_ns: 1,
            modified_ns: 5,
            changed_ns: 5,
            name: format!("f{inode}").into_bytes().into(),
            ..Entry::default()
        });
    }
    let mut after = Vec::new();
    for entry in &before {
        let mut entry = entry.clone();
        let is_file = entry.kind == EntryKind::File;
        match random.random_range(0..20) {
            0 if is_file => continue,
            1 if is_file => (entry.size, entry.modified_ns) = (entry.size / 2, DAY_NS / 2),
            2 if is_file => (entry.size, entry.modified_ns) = (entry.size * 2, DAY_NS / 3),
            3 if is_file => entry.modified_ns = DAY_NS / 4,
            4 if is_file => entry.directory = random.random_range(0..=20),
            5 if is_file => (entry.born_ns, entry.size) = (DAY_NS / 5, 7),
            6 if is_file => entry.mode = 0o600,
            7 => entry.name = format!("new{}", entry.inode).into_bytes().into(),
            _ => {}
        }
        after.push(entry);
    }
    for inode in count + 1..count + count / 10 {
        let file = Entry { inode, directory: 3, size: 10, born_ns: DAY_NS / 2, ..Entry::default() };
        after.push(file);
    }
    (before, after)
}

fn equals_the_naive_model(seed: u64, count: u64) {
    let scratch = tempfile::tempdir().unwrap();
    let [one, two] = ["1", "2"].map(|name| scratch.path().join(name));
    let (before, after) = two_trees(seed, count);
    write(&one, 0, &before);
    write(&two, 1, &after);
    assert!(diff(&one, &two) == naive(&before, &after), "seed {seed}");
}

proptest! {
    #![proptest_config(cases(12))]
    #[test]
    fn a_diff_finds_what_a_naive_model_finds(seed in any::<u64>(), count in 30_u64..800) {
        equals_the_naive_model(seed, count);
    }
}

#[test]
#[ignore = "a measurement: a million rows; run with --release -- --ignored"]
fn a_diff_of_a_million_rows_finds_what_a_naive_model_finds() {
    equals_the_naive_model(1, 1_000_000);
}

/// Returns the expected number and total size of the files that a derived workload makes.
fn expected(entries: &[Entry]) -> (u64, u64) {
    let files = entries.iter().filter(|entry| entry.kind == EntryKind::File);
    (files.clone().count() as u64, files.map(|entry| entry.size).sum())
}

fn population_of(path: &Path) -> Population {
    let mut population = Population::default();
    for operation in WorkloadReader::open(path).unwrap() {
        population.apply(&operation.unwrap()).unwrap();
    }
    population
}

fn files_and_bytes(population: &Population) -> (u64, u64) {
    let files = || population.members().filter(|(_, member)| member.kind == OperationKind::Create);
    (files().count() as u64, files().map(|(_, member)| member.size).sum())
}

#[test]
fn a_derived_workload_makes_the_last_snapshot() {
    let scratch = tempfile::tempdir().unwrap();
    let [one, two, output] = ["1", "2", "w"].map(|name| scratch.path().join(name));
    for seed in 0..6 {
        let (before, after) = two_trees(seed, 300);
        write(&one, 0, &before);
        write(&two, 1, &after);
        let snapshots = [one.clone(), two.clone()];
        let model = Model { per_day: 50.0, mean_bytes: 9000.0, sigma: 1.0, largest: 1 << 20 };
        let days = Days::of(crate::support::operations(small("mail"), seed).into_iter().map(Ok));
        for options in [
            options(),
            Options { rewrite_all: true, ..options() },
            Options { inodes_per_directory: NonZeroU64::new(64), ..options() },
            Options { short_lived: Some(ShortLived::Drawn(model)), ..options() },
            Options { short_lived: Some(ShortLived::Recorded(days.unwrap())), ..options() },
        ] {
            let derived = derive(&snapshots, &output, &options).unwrap();
            let population = population_of(&output);
            assert_eq!(files_and_bytes(&population), expected(&after), "{options:?}");
            assert_eq!(derived.operations, population.operations());
            assert_eq!(derived.orphans, 0);
            let memory = MemFs::default();
            let mut replayer = Replayer::new(&memory, settings(2));
            assert!(replayer.run(WorkloadReader::open(&output).unwrap(), &mut ()).unwrap());
            assert_eq!(tree_checksum(&memory, true).unwrap(), population.checksum().unwrap());
        }
    }
}

/// Each day of an interval gets the files of a recorded day, in the busiest directories.
#[test]
fn short_lived_files_come_from_recorded_days() {
    let scratch = tempfile::tempdir().unwrap();
    let [one, two, output] = ["1", "2", "w"].map(|name| scratch.path().join(name));
    let (before, after) = two_trees(3, 200);
    write(&one, 0, &before);
    write(&two, 20, &after);
    let recorded = crate::support::operations(small("mail"), 4);
    let days = Days::of(recorded.into_iter().map(Ok)).unwrap();
    let (recorded_days, recorded_files) = days.counts();
    assert!((10..=14).contains(&recorded_days) && recorded_files > 100, "{:?}", days.counts());
    let options = Options { short_lived: Some(ShortLived::Recorded(days)), ..options() };
    derive(&[one, two], &output, &options).unwrap();
    let short_lived = WorkloadReader::open(&output).unwrap().map(|operation| operation.unwrap());
    // Short-lived files are in no snapshot, so the workload contains no names for them.
    let made = short_lived
        .filter(|operation| operation.kind == OperationKind::Create && operation.name.is_empty());
    let made = made.count() as f64 / 20.0;
    let expected = recorded_files as f64 / recorded_days as f64;
    assert!((0.6..1.5).contains(&(made / expected)), "{made} a day, and {expected} recorded");
}

/// A subdirectory becomes the parent of the directory that contained it, and the inode of a removed
/// directory is reused.
#[test]
fn directories_can_swap_places_between_snapshots() {
    let scratch = tempfile::tempdir().unwrap();
    let [one, two, output] = ["1", "2", "w"].map(|name| scratch.path().join(name));
    let directory = |inode, parent, name: &str, born_ns| Entry {
        inode,
        directory: parent,
        kind: EntryKind::Directory,
        born_ns,
        name: name.as_bytes().to_vec().into(),
        ..Entry::default()
    };
    let file =
        Entry { inode: 9, directory: 2, size: 5, name: b"f".to_vec().into(), ..Entry::default() };
    write(
        &one,
        0,
        &[
            directory(1, 0, "a", 1),
            directory(2, 1, "b", 1),
            directory(3, 0, "gone", 1),
            file.clone(),
        ],
    );
    write(
        &two,
        1,
        &[directory(2, 0, "b", 1), directory(1, 2, "a", 1), directory(3, 1, "new", 2), file],
    );
    derive(&[one, two], &output, &options()).unwrap();
    let population = population_of(&output);
    assert_eq!(population.path(9).unwrap(), b"b~2/f~9");
    assert_eq!(population.path(1).unwrap(), b"b~2/a~1");
    assert_eq!(population.len(), 4);
}

fn directory(inode: u64, parent: u64) -> Entry {
    let name = format!("d{inode}").into_bytes().into();
    Entry {
        inode,
        directory: parent,
        kind: EntryKind::Directory,
        born_ns: 1,
        name,
        ..Entry::default()
    }
}

/// Derives a workload from two states of directories, a day apart. Directories are pairs of inode
/// and parent inode.
fn derived_from(before: &[(u64, u64)], after: &[(u64, u64)]) -> Result<Population, String> {
    let scratch = tempfile::tempdir().unwrap();
    let [one, two, output] = ["1", "2", "w"].map(|name| scratch.path().join(name));
    let entries = |list: &[(u64, u64)]| -> Vec<_> {
        list.iter().map(|(inode, parent)| directory(*inode, *parent)).collect()
    };
    write(&one, 0, &entries(before));
    write(&two, 1, &entries(after));
    let derived = derive(&[one, two], &output, &options());
    derived.map(|_derived| population_of(&output)).map_err(|error| error.to_string())
}

/// Path `1/2/3` becomes `2/3/1`: directory 2 is moved to the root, and directory 1 into directory
/// 3.
#[test]
fn directory_can_move_below_its_former_descendant() {
    let population = derived_from(&[(1, 0), (2, 1), (3, 2)], &[(1, 3), (2, 0), (3, 2)]).unwrap();
    assert_eq!(population.path(1).unwrap(), b"d2~2/d3~3/d1~1");
}

#[test]
fn snapshots_with_directory_cycles_are_refused() {
    let two = [(1, 2), (2, 1)];
    let below_itself = [(1, 3), (2, 1), (3, 2)];
    for (before, after, name) in [
        (&two[..], &[][..], "/1"),
        (&[(1, 1)], &[], "/1"),
        (&[(1, 0), (2, 1)], &two, "/2"),
        // Directories 2 and 3 are not moved.
        (&[(1, 0), (2, 1), (3, 2)], &below_itself, "/2"),
        (&[(7, 0)], &[(4, 5), (5, 6), (6, 4), (7, 0)], "/2"),
    ] {
        let message = derived_from(before, after).unwrap_err();
        assert!(message.contains(&format!("{name}: the directory with the inode")), "{message}");
        assert!(message.contains("contains itself") && message.lines().count() == 1, "{message}");
    }
    // With one directory per range of inodes, cycles have no effect.
    let scratch = tempfile::tempdir().unwrap();
    let [one, output] = ["1", "w"].map(|name| scratch.path().join(name));
    let file = Entry { inode: 9, directory: 1, size: 5, ..Entry::default() };
    write(&one, 0, &[directory(1, 2), directory(2, 1), file]);
    let flat = Options { inodes_per_directory: NonZeroU64::new(64), ..options() };
    derive(&[one], &output, &flat).unwrap();
    assert_eq!(files_and_bytes(&population_of(&output)), (1, 5));
}

/// If the creation time is unknown, the generation detects a reused inode.
#[test]
fn inode_with_another_generation_is_another_file() {
    let scratch = tempfile::tempdir().unwrap();
    let [one, two] = ["1", "2"].map(|name| scratch.path().join(name));
    let of = |generation| Entry { inode: 5, size: 10, generation, ..Entry::default() };
    for (before, after, is_same) in [(7, 7, true), (7, 8, false), (0, 8, true), (7, 0, true)] {
        write(&one, 0, &[of(before)]);
        write(&two, 1, &[of(after)]);
        let summary = diff(&one, &two).1;
        let told = (summary.unchanged, summary.deleted, summary.created);
        assert_eq!(told, if is_same { (1, 0, 0) } else { (0, 1, 1) }, "{before} {after}");
    }
}

/// An inode changes from a file to a directory, and another from a directory to a file, between two
/// snapshots.
#[test]
fn inode_can_change_between_file_and_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let [one, two, three, output] = ["1", "2", "3", "w"].map(|name| scratch.path().join(name));
    let entry = |inode, kind, born_ns, name: &str| Entry {
        inode,
        kind,
        born_ns,
        size: 10,
        name: name.as_bytes().to_vec().into(),
        ..Entry::default()
    };
    let (file, directory) = (EntryKind::File, EntryKind::Directory);
    write(&one, 0, &[entry(5, file, 1, "a"), entry(6, directory, 1, "b")]);
    write(&two, 1, &[entry(5, directory, 2, "c"), entry(6, file, 2, "d")]);
    write(&three, 2, &[entry(5, file, 3, "e"), entry(6, directory, 3, "f")]);
    let derived = derive(&[one, two, three], &output, &options()).unwrap();
    assert_eq!((derived.summary.created, derived.summary.deleted), (6, 4));
    let population = population_of(&output);
    assert_eq!((population.len(), files_and_bytes(&population)), (2, (1, 10)));
}

/// Inode numbers of imported CSV lists may be as large as 2^63 - 1; generated numbers must not
/// equal them.
#[test]
fn generated_directory_numbers_never_equal_an_inode() {
    let scratch = tempfile::tempdir().unwrap();
    let [one, output] = ["1", "w"].map(|name| scratch.path().join(name));
    let inodes = [1, 2, 1 << 62, (1 << 62) + 1, (1 << 62) + 2, (1 << 63) - 1];
    let entries = inodes.map(|inode| Entry { inode, size: 1, ..Entry::default() });
    write(&one, 0, &entries);
    for each in [1, 2, 1 << 20, u64::MAX] {
        let each = NonZeroU64::new(each);
        let options = Options { inodes_per_directory: each, ..options() };
        derive(std::slice::from_ref(&one), &output, &options).unwrap();
        assert_eq!(files_and_bytes(&population_of(&output)), (6, 6), "{each:?}");
    }
}

#[test]
fn synthetic_snapshots_differ_by_the_reported_counts() {
    let scratch = tempfile::tempdir().unwrap();
    let [one, two] = ["1", "2"].map(|name| scratch.path().join(name));
    for rows in [0, 1, 21, 7000] {
        let told = write_synthetic_pair(rows, 3, &one, &two).unwrap();
        let (changes, found) = diff(&one, &two);
        assert_eq!((told, told), (found, naive(&read(&one), &read(&two)).1), "{rows} rows");
        let changed = told.created + told.deleted + told.grown + told.truncated + told.modified;
        assert_eq!(changes.len() as u64, changed + told.renamed);
        assert!(rows < 7000 || told.deleted > 40, "{told:?}");
    }
}

#[test]
fn a_live_tree_is_captured_and_verified() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    for number in 0..40 {
        fs::write(tree.join(format!("a/b/file{number}")), vec![1; 300 * number]).unwrap();
    }
    std::os::unix::fs::symlink("a/b", tree.join("link")).unwrap();
    let [plain, hidden, key] = ["plain", "hidden", "key"].map(|name| scratch.path().join(name));
    let layout = fslab_age::score::score_directory(
        &tree,
        fslab_age::score::Rules { block_bytes: 4096, group_bytes: None, map_bytes: None },
        2,
    );
    let layout = layout.is_ok();
    if !layout {
        fslab_vfs_testing::skip::skip("fslab_age::snapshots", "no FIEMAP here: without layout");
    }
    let capture_to = |path: &Path, key| {
        let options = Capture { threads: 3, layout, extents: layout, key, now_ns: DAY_NS };
        capture(&tree, path, &options).unwrap()
    };
    assert_eq!(capture_to(&plain, None), 43);
    let entries = read(&plain);
    let named = |name: &str| entries.iter().find(|entry| entry.name.bytes() == name.as_bytes());
    assert_eq!(named("a").unwrap().directory, 0);
    assert_eq!(named("b").unwrap().directory, named("a").unwrap().inode);
    assert_eq!(named("file39").unwrap().size, 11_700);
    // The snapshot must contain the generation that the kernel reports.
    let file = fs::File::open(tree.join("a/b/file39")).unwrap();
    let generation = fslab_sys::generation::of(&file).unwrap().unwrap_or_default();
    let found = named("file39").unwrap();
    assert_eq!(found.generation, if layout { generation } else { 0 });
    let list = ExtentList::parse(&found.extents).unwrap();
    let placed: u64 = list.extents.iter().map(|extent| extent.length).sum();
    assert!(if layout { placed >= 11_700 } else { placed == 0 }, "{list:?}");
    assert_eq!(named("link").unwrap().kind, EntryKind::Symlink);
    fs::write(&key, "too short").unwrap();
    assert!(NameKey::read(&key).is_err());
    fs::write(&key, "a secret that is long enough").unwrap();
    capture_to(&hidden, Some(NameKey::read(&key).unwrap()));
    let bytes = fs::read(&hidden).unwrap();
    assert!(!bytes.windows(4).any(|window| window == b"file"), "a name is readable");
    let open = |path: &PathBuf| SnapshotReader::open(path).unwrap();
    let findings = verify(open(&plain), open(&hidden), Limits::default()).unwrap();
    assert!(findings.iter().all(|finding| finding.holds()), "{findings:?}");
    fs::write(tree.join("large"), vec![0; 4 << 20]).unwrap();
    let later = scratch.path().join("later");
    capture_to(&later, None);
    let findings = verify(open(&plain), open(&later), Limits::default()).unwrap();
    assert!(findings.iter().any(|finding| !finding.holds()), "{findings:?}");
    let (changes, summary) = diff(&plain, &later);
    assert_eq!((summary.created, summary.deleted, changes.len()), (1, 0, 1));
}

#[test]
fn lists_are_imported_and_bad_lines_named() {
    let scratch = tempfile::tempdir().unwrap();
    let [input, output] = ["list.csv", "snapshot"].map(|name| scratch.path().join(name));
    fs::write(&input, "path,size,modified,mode\na/b/c,100,5.5,600\na/d,7,,\nx,0,1,\n").unwrap();
    assert_eq!(import_csv(&input, &output, None, DAY_NS).unwrap(), 5);
    let entries = read(&output);
    let file = entries.iter().find(|entry| entry.name.bytes() == b"c").unwrap();
    assert_eq!((file.size, file.modified_ns, file.mode), (100, 5_500_000_000, 0o600));
    for (text, what) in [
        ("name,size\n", "'path'"),
        ("path,size\na,many\n", "line 2"),
        ("path,size\n../a,1\n", "'.' or '..'"),
        ("path,size,kind\na,1,q\n", "'q' is not a kind"),
        ("path,size\na\n", "line 2"),
        ("path,size\na,\n", "the size is missing"),
        ("path,size,uid\na,1,4294967296\n", "not a valid owner"),
        ("path,size,inode\na,1,0\n", "the root"),
        ("path,size,modified\na,1,nan\n", "not a number of seconds"),
        ("path,size,modified\na,1,1e11\n", "not a number of seconds"),
    ] {
        fs::write(&input, text).unwrap();
        let message = import_csv(&input, &output, None, 0).unwrap_err().to_string();
        assert!(message.contains(what), "{text}: {message}");
    }
}

/// Makes a repository with `commits` commits by `git fast-import`. Returns `false` if git is
/// missing.
fn repository(path: &Path, commits: u64) -> bool {
    let git = |arguments: &[&str]| Command::new("git").arg("-C").arg(path).args(arguments).output();
    fs::create_dir_all(path).unwrap();
    if !git(&["init", "-q", "-b", "main"]).is_ok_and(|output| output.status.success()) {
        fslab_vfs_testing::skip::skip("fslab_age::snapshots", "no git");
        return false;
    }
    let mut random = Pcg64::seed_from_u64(3);
    let mut stream = String::new();
    for commit in 0..commits {
        let time = 1_000_000_000 + commit * 7000;
        stream += &format!("commit refs/heads/main\ncommitter a <a> {time} +0000\ndata 1\nx\n");
        for _ in 0..3 {
            let path = format!("d{}/f{}", random.random_range(0..9), random.random_range(0..60));
            if commit > 9 && random.random_bool(0.1) {
                stream += &format!("D {path}\n");
            } else {
                let text = "z".repeat(random.random_range(1..400));
                stream += &format!("M 644 inline {path}\ndata {}\n{text}\n", text.len());
            }
        }
    }
    let mut child = Command::new("git")
        .arg("-C")
        .arg(path)
        .args(["fast-import", "--quiet"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), stream.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    true
}

#[test]
fn a_git_history_becomes_a_workload_that_makes_its_last_tree() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("repository");
    if !repository(&path, 5000) {
        return;
    }
    let history = History::read(&path).unwrap();
    assert_eq!(history.commits(), 5000);
    let directory = scratch.path().join("snapshots");
    fs::create_dir(&directory).unwrap();
    let snapshots = history.write(Every::Week, &directory, None).unwrap();
    assert!((50..70).contains(&snapshots.len()), "{}", snapshots.len());
    let output = scratch.path().join("workload");
    let derived = derive(&snapshots, &output, &options()).unwrap();
    assert_eq!((derived.orphans, derived.left_out), (0, 0));
    let listed =
        Command::new("git").arg("-C").arg(&path).args(["ls-tree", "-r", "-l", "main"]).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let sizes =
        listed.lines().map(|line| line.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap());
    let told = (sizes.clone().count() as u64, sizes.sum::<u64>());
    assert_eq!(files_and_bytes(&population_of(&output)), told);
}
