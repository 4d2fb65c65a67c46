//! `untar`: an archive unpacked into the target, and compared with it after a remount.

use std::path::{Path, PathBuf};

use super::application::{FILES, MadeTree, find, require, word, words};
use super::content::expect;
use super::program::{Program, directory};
use super::{Parameter, Preparation, Spec, Workload};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session};
use crate::tree::copy::files_below;
use fslab_report::sample::CacheState;
use fslab_sys::signals::Interrupt;

const ARCHIVE: Parameter = Parameter::text(
    "archive",
    "the archive, compressed in any way that tar knows; none to make one from the seed",
    "",
);

/// The registry's entry.
pub(super) const SPEC: Spec = Spec {
    name: "untar",
    help: "unpack an archive, and compare the files with it, cold (needs the program tar)",
    parameters: &[FILES, ARCHIVE],
    phases: &["unpack", "compare"],
    construct: |parameters, seed| {
        Box::new(Untar {
            made: MadeTree { seed, files: parameters.number(&FILES) },
            given: parameters.text(&ARCHIVE).map(PathBuf::from),
            archive: PathBuf::new(),
        })
    },
};

struct Untar {
    made: MadeTree,
    given: Option<PathBuf>,
    archive: PathBuf,
}

impl Workload for Untar {
    fn prepare(&mut self, preparation: &Preparation<'_>) -> Result<()> {
        if let Some(given) = &self.given {
            self.archive = given.canonicalize().map_err(Error::file(given))?;
            return Ok(());
        }
        // Where tar is missing, each target's row says so.
        if find("tar").is_none() {
            return Ok(());
        }
        let tree = preparation.directory.join("tree");
        self.made.write(&tree)?;
        self.archive = preparation.directory.join("made.tar");
        let command = words(["tar", "-cf", &word(&self.archive)?, "--owner=0", "--group=0", "."]);
        Program::new(&command, &tree).run(&Interrupt::default())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        require("untar", &[("tar", "tar")])?;
        let root = directory(session, "untar")?;
        let archive = word(&self.archive)?;
        session.describe_data(match &self.given {
            Some(given) => format!("from {}", given.display()),
            None => format!("text, seed {}", self.made.seed),
        });
        let unpack = words(["tar", "-xf", &archive, "--no-same-owner"]);
        session.measure(Phase::new("unpack"), |timed| {
            Program::new(&unpack, &root).run(timed.interrupt())?;
            timed.count(1, 0);
            timed.flush()
        })?;
        session.make_cold()?;
        // It fails where a file differs or is missing.
        let compare = words(["tar", "--compare", "-f", &archive]);
        session.measure(Phase::new("compare").cache(CacheState::Cold), |timed| {
            Program::new(&compare, &root).run(timed.interrupt())?;
            timed.count(1, 0);
            Ok(())
        })?;
        self.count(&root)
    }
}

impl Untar {
    /// No file is there that the archive does not have.
    fn count(&self, root: &Path) -> Result<()> {
        if self.given.is_some() {
            return Ok(());
        }
        let found = files_below(root)?;
        let found = found.iter().filter(|(_, metadata)| metadata.is_file()).count();
        expect("files unpacked", self.made.files, found as u64)
    }
}
