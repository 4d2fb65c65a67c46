//! `small-files`: handles small files like a mail server, as filebench's varmail does. Each round
//! has four operations: delete a random file; create this file again and fsync it; read a random
//! file, append to it and fsync it; read a random file.
//!
//! Each thread has its own files, so that the final contents of every file are known.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::content::{self, Content, Pool, REQUEST_BYTES, expect};
use super::crew::{Hand, in_threads};
use super::{Parameter, Preparation, Spec, Workload};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use crate::tree::{Access, Tree, TreeFile};
use fslab_stats::Stopwatch;

const FILES: Parameter = Parameter::count("files", "total number of files", 1_000);

const SIZE: Parameter = Parameter::bytes(
    "size",
    "mean size of a new file; sizes range from 0.5 to 1.5 times this mean",
    16 << 10,
);

const APPEND: Parameter =
    Parameter::bytes("append", "bytes appended to an existing file", 16 << 10);

const ROUNDS: Parameter =
    Parameter::count("rounds", "number of rounds of each thread; a round has four operations", 200);

const THREADS: Parameter = Parameter::count("threads", "number of concurrent threads", 4);

const SYNC: Parameter =
    Parameter::choice("sync", "whether to call fsync after each write", &["fsync", "none"]);

pub(super) const SPEC: Spec = Spec {
    name: "small-files",
    help: "delete, create, append to and read small files with fsync, as a mail server does",
    parameters: &[FILES, SIZE, APPEND, ROUNDS, THREADS, SYNC, content::DATA, content::DATA_FROM],
    phases: &["mail"],
    construct: |parameters, seed| {
        Box::new(SmallFiles {
            files: parameters.number(&FILES),
            size: parameters.number(&SIZE),
            append: parameters.number(&APPEND) as usize,
            rounds: parameters.number(&ROUNDS),
            threads: parameters.number(&THREADS),
            sync: parameters.word(&SYNC) == "fsync",
            content: Content::new(parameters, seed),
            pool: Pool::default(),
        })
    },
};

struct SmallFiles {
    files: u64,
    size: u64,
    append: usize,
    rounds: u64,
    threads: u64,
    sync: bool,
    content: Content,
    pool: Pool,
}

/// The pieces appended to a file. `None` if the file must not exist.
type Held = Option<Vec<(u64, usize)>>;

impl Workload for SmallFiles {
    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        let longest = (self.size as usize * 3 / 2).max(self.append);
        self.pool = Pool::new(&self.content, longest.max(1))?;
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.describe_data(self.content.describe());
        let mut mailboxes: Vec<Mailbox> =
            (0..self.threads).map(|thread| Mailbox::new(self, session.seed(), thread)).collect();
        for mailbox in &mut mailboxes {
            mailbox.fill(session)?;
        }
        session.tree()?.sync_all()?;
        session.measure(Phase::new("mail"), |timed| self.deliver(timed, &mut mailboxes))?;
        session.make_cold()?;
        for mailbox in &mailboxes {
            mailbox.verify(session)?;
        }
        Ok(())
    }
}

impl SmallFiles {
    fn deliver(&self, timed: &mut Timed<'_>, mailboxes: &mut [Mailbox<'_>]) -> Result<()> {
        // Each thread locks only its own mailbox, so no thread waits for a lock.
        let boxes: Vec<_> = mailboxes.iter_mut().map(parking_lot::Mutex::new).collect();
        let stopwatches = in_threads(timed, self.threads, |hand, thread| {
            boxes[thread as usize].lock().work(hand)
        })?;
        timed.record_workers("operation", stopwatches);
        let bytes = mailboxes.iter().map(|mailbox| mailbox.bytes).sum();
        timed.count(self.threads * self.rounds * 4, bytes);
        timed.flush()
    }
}

/// The files of one thread.
struct Mailbox<'a> {
    plan: &'a SmallFiles,
    thread: u64,
    random: Pcg64,
    files: Vec<Held>,
    /// The number of the last written piece. It selects the piece's content, so that all pieces
    /// differ.
    written: u64,
    bytes: u64,
}

