//! The actions of a policy, their order, and their reports.

use std::ffi::OsStr;
use std::sync::Arc;

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::command::{Command, Event, Grouping, Query};
use fslab_tier::stored::Marks;
use fslab_tier::{Settings, own_request};
use fslab_vfs::{
    Capacity, Entry, Errno, FallocateMode, FileSystem, Handle, Ino, MemFs, Name, OpenMode, Request,
    Result, SetAttr, SetTime, StatFs, Timestamp, XattrMode,
};
use fslab_vfs_testing::client::Client;
use parking_lot::Mutex;

use crate::marks::{OWNER, give};
use crate::support::{Bench, MIB, TIER, noise, told};

const RELEASE: &str = "[[rule]]\naction = 'release'\n";

/// A tree that records which files were freed, and how many containers the archive had then. An
/// inode or one of its xattrs may be made unreadable.
#[derive(Default)]
struct Watched {
    memory: MemFs,
    archive: Mutex<Option<Arc<MemoryArchive>>>,
    freed: Mutex<Vec<(Ino, usize)>>,
    unreadable: Mutex<Option<(Ino, &'static str)>>,
    nameless: Mutex<Option<&'static str>>,
    /// An inode that is pinned when this name is looked up.
    pinned_at: Mutex<Option<(&'static str, Ino)>>,
    /// Other programs fill the free space once the archive has this many containers.
    filled_at: Mutex<Option<usize>>,
}

impl Watched {
    fn bench(bytes: u64) -> (Arc<Self>, Bench) {
        let memory = MemFs::new(Capacity { bytes, inodes: 1000 });
        let lower = Arc::new(Self { memory, ..Self::default() });
        let bench = Bench::over(lower.clone());
        *lower.archive.lock() = Some(Arc::clone(&bench.archives[0]));
        (lower, bench)
    }

    fn freed(&self) -> Vec<Ino> {
        self.freed.lock().iter().map(|(ino, _)| *ino).collect()
    }
}

impl FileSystem for Watched {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&self.memory)
    }

    fn statfs(&self, request: &Request, ino: Ino) -> Result<StatFs> {
        let stat = self.memory.statfs(request, ino)?;
        let containers = self.archive.lock().as_ref().map_or(0, |archive| archive.containers());
        let is_filled = self.filled_at.lock().is_some_and(|least| containers >= least);
        let blocks_free = if is_filled { 0 } else { stat.blocks_free };
        Ok(StatFs { blocks_free, ..stat })
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        if self.nameless.lock().is_some_and(|nameless| name.as_os_str() == nameless) {
            return Err(Errno::IO.into());
        }
        let pinned_at = *self.pinned_at.lock();
        if let Some((_, ino)) = pinned_at.filter(|(at, _)| name.as_os_str() == *at) {
            let pin = OsStr::new(fslab_tier::command::PIN_NAME);
            self.memory.setxattr(request, ino, pin, b"1", XattrMode::empty())?;
        }
        self.memory.lookup(request, parent, name)
    }

    fn getxattr(&self, request: &Request, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        let unreadable = *self.unreadable.lock();
        if unreadable.is_some_and(|(bad, xattr)| bad == ino && name == xattr) {
            return Err(Errno::IO.into());
        }
        self.memory.getxattr(request, ino, name)
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        if mode.contains(FallocateMode::PUNCH_HOLE) {
            let containers = self.archive.lock().as_ref().map_or(0, |archive| archive.containers());
            self.freed.lock().push((ino, containers));
        }
        self.memory.fallocate(request, ino, handle, offset, length, mode)
    }
}

fn policy(rules: &str, dry_run: bool) -> Command {
    Command::Policy { rules: Some((rules.to_owned(), "test".to_owned())), dry_run }
}

fn problems(told: &[Event]) -> Vec<&str> {
    let mut problems = Vec::new();
    for event in told {
        if let Event::Problem { what } = event {
            problems.push(&what[..]);
        }
    }
    problems
}

