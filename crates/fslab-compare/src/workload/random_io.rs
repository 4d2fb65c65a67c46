//! `random-io`: reads and writes blocks of one large file at offsets drawn from the seed, through
//! the page cache or with direct I/O. Several requests may be in flight. Each request begins when
//! an earlier one completes, or at a planned time.

mod engine;
mod turns;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::content::{self, Content, expect};
use super::crew::in_threads;
use super::program::directory;
use super::random_access::{self, Accesses, written_contents};
use super::{Parameter, Parameters, Preparation, Spec, Workload};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use crate::tree::Access;
use engine::{Place, by_ring, by_thread};
use fslab_report::sample::{Better, CacheState, OwnMetric};
use turns::{Arrivals, Limit, Turns};

const SIZE: Parameter = Parameter::bytes("size", "size of the file", 256 << 20);

const BLOCK: Parameter =
    Parameter::bytes("block", "size of each read and write; offsets are multiples of it", 4 << 10);

const ENGINE: Parameter = Parameter::choice(
    "engine",
    "threads: one thread for each in-flight request; io_uring: one thread for all of them",
    &["threads", "io_uring"],
);

const ACCESS: Parameter = Parameter::choice(
    "access",
    "through the page cache, or past it (O_DIRECT)",
    &["buffered", "direct"],
);

const DEPTH: Parameter = Parameter::count("depth", "number of requests in flight", 1);

const WRITERS: Parameter = Parameter::decimal(
    "writers",
    "number of in-flight requests that only write, while the others only read; 0: `reads` sets the \
     share of reads",
    0.0,
);

const OPERATIONS: Parameter = Parameter::count(
    "operations",
    "total number of requests, unless `bytes` or `seconds` is set",
    20_000,
);

const BYTES: Parameter =
    Parameter::bytes("bytes", "total bytes read and written, instead of `operations`", 0);

const SECONDS: Parameter = Parameter::decimal(
    "seconds",
    "run time in seconds, instead of `operations`; 0: no time limit",
    0.0,
);

const RATE: Parameter = Parameter::decimal(
    "rate",
    "planned requests per second (open loop); a latency is measured from the planned time; 0: a \
     request starts when the previous one is done",
    0.0,
);

const ARRIVALS: Parameter = Parameter::choice(
    "arrivals",
    "times of the requests planned by `rate`: at even intervals, or a Poisson process",
    &["even", "poisson"],
);

const READS: Parameter = Parameter::percent("reads", "share of reads; the rest are writes", 70);

const ZIPF: Parameter = Parameter::decimal(
    "zipf",
    "exponent of a Zipf distribution of the offsets, such as 1.1; 0: all are equally likely",
    0.0,
);

pub(super) const SPEC: Spec = Spec {
    name: "random-io",
    help: "read and write blocks of one large file at random offsets, optionally in parallel",
    parameters: &[
        SIZE,
        BLOCK,
        ENGINE,
        ACCESS,
        DEPTH,
        READS,
        WRITERS,
        OPERATIONS,
        BYTES,
        SECONDS,
        RATE,
        ARRIVALS,
        ZIPF,
        content::DATA,
        content::DATA_FROM,
    ],
    phases: &["random"],
    construct: |parameters, seed| Box::new(RandomIo::new(parameters, seed)),
};

const PATH: &str = "random-io";

/// The number of blocks in a chunk. The file is written in chunks with the same contents.
const CHUNK_BLOCKS: u64 = 64;

/// The maximum number of requests in flight.
const DEPTH_MOST: u64 = 4096;

/// The minimum rate of an open loop, in requests per second. A rate below one request in eleven
/// days is a mistake.
const RATE_LEAST: f64 = 1e-6;

struct RandomIo {
    block: u64,
    blocks: u64,
    by_ring: bool,
    is_direct: bool,
    depth: u64,
    writers: f64,
    reads: u64,
    limit: Limit,
    /// The number of parameters that are set among `operations`, `bytes` and `seconds`.
    limits: usize,
    arrivals: Option<Arrivals>,
    zipf: f64,
    content: Content,
    chunk: Vec<u8>,
}

/// Workers of one kind: their accesses, and their number of requests in flight.
struct Kind {
    accesses: Accesses,
    depth: u64,
}

impl Workload for RandomIo {
    fn check(&self) -> std::result::Result<(), String> {
        let wrong = |text: &str| Err(text.to_owned());
        if self.limits > 1 {
            return wrong("only one of `operations`, `bytes` and `seconds` can be set");
        }
        if self.writers.fract() != 0.0 || self.writers > self.depth as f64 {
            return wrong("`writers`: must be a whole number, at most `depth`");
        }
        if self.depth > DEPTH_MOST {
            return Err(format!("`depth`: must be at most {DEPTH_MOST}"));
        }
        if self.is_direct && !self.block.is_multiple_of(512) {
            return wrong("`block`: must be a multiple of 512 bytes with access = \"direct\"");
        }
        if self.arrivals.is_some_and(|arrivals| arrivals.rate < RATE_LEAST) {
            return Err(format!("`rate`: must be at least {RATE_LEAST} requests a second, or 0"));
        }
        Ok(())
    }

    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        self.chunk = self.content.make(0, (self.block * CHUNK_BLOCKS) as usize)?;
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        let root = if self.by_ring {
            directory(session, "random-io with engine = \"io_uring\"")?
        } else {
            PathBuf::new()
        };
        session.describe_data(self.content.describe());
        self.write(session)?;
        session.make_cold()?;
        let kinds = self.kinds(session.seed());
        let mut written = HashSet::new();
        let phase = Phase::new("random").cache(CacheState::Cold);
        session.measure(phase, |timed| {
            written = self.visit(timed, &root, &kinds)?;
            Ok(())
        })?;
        session.make_cold()?;
        let file = session.tree()?.open(PATH, Access::Read)?;
        random_access::verify_written(&*file, &kinds[0].accesses, &written, |block, bytes| {
            bytes.copy_from_slice(self.original(block));
        })
    }
}

