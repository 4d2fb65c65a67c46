//! `overwrite`: creates a file and overwrites it with writes of several sizes, as `dd bs=...
//! conv=notrunc` does.
//!
//! Studenmund (2000) found that creating files became slower over time, with and without his layer.
//! He therefore measured how long it takes to overwrite an existing file. This workload times the
//! first creation, a later creation and the overwriting separately.

use super::content::{self, Content};
use super::{Parameter, Preparation, Spec, Workload};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use crate::tree::{Access, TreeFile};
use fslab_stats::Stopwatch;

const SIZE: Parameter = Parameter::bytes("size", "size of the file", 256 << 20);

const WRITES: Parameter = Parameter::sizes(
    "writes",
    "sizes of the writes; each size has its own file",
    &[8 << 10, 64 << 10, 1 << 20],
);

const CREATIONS: Parameter = Parameter::count(
    "creations",
    "how often the file is created; only the first and the last creation are timed",
    1,
);

pub(super) const SPEC: Spec = Spec {
    name: "overwrite",
    help: "create a file and overwrite it, with writes of several sizes, as dd does",
    parameters: &[SIZE, WRITES, CREATIONS, content::DATA, content::DATA_FROM],
    phases: &["create", "create again", "overwrite"],
    construct: |parameters, seed| {
        Box::new(Overwrite {
            size: parameters.number(&SIZE),
            writes: parameters.sizes(&WRITES),
            creations: parameters.number(&CREATIONS),
            content: Content::new(parameters, seed),
            first: Vec::new(),
            second: Vec::new(),
        })
    },
};

struct Overwrite {
    size: u64,
    writes: Vec<u64>,
    creations: u64,
    content: Content,
    /// The content with which the file is created, repeated up to its size.
    first: Vec<u8>,
    /// The content with which the file is overwritten, repeated in the same way.
    second: Vec<u8>,
}

impl Workload for Overwrite {
    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        let longest = self.writes.iter().copied().max().unwrap_or(1) as usize;
        self.first = self.content.make(0, longest)?;
        self.second = self.content.make(1, longest)?;
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.describe_data(self.content.describe());
        for write in &self.writes {
            let path = format!("overwrite-{write}");
            self.create(session, "create", *write, &path)?;
            self.create_again(session, *write, &path)?;
            self.verify(session, *write, &path, &self.first)?;
            session.measure(Phase::new("overwrite").size(*write), |timed| {
                let file = timed.tree().open(&path, Access::Write)?;
                self.write(timed, &*file, *write, &self.second)?;
                file.close()?;
                timed.flush()
            })?;
            session.make_cold()?;
            self.verify(session, *write, &path, &self.second)?;
            session.tree()?.remove(&path)?;
        }
        Ok(())
    }
}

impl Overwrite {
    fn create(
        &self,
        session: &mut Session<'_>,
        phase: &'static str,
        write: u64,
        path: &str,
    ) -> Result<()> {
        session.measure(Phase::new(phase).size(write), |timed| {
            let file = timed.tree().create(path)?;
            self.write(timed, &*file, write, &self.first)?;
            file.close()?;
            timed.flush()
        })
    }

    /// Creates the file again as often as requested; only the last creation is timed.
    fn create_again(&self, session: &mut Session<'_>, write: u64, path: &str) -> Result<()> {
        for _ in 2..self.creations {
            session.tree()?.remove(path)?;
            let file = session.tree()?.create(path)?;
            for (start, length) in content::pieces(self.size, write) {
                file.write_at(start, &self.first[..length])?;
            }
            file.sync()?;
            file.close()?;
        }
        if self.creations > 1 {
            session.tree()?.remove(path)?;
            self.create(session, "create again", write, path)?;
        }
        Ok(())
    }

    fn write(
        &self,
        timed: &mut Timed<'_>,
        file: &dyn TreeFile,
        write: u64,
        contents: &[u8],
    ) -> Result<()> {
        let stopwatch = Stopwatch::start_along(self.size.div_ceil(write));
        let pieces = content::pieces(self.size, write);
        timed.each("write", stopwatch, pieces, |_, (start, length)| {
            file.write_at(start, &contents[..length])
        })?;
        timed.count(self.size.div_ceil(write), self.size);
        timed.sync(file)
    }

    fn verify(&self, session: &Session<'_>, write: u64, path: &str, contents: &[u8]) -> Result<()> {
        let sum = |sum, (_, length): (u64, usize)| crc32c::crc32c_append(sum, &contents[..length]);
        let expected = content::pieces(self.size, write).fold(0, sum);
        content::verify(session.tree()?, path, expected)
    }
}