/// Returns figures of a run without problems, by name.
#[track_caller]
fn figures<const N: usize>(bench: &Bench, command: &Command, names: [&str; N]) -> [u64; N] {
    let told = told(bench, command);
    let [Event::Total { figures }] = &told[..] else { panic!("{told:?}") };
    names.map(|name| figures.iter().find(|(found, _)| found == name).unwrap().1)
}

const GONE: [&str; 3] = ["archived", "released", "released_bytes"];

/// Makes a file with this access and modification time, in seconds since 1970.
fn used(client: &Client<'_>, name: &str, data: &[u8], used: i64) -> Ino {
    let ino = client.file(Ino::ROOT, name, data).unwrap();
    let time = Some(SetTime::To(Timestamp { seconds: used, nanoseconds: 0 }));
    let changes = SetAttr { accessed: time, modified: time, ..SetAttr::default() };
    client.set(ino, &changes).unwrap();
    ino
}

/// Above the high watermark, archived files are released before others are archived. The least
/// recently used ones are released first, and only as many as necessary.
#[test]
fn archived_files_are_released_first_least_recently_used_first() {
    let (lower, bench) = Watched::bench(10 * MIB);
    let client = bench.client();
    let mut files: Vec<(i64, Ino)> = Vec::new();
    for (number, time) in [500, 200, 400, 100, 300].into_iter().enumerate() {
        let name = format!("file{number}");
        let ino = used(&client, &name, &noise(number as u64, MIB), time);
        bench.archive(ino, &name).unwrap();
        files.push((time, ino));
    }
    for number in 0..4 {
        used(&client, &format!("fresh{number}"), &noise(10 + number, MIB), number as i64);
    }
    files.sort_unstable();
    let rules = format!("[watermarks]\nhigh = 0.85\nlow = 0.6\n{RELEASE}");
    let expected = [4, 3, 3 * MIB];
    assert_eq!(figures(&bench, &policy(&rules, true), GONE), expected);
    assert_eq!(lower.freed(), []);
    assert_eq!(figures(&bench, &policy(&rules, false), GONE), expected);
    let expected: Vec<_> = files.iter().take(3).map(|(_, ino)| (*ino, 5)).collect();
    assert_eq!(
        *lower.freed.lock(),
        expected,
        "the files were released before any container was added"
    );
    assert_eq!(bench.archives[0].containers(), 9);
}

/// Files that the run has archived are released too, if those archived before are not enough.
#[test]
fn newly_archived_files_are_released_if_space_is_short() {
    let (lower, bench) = Watched::bench(10 * MIB);
    let client = bench.client();
    let before = used(&client, "before", &noise(1, MIB), 900);
    bench.archive(before, "before").unwrap();
    let late = used(&client, "late", &noise(2, 4 * MIB), 800);
    let early = used(&client, "early", &noise(3, 4 * MIB), 700);
    let rules = format!("[watermarks]\nhigh = 0.85\nlow = 0.5\n{RELEASE}");
    let expected = [2, 2, 5 * MIB];
    assert_eq!(figures(&bench, &policy(&rules, true), GONE), expected);
    assert_eq!(figures(&bench, &policy(&rules, false), GONE), expected);
    assert_eq!(lower.freed(), [before, early]);
    assert!(bench.offline_blocks(late).is_empty());
}

#[test]
fn hard_linked_file_counts_once() {
    let (_, bench) = Watched::bench(10 * MIB);
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "large", &noise(4, MIB)).unwrap();
    let small = client.file(Ino::ROOT, "small", &noise(5, 8192)).unwrap();
    for (number, ino) in [ino, small, ino].into_iter().enumerate() {
        client.link(ino, Ino::ROOT, format!("link{number}")).unwrap();
    }
    let all = ["files", "archived", "archived_bytes", "released", "released_bytes"];
    let expected = [2, 2, MIB + 8192, 2, MIB + 8192];
    assert_eq!(figures(&bench, &policy(RELEASE, true), all), expected);
    assert_eq!(figures(&bench, &policy(RELEASE, false), all), expected);
}

