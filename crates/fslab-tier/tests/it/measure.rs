//! Measures the size of the catalogue, and the time and memory for a scan and a rebuild, with two
//! million files. The largest DMFS system had this many files.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::{Archive, Container, ContainerKind, Deletion, Upload};
use fslab_tier::catalogue::{Catalogue, ObjectRow, ObjectState};
use fslab_tier::stored::{Location, Marks, Residency, StoredResidency, TreeMark, Version};
use fslab_tier::{
    Environment, Id, Settings, Tier, inode_by_number_and_birth, own_request, rebuild,
};
use fslab_vfs::{FileSystem, Ino, MemFs, MonotonicClock, SetAttr, SetTime, Timestamp};
use fslab_vfs_testing::client::Client;
use fslab_vfs_testing::environment::number;

use crate::support::{Counted, Dates, TIER};

const FILES: u64 = 2_000_000;
const FILES_A_DIRECTORY: u64 = 1000;
const SIZE: u64 = 5 << 20;
const MODIFIED: Timestamp = Timestamp { seconds: 1_000_000_000, nanoseconds: 0 };

/// An archive that stores only archived trees. It reports that every container of files exists, so
/// that the test needs no space for them.
struct Boundless(MemoryArchive);

impl Archive for Boundless {
    fn id(&self) -> Id {
        self.0.id()
    }

    fn label(&self) -> &str {
        self.0.label()
    }

    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>> {
        self.0.begin(container)
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(container, offset, buffer)
    }

    fn length(&self, (kind, container): Container) -> io::Result<u64> {
        match kind {
            ContainerKind::Files => Ok(u64::MAX),
            ContainerKind::Tree => self.0.length((kind, container)),
        }
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        self.0.list(kind, visit)
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.0.delete(container)
    }
}

fn around() -> Environment {
    Environment {
        clock: Arc::new(MonotonicClock),
        calendar: Arc::new(Dates(AtomicU64::new(0))),
        identities: Arc::new(Counted(AtomicU64::new(0))),
        inode_identity: inode_by_number_and_birth,
        marks: Marks::Trusted,
    }
}

/// Returns the memory of this process in MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}

/// Returns the peak memory of this process in MiB.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}

/// `FSLAB_TIER_FILES` sets another number of files.
#[test]
#[ignore = "a measurement: two million files take minutes and some gigabytes"]
fn two_million_files_are_scanned_and_rebuilt() {
    let files = number("FSLAB_TIER_FILES").unwrap_or(FILES);
    let scratch = tempfile::tempdir().unwrap();
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    populate(&lower, files);
    let archive: Arc<dyn Archive> = Arc::new(Boundless(MemoryArchive::new(Id([1; 16]), "a")));
    let path = scratch.path().join("catalogue.redb");
    let catalogue = Catalogue::open(&path).unwrap();
    let archives = vec![Arc::clone(&archive)];
    let settings = Settings::of(TIER);
    let tier = Tier::open(Arc::clone(&lower), settings, archives, catalogue, around()).unwrap();
    let (tree_mib, begun) = (memory(), Instant::now());
    let scanned = tier.scan(&own_request()).unwrap();
    assert_eq!((scanned.files, scanned.offline, scanned.repaired), (files, files, files));
    let scanned_after = begun.elapsed();
    let bytes = path.metadata().unwrap().len();
    eprintln!(
        "{files} files: scan {scanned_after:?}, catalogue {} MiB ({} bytes a file); memory {} MiB, \
         of which the tree {tree_mib}",
        bytes >> 20,
        bytes / files,
        memory()
    );
    let begun = Instant::now();
    tier.scan(&own_request()).unwrap();
    eprintln!("scan with a whole catalogue {:?}", begun.elapsed());
    let begun = Instant::now();
    tier.archive_tree(&own_request()).unwrap();
    eprintln!("tree archived {:?}, memory {} MiB", begun.elapsed(), memory());
    tier.shutdown().unwrap();
    drop(tier);
    let catalogue = Catalogue::open(&scratch.path().join("again.redb")).unwrap();
    let again: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*again, &TreeMark::of(TIER)).unwrap();
    let (before, begun) = (memory(), Instant::now());
    let archives = [archive];
    let made = rebuild::rebuild(
        rebuild::Options::default(),
        &again,
        &archives,
        &catalogue,
        (&around(), TIER),
        &own_request(),
    )
    .unwrap();
    assert_eq!((made.files, made.lost.len(), made.problems.len()), (files, 0, 0));
    let most = most_memory();
    eprintln!(
        "rebuilt {:?}, memory from {before} to {} MiB, at most {most}",
        begun.elapsed(),
        memory()
    );
}