impl RandomIo {
    fn new(parameters: &Parameters, seed: u64) -> Self {
        let block = parameters.number(&BLOCK).max(1);
        let (seconds, rate) = (parameters.decimal(&SECONDS), parameters.decimal(&RATE));
        let bytes = parameters.number(&BYTES);
        let limit = match () {
            () if seconds > 0.0 => Limit::Time(Duration::from_secs_f64(seconds.min(1e9))),
            () if bytes > 0 => Limit::Count(bytes.div_ceil(block)),
            () => Limit::Count(parameters.number(&OPERATIONS)),
        };
        let are_random = parameters.word(&ARRIVALS) == "poisson";
        let limits = [parameters.is_set(&OPERATIONS), bytes > 0, seconds > 0.0];
        Self {
            block,
            blocks: parameters.number(&SIZE).div_ceil(block),
            by_ring: parameters.word(&ENGINE) == "io_uring",
            is_direct: parameters.word(&ACCESS) == "direct",
            depth: parameters.number(&DEPTH),
            writers: parameters.decimal(&WRITERS),
            reads: parameters.number(&READS),
            limit,
            limits: limits.into_iter().filter(|is_set| *is_set).count(),
            arrivals: (rate > 0.0).then_some(Arrivals { rate, are_random }),
            zipf: parameters.decimal(&ZIPF),
            content: Content::new(parameters, seed),
            chunk: Vec::new(),
        }
    }

    /// Writes the file. This is not timed, because the workload `stream` measures it.
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

    /// Returns the kinds of workers: one that reads and writes, or readers and writers separately.
    fn kinds(&self, seed: u64) -> Vec<Kind> {
        let kind = |write_percent: u64, depth: u64| Kind {
            accesses: Accesses {
                path: PATH.to_owned(),
                block_bytes: self.block,
                blocks: self.blocks,
                visits: 0,
                write_percent,
                read_first: false,
                zipf: self.zipf,
                seed: seed ^ write_percent,
                content_seed: seed,
            },
            depth,
        };
        let writers = self.writers as u64;
        let mut kinds = match writers {
            0 => vec![kind(100 - self.reads, self.depth)],
            writers => vec![kind(100, writers), kind(0, self.depth - writers)],
        };
        kinds.retain(|kind| kind.depth > 0);
        kinds
    }

    /// Returns the sequence of requests of one kind of workers. The share of all requests that this
    /// kind makes equals its share of the requests in flight.
    fn turns(&self, kind: &Kind) -> Turns {
        let part = kind.depth as f64 / self.depth as f64;
        let limit = match self.limit {
            Limit::Count(count) => Limit::Count((count as f64 * part).round() as u64),
            time @ Limit::Time(_) => time,
        };
        let of_part = |all: Arrivals| Arrivals { rate: all.rate * part, ..all };
        Turns::new(&kind.accesses, limit, self.arrivals.map(of_part))
    }

    /// Makes the requests. Returns the blocks that were written.
    fn visit(&self, timed: &mut Timed<'_>, root: &Path, kinds: &[Kind]) -> Result<HashSet<u64>> {
        // This counts the cached pages of the file before the threads begin.
        timed.open_for_reading(PATH)?.close()?;
        let contents = written_contents(kinds[0].accesses.content_seed, self.block);
        let place =
            Place { path: PATH, block: self.block, is_direct: self.is_direct, contents: &contents };
        let turns: Vec<Turns> = kinds.iter().map(|kind| self.turns(kind)).collect();
        let directions = if self.by_ring {
            in_threads(timed, kinds.len() as u64, |hand, number| {
                let number = number as usize;
                by_ring(hand, root, &place, &turns[number], kinds[number].depth)
            })?
        } else {
            in_threads(timed, self.depth, |hand, number| {
                let kind = usize::from(number >= kinds[0].depth);
                by_thread(hand, &place, &turns[kind])
            })?
        };
        let seconds = turns[0].elapsed().as_secs_f64();
        let operations = turns.iter().map(Turns::taken).sum::<u64>();
        timed.record_directions(["read", "write"], directions);
        timed.count(operations, operations * self.block);
        timed.add_metric(OwnMetric {
            name: "iops".to_owned(),
            value: operations as f64 / seconds,
            unit: "1/s".to_owned(),
            better: Better::More,
        });
        if let (Limit::Count(count), 1) = (self.limit, kinds.len()) {
            expect("requests", count, operations)?;
        }
        timed.flush()?;
        Ok(kinds
            .iter()
            .zip(&turns)
            .flat_map(|(kind, turns)| turns.written(&kind.accesses))
            .collect())
    }
}
