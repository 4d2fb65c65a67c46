//! `file-append`: makes files of 0 bytes, 1 KiB, 2 KiB, 4 KiB and so on by many small appends. The
//! file is kept open, or is opened for each append.
//!
//! Zadok et al. (2001) appended 10, 100 and 1000 bytes of four kinds of data up to 32 MB, to
//! measure their fast tails. With a `matrix`, a plan can repeat all of these measurements.

use super::content::{self, Content, expect};
use super::{Parameter, Preparation, Spec, Workload, doubling};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use crate::tree::{Access, Tree};
use fslab_stats::Stopwatch;

const APPEND: Parameter = Parameter::bytes("append", "bytes of each append", 100);

const LARGEST: Parameter = Parameter::bytes(
    "largest",
    "final size of the largest file; sizes double from 1 KiB up to it",
    4 << 20,
);

const LARGEST_REOPENED: Parameter = Parameter::bytes(
    "largest_reopened",
    "final size of the largest file if every append opens and closes the file",
    256 << 10,
);

const MODE: Parameter = Parameter::choice(
    "mode",
    "whether the file is kept open, is opened and closed for each append, or both in turn",
    &["both", "open", "reopened"],
);

const SMALLEST: u64 = 1 << 10;

pub(super) const SPEC: Spec = Spec {
    name: "file-append",
    help: "grow files by small appends; each file is kept open, or reopened for each append",
    parameters: &[APPEND, LARGEST, LARGEST_REOPENED, MODE, content::DATA, content::DATA_FROM],
    phases: &["append", "append reopened"],
    construct: |parameters, seed| {
        let largest = |parameter: &Parameter, without: &str| {
            let wanted = parameters.word(&MODE) != without;
            if wanted { parameters.number(parameter).max(SMALLEST) } else { 0 }
        };
        let way = |phase, prefix, largest, reopen| Way { phase, prefix, largest, reopen };
        Box::new(FileAppend {
            append: parameters.number(&APPEND) as usize,
            ways: [
                way("append", "open", largest(&LARGEST, "reopened"), false),
                way("append reopened", "reopened", largest(&LARGEST_REOPENED, "open"), true),
            ],
            content: Content::new(parameters, seed),
            bytes: Vec::new(),
        })
    },
};

struct FileAppend {
    append: usize,
    ways: [Way; 2],
    content: Content,
    /// The contents of the largest file. Smaller files contain the beginning of these contents.
    bytes: Vec<u8>,
}

/// One of the two ways to append: to a file that is kept open, or that is reopened each time.
struct Way {
    phase: &'static str,
    prefix: &'static str,
    /// Size of the largest file; 0 for none.
    largest: u64,
    reopen: bool,
}

impl Workload for FileAppend {
    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        let longest = self.ways.iter().map(|way| way.largest).max().unwrap_or(0);
        self.bytes = self.content.make(0, longest as usize)?;
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.describe_data(self.content.describe());
        for way in &self.ways {
            for size in Self::sizes(way) {
                let phase = Phase::new(way.phase).size(size);
                session.measure(phase, |timed| self.grow(timed, way, size))?;
            }
        }
        session.make_cold()?;
        for way in &self.ways {
            self.verify(session, way)?;
        }
        Ok(())
    }
}

impl FileAppend {
    /// Returns the file sizes for a way to append, beginning with 0; empty if the way is not used.
    fn sizes(way: &Way) -> impl Iterator<Item = u64> + use<> {
        let nothing = (way.largest > 0).then_some(0);
        nothing.into_iter().chain(doubling(SMALLEST, way.largest))
    }

    fn path(way: &Way, size: u64) -> String {
        format!("{}-{size}", way.prefix)
    }

    fn grow(&self, timed: &mut Timed<'_>, way: &Way, size: u64) -> Result<()> {
        let (tree, path) = (timed.tree(), Self::path(way, size));
        let pieces = self.bytes[..size as usize].chunks(self.append);
        let appends = pieces.len() as u64;
        let stopwatch = Stopwatch::start_along(appends);
        if way.reopen {
            tree.create_empty(&path)?;
            timed.each("append", stopwatch, pieces, |_, piece| append_once(tree, &path, piece))?;
        } else {
            let file = tree.create(&path)?;
            timed.each("append", stopwatch, pieces, |_, piece| file.append(piece))?;
            file.close()?;
        }
        timed.count(appends.max(1), size);
        timed.flush()
    }

    fn verify(&self, session: &mut Session<'_>, way: &Way) -> Result<()> {
        for size in Self::sizes(way) {
            session.check()?;
            let path = Self::path(way, size);
            expect(format!("size of {path}"), size, session.tree()?.status(&path)?.size)?;
            let expected = crc32c::crc32c(&self.bytes[..size as usize]);
            content::verify(session.tree()?, &path, expected)?;
        }
        Ok(())
    }
}

fn append_once(tree: &dyn Tree, path: &str, piece: &[u8]) -> Result<()> {
    let file = tree.open(path, Access::Append)?;
    file.append(piece)?;
    file.close()
}
