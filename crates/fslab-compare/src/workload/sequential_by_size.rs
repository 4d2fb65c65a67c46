//! `sequential-by-size`: creates a data set of 32 MiB as files of one size, and reads them cold in
//! the order of creation. Each directory contains 25 files. This is repeated for each size from 16
//! KiB to 16 MiB. The files of one size are removed before those of the next are created, so that
//! each size finds the same free space.
//!
//! This is the sequential benchmark of Smith and Seltzer (1997), who plotted throughput over size.

use super::content::{self, Content, Pool, REQUEST_BYTES};
use super::{Parameter, Preparation, Spec, Workload, doubling};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use fslab_report::sample::CacheState;
use fslab_stats::Stopwatch;

const TOTAL: Parameter =
    Parameter::bytes("total", "total bytes of all files of one size", 32 << 20);

const SMALLEST: Parameter = Parameter::bytes("smallest", "size of the smallest files", 16 << 10);

const LARGEST: Parameter =
    Parameter::bytes("largest", "size of the largest files; sizes double up to it", 16 << 20);

const MORE_SIZES: Parameter = Parameter::sizes(
    "more_sizes",
    "additional file sizes, such as those at which an allocation policy changes the block group",
    &[],
);

const PER_DIRECTORY: Parameter =
    Parameter::count("per_directory", "number of files in each directory", 25);

pub(super) const SPEC: Spec = Spec {
    name: "sequential-by-size",
    help: "for each file size from 16 KiB to 16 MiB, create and read files with a fixed total size",
    parameters: &[
        TOTAL,
        SMALLEST,
        LARGEST,
        MORE_SIZES,
        PER_DIRECTORY,
        content::DATA,
        content::DATA_FROM,
    ],
    phases: &["create", "read"],
    construct: |parameters, seed| {
        let total = parameters.number(&TOTAL);
        let largest = parameters.number(&LARGEST).min(total);
        let mut sizes: Vec<u64> = doubling(parameters.number(&SMALLEST), largest).collect();
        sizes.extend(parameters.sizes(&MORE_SIZES).into_iter().filter(|size| *size <= total));
        sizes.sort_unstable();
        sizes.dedup();
        Box::new(SequentialBySize {
            total,
            sizes,
            per_directory: parameters.number(&PER_DIRECTORY),
            content: Content::new(parameters, seed),
            pool: Pool::default(),
        })
    },
};

struct SequentialBySize {
    total: u64,
    sizes: Vec<u64>,
    per_directory: u64,
    content: Content,
    pool: Pool,
}

impl Workload for SequentialBySize {
    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        let longest = self.sizes.last().copied().unwrap_or(1) as usize;
        self.pool = Pool::new(&self.content, longest)?;
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.describe_data(self.content.describe());
        for size in &self.sizes {
            let create = Phase::new("create").size(*size);
            session.measure(create, |timed| self.create(timed, *size))?;
            session.make_cold()?;
            let read = Phase::new("read").size(*size).cache(CacheState::Cold);
            session.measure(read, |timed| self.read(timed, *size))?;
            self.verify(session, *size)?;
            self.remove(session, *size)?;
        }
        Ok(())
    }
}

impl SequentialBySize {
    fn files(&self, size: u64) -> u64 {
        self.total / size
    }

    fn directory(&self, size: u64, file: u64) -> String {
        format!("size-{size}/{:04}", file / self.per_directory)
    }

    fn path(&self, size: u64, file: u64) -> String {
        format!("{}/file-{file:06}", self.directory(size, file))
    }

    fn create(&self, timed: &mut Timed<'_>, size: u64) -> Result<()> {
        let tree = timed.tree();
        tree.make_directory(&format!("size-{size}"))?;
        let stopwatch = Stopwatch::start_along(self.files(size));
        timed.each("create and write", stopwatch, 0..self.files(size), |_, file| {
            if file % self.per_directory == 0 {
                tree.make_directory(&self.directory(size, file))?;
            }
            let created = tree.create(&self.path(size, file))?;
            for piece in self.pool.piece(file, size as usize).chunks(REQUEST_BYTES) {
                created.append(piece)?;
            }
            created.close()
        })?;
        timed.count(self.files(size), self.files(size) * size);
        timed.flush()
    }

    fn read(&self, timed: &mut Timed<'_>, size: u64) -> Result<()> {
        let mut buffer = vec![0; REQUEST_BYTES];
        let stopwatch = Stopwatch::start_along(self.files(size));
        let mut bytes = 0;
        timed.each("read", stopwatch, 0..self.files(size), |timed, file| {
            bytes += content::read_file(timed, &self.path(size, file), &mut buffer)?;
            Ok(())
        })?;
        timed.count(self.files(size), bytes);
        content::expect("bytes read", self.files(size) * size, bytes)
    }

    fn verify(&self, session: &Session<'_>, size: u64) -> Result<()> {
        for file in 0..self.files(size) {
            session.check()?;
            let expected = crc32c::crc32c(self.pool.piece(file, size as usize));
            content::verify(session.tree()?, &self.path(size, file), expected)?;
        }
        Ok(())
    }

    /// Removes the files and frees their space.
    fn remove(&self, session: &Session<'_>, size: u64) -> Result<()> {
        let tree = session.tree()?;
        for file in 0..self.files(size) {
            session.check()?;
            tree.remove(&self.path(size, file))?;
        }
        tree.sync_all()
    }
}
