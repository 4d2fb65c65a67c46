//! The state that a crash leaves: the lower tree, the archives, and the storage of the catalogue at
//! the same moment.

use std::io;
use std::sync::Arc;

use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::{Archive, Container, ContainerKind, Deletion, Proof, Upload};
use fslab_tier::catalogue::Catalogue;
use fslab_tier::stored::{Marks, TreeMark};
use fslab_tier::{Environment, Id, Settings, Tier, TierFs};
use fslab_vfs::{Attr, FileSystem, MonotonicClock};
use fslab_vfs_testing::crash::{CrashFs, Log, State};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::mutants::Plant;
use crate::support::{Cloning, Counted, Dates, TIER};

/// The number of engines so far. Each engine uses a different range of identities, so that no
/// identity is used twice.
static LIVES: AtomicU64 = AtomicU64::new(1);

/// The lower tree of a tier, its archives and its catalogue, all with a record of their past
/// states.
pub struct World {
    pub crash: Arc<CrashFs>,
    archives: Vec<Arc<Watched>>,
    disk: Disk,
    moments: Arc<Mutex<Vec<Moment>>>,
    dates: Arc<Dates>,
    /// Whether released files get poison instead of holes.
    poison: bool,
}

/// The durable state outside of the tree. It is valid from `position` until the next moment.
#[derive(Clone)]
pub struct Moment {
    position: usize,
    archives: Vec<Arc<MemoryArchive>>,
    catalogue: Arc<Vec<u8>>,
    poison: bool,
}

/// An engine over a world, or over the state of a world after a crash.
pub struct Life {
    pub tier: Arc<Tier>,
    pub fs: Arc<TierFs>,
}

/// Identifies files by their owners, because inode numbers change in a crash.
fn by_owner(attr: &Attr) -> Id {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&attr.uid.to_le_bytes());
    Id(id)
}

/// Returns settings in which every archive receives a copy.
fn settings(copies: usize, poison: bool) -> Settings {
    Settings {
        movers: 1,
        ahead: 0,
        // Unneeded objects are deleted at the next expiry.
        keep: Duration::ZERO,
        copies,
        poison,
        deltas: true,
        // Scripts have only two files.
        synced_together: 2,
        ..Settings::of(TIER)
    }
}

fn around(dates: &Arc<Dates>) -> Environment {
    let life = LIVES.fetch_add(1, Ordering::SeqCst);
    Environment {
        clock: Arc::new(MonotonicClock),
        calendar: dates.clone(),
        identities: Arc::new(Counted(AtomicU64::new(life << 32))),
        inode_identity: by_owner,
        marks: Marks::Trusted,
    }
}

impl World {
    /// Makes a new tree of a tier with this number of archives.
    pub fn new(archives: u8, poison: bool) -> Self {
        let crash = CrashFs::default().following_times();
        Marks::Trusted.write_tree(&crash, &TreeMark::of(TIER)).unwrap();
        crash.settle().unwrap();
        let of = |number| Arc::new(MemoryArchive::new(Id([number; 16]), &format!("a{number}")));
        let archives: Vec<_> = (1..=archives).map(of).collect();
        Self::over(crash, &archives, Vec::new(), poison)
    }

    /// Makes a world from the state after a crash, to crash once more.
    pub fn after(moment: &Moment, state: &State) -> Self {
        let archives: Vec<_> =
            moment.archives.iter().map(|archive| Arc::new(archive.fork())).collect();
        let (crash, catalogue) = (state.record().unwrap(), moment.catalogue.to_vec());
        Self::over(crash, &archives, catalogue, moment.poison)
    }

    fn over(
        crash: CrashFs,
        archives: &[Arc<MemoryArchive>],
        catalogue: Vec<u8>,
        poison: bool,
    ) -> Self {
        let (crash, moments) = (Arc::new(crash), Arc::default());
        let bytes = Arc::new(Mutex::new(catalogue));
        let witness = Witness {
            crash: Arc::clone(&crash),
            archives: archives.to_vec(),
            durable: Arc::new(Mutex::new(bytes.lock().clone())),
            moments: Arc::clone(&moments),
            poison,
        };
        witness.note("a life begins");
        let watched = |archive: &Arc<MemoryArchive>| {
            Arc::new(Watched { inner: Arc::clone(archive), witness: witness.clone() })
        };
        let archives = archives.iter().map(watched).collect();
        let disk = Disk { bytes, witness: Some(witness) };
        let dates = Arc::new(Dates(AtomicU64::new(0)));
        Self { crash, archives, disk, moments, dates, poison }
    }

    /// Starts the engine over the tree, with a planted bug between them, if there is one.
    pub fn live(&self, plant: Option<Plant>) -> Life {
        let lower: Arc<dyn FileSystem> = Cloning::over(self.crash.clone());
        let lower = plant.map_or(Arc::clone(&lower), |plant| plant(lower));
        let archives = self.archives.iter().map(|archive| archive.clone() as Arc<dyn Archive>);
        start(lower, archives.collect(), self.disk.clone(), &self.dates, self.poison)
    }