/// Releasing a hole frees no space, so the run continues until the low watermark is reached.
#[test]
fn freed_space_is_counted_in_blocks_not_length() {
    let (lower, bench) = Watched::bench(10 * MIB);
    let client = bench.client();
    let sparse = client.file(Ino::ROOT, "sparse", b"").unwrap();
    let file = client.open(sparse, OpenMode::READ_WRITE).unwrap();
    (0..8).for_each(|number| file.write_all(number * MIB, &[1; 4096]).unwrap());
    file.close().unwrap();
    let time = Some(SetTime::To(Timestamp { seconds: 1, nanoseconds: 0 }));
    let changes = SetAttr { accessed: time, modified: time, ..SetAttr::default() };
    client.set(sparse, &changes).unwrap();
    let next = used(&client, "next", &noise(6, 3 * MIB), 2);
    used(&client, "last", &noise(7, 6 * MIB), 3);
    let rules = format!("[watermarks]\nhigh = 0.8\nlow = 0.7\n{RELEASE}");
    let expected = [3, 2, 3 * MIB + 8 * 4096];
    assert_eq!(figures(&bench, &policy(&rules, true), GONE), expected);
    let counted = bench.counted("tier_released_bytes");
    assert_eq!(figures(&bench, &policy(&rules, false), GONE), expected);
    assert_eq!(bench.counted("tier_released_bytes") - counted, expected[2]);
    let mut freed = lower.freed();
    freed.dedup();
    assert_eq!(freed, [sparse, next]);
}

/// One run releases more files than it keeps in memory at a time.
#[test]
fn policy_counts_any_number_of_releasable_files() {
    const FILES: u64 = 100_001;
    let memory = MemFs::new(Capacity { bytes: FILES * 4096, inodes: FILES + 10 });
    let bench = Bench::over(Arc::new(memory));
    let client = bench.below();
    for number in 0..FILES {
        let name = format!("{number}");
        let made = client.create(Ino::ROOT, name, 0o644, OpenMode::READ_WRITE).unwrap();
        made.1.write_all(0, b"x").unwrap();
        made.1.close().unwrap();
    }
    let expected = [FILES, FILES, FILES * 4096];
    assert_eq!(figures(&bench, &policy(RELEASE, true), GONE), expected);
    let rules = format!("[watermarks]\nhigh = 0.5\nlow = 0.0\n{RELEASE}");
    assert_eq!(figures(&bench, &policy(&rules, true), GONE), expected);
}

/// A file that is in use, or belongs to another user, is not a problem.
#[test]
fn busy_and_foreign_files_are_counted_but_not_reported_as_problems() {
    let lower = Arc::new(MemFs::default());
    give(&*lower, Ino::ROOT, OWNER);
    let bench = Bench::of(lower, Settings::of(TIER), Marks::Own(OWNER));
    let client = bench.client();
    let file = |name: &str| {
        let ino = client.file(Ino::ROOT, name, &noise(8, MIB)).unwrap();
        give(&*bench.lower, ino, OWNER);
        ino
    };
    let [written, read, quiet] = ["written", "read", "quiet"].map(file);
    give(&*bench.lower, file("foreign"), OWNER + 1);
    let writer = client.open(written, OpenMode::READ_WRITE).unwrap();
    let reader = client.open(read, OpenMode::empty()).unwrap();
    let all = ["files", "archived", "released", "busy", "foreign"];
    let expected = [4, 2, 1, 2, 1];
    assert_eq!(figures(&bench, &policy(RELEASE, true), all), expected);
    assert_eq!(figures(&bench, &policy(RELEASE, false), all), expected);
    assert_eq!(bench.offline_blocks(quiet), [0]);
    writer.close().unwrap();
    reader.close().unwrap();
    assert_eq!(figures(&bench, &policy(RELEASE, false), all), [4, 1, 2, 0, 1]);
}

