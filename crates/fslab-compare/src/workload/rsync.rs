//! `rsync`: copies a tree into the target, copies it again without changes, and updates it after
//! some files have changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::application::{FILES, MadeTree, SOURCE, find, require, word, words};
use super::content::expect;
use super::program::{Program, directory};
use super::tree_check::verify_tree;
use super::{Preparation, Spec, Workload};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session, Timed};
use crate::tree::copy::files_below;
use fslab_report::sample::CacheState;
use fslab_sys::signals::Interrupt;

pub(super) const SPEC: Spec = Spec {
    name: "rsync",
    help: "copy a tree, copy it again without changes, and then after changes (needs the program \
           rsync)",
    parameters: &[FILES, SOURCE],
    phases: &["copy", "repeat", "update"],
    construct: |parameters, seed| {
        Box::new(Rsync {
            made: MadeTree { seed, files: parameters.number(&FILES) },
            given: parameters.text(&SOURCE).map(PathBuf::from),
            before: PathBuf::new(),
            after: PathBuf::new(),
        })
    },
};

struct Rsync {
    made: MadeTree,
    given: Option<PathBuf>,
    /// The tree to copy. `after` is a copy of it in which some files are changed or renamed.
    before: PathBuf,
    after: PathBuf,
}

/// One file in this many is changed, and the same number of other files is renamed.
const CHANGED_EACH: usize = 20;

impl Workload for Rsync {
    fn prepare(&mut self, preparation: &Preparation<'_>) -> Result<()> {
        // If rsync is missing, `run` reports it for each target.
        if find("rsync").is_none() {
            return Ok(());
        }
        self.before = preparation.directory.join("before");
        self.after = preparation.directory.join("after");
        match &self.given {
            Some(given) => {
                let given = given.canonicalize().map_err(Error::file(given))?;
                copy(&given, &self.before, &Interrupt::default())?;
            }
            None => self.made.write(&self.before)?,
        }
        copy(&self.before, &self.after, &Interrupt::default())?;
        change(&self.after)
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        require("rsync", &[("rsync", "rsync")])?;
        let copied = directory(session, "rsync")?.join("copy");
        session.describe_data(match &self.given {
            Some(given) => format!("from {}", given.display()),
            None => format!("text, seed {}", self.made.seed),
        });
        session.measure(Phase::new("copy"), |timed| sync(timed, &self.before, &copied))?;
        session.make_cold()?;
        verify_tree(session, &self.before, &copied)?;
        for (name, source) in [("repeat", &self.before), ("update", &self.after)] {
            session.make_cold()?;
            let phase = Phase::new(name).cache(CacheState::Cold);
            session.measure(phase, |timed| sync(timed, source, &copied))?;
        }
        session.make_cold()?;
        verify_tree(session, &self.after, &copied)?;
        let (expected, found) = (files_below(&self.after)?.len(), files_below(&copied)?.len());
        expect("files copied", expected as u64, found as u64)
    }
}

fn sync(timed: &mut Timed<'_>, source: &Path, copied: &Path) -> Result<()> {
    copy(source, copied, timed.interrupt())?;
    timed.count(1, 0);
    timed.flush()
}

/// Makes the directory `copied` equal to `source`.
fn copy(source: &Path, copied: &Path, interrupt: &Interrupt) -> Result<()> {
    let (source, copied) = (format!("{}/", word(source)?), format!("{}/", word(copied)?));
    let command = words(["rsync", "--archive", "--delete", &source, &copied]);
    Program::new(&command, Path::new("/")).run(interrupt)
}

/// Changes some files and renames others, which rsync treats as removed and added.
fn change(tree: &Path) -> Result<()> {
    let mut files = files_below(tree)?;
    files.retain(|(_, metadata)| metadata.is_file());
    for (path, metadata) in files.iter().step_by(CHANGED_EACH) {
        let mut content = fs::read(path).map_err(Error::file(path))?;
        content.extend_from_slice(format!("changed, {} before\n", metadata.size()).as_bytes());
        fs::write(path, content).map_err(Error::file(path))?;
    }
    for (path, _) in files.iter().skip(CHANGED_EACH / 2).step_by(CHANGED_EACH) {
        fs::rename(path, path.with_extension("added")).map_err(Error::file(path))?;
    }
    Ok(())
}
