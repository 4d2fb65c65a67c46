//! `tool`: stores files with a program such as gzip or uuencode instead of a layer, to measure time
//! and space. Compare it with `file-copy` on a target with the layer.
//!
//! The program reads a source file from its standard input. Its standard output is a file in the
//! target.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::content::{self, Content};
use super::program::{Program, directory};
use super::{Parameter, Preparation, Spec, Workload, doubling};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session, Timed};
use fslab_stats::Stopwatch;

const COMMAND: Parameter = Parameter::command(
    "command",
    "the program, which reads the data from standard input and writes the encoded data to standard \
     output",
    &["gzip", "-9", "-c"],
);

const CHECK: Parameter = Parameter::command(
    "check",
    "a program that decodes a stored file from standard input, to check the files after a remount",
    &["gzip", "-dc"],
);

const LARGEST: Parameter = Parameter::bytes(
    "largest",
    "size of the largest file; sizes double from 1 KiB up to it",
    32 << 20,
);

const SMALLEST: u64 = 1 << 10;

pub(super) const SPEC: Spec = Spec {
    name: "tool",
    help: "store files through a program such as gzip -9, to compare the program with a layer that \
           does the same",
    parameters: &[COMMAND, CHECK, LARGEST, content::DATA, content::DATA_FROM],
    phases: &["store"],
    construct: |parameters, seed| {
        let doubled = doubling(SMALLEST, parameters.number(&LARGEST).max(SMALLEST));
        Box::new(Tool {
            command: parameters.command(&COMMAND),
            check: parameters.command(&CHECK),
            sizes: std::iter::once(0).chain(doubled).collect(),
            content: Content::new(parameters, seed),
            sources: PathBuf::new(),
            checksums: Vec::new(),
        })
    },
};

struct Tool {
    command: Vec<String>,
    check: Vec<String>,
    sizes: Vec<u64>,
    content: Content,
    sources: PathBuf,
    checksums: Vec<u32>,
}

impl Workload for Tool {
    fn prepare(&mut self, preparation: &Preparation<'_>) -> Result<()> {
        self.sources = preparation.directory.to_owned();
        for size in &self.sizes {
            let bytes = self.content.make(*size, *size as usize)?;
            self.checksums.push(crc32c::crc32c(&bytes));
            let path = self.source(*size);
            fs::write(&path, bytes).map_err(Error::file(&path))?;
        }
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        let root = directory(session, "tool")?;
        session.describe_data(self.content.describe());
        for size in &self.sizes {
            let phase = Phase::new("store").size(*size);
            session.measure(phase, |timed| self.store(timed, &root, *size))?;
            let stored = session.tree()?.status(&Self::stored(*size))?.stored;
            session.record_stored(stored);
        }
        session.make_cold()?;
        for (size, checksum) in self.sizes.iter().zip(&self.checksums) {
            self.verify(session, &root, *size, *checksum)?;
        }
        Ok(())
    }
}

impl Tool {
    fn source(&self, size: u64) -> PathBuf {
        self.sources.join(format!("source-{size}"))
    }

    fn stored(size: u64) -> String {
        format!("stored-{size}")
    }

    fn store(&self, timed: &mut Timed<'_>, root: &Path, size: u64) -> Result<()> {
        let (source, target) = (self.source(size), root.join(Self::stored(size)));
        let input = File::open(&source).map_err(Error::file(&source))?;
        let output = File::create_new(&target).map_err(Error::file(&target))?;
        let mut stopwatch = Stopwatch::start();
        let program = Program::new(&self.command, root).input(input).output(output);
        program.run(timed.interrupt())?;
        stopwatch.lap();
        timed.record("store", stopwatch);
        timed.count(1, size);
        timed.flush()
    }

    fn verify(&self, session: &Session<'_>, root: &Path, size: u64, checksum: u32) -> Result<()> {
        if self.check.is_empty() {
            return Ok(());
        }
        let stored = root.join(Self::stored(size));
        let undone = self.sources.join("undone");
        let input = File::open(&stored).map_err(Error::file(&stored))?;
        let output = File::create(&undone).map_err(Error::file(&undone))?;
        Program::new(&self.check, root).input(input).output(output).run(session.interrupt())?;
        let found = crc32c::crc32c(&fs::read(&undone).map_err(Error::file(&undone))?);
        content::same(&Self::stored(size), checksum, found)
    }
}
