//! `untar`: unpacks an archive into the target, and compares the files with the archive after a
//! remount.

use std::io::{BufRead, BufReader, Seek};
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
    "the archive, with any compression that tar supports; leave empty to generate one from the \
     seed",
    "",
);

/// The exit status of tar if files differ from the archive.
const DIFFERS: i32 = 1;

/// The ends of tar's messages about differences that are allowed.
const MAY_DIFFER: [&str; 2] = [": Uid differs", ": Gid differs"];

/// The start of tar's message about absolute names, which reports no difference.
const REMARK: &str = "tar: Removing leading ";

pub(super) const SPEC: Spec = Spec {
    name: "untar",
    help: "unpack an archive, then read the files cold and compare them with it (needs the program \
           tar)",
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
        // If tar is missing, `run` reports it for each target.
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
        let unpack = words(["tar", "-xpf", &archive, "--no-same-owner"]);
        session.measure(Phase::new("unpack"), |timed| {
            Program::new(&unpack, &root).run(timed.interrupt())?;
            timed.count(1, 0);
            timed.flush()
        })?;
        session.make_cold()?;
        session.measure(Phase::new("compare").cache(CacheState::Cold), |timed| {
            compare(&archive, &root, timed.interrupt())?;
            timed.count(1, 0);
            Ok(())
        })?;
        self.count(&root)
    }
}

/// Compares an archive with the unpacked files. Fails if a file differs or is missing. Owners may
/// differ, because files belong to the user that unpacked them.
fn compare(archive: &str, root: &Path, interrupt: &Interrupt) -> Result<()> {
    let directory = std::env::temp_dir();
    let failed = || Error::file(&directory);
    let mut printed = tempfile::tempfile().map_err(failed())?;
    let output = printed.try_clone().map_err(failed())?;
    let command = words(["tar", "--compare", "-f", archive]);
    let program = Program::new(&command, root).variable("LC_ALL", "C").output(output);
    let mut started = program.start()?;
    let status = started.wait(interrupt)?;
    if status.success() {
        return Ok(());
    }
    if status.code() != Some(DIFFERS) {
        return Err(started.failure(status));
    }
    printed.rewind().map_err(failed())?;
    for file in [&printed, started.messages().map_err(failed())?] {
        for line in BufReader::new(file).split(b'\n') {
            let line = line.map_err(failed())?;
            let line = String::from_utf8_lossy(&line);
            if !MAY_DIFFER.iter().any(|end| line.ends_with(end)) && !line.starts_with(REMARK) {
                return Err(Error::Failed(format!("{archive}: an unpacked file differs: {line}")));
            }
        }
    }
    Ok(())
}

impl Untar {
    /// Checks the number of unpacked files, if the archive was generated.
    fn count(&self, root: &Path) -> Result<()> {
        if self.given.is_some() {
            return Ok(());
        }
        let found = files_below(root)?;
        let found = found.iter().filter(|(_, metadata)| metadata.is_file()).count();
        expect("files unpacked", self.made.files, found as u64)
    }
}
