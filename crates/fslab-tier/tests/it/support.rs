//! A tier over memory or a directory, with archives in memory that fail on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fslab_tier::archive::Archive;
use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::catalogue::Catalogue;
use fslab_tier::command::{Command, Event, FileSummary, execute};
use fslab_tier::rebuild::Options;
use fslab_tier::stored::{Marks, Residency, StoredResidency, TreeMark};
use fslab_tier::{
    Archived, Calendar, Environment, Id, Identities, Released, Result, Settings, Tier, TierFs,
    inode_by_number_and_birth, own_request,
};
use fslab_vfs::{
    Clock, Errno, FileSystem, Handle, Ino, MemFs, MonotonicClock, Request, StatFs, Timestamp,
    WriteOptions,
};
use fslab_vfs_testing::client::Client;
use rand::{Rng, SeedableRng};

pub const TIER: Id = Id([0x77; 16]);
pub const MIB: u64 = 1 << 20;

/// Options of a rebuild that skips nothing.
pub const TRUST: Options = Options { before: None, trust: true, poison: false };

/// A calendar that a test can move.
pub struct Dates(pub AtomicU64);

impl Calendar for Dates {
    fn now(&self) -> Timestamp {
        let ahead = Duration::from_secs(self.0.load(Ordering::SeqCst));
        Timestamp::from(SystemTime::now() + ahead)
    }
}

/// A clock that a test moves, in nanoseconds.
#[derive(Default)]
pub struct Hands(AtomicU64);

impl Hands {
    pub fn turn(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub struct Counted(pub AtomicU64);

impl Identities for Counted {
    fn make(&self) -> Id {
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        let mut id = [0x10; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        Id(id)
    }
}

/// A file system whose files can share blocks. Cloned blocks are copied.
pub struct Cloning {
    inner: Arc<dyn FileSystem>,
    /// The number of calls that succeed. Later ones fail.
    pub left: AtomicU64,
    /// The error of the later calls.
    pub refusal: Errno,
}

/// The smallest unit that file systems share.
pub const PAGE: u64 = 4096;

impl Cloning {
    pub fn over(inner: Arc<dyn FileSystem>) -> Arc<Self> {
        Self::refusing(inner, u64::MAX, Errno::OPNOTSUPP)
    }

    /// Makes a file system on which `left` calls to share blocks succeed.
    pub fn refusing(inner: Arc<dyn FileSystem>, left: u64, refusal: Errno) -> Arc<Self> {
        Arc::new(Self { inner, left: AtomicU64::new(left), refusal })
    }
}

impl FileSystem for Cloning {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn statfs(&self, request: &Request, ino: Ino) -> fslab_vfs::Result<StatFs> {
        let stat = self.inner.statfs(request, ino)?;
        Ok(StatFs { fragment_size: PAGE as u32, ..stat })
    }

    fn clone_range(
        &self,
        (source, source_handle, from): (Ino, Handle, u64),
        (target, target_handle, to): (Ino, Handle, u64),
        length: u64,
    ) -> fslab_vfs::Result<()> {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.left.store(0, Ordering::SeqCst);
            return Err(self.refusal.into());
        }
        let (request, mut bytes) = (own_request(), vec![0; length as usize]);
        let size = |ino, handle| -> fslab_vfs::Result<u64> {
            Ok(self.inner.getattr(&request, ino, Some(handle))?.size)
        };
        // A partial last block can be shared only if both files end in it.
        let are_ends = from + length == size(source, source_handle)?
            && to + length >= size(target, target_handle)?;
        let is_whole = length.is_multiple_of(PAGE) || are_ends;
        if !from.is_multiple_of(PAGE) || !to.is_multiple_of(PAGE) || !is_whole || length == 0 {
            return Err(Errno::INVAL.into());
        }
        let count = self.inner.read(&request, source, source_handle, from, &mut bytes)?;
        if count != bytes.len() {
            return Err(Errno::INVAL.into());
        }
        let options = WriteOptions::default();
        let done = self.inner.write(&request, target, target_handle, to, &bytes, options)?;
        if done == bytes.len() { Ok(()) } else { Err(Errno::IO.into()) }
    }
}

pub struct Bench {
    pub lower: Arc<dyn FileSystem>,
    pub archives: Vec<Arc<MemoryArchive>>,
    pub dates: Arc<Dates>,
    pub around: Environment,
    pub tier: Arc<Tier>,
    pub fs: Arc<TierFs>,
}

impl Bench {
    pub fn new() -> Self {
        Self::over(Arc::new(MemFs::default()))
    }

    pub fn over(lower: Arc<dyn FileSystem>) -> Self {
        Self::with(lower, Settings::of(TIER), 1)
    }

    pub fn with(lower: Arc<dyn FileSystem>, settings: Settings, archives: u8) -> Self {
        Self::by_clock(lower, settings, archives, Arc::new(MonotonicClock))
    }

    pub fn by_clock(
        lower: Arc<dyn FileSystem>,
        settings: Settings,
        archives: u8,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::made(lower, settings, archives, clock, Marks::Trusted)
    }

    /// Makes a bench whose tier uses and trusts these xattrs.
    pub fn of(lower: Arc<dyn FileSystem>, settings: Settings, marks: Marks) -> Self {
        Self::made(lower, settings, 1, Arc::new(MonotonicClock), marks)
    }

    fn made(
        lower: Arc<dyn FileSystem>,
        settings: Settings,
        archives: u8,
        clock: Arc<dyn Clock>,
        marks: Marks,
    ) -> Self {
        let dates = Arc::new(Dates(AtomicU64::new(0)));
        let around = Environment {
            clock,
            calendar: dates.clone(),
            identities: Arc::new(Counted(AtomicU64::new(0))),
            inode_identity: inode_by_number_and_birth,
            marks,
        };
        let archives: Vec<_> = (0..archives)
            .map(|number| Arc::new(MemoryArchive::new(Id([number + 1; 16]), &format!("a{number}"))))
            .collect();
        if marks.read_tree(&*lower).unwrap().is_none() {
            marks.write_tree(&*lower, &TreeMark::of(settings.tier)).unwrap();
        }
        let (tier, fs) =
            open(&lower, &settings, &archives, Catalogue::in_memory().unwrap(), &around);
        Self { lower, archives, dates, around, tier, fs }
    }

    /// Shuts the engine down and starts it again with an empty catalogue.
    pub fn restart(&mut self) {
        let settings = self.tier.settings().clone();
        let catalogue = Catalogue::in_memory().unwrap();
        (self.tier, self.fs) =
            open(&self.lower, &settings, &self.archives, catalogue, &self.around);
    }

    pub fn client(&self) -> Client<'_> {
        Client::new(&*self.fs)
    }

    pub fn below(&self) -> Client<'_> {
        Client::new(&*self.lower)
    }

