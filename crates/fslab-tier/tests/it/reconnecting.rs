//! Errors of archives, and whether they show that the archive is unavailable.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::unavailable::{LOOK_EVERY, Opener};
use fslab_tier::archive::{
    Archive, Container, ContainerKind, Deletion, DirectoryArchive, Proof, ReconnectingArchive,
    Upload,
};
use fslab_tier::{Id, Scrubbed, Settings, own_request};
use fslab_vfs::{Errno, MemFs};
use parking_lot::Mutex;

use crate::support::{Bench, Hands, MIB, TIER, copied, noise, open_over};

const KIND: ContainerKind = ContainerKind::Files;
const CONTAINER: Id = Id([2; 16]);

/// An archive whose reads and writes return an error, after a number of successful reads.
struct Answers(Arc<dyn Archive>, Errno, AtomicU64);

impl Answers {
    fn new(inner: Arc<dyn Archive>, errno: Errno) -> Self {
        Self(inner, errno, AtomicU64::new(0))
    }

    fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.1.raw_os_error())
    }
}

impl Archive for Answers {
    fn id(&self) -> Id {
        self.0.id()
    }

    fn label(&self) -> &str {
        self.0.label()
    }

    fn check(&self) -> io::Result<()> {
        self.0.check()
    }

    fn begin(&self, _: Container) -> io::Result<Box<dyn Upload>> {
        Ok(Box::new(Self::new(Arc::clone(&self.0), self.1)))
    }

    fn read(&self, container: Container, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let is_left = |left: u64| left.checked_sub(1);
        match self.2.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_left) {
            Ok(_) => self.0.read(container, at, buffer),
            Err(_) => Err(self.error()),
        }
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        self.0.length(container)
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        self.0.list(kind, visit)
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.0.delete(container)
    }
}

impl Upload for Answers {
    fn write(&mut self, _: &[u8]) -> io::Result<()> {
        Err(self.error())
    }

    fn finish(self: Box<Self>) -> io::Result<Proof> {
        Err(self.error())
    }
}

#[test]
fn errors_of_a_lost_server_or_disk_make_an_archive_unavailable() {
    for (answer, is_gone) in [
        (Errno::NOTCONN, true),
        (Errno::TIMEDOUT, true),
        (Errno::HOSTDOWN, true),
        (Errno::HOSTUNREACH, true),
        (Errno::NETUNREACH, true),
        (Errno::NODEV, true),
        // Errors of an available archive.
        (Errno::STALE, false),
        (Errno::NOENT, false),
        (Errno::IO, false),
        (Errno::ACCESS, false),
    ] {
        type Ask = fn(&ReconnectingArchive) -> io::Error;
        let asks: [Ask; 3] = [
            |archive| archive.read((KIND, CONTAINER), 0, &mut [0; 8]).unwrap_err(),
            |archive| archive.begin((KIND, CONTAINER)).unwrap().write(&[0]).unwrap_err(),
            |archive| archive.begin((KIND, CONTAINER)).unwrap().finish().unwrap_err(),
        ];
        for ask in asks {
            let inner = Arc::new(MemoryArchive::new(Id([1; 16]), "a0"));
            let opener = Box::new(move || {
                Ok(Arc::new(Answers::new(inner.clone(), answer)) as Arc<dyn Archive>)
            });
            let known = (Id([1; 16]), "a0".to_owned());
            let (archive, _) = ReconnectingArchive::new(known, opener, Arc::new(Hands::default()));
            let error = ask(&archive);
            assert_eq!(archive.why_unavailable().is_some(), is_gone, "{answer}");
            assert_eq!(error.kind() == io::ErrorKind::NotConnected, is_gone, "{answer}");
        }
    }
}

#[test]
fn archive_is_not_reopened_while_an_upload_is_in_progress() {
    let (scratch, hands) = (tempfile::tempdir().unwrap(), Arc::new(Hands::default()));
    let (root, aside) = (scratch.path().join("archive"), scratch.path().join("aside"));
    DirectoryArchive::init(&root, Id([1; 16]), TIER, None).unwrap();
    let place = root.clone();
    let opener: Opener = Box::new(move || {
        DirectoryArchive::open(&place, TIER).map(|archive| Arc::new(archive) as Arc<dyn Archive>)
    });
    let known = (Id([1; 16]), "archive".to_owned());
    let (archive, _) = ReconnectingArchive::new(known, opener, hands.clone());
    let mut upload = archive.begin((KIND, CONTAINER)).unwrap();
    fs::rename(&root, &aside).unwrap();
    assert!(archive.check().is_err());
    fs::rename(&aside, &root).unwrap();
    hands.turn(LOOK_EVERY);
    assert!(!archive.look());
    let why = archive.why_unavailable().unwrap();
    assert!(why.contains("is being written by another fslab"), "{why}");
    // The same path may meanwhile belong to another archive.
    assert_eq!(upload.write(b"hello").unwrap_err().kind(), io::ErrorKind::NotConnected);
    assert_eq!(upload.finish().unwrap_err().kind(), io::ErrorKind::NotConnected);
    hands.turn(LOOK_EVERY);
    assert!(archive.look());
    let error = archive.length((KIND, CONTAINER)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound, "nothing is left of it");
}