/// Makes offline files, as a release leaves them.
fn populate(lower: &Arc<dyn FileSystem>, files: u64) {
    let request = own_request();
    let client = Client::new(&**lower);
    let mut directory = Ino::ROOT;
    for number in 0..files {
        if number.is_multiple_of(FILES_A_DIRECTORY) {
            directory = client.mkdir(Ino::ROOT, format!("directory{number}")).unwrap();
        }
        let ino = client.mknod(directory, format!("file{number}"), 0o100_644, 0).unwrap().ino;
        client.truncate(ino, SIZE).unwrap();
        let modified = Some(SetTime::To(MODIFIED));
        let attr = client.set(ino, &SetAttr { modified, ..SetAttr::default() }).unwrap();
        let id = |kind: u8| {
            let mut id = [kind; 16];
            id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            Id(id)
        };
        let known = Residency {
            tier: TIER,
            file: id(1),
            inode: inode_by_number_and_birth(&attr),
            changed: false,
            moving: false,
            poisoned: false,
            touched_seconds: 0,
            version: Version {
                object: id(2),
                location: Location { container: id(3), offset: 0, length: SIZE },
                size: SIZE,
                sequence: number + 1,
                modified: MODIFIED,
                root: [number as u8; 32],
                copies: vec![Id([1; 16])],
            },
            offline: (0..SIZE >> 20).map(|block| block..block + 1).collect(),
        };
        Marks::Trusted.write(&**lower, &request, ino, &StoredResidency::shortest(&known)).unwrap();
        client.forget(ino);
    }
}

/// Returns the row of an archived file, in a container of its own.
pub fn row_of(number: u64) -> ObjectRow {
    let id = |kind: u8| {
        let mut id = [kind; 16];
        id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        Id(id)
    };
    let version = Version {
        object: id(2),
        location: Location { container: id(3), offset: 0, length: SIZE },
        size: SIZE,
        sequence: number + 1,
        modified: MODIFIED,
        root: [number as u8; 32],
        copies: vec![Id([1; 16])],
    };
    ObjectRow {
        state: ObjectState::Live,
        file: id(1),
        inode: id(4),
        version,
        since: MODIFIED,
        seen: 1,
        path: format!("directory{}/file{number}", number / FILES_A_DIRECTORY).into_bytes(),
        sources: Some(Vec::new()),
    }
}

/// `FSLAB_TIER_FILES` sets another number of files.
#[test]
#[ignore = "a measurement: two million rows take a minute"]
fn tier_with_two_million_rows_opens() {
    let files = number("FSLAB_TIER_FILES").unwrap_or(FILES);
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("catalogue.redb");
    let lower: Arc<dyn FileSystem> = Arc::new(MemFs::default());
    Marks::Trusted.write_tree(&*lower, &TreeMark::of(TIER)).unwrap();
    let catalogue = Catalogue::open(&path).unwrap();
    for first in (0..files).step_by(50_000) {
        let rows: Vec<_> = (first..files.min(first + 50_000)).map(row_of).collect();
        catalogue.put(&rows).unwrap();
    }
    drop(catalogue);
    let begun = Instant::now();
    let catalogue = Catalogue::open(&path).unwrap();
    let opened = begun.elapsed();
    let tier = Tier::open(lower, Settings::of(TIER), Vec::new(), catalogue, around()).unwrap();
    eprintln!("{files} rows: catalogue opened {opened:?}, tier {:?}", begun.elapsed());
    tier.shutdown().unwrap();
}
