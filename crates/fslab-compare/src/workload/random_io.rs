//! `random-io`: blocks of one large file read and written in places drawn from the seed, by as
//! many threads at a time as the queue is to be deep.

use super::content::{self, Content, expect};
use super::crew::in_threads;
use super::random_access::{self, Accesses};
use super::{Parameter, Preparation, Spec, Workload};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use crate::tree::Access;
use fslab_report::sample::CacheState;

const SIZE: Parameter = Parameter::bytes("size", "size of the file", 256 << 20);

const BLOCK: Parameter = Parameter::bytes(
    "block",
    "size of each read and write, and what their places are multiples of",
    4 << 10,
);

const DEPTH: Parameter =
    Parameter::count("depth", "requests at a time, each by a thread of its own", 1);

const OPERATIONS: Parameter = Parameter::count("operations", "requests in all", 20_000);

const READS: Parameter = Parameter::percent("reads", "share of reads; the rest are writes", 70);

/// The registry's entry.
pub(super) const SPEC: Spec = Spec {
    name: "random-io",
    help: "read and write blocks of one large file in random places, several at a time",
    parameters: &[SIZE, BLOCK, DEPTH, OPERATIONS, READS, content::DATA, content::DATA_FROM],
    phases: &["random"],
    construct: |parameters, seed| {
        let block = parameters.number(&BLOCK).max(1);
        Box::new(RandomIo {
            block,
            blocks: parameters.number(&SIZE).div_ceil(block),
            depth: parameters.number(&DEPTH),
            operations: parameters.number(&OPERATIONS),
            reads: parameters.number(&READS),
            content: Content::new(parameters, seed),
            chunk: Vec::new(),
        })
    },
};

const PATH: &str = "random-io";

/// The file is written in chunks of so many blocks, all of the same contents.
const CHUNK_BLOCKS: u64 = 64;

struct RandomIo {
    block: u64,
    blocks: u64,
    depth: u64,
    operations: u64,
    reads: u64,
    content: Content,
    chunk: Vec<u8>,
}

impl Workload for RandomIo {
    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        self.chunk = self.content.make(0, (self.block * CHUNK_BLOCKS) as usize)?;
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.describe_data(self.content.describe());
        self.write(session)?;
        session.make_cold()?;
        let workers = self.workers(session.seed());
        let phase = Phase::new("random").cache(CacheState::Cold);
        session.measure(phase, |timed| self.visit(timed, &workers))?;
        session.make_cold()?;
        let file = session.tree()?.open(PATH, Access::Read)?;
        random_access::verify(&*file, &workers, |block, bytes| {
            bytes.copy_from_slice(self.original(block));
        })
    }
}

impl RandomIo {
    /// Writes the file, untimed: `stream` measures that.
    fn write(&self, session: &Session<'_>) -> Result<()> {
        let file = session.tree()?.create(PATH)?;
        let mut block = 0;
        while block < self.blocks {
            session.check()?;
            let blocks = CHUNK_BLOCKS.min(self.blocks - block);
            file.append(&self.chunk[..(blocks * self.block) as usize])?;
            block += blocks;
        }
        file.sync()?;
        file.close()
    }

    fn original(&self, block: u64) -> &[u8] {
        let start = (block % CHUNK_BLOCKS * self.block) as usize;
        &self.chunk[start..start + self.block as usize]
    }

    fn workers(&self, seed: u64) -> Vec<Accesses> {
        let all = Accesses {
            path: PATH.to_owned(),
            block_bytes: self.block,
            blocks: self.blocks,
            visits: self.operations,
            write_percent: 100 - self.reads,
            read_first: false,
            seed,
            content_seed: seed,
        };
        all.shared_by(self.depth)
    }

    fn visit(&self, timed: &mut Timed<'_>, workers: &[Accesses]) -> Result<()> {
        // How much of it is cached is asked before the threads begin.
        timed.open_for_reading(PATH)?.close()?;
        let directions = in_threads(timed, self.depth, |hand, number| {
            workers[number as usize].run(hand.tree, || hand.check())
        })?;
        timed.record_directions(["read", "write"], directions);
        timed.count(self.operations, self.operations * self.block);
        expect("requests", self.operations, workers.iter().map(|worker| worker.visits).sum())?;
        timed.flush()
    }
}