/// Other programs may fill the freed space while the run archives files. Then the run tries to
/// release the busy file again.
#[test]
fn busy_file_counts_once_even_if_its_release_is_retried() {
    let (lower, bench) = Watched::bench(10 * MIB);
    let client = bench.client();
    let open = used(&client, "open", &noise(1, MIB), 100);
    let old = used(&client, "old", &noise(2, 4 * MIB), 200);
    used(&client, "fresh", &noise(3, MIB), 300);
    bench.archive(open, "open").unwrap();
    bench.archive(old, "old").unwrap();
    let reader = client.open(open, OpenMode::empty()).unwrap();
    *lower.filled_at.lock() = Some(3);
    let rules = format!("[watermarks]\nhigh = 0.5\nlow = 0.4\n{RELEASE}");
    let told = told(&bench, &policy(&rules, false));
    let Some(Event::Total { figures }) = told.last() else { panic!("{told:?}") };
    let of = |name: &str| figures.iter().find(|(found, _)| found == name).unwrap().1;
    assert_eq!((of("archived"), of("released"), of("busy")), (1, 2, 1), "{told:?}");
    assert_eq!(lower.freed(), [old, client.lookup(Ino::ROOT, "fresh").unwrap().ino]);
    reader.close().unwrap();
}

#[test]
fn small_hard_linked_file_is_released_by_the_rule_of_its_last_name() {
    let bench = Bench::new();
    let client = bench.client();
    let ino = client.file(Ino::ROOT, "a", &noise(11, 5000)).unwrap();
    client.link(ino, Ino::ROOT, "b").unwrap();
    let rules = "[[rule]]\naction = 'archive'\npaths = ['a']\n[[rule]]\naction = 'release'\n";
    let told = told(&bench, &policy(rules, false));
    assert_eq!(problems(&told), [""; 0]);
    assert_eq!(bench.offline_blocks(ino), [0]);
}

#[test]
fn file_edited_below_the_mount_is_archived_again() {
    let bench = Bench::new();
    let ino = bench.client().file(Ino::ROOT, "file", &noise(12, MIB)).unwrap();
    bench.archive(ino, "file").unwrap();
    let below = bench.below();
    let file = below.open(ino, OpenMode::READ_WRITE).unwrap();
    file.write_all(0, b"changed").unwrap();
    file.close().unwrap();
    let archive = policy("[[rule]]\naction = 'archive'\n", false);
    assert_eq!(figures(&bench, &archive, ["archived"]), [1]);
    assert_eq!(figures(&bench, &archive, ["archived"]), [0]);
}

/// The unreadable inode is a problem of that file only. As long as it is unreadable, a scan treats
/// all objects as needed.
#[test]
fn unreadable_inode_is_reported_and_other_files_are_processed() {
    let (lower, bench) = Watched::bench(100 * MIB);
    let client = bench.client();
    let [_, bad, _] =
        ["a", "bad", "c"].map(|name| client.file(Ino::ROOT, name, &noise(9, MIB)).unwrap());
    let paths = vec![Vec::new()];
    let commands = [
        (policy(RELEASE, true), 1),
        (Command::State { paths: paths.clone(), recursive: true }, 2),
        (Command::Find { paths: paths.clone(), query: Query::default() }, 2),
        (Command::Du { paths: paths.clone(), query: Query::default(), by: None }, 1),
        (
            Command::Du { paths: paths.clone(), query: Query::default(), by: Some(Grouping::Size) },
            1,
        ),
        (Command::Archive { paths: paths.clone(), rate: 0, bundled: None }, 2),
        (Command::Release { paths: paths.clone(), keep_bytes: 0 }, 2),
        (Command::Recall { paths, range: None, rate: 0 }, 2),
        (policy(RELEASE, false), 1),
    ];
    for (is_nameless, (command, others)) in
        [true, false].into_iter().flat_map(|how| commands.iter().map(move |each| (how, each)))
    {
        let residency = Marks::Trusted.residency_name();
        *lower.nameless.lock() = is_nameless.then_some("bad");
        *lower.unreadable.lock() = (!is_nameless).then_some((bad, residency));
        let told = told(&bench, command);
        let problems = problems(&told);
        assert_eq!(problems.len(), 1, "{command:?}: {told:?}");
        assert!(problems[0].starts_with("bad: "), "{command:?}: {problems:?}");
        assert_eq!(told.len(), 1 + others, "{command:?}: {told:?}");
        assert!(bench.tier.scan(&own_request()).is_err());
        // Restores the previous state for the next command.
        if matches!(command, Command::Policy { dry_run: false, .. }) {
            for name in ["a", "c"] {
                client
                    .open(client.lookup(Ino::ROOT, name).unwrap().ino, OpenMode::READ_WRITE)
                    .unwrap()
                    .write_all(0, b"anew")
                    .unwrap();
            }
        }
    }
}