    pub fn archive(&self, ino: Ino, path: &str) -> Result<Archived> {
        self.tier.archive(ino, path.as_bytes(), &own_request())
    }

    pub fn release(&self, ino: Ino, path: &str) -> Result<Released> {
        self.tier.release(ino, path.as_bytes(), 0)
    }

    /// Makes an offline file in the root.
    pub fn offline(&self, client: &Client<'_>, name: &str, data: &[u8]) -> Ino {
        let ino = client.file(Ino::ROOT, name, data).unwrap();
        assert!(matches!(self.archive(ino, name).unwrap(), Archived::Now { .. }));
        assert!(self.release(ino, name).unwrap().bytes > 0);
        ino
    }

    /// Returns the residency in a file's xattr.
    #[track_caller]
    pub fn residency(&self, ino: Ino) -> Option<Residency> {
        self.tier.residency_below(ino).unwrap()
    }

    /// Sets the residency in a file's xattr, in the full form.
    pub fn write_residency(&self, ino: Ino, residency: Residency) {
        let full = StoredResidency::Full(Box::new(residency));
        self.around.marks.write(&*self.lower, &own_request(), ino, &full).unwrap();
    }

    /// Returns the offline blocks of a file, according to its xattr.
    pub fn offline_blocks(&self, ino: Ino) -> Vec<u64> {
        self.residency(ino).map_or(Vec::new(), |known| known.offline.iter().flatten().collect())
    }

    /// Returns whether a file was changed since it was archived, according to its xattr.
    pub fn is_changed(&self, ino: Ino) -> bool {
        self.residency(ino).is_some_and(|known| known.changed)
    }

    /// Returns one of the engine's counters.
    pub fn counted(&self, name: &str) -> u64 {
        let counts = self.tier.counts();
        counts.iter().find(|(found, ..)| *found == name).unwrap().2
    }

    pub fn bytes_recalled(&self) -> u64 {
        let read =
            |archive: &Arc<MemoryArchive>| archive.faults().bytes_read.load(Ordering::SeqCst);
        self.archives.iter().map(read).sum()
    }
}

/// Returns the problems among the events of a command.
pub fn problems(told: Vec<Event>) -> Vec<String> {
    let problems = told.into_iter().filter_map(|event| match event {
        Event::Problem { what } => Some(what),
        _ => None,
    });
    problems.collect()
}

/// Returns the events of a command.
pub fn told(bench: &Bench, command: &Command) -> Vec<Event> {
    let mut events = Vec::new();
    let mut tell = |event| {
        events.push(event);
        true
    };
    execute(&bench.tier, command, &own_request(), &mut tell).unwrap();
    events
}

/// Returns the state of a file.
#[track_caller]
pub fn state(bench: &Bench, path: &str) -> FileSummary {
    let command = Command::State { paths: vec![path.into()], recursive: false };
    match told(bench, &command).remove(0) {
        Event::State(state) => state,
        event => panic!("{event:?}"),
    }
}

/// Returns a catalogue in memory with the same rows.
pub fn copied(catalogue: &Catalogue) -> Catalogue {
    let (copy, mut rows) = (Catalogue::in_memory().unwrap(), Vec::new());
    let mut keep = |row| {
        rows.push(row);
        Ok(())
    };
    catalogue.for_each(&mut keep).unwrap();
    copy.put(&rows).unwrap();
    copy
}

pub fn open(
    lower: &Arc<dyn FileSystem>,
    settings: &Settings,
    archives: &[Arc<MemoryArchive>],
    catalogue: Catalogue,
    around: &Environment,
) -> (Arc<Tier>, Arc<TierFs>) {
    let archives = archives.iter().map(|archive| Arc::clone(archive) as Arc<dyn Archive>).collect();
    open_over(lower, settings, archives, catalogue, around)
}

/// Like [`open`], with any archives.
pub fn open_over(
    lower: &Arc<dyn FileSystem>,
    settings: &Settings,
    archives: Vec<Arc<dyn Archive>>,
    catalogue: Catalogue,
    around: &Environment,
) -> (Arc<Tier>, Arc<TierFs>) {
    let tier = Tier::open(Arc::clone(lower), settings.clone(), archives, catalogue, around.clone());
    let tier = tier.unwrap();
    (Arc::clone(&tier), Arc::new(TierFs::new(tier)))
}

/// The time after which a test treats a call as hung.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until a condition holds.
#[track_caller]
pub fn until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns incompressible bytes, different for each seed.
pub fn noise(seed: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    rand_pcg::Pcg64::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}
