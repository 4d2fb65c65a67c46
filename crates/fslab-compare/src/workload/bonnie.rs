//! `bonnie`: writes, rewrites and reads one file by character and by block, then visits random
//! blocks with several processes. All phases are repeated with doubled file sizes.
//!
//! Zadok et al. (2001) describe Bonnie differently from Bray's program. Where they differ, the
//! workload has phases for both versions:
//!
//! - The paper rewrites 1024 bytes at a time, the program 16 KiB (`rewrite 1024`, `rewrite
//!   blocks`).
//! - In the paper, the second part *writes* characters and blocks again; in the program it *reads*
//!   them (`overwrite ...`; `get characters`, `read blocks`).
//! - In the paper, each of 3 processes makes 4000 seeks; in the program, the 3 processes together
//!   make 4000 (`seek`, `seek shared`).
//! - "One character at a time" is `putc` through a buffer of 4 KiB in the program (`put
//!   characters`). `write characters` makes a system call for each character, in a smaller file.

mod phases;

use super::content::{self, Content};
use super::random_access::{self, Accesses};
use super::{Parameter, Preparation, Spec, Workload, doubling};
use crate::error::Result;
use crate::runner::{Phase, Session};
use crate::tree::Access;
use fslab_report::sample::CacheState;

const SMALLEST: Parameter = Parameter::bytes("smallest", "size of the smallest file", 1 << 20);

const LARGEST: Parameter =
    Parameter::bytes("largest", "size of the largest file; sizes double up to it", 128 << 20);

const BLOCK: Parameter = Parameter::bytes("block", "size of a block", 16 << 10);

const CHARACTERS: Parameter = Parameter::bytes(
    "characters",
    "number of bytes that are written with one system call each",
    256 << 10,
);

const SEEKERS: Parameter =
    Parameter::count("seekers", "number of concurrent seekers, each a process or a thread", 3);

const SEEKS: Parameter = Parameter::count("seeks", "number of seeks by each seeker", 4000);

const WRITES: Parameter =
    Parameter::percent("writes", "share of the seeks after which a block is also written", 10);

const SEEK_BY: Parameter = Parameter::choice(
    "seek_by",
    "whether seekers are processes, or threads of this process",
    &["processes", "threads"],
);

pub(super) const SPEC: Spec = Spec {
    name: "bonnie",
    help: "write, rewrite and read one file by characters and by blocks, then seek to random \
           blocks",
    parameters: &[
        SMALLEST,
        LARGEST,
        BLOCK,
        CHARACTERS,
        SEEKERS,
        SEEKS,
        WRITES,
        SEEK_BY,
        content::DATA,
        content::DATA_FROM,
    ],
    phases: &[
        "put characters",
        "write characters",
        "write blocks",
        "rewrite 1024",
        "rewrite blocks",
        "get characters",
        "read blocks",
        "overwrite characters",
        "overwrite blocks",
        "seek",
        "seek shared",
    ],
    construct: |parameters, seed| {
        let block = parameters.number(&BLOCK).next_multiple_of(1024);
        // All file sizes are multiples of the block size, because the phases handle only whole
        // blocks.
        let smallest = parameters.number(&SMALLEST).max(block).next_multiple_of(block);
        Box::new(Bonnie {
            sizes: doubling(smallest, parameters.number(&LARGEST).max(smallest)).collect(),
            block,
            characters: parameters.number(&CHARACTERS),
            seekers: parameters.number(&SEEKERS),
            seeks: parameters.number(&SEEKS),
            writes: parameters.number(&WRITES),
            processes: parameters.word(&SEEK_BY) == "processes",
            content: Content::new(parameters, seed),
            worker: None,
            first: Vec::new(),
            second: Vec::new(),
        })
    },
};

/// Number of blocks after which the contents of a file repeat.
const CHUNK_BLOCKS: u64 = 64;

const PATH: &str = "bonnie";

