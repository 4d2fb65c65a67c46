//! `stream`: writes one large file sequentially, reads it cold and warm, and overwrites it.
//!
//! The first write ends with an fsync inside the timed region. The phase that overwrites the cached
//! file has no fsync, so it measures the path into the page cache, without the device.

use super::content::{self, Content, expect};
use super::{Parameter, Preparation, Spec, Workload};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use crate::tree::Access;
use fslab_report::sample::CacheState;
use fslab_stats::Stopwatch;

const SIZE: Parameter = Parameter::bytes("size", "size of the file", 256 << 20);

const REQUEST: Parameter = Parameter::bytes("request", "size of each read and write", 1 << 20);

const PATH: &str = "stream";

pub(super) const SPEC: Spec = Spec {
    name: "stream",
    help: "write one large file with fsync, read it cold and warm, and overwrite it while it is \
           cached",
    parameters: &[SIZE, REQUEST, content::DATA, content::DATA_FROM],
    phases: &["write", "read cold", "read warm", "overwrite"],
    construct: |parameters, seed| {
        let request = parameters.number(&REQUEST).max(1);
        Box::new(Stream {
            requests: parameters.number(&SIZE).div_ceil(request),
            request,
            content: Content::new(parameters, seed),
            chunk: Vec::new(),
            checksum: 0,
        })
    },
};

struct Stream {
    requests: u64,
    request: u64,
    content: Content,
    chunk: Vec<u8>,
    checksum: u32,
}

impl Workload for Stream {
    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        self.chunk = self.content.make(0, self.request as usize)?;
        let append = |sum, _| crc32c::crc32c_append(sum, &self.chunk);
        self.checksum = (0..self.requests).fold(0, append);
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.describe_data(self.content.describe());
        let mut buffer = vec![0; self.chunk.len()];
        session.measure(Phase::new("write"), |timed| self.write_new(timed))?;
        session.make_cold()?;
        let cold = Phase::new("read cold").cache(CacheState::Cold);
        session.measure(cold, |timed| self.read(timed, &mut buffer))?;
        self.verify(session)?;
        let warm = Phase::new("read warm").cache(CacheState::Warm);
        session.measure(warm, |timed| self.read(timed, &mut buffer))?;
        session.measure(Phase::new("overwrite"), |timed| self.write_over(timed))?;
        self.verify(session)
    }
}

impl Stream {
    fn bytes(&self) -> u64 {
        self.requests * self.chunk.len() as u64
    }

    fn write_new(&self, timed: &mut Timed<'_>) -> Result<()> {
        let file = timed.tree().create(PATH)?;
        self.write(timed, &*file)?;
        timed.sync(&*file)?;
        file.close()?;
        timed.flush()
    }

    fn write_over(&self, timed: &mut Timed<'_>) -> Result<()> {
        let file = timed.tree().open(PATH, Access::Write)?;
        self.write(timed, &*file)?;
        file.close()
    }

    fn write(&self, timed: &mut Timed<'_>, file: &dyn crate::tree::TreeFile) -> Result<()> {
        let stopwatch = Stopwatch::start_along(self.requests);
        timed.each("write", stopwatch, 0..self.requests, |_, request| {
            file.write_at(request * self.chunk.len() as u64, &self.chunk)
        })?;
        timed.count(self.requests, self.bytes());
        Ok(())
    }

    fn read(&self, timed: &mut Timed<'_>, buffer: &mut [u8]) -> Result<()> {
        let file = timed.open_for_reading(PATH)?;
        let mut stopwatch = Stopwatch::start_along(self.requests);
        let mut bytes = 0;
        while let length @ 1.. = file.read_at(bytes, buffer)? {
            bytes += length as u64;
            stopwatch.lap();
        }
        file.close()?;
        timed.record("read", stopwatch);
        timed.count(self.requests, bytes);
        expect(format!("bytes read of {PATH}"), self.bytes(), bytes)
    }

    fn verify(&self, session: &Session<'_>) -> Result<()> {
        content::verify(session.tree()?, PATH, self.checksum)
    }
}
