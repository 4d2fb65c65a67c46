//! `lookup`: looks up many files for the first time after a mount, and then again. This measures
//! the cost of reading an inode. Finally each file is opened and closed.
//!
//! A layer that stores attributes of files itself must read them in these lookups. Examples are the
//! metadata file of DMFS (Studenmund 2000) and the index file of the fast-indexing layers (Zadok et
//! al. 2001).

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use super::content::expect;
use super::{Parameter, Spec, Workload};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use crate::tree::Access;
use fslab_report::sample::CacheState;
use fslab_stats::Stopwatch;

const FILES: Parameter = Parameter::count("files", "total number of files", 10_000);

const PER_DIRECTORY: Parameter =
    Parameter::count("per_directory", "number of files in each directory", 100);

const ORDER: Parameter = Parameter::choice("order", "the order of lookups", &["random", "ordered"]);

pub(super) const SPEC: Spec = Spec {
    name: "lookup",
    help: "look up many files, first cold and then warm; then open and close each of them",
    parameters: &[FILES, PER_DIRECTORY, ORDER],
    phases: &["lookup cold", "lookup warm", "open warm"],
    construct: |parameters, _seed| {
        Box::new(Lookup {
            files: parameters.number(&FILES),
            per_directory: parameters.number(&PER_DIRECTORY),
            shuffled: parameters.word(&ORDER) == "random",
        })
    },
};

struct Lookup {
    files: u64,
    per_directory: u64,
    shuffled: bool,
}

impl Workload for Lookup {
    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        self.build(session)?;
        let mut numbers: Vec<u64> = (0..self.files).collect();
        if self.shuffled {
            numbers.shuffle(&mut Pcg64::seed_from_u64(session.seed()));
        }
        session.make_cold()?;
        let cold = Phase::new("lookup cold").cache(CacheState::Cold);
        session.measure(cold, |timed| self.look_up(timed, &numbers))?;
        let warm = Phase::new("lookup warm").cache(CacheState::Warm);
        session.measure(warm, |timed| self.look_up(timed, &numbers))?;
        let open = Phase::new("open warm").cache(CacheState::Warm);
        session.measure(open, |timed| self.open_and_close(timed, &numbers))
    }
}

impl Lookup {
    fn directory(&self, file: u64) -> String {
        format!("lookup-{:06}", file / self.per_directory)
    }

    /// Returns the size of a file. Sizes differ, so that an exchange of files is detected.
    fn size(file: u64) -> u64 {
        file % 97
    }

    fn build(&self, session: &Session<'_>) -> Result<()> {
        let tree = session.tree()?;
        for file in 0..self.files {
            session.check()?;
            let directory = self.directory(file);
            if file % self.per_directory == 0 {
                tree.make_directory(&directory)?;
            }
            let made = tree.create(&format!("{directory}/file-{file}"))?;
            made.append(&[b'x'; 97][..Self::size(file) as usize])?;
            made.close()?;
        }
        tree.sync_all()
    }

    fn look_up(&self, timed: &mut Timed<'_>, numbers: &[u64]) -> Result<()> {
        let tree = timed.tree();
        let stopwatch = Stopwatch::start_along(self.files);
        let (mut found, mut expected) = (0, 0);
        timed.each("lookup", stopwatch, numbers, |_, file| {
            let path = format!("{}/file-{file}", self.directory(*file));
            // Each size is multiplied by the file's number, so that exchanged sizes of two files
            // are detected.
            found += tree.status(&path)?.size * (file + 1);
            expected += Self::size(*file) * (file + 1);
            Ok(())
        })?;
        timed.count(self.files, 0);
        expect("sum of sizes", expected, found)
    }

    fn open_and_close(&self, timed: &mut Timed<'_>, numbers: &[u64]) -> Result<()> {
        let tree = timed.tree();
        let stopwatch = Stopwatch::start_along(self.files);
        timed.each("open and close", stopwatch, numbers, |_, file| {
            let path = format!("{}/file-{file}", self.directory(*file));
            tree.open(&path, Access::Read)?.close()
        })?;
        timed.count(self.files, 0);
        Ok(())
    }
}