struct Bonnie {
    sizes: Vec<u64>,
    block: u64,
    characters: u64,
    seekers: u64,
    seeks: u64,
    writes: u64,
    processes: bool,
    content: Content,
    worker: Option<Vec<std::ffi::OsString>>,
    /// The content with which the file is written, repeated up to its size.
    first: Vec<u8>,
    /// The content with which the file's blocks are overwritten, repeated in the same way.
    second: Vec<u8>,
}

impl Workload for Bonnie {
    fn prepare(&mut self, preparation: &Preparation<'_>) -> Result<()> {
        let length = (self.block * CHUNK_BLOCKS) as usize;
        self.first = self.content.make(0, length)?;
        self.second = self.content.make(1, length)?;
        self.worker = preparation.host.worker_command();
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.describe_data(self.content.describe());
        for size in &self.sizes {
            self.create(session, *size)?;
            self.read_back(session, *size)?;
            self.overwrite(session, *size)?;
            let mut workers = self.workers(*size, session.seed(), self.seeks * self.seekers);
            self.seek(session, *size, "seek", &workers)?;
            let shared = self.workers(*size, !session.seed(), self.seeks);
            self.seek(session, *size, "seek shared", &shared)?;
            workers.extend(shared);
            self.verify_visited(session, &workers)?;
            session.tree()?.remove(PATH)?;
        }
        Ok(())
    }
}

impl Bonnie {
    /// Runs the first part: writes characters, writes blocks and rewrites them.
    fn create(&self, session: &mut Session<'_>, size: u64) -> Result<()> {
        let of = |name| Phase::new(name).size(size);
        session.measure(of("put characters"), |timed| self.put(timed, size, true))?;
        self.verify_file(session, PATH, size)?;
        let single = size.min(self.characters);
        session.measure(of("write characters"), |timed| self.write_characters(timed, single))?;
        self.verify_characters(session, single)?;
        session.tree()?.remove(PATH)?;
        session.measure(of("write blocks"), |timed| self.write_new_blocks(timed, size))?;
        session.measure(of("rewrite 1024"), |timed| self.rewrite(timed, size, 1024))?;
        session.measure(of("rewrite blocks"), |timed| self.rewrite(timed, size, self.block))
    }

    /// Runs the second part as in the program: reads characters and blocks.
    fn read_back(&self, session: &mut Session<'_>, size: u64) -> Result<()> {
        let cold = |name| Phase::new(name).size(size).cache(CacheState::Cold);
        session.make_cold()?;
        session.measure(cold("get characters"), |timed| self.get(timed, size))?;
        session.make_cold()?;
        session.measure(cold("read blocks"), |timed| self.read_blocks(timed, size))?;
        self.verify_rewritten(session, size)
    }

    /// Runs the second part as in the paper: overwrites characters and blocks.
    fn overwrite(&self, session: &mut Session<'_>, size: u64) -> Result<()> {
        let of = |name| Phase::new(name).size(size);
        session.measure(of("overwrite characters"), |timed| self.put(timed, size, false))?;
        self.verify_file(session, PATH, size)?;
        session.measure(of("overwrite blocks"), |timed| self.overwrite_blocks(timed, size))
    }

    /// Returns the accesses of the third part: `total` seeks, divided evenly among the seekers.
    fn workers(&self, size: u64, seed: u64, total: u64) -> Vec<Accesses> {
        let all = Accesses {
            path: PATH.to_owned(),
            block_bytes: self.block,
            blocks: size / self.block,
            visits: total,
            write_percent: self.writes,
            read_first: true,
            zipf: 0.0,
            seed,
            content_seed: self.block,
        };
        all.shared_by(self.seekers)
    }

    fn verify_visited(&self, session: &mut Session<'_>, workers: &[Accesses]) -> Result<()> {
        session.make_cold()?;
        let file = session.tree()?.open(PATH, Access::Read)?;
        random_access::verify(&*file, workers, |block, bytes| {
            let start = (block % CHUNK_BLOCKS * self.block) as usize;
            bytes.copy_from_slice(&self.second[start..start + bytes.len()]);
        })
    }
}
