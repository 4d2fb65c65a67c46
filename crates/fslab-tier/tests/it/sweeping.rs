//! Recalls in the order of positions in an archive that is a directory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_tier::archive::{Archive, Container, ContainerKind, Deletion, DirectoryArchive, Upload};
use fslab_tier::catalogue::Catalogue;
use fslab_tier::command::{Command, execute};
use fslab_tier::queue::Sweep;
use fslab_tier::stored::{Location, Marks};
use fslab_tier::{Id, Settings, Tier, TierFs, own_request};
use fslab_vfs::Ino;
use fslab_vfs_testing::client::Client;
use parking_lot::{Condvar, Mutex};

use crate::bundles::{contents, do_all};
use crate::support::{Bench, TIER, open_over};

/// A directory that records its reads, and delays them on demand.
struct Observed {
    directory: DirectoryArchive,
    is_held: Mutex<bool>,
    let_go: Condvar,
    held: AtomicU64,
    reads: Mutex<Vec<(Id, u64)>>,
}

impl Observed {
    fn new(directory: DirectoryArchive) -> Arc<Self> {
        let (is_held, let_go) = (Mutex::new(false), Condvar::new());
        let (held, reads) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { directory, is_held, let_go, held, reads })
    }

    fn hold(&self) {
        self.reads.lock().clear();
        *self.is_held.lock() = true;
    }

    fn let_go(&self) {
        *self.is_held.lock() = false;
        self.let_go.notify_all();
    }
}

impl Archive for Observed {
    fn id(&self) -> Id {
        self.directory.id()
    }

    fn label(&self) -> &str {
        self.directory.label()
    }

    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>> {
        self.directory.begin(container)
    }

    fn read(
        &self,
        (kind, container): Container,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        self.reads.lock().push((container, offset));
        let mut is_held = self.is_held.lock();
        self.held.fetch_add(1, Ordering::SeqCst);
        self.let_go.wait_while(&mut is_held, |is_held| *is_held);
        self.held.fetch_sub(1, Ordering::SeqCst);
        drop(is_held);
        self.directory.read((kind, container), offset, buffer)
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        self.directory.length(container)
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        self.directory.list(kind, visit)
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.directory.delete(container)
    }

    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        self.directory.position(container, offset)
    }
}

struct Shelf {
    _scratch: tempfile::TempDir,
    archive: Arc<Observed>,
    tier: Arc<Tier>,
    fs: Arc<TierFs>,
    /// The location of each file.
    places: Vec<(String, Location)>,
}

impl Shelf {
    /// Makes two bundles of offline files in a directory, one recalling thread, and an order by
    /// position.
    fn new() -> Self {
        Self::with(0)
    }

    fn with(recall_rate: u64) -> Self {
        let (scratch, bench) = (tempfile::tempdir().unwrap(), Bench::new());
        let root = scratch.path().join("archive");
        DirectoryArchive::init(&root, Id([1; 16]), TIER, None).unwrap();
        let archive = Observed::new(DirectoryArchive::open(&root, TIER).unwrap());
        let order = Arc::new(Sweep);
        let settings = Settings { movers: 1, ahead: 0, order, recall_rate, ..Settings::of(TIER) };
        let archives: Vec<Arc<dyn Archive>> = vec![archive.clone()];
        let catalogue = Catalogue::in_memory().unwrap();
        let (tier, fs) = open_over(&bench.lower, &settings, archives, catalogue, &bench.around);
        let mut shelf = Self { _scratch: scratch, archive, tier, fs, places: Vec::new() };
        for bundle in ["a", "b"] {
            shelf.fill(bundle);
        }
        shelf
    }