#[test]
fn disk_error_makes_an_archive_unavailable_only_if_it_is_gone() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("archive");
    DirectoryArchive::init(&root, Id([1; 16]), TIER, None).unwrap();
    let directory = Arc::new(DirectoryArchive::open(&root, TIER).unwrap());
    let opener: Opener = Box::new(move || Ok(Arc::new(Answers::new(directory.clone(), Errno::IO))));
    let known = (Id([1; 16]), "archive".to_owned());
    let (archive, _) = ReconnectingArchive::new(known, opener, Arc::new(Hands::default()));
    let read = || archive.read((KIND, CONTAINER), 0, &mut [0; 8]).unwrap_err();
    assert_eq!(Errno::from_io_error(&read()), Some(Errno::IO));
    assert_eq!(archive.why_unavailable(), None);
    fs::rename(&root, scratch.path().join("aside")).unwrap();
    assert_eq!(read().kind(), io::ErrorKind::NotConnected);
    assert!(archive.why_unavailable().is_some());
}

#[test]
fn missing_archive_directory_fails_lists_and_deletions() {
    let scratch = tempfile::tempdir().unwrap();
    let (root, id) = (scratch.path().join("archive"), Id([5; 16]));
    DirectoryArchive::init(&root, Id([1; 16]), TIER, None).unwrap();
    let archive = DirectoryArchive::open(&root, TIER).unwrap();
    for kind in [ContainerKind::Files, ContainerKind::Tree] {
        archive.delete((kind, id)).expect("it is not there, and so removed");
    }
    fs::rename(&root, scratch.path().join("aside")).unwrap();
    for kind in [ContainerKind::Files, ContainerKind::Tree] {
        assert!(archive.delete((kind, id)).is_err());
        assert!(archive.list(kind, &mut |_, _| {}).is_err());
    }
    let other = Id([9; 16]);
    DirectoryArchive::init(&root, other, TIER, None).unwrap();
    assert!(
        archive.check().unwrap_err().to_string().contains(&format!("contains archive {other}"))
    );
}

/// Returns the results of a scrub. The first of two copies is damaged, and the archive of the
/// second becomes unavailable after this number of reads.
fn scrubbed_with_a_damaged_copy(reads: u64) -> Scrubbed {
    let (settings, hands) =
        (Settings { copies: 2, ..Settings::of(TIER) }, Arc::new(Hands::default()));
    let bench = Bench::with(Arc::new(MemFs::default()), settings, 2);
    bench.offline(&bench.client(), "file", &noise(1, MIB));
    bench.archives[0].damage(5000);
    let second = bench.archives[1].clone();
    let opener: Opener =
        Box::new(move || Ok(Arc::new(Answers(second.clone(), Errno::NODEV, reads.into()))));
    let (away, _) = ReconnectingArchive::new((Id([2; 16]), "a1".to_owned()), opener, hands);
    let archives: Vec<Arc<dyn Archive>> = vec![bench.archives[0].clone(), Arc::new(away)];
    let (settings, catalogue) = (bench.tier.settings(), copied(bench.tier.catalogue()));
    let (tier, _) = open_over(&bench.lower, settings, archives, catalogue, &bench.around);
    tier.scan(&own_request()).unwrap();
    tier.scrub(&own_request()).unwrap()
}

#[test]
fn damage_is_reported_or_repaired_if_the_other_archive_disappears() {
    for reads in 0.. {
        let scrubbed = scrubbed_with_a_damaged_copy(reads);
        let is_told = scrubbed.damaged.len() as u64 + scrubbed.repaired;
        assert_eq!(is_told, 1, "after {reads} reads: {scrubbed:?}");
        assert_eq!(scrubbed.missing.len() as u64 + scrubbed.repaired, 1, "{scrubbed:?}");
        if scrubbed.repaired > 0 {
            return;
        }
    }
}

/// An archive that records when it and its uploads are dropped.
struct Recorded(Arc<MemoryArchive>, Drops);

type Drops = Arc<Mutex<Vec<&'static str>>>;

struct RecordedUpload(Drops);

impl Archive for Recorded {
    fn id(&self) -> Id {
        self.0.id()
    }

    fn label(&self) -> &str {
        self.0.label()
    }

    fn begin(&self, _: Container) -> io::Result<Box<dyn Upload>> {
        Ok(Box::new(RecordedUpload(Arc::clone(&self.1))))
    }

    fn read(&self, _: Container, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        self.0.length(container)
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        self.0.list(kind, visit)
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.0.delete(container)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.1.lock().push("archive");
    }
}

impl Upload for RecordedUpload {
    fn write(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> io::Result<Proof> {
        Ok(Proof::ReadBack)
    }
}

impl Drop for RecordedUpload {
    fn drop(&mut self) {
        self.0.lock().push("upload");
    }
}

/// An unfinished container is removed when its upload is dropped. This needs the archive's lease.
#[test]
fn refused_upload_is_dropped_before_its_archive() {
    let (inner, drops) = (Arc::new(MemoryArchive::new(Id([1; 16]), "a0")), Drops::default());
    let recorded = Arc::clone(&drops);
    let opener: Opener = Box::new(move || {
        Ok(Arc::new(Recorded(inner.clone(), recorded.clone())) as Arc<dyn Archive>)
    });
    let known = (Id([1; 16]), "a0".to_owned());
    let (archive, _) = ReconnectingArchive::new(known, opener, Arc::new(Hands::default()));
    let upload = archive.begin((KIND, CONTAINER)).unwrap();
    archive.read((KIND, CONTAINER), 0, &mut [0; 8]).unwrap_err();
    assert!(archive.why_unavailable().is_some() && drops.lock().is_empty());
    assert_eq!(upload.finish().unwrap_err().kind(), io::ErrorKind::NotConnected);
    assert_eq!(*drops.lock(), ["upload", "archive"]);
}