/// If it is unknown whether a file is pinned, the file is not released.
#[test]
fn possibly_pinned_file_stays() {
    let (lower, bench) = Watched::bench(10 * MIB);
    let ino = bench.client().file(Ino::ROOT, "file", &noise(11, MIB)).unwrap();
    *lower.unreadable.lock() = Some((ino, fslab_tier::command::PIN_NAME));
    assert_eq!(figures(&bench, &policy(RELEASE, true), GONE), [1, 0, 0]);
    assert_eq!(figures(&bench, &policy(RELEASE, false), GONE), [1, 0, 0]);
    assert!(bench.offline_blocks(ino).is_empty());
    *lower.unreadable.lock() = None;
    assert_eq!(figures(&bench, &policy(RELEASE, false), GONE), [0, 1, MIB]);
}

/// Files are collected and then released together, so a file may be pinned after it was found.
#[test]
fn file_pinned_after_it_was_found_stays() {
    let release = Command::Release { paths: vec![Vec::new()], keep_bytes: 0 };
    for command in [release, policy(RELEASE, false)] {
        let (lower, bench) = Watched::bench(10 * MIB);
        let inos = ["file1", "file2"].map(|name| {
            let ino = bench.client().file(Ino::ROOT, name, &noise(11, MIB)).unwrap();
            bench.archive(ino, name).unwrap();
            ino
        });
        *lower.pinned_at.lock() = Some(("file2", inos[0]));
        told(&bench, &command);
        assert_eq!(lower.freed(), inos[1..], "{command:?}");
    }
}

/// If the value could be read, the rule might require that the file is kept.
#[test]
fn file_with_an_unreadable_rule_xattr_is_skipped_and_reported() {
    let (lower, bench) = Watched::bench(10 * MIB);
    let ino = bench.client().file(Ino::ROOT, "file", &noise(12, MIB)).unwrap();
    let rules = format!("[[rule]]\naction = 'keep'\nxattrs = ['user.keep']\n{RELEASE}");
    *lower.unreadable.lock() = Some((ino, "user.keep"));
    let told = told(&bench, &policy(&rules, false));
    assert!(problems(&told)[0].starts_with("file: "), "{told:?}");
    assert_eq!((bench.archives[0].containers(), problems(&told).len()), (0, 1));
}

/// Offline bytes do not make a file sparse.
#[test]
fn rules_match_file_type_and_owner() {
    let (_, bench) = Watched::bench(20 * MIB);
    let client = bench.client();
    let file = |name: &str| client.file(Ino::ROOT, name, &noise(13, 2 * MIB)).unwrap();
    let [program, linked, grouped] = ["program", "linked", "grouped"].map(file);
    client.chmod(program, 0o710).unwrap();
    client.link(linked, Ino::ROOT, "again").unwrap();
    client.chown(grouped, 7, 8).unwrap();
    client.truncate(file("sparse"), 4 * MIB).unwrap();
    let away = bench.offline(&client, "away", &noise(14, 2 * MIB));
    client.open(away, OpenMode::READ_WRITE).unwrap().write_all(0, b"changed").unwrap();
    for (condition, archived) in [
        ("types = ['executable']", 1),
        ("types = ['linked']", 1),
        ("types = ['sparse']", 1),
        ("types = ['linked', 'sparse']", 2),
        ("types = ['sparse']\nlarger = '1T'", 0),
        ("groups = [8]", 1),
        ("users = [7]\ngroups = [0]", 0),
        ("users = ['root']", 4),
    ] {
        let rules = format!("[[rule]]\naction = 'archive'\n{condition}\n");
        let told = figures(&bench, &policy(&rules, true), ["archived", "busy"]);
        assert_eq!(told, [archived, 0], "{condition}");
    }
}