    fn fill(&mut self, bundle: &str) {
        let client = Client::new(&*self.fs);
        let names: Vec<_> = (0..4).map(|number| format!("{bundle}{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            client.file(Ino::ROOT, name, &contents(number as u64)).unwrap();
        }
        do_all(&self.tier, &mut |_| {});
        for name in names {
            let ino = client.lookup(Ino::ROOT, &name).unwrap().ino;
            let known = Marks::Trusted.read(&**self.tier.lower(), ino);
            let location = known.unwrap().unwrap().location();
            self.tier.release(ino, name.as_bytes(), 0).unwrap();
            self.places.push((name, location));
        }
    }

    fn read(&self, name: &str) {
        let client = Client::new(&*self.fs);
        let ino = client.lookup(Ino::ROOT, name).unwrap().ino;
        let number = name[1..].parse().unwrap();
        assert!(client.contents(ino).unwrap() == contents(number), "{name}");
    }

    /// Returns files in the order in which the directory was read.
    fn served(&self) -> Vec<&str> {
        let of = |(container, offset): &(Id, u64)| {
            let holds = |at: &Location| {
                at.container == *container && (at.offset..at.offset + at.length).contains(offset)
            };
            let file = self.places.iter().find(|(_, location)| holds(location));
            file.map(|(name, _)| name.as_str()).unwrap()
        };
        let mut served: Vec<_> = self.archive.reads.lock().iter().map(of).collect();
        served.dedup();
        served
    }

    /// Waits until one recall is running and this number of recalls is waiting.
    fn wait_for(&self, waiting: usize) {
        let queue = self.tier.queue();
        while self.archive.held.load(Ordering::SeqCst) == 0 || queue.list().len() < waiting {
            std::thread::yield_now();
        }
    }
}

/// There are only seven recalls, because every eighth turn goes to the oldest recall, regardless of
/// the order.
#[test]
fn bundle_is_read_once_in_order_for_any_order_of_requests() {
    let shelf = Shelf::new();
    shelf.archive.hold();
    std::thread::scope(|scope| {
        for (waiting, name) in ["a2", "b2", "a1", "b0", "a3", "b1", "a0"].into_iter().enumerate() {
            let shelf = &shelf;
            scope.spawn(move || shelf.read(name));
            shelf.wait_for(waiting);
        }
        shelf.archive.let_go();
    });
    assert_eq!(shelf.served(), ["a2", "a3", "b0", "b1", "b2", "a0", "a1"]);
}

/// Each call of an archive is a round trip.
#[test]
fn bulk_recall_reads_the_files_of_a_bundle_by_one_call() {
    let shelf = Shelf::new();
    shelf.archive.reads.lock().clear();
    let paths = ["b3", "b1", "a3", "a1", "b2", "a2"].map(|name| name.as_bytes().to_vec());
    let command = Command::Recall { paths: paths.into(), range: None, rate: 0 };
    execute(&shelf.tier, &command, &own_request(), &mut |_| true).unwrap();
    let mut served = shelf.served();
    served.sort_unstable();
    assert_eq!(served, ["a1", "b1"], "from the first wanted object on");
    for name in ["a1", "a2", "a3", "b1", "b2", "b3"] {
        shelf.read(name);
    }
    assert_eq!(shelf.archive.reads.lock().len(), 2, "they are here");
}

/// With many requests at once, the queue can choose the order, and no recall thread is idle. Within
/// a rate limit, each object is read separately.
#[test]
fn bulk_recall_requests_many_files_at_once() {
    let shelf = Shelf::with(1 << 40);
    shelf.archive.hold();
    std::thread::scope(|scope| {
        let tier = &shelf.tier;
        let paths = ["b3", "b1", "a3", "a1", "b2", "a2"].map(|name| name.as_bytes().to_vec());
        let command = Command::Recall { paths: paths.into(), range: None, rate: 0 };
        scope.spawn(move || execute(tier, &command, &own_request(), &mut |_| true).unwrap());
        shelf.wait_for(5);
        shelf.archive.let_go();
    });
    // The recall that the thread found first was served first.
    let (served, mut turned) = (shelf.served(), vec!["a1", "a2", "a3", "b1", "b2", "b3"]);
    let first = turned.iter().position(|name| *name == served[0]).unwrap();
    turned.rotate_left(first);
    assert_eq!(served, turned);
    let before = shelf.archive.reads.lock().len();
    for name in ["a1", "a2", "a3", "b1", "b2", "b3"] {
        shelf.read(name);
    }
    assert_eq!(shelf.archive.reads.lock().len(), before, "they are here");
}