    /// Sets whether archives report bundles as stored before they are durable.
    pub fn hasten(&self, is_planted: bool) {
        for archive in &self.archives {
            archive.inner.faults().hasty.store(is_planted, Ordering::SeqCst);
        }
    }

    pub fn log(&self) -> Log {
        self.crash.log()
    }

    /// Returns the state outside of the tree after a crash at a point.
    pub fn moment(&self, point: usize) -> Moment {
        let moments = self.moments.lock();
        let last = moments.iter().rev().find(|moment| moment.position <= point);
        last.unwrap_or(&moments[0]).clone()
    }
}

impl Moment {
    pub fn position(&self) -> usize {
        self.position
    }

    /// Starts an engine over a tree after a crash, with copies of the archives, and with or without
    /// the catalogue.
    pub fn live(
        &self,
        tree: Arc<dyn FileSystem>,
        has_catalogue: bool,
    ) -> (Life, Vec<Arc<MemoryArchive>>) {
        let archives: Vec<_> =
            self.archives.iter().map(|archive| Arc::new(archive.fork())).collect();
        let bytes = if has_catalogue { self.catalogue.to_vec() } else { Vec::new() };
        let disk = Disk { bytes: Arc::new(Mutex::new(bytes)), witness: None };
        let dates = Arc::new(Dates(AtomicU64::new(0)));
        let used = archives.iter().map(|archive| archive.clone() as Arc<dyn Archive>).collect();
        (start(Cloning::over(tree), used, disk, &dates, self.poison), archives)
    }
}

fn start(
    lower: Arc<dyn FileSystem>,
    archives: Vec<Arc<dyn Archive>>,
    disk: Disk,
    dates: &Arc<Dates>,
    poison: bool,
) -> Life {
    let catalogue = Catalogue::on(disk).unwrap();
    let settings = settings(archives.len(), poison);
    let tier = Tier::open(lower, settings, archives, catalogue, around(dates)).unwrap();
    Life { fs: Arc::new(TierFs::new(Arc::clone(&tier))), tier }
}

/// Records the durable state outside of the tree at each change.
#[derive(Clone)]
struct Witness {
    crash: Arc<CrashFs>,
    archives: Vec<Arc<MemoryArchive>>,
    /// The storage of the catalogue at its last sync.
    durable: Arc<Mutex<Vec<u8>>>,
    moments: Arc<Mutex<Vec<Moment>>>,
    poison: bool,
}

impl std::fmt::Debug for Witness {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Witness")
    }
}

impl Witness {
    fn note(&self, text: &str) {
        let mut moments = self.moments.lock();
        self.crash.mark(text);
        let archives = self.archives.iter().map(|archive| Arc::new(archive.fork())).collect();
        let catalogue = Arc::new(self.durable.lock().clone());
        let (position, poison) = (self.crash.position(), self.poison);
        moments.push(Moment { position, archives, catalogue, poison });
    }
}

/// The storage of a catalogue. Bytes that were not synced are lost in a power failure.
#[derive(Clone, Debug)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    witness: Option<Witness>,
}

impl redb::StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (bytes, start) = (self.bytes.lock(), offset as usize);
        let found = bytes.get(start..start + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.bytes.lock().resize(length as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if let Some(witness) = &self.witness {
            witness.durable.lock().clone_from(&self.bytes.lock());
            witness.note("the catalogue is synced");
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut bytes, start) = (self.bytes.lock(), offset as usize);
        let place = bytes.get_mut(start..start + data.len());
        place.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        Ok(())
    }
}

/// An archive whose changes are recorded.
struct Watched {
    inner: Arc<MemoryArchive>,
    witness: Witness,
}

impl Archive for Watched {
    fn id(&self) -> Id {
        self.inner.id()
    }

    fn label(&self) -> &str {
        self.inner.label()
    }

    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>> {
        let inner = self.inner.begin(container)?;
        Ok(Box::new(WatchedUpload { inner, witness: self.witness.clone() }))
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(container, offset, buffer)
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        self.inner.length(container)
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        self.inner.list(kind, visit)
    }

    fn delete(&self, (kind, container): Container) -> io::Result<Deletion> {
        let deleted = self.inner.delete((kind, container))?;
        self.witness.note("an archive removes a container");
        Ok(deleted)
    }
}

struct WatchedUpload {
    inner: Box<dyn Upload>,
    witness: Witness,
}

impl Upload for WatchedUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.inner.write(bytes)
    }

    fn finish(self: Box<Self>) -> io::Result<Proof> {
        let proof = self.inner.finish()?;
        self.witness.note("an archive has a container");
        Ok(proof)
    }
}