impl<'a> Mailbox<'a> {
    fn new(plan: &'a SmallFiles, seed: u64, thread: u64) -> Self {
        let files = vec![None; plan.files.div_ceil(plan.threads).max(1) as usize];
        let random = Pcg64::seed_from_u64(seed.wrapping_add(thread));
        Self { plan, thread, random, files, written: thread << 32, bytes: 0 }
    }

    fn path(&self, file: usize) -> String {
        format!("mail-{}/{file}", self.thread)
    }

    fn fill(&mut self, session: &Session<'_>) -> Result<()> {
        let tree = session.tree()?;
        tree.make_directory(&format!("mail-{}", self.thread))?;
        for file in 0..self.files.len() {
            session.check()?;
            self.create(tree, file, false)?;
        }
        self.bytes = 0;
        Ok(())
    }

    fn work(&mut self, hand: Hand<'_>) -> Result<Stopwatch> {
        let mut buffer = vec![0; REQUEST_BYTES];
        let mut stopwatch = Stopwatch::start();
        for _ in 0..self.plan.rounds {
            hand.check()?;
            let file = self.draw();
            self.delete(hand.tree, file)?;
            stopwatch.lap();
            self.create(hand.tree, file, self.plan.sync)?;
            stopwatch.lap();
            let file = self.draw();
            self.read(hand.tree, file, &mut buffer)?;
            self.append(hand.tree, file)?;
            stopwatch.lap();
            let file = self.draw();
            self.read(hand.tree, file, &mut buffer)?;
            stopwatch.lap();
        }
        Ok(stopwatch)
    }

    fn draw(&mut self) -> usize {
        self.random.random_range(0..self.files.len())
    }

    fn delete(&mut self, tree: &dyn Tree, file: usize) -> Result<()> {
        self.files[file] = None;
        tree.remove(&self.path(file))
    }

    fn create(&mut self, tree: &dyn Tree, file: usize, sync: bool) -> Result<()> {
        let half = self.plan.size / 2;
        let length = self.random.random_range(half..=half + self.plan.size) as usize;
        let created = tree.create(&self.path(file))?;
        self.files[file] = Some(Vec::new());
        self.write(&*created, file, length)?;
        if sync {
            created.sync()?;
        }
        created.close()
    }

    fn append(&mut self, tree: &dyn Tree, file: usize) -> Result<()> {
        let opened = tree.open(&self.path(file), Access::Append)?;
        self.write(&*opened, file, self.plan.append)?;
        if self.plan.sync {
            opened.sync()?;
        }
        opened.close()
    }

    fn write(&mut self, opened: &dyn TreeFile, file: usize, length: usize) -> Result<()> {
        self.written += 1;
        opened.append(self.plan.pool.piece(self.written, length))?;
        if let Some(pieces) = &mut self.files[file] {
            pieces.push((self.written, length));
        }
        self.bytes += length as u64;
        Ok(())
    }

    fn read(&mut self, tree: &dyn Tree, file: usize, buffer: &mut [u8]) -> Result<()> {
        let opened = tree.open(&self.path(file), Access::Read)?;
        self.bytes += content::read_all(&*opened, buffer)?;
        opened.close()
    }

    fn verify(&self, session: &Session<'_>) -> Result<()> {
        let tree = session.tree()?;
        let mut existing = 0;
        for (file, held) in self.files.iter().enumerate() {
            session.check()?;
            let Some(pieces) = held else { continue };
            existing += 1;
            let append = |sum, (key, length): &(u64, usize)| {
                crc32c::crc32c_append(sum, self.plan.pool.piece(*key, *length))
            };
            let expected = pieces.iter().fold(0, append);
            content::verify(tree, &self.path(file), expected)?;
        }
        let mut listed = 0;
        tree.list(&format!("mail-{}", self.thread), &mut |_| listed += 1)?;
        expect("files listed", existing, listed)
    }
}
