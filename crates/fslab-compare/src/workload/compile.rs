//! `compile`: unpacks a source tree into the target, configures it, and builds it there with `cc`
//! and `make`. Zadok et al. (2001) did this with am-utils. A build makes many small lookups, reads
//! and writes, and some large binaries. `cargo-build` does the same with a Rust package and cargo.
//!
//! The compiler, its headers and its temporary files are outside the target, as in the paper.
//! Unless a source tree is given, one is generated from the seed. Each of its programs prints a
//! known number, which is checked.

mod source_tree;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::application::{Needed, require};
use super::content::expect;
use super::program::{Program, directory};
use super::tree_check::verify_tree;
use super::{Parameter, Preparation, Spec, Workload};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session, Timed};
use crate::tree::copy::{Copied, copy_tree, files_below};
use fslab_report::sample::CacheState;
use source_tree::{Language, SourceTree};

const SOURCE: Parameter =
    Parameter::text("source", "directory with a C source tree; leave empty to generate one", "");

const CONFIGURE: Parameter = Parameter::text(
    "configure",
    "shell command that configures the tree; leave empty to skip this phase",
    "./configure",
);

const BUILD: Parameter = Parameter::text(
    "build",
    "shell command that builds the tree; the variable JOBS contains `jobs`",
    "make -j$JOBS",
);

const JOBS: Parameter = Parameter::count("jobs", "number of concurrent compilers", 2);

const UNITS: Parameter = Parameter::count("units", "number of C files in a generated tree", 60);

const PROBES: Parameter =
    Parameter::count("probes", "number of probes in the generated configure script", 60);

const CACHE: Parameter = Parameter::choice(
    "cache",
    "state of the cache before configuring and building; `cold` remounts first",
    &["cold", "warm"],
);

pub(super) const SPEC: Spec = Spec {
    name: "compile",
    help: "unpack C sources into the target, then configure and build them there",
    parameters: &[SOURCE, CONFIGURE, BUILD, JOBS, UNITS, PROBES, CACHE],
    phases: &["unpack", "configure", "build"],
    construct: |parameters, seed| {
        let made = SourceTree {
            seed,
            units: parameters.number(&UNITS),
            probes: parameters.number(&PROBES),
            language: Language::C,
        };
        Box::new(Compile {
            name: "compile",
            needs: &[("make", "make"), ("cc", "gcc")],
            given: parameters.text(&SOURCE).map(PathBuf::from),
            made,
            configure: parameters.text(&CONFIGURE),
            build: parameters.text(&BUILD).unwrap_or_default(),
            jobs: parameters.number(&JOBS),
            cold: parameters.word(&CACHE) == "cold",
            source: PathBuf::new(),
        })
    },
};

const PACKAGE: Parameter =
    Parameter::text("source", "directory with a Rust package; leave empty to generate one", "");

const CARGO: Parameter = Parameter::text(
    "build",
    "shell command that builds the tree; the variable JOBS contains `jobs`",
    "cargo build --offline --quiet --target-dir target -j$JOBS",
);

const MODULES: Parameter =
    Parameter::count("units", "number of modules in a generated package", 60);

/// The declaration of the workload for Rust.
pub(super) const CARGO_SPEC: Spec = Spec {
    name: "cargo-build",
    help: "unpack a Rust package into the target and build it there with cargo",
    parameters: &[PACKAGE, CARGO, JOBS, MODULES, CACHE],
    phases: &["unpack", "build"],
    construct: |parameters, seed| {
        let units = parameters.number(&MODULES);
        Box::new(Compile {
            name: "cargo-build",
            needs: &[("cargo", "cargo"), ("cc", "gcc")],
            given: parameters.text(&PACKAGE).map(PathBuf::from),
            made: SourceTree { seed, units, probes: 0, language: Language::Rust },
            configure: None,
            build: parameters.text(&CARGO).unwrap_or_default(),
            jobs: parameters.number(&JOBS),
            cold: parameters.word(&CACHE) == "cold",
            source: PathBuf::new(),
        })
    },
};

struct Compile {
    name: &'static str,
    /// The programs that are needed to build a generated tree.
    needs: &'static [Needed],
    given: Option<PathBuf>,
    made: SourceTree,
    configure: Option<String>,
    build: String,
    jobs: u64,
    cold: bool,
    /// The source tree in use.
    source: PathBuf,
}

impl Workload for Compile {
    fn prepare(&mut self, preparation: &Preparation<'_>) -> Result<()> {
        match &self.given {
            Some(given) => self.source = given.canonicalize().map_err(Error::file(given))?,
            None => {
                self.source = preparation.directory.to_owned();
                self.made.write(&self.source)?;
            }
        }
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        if self.given.is_none() {
            require(self.name, self.needs)?;
        }
        let tree = directory(session, self.name)?.join("build");
        session.describe_data(match &self.given {
            Some(given) => format!("from {}", given.display()),
            None => format!("{} sources, seed {}", self.made.language, self.made.seed),
        });
        session.measure(Phase::new("unpack"), |timed| self.unpack(timed, &tree))?;
        session.make_cold()?;
        verify_tree(session, &self.source, &tree)?;
        if let Some(configure) = &self.configure {
            self.shell(session, "configure", configure, &tree)?;
        }
        self.shell(session, "build", &self.build, &tree)?;
        session.make_cold()?;
        session
            .record_stored(files_below(&tree)?.iter().map(|(_, found)| found.blocks() * 512).sum());
        if self.given.is_none() {
            self.check_programs(session, &tree)?;
        }
        Ok(())
    }
}

impl Compile {
    fn unpack(&self, timed: &mut Timed<'_>, tree: &Path) -> Result<()> {
        fs::create_dir(tree).map_err(Error::file(tree))?;
        let Copied { files, bytes } = copy_tree(&self.source, tree)?;
        timed.count(files, bytes);
        timed.flush()
    }

    fn shell(
        &self,
        session: &mut Session<'_>,
        name: &'static str,
        command: &str,
        tree: &Path,
    ) -> Result<()> {
        let mut phase = Phase::new(name);
        if self.cold {
            session.make_cold()?;
            phase = phase.cache(CacheState::Cold);
        }
        let words = ["sh", "-c", command].map(str::to_owned);
        session.measure(phase, |timed| {
            let program = Program::new(&words, tree).variable("JOBS", self.jobs.to_string());
            program.run(timed.interrupt())?;
            timed.count(1, 0);
            timed.flush()
        })
    }

    /// Runs the built programs after a remount, and checks the numbers that they print.
    fn check_programs(&self, session: &Session<'_>, tree: &Path) -> Result<()> {
        for (program, expected) in self.made.programs() {
            session.check()?;
            let output = tempfile::NamedTempFile::new().map_err(Error::file(tree))?;
            let stdout = output.reopen().map_err(Error::file(output.path()))?;
            let words = [tree.join(&program).to_string_lossy().into_owned()];
            Program::new(&words, tree).output(stdout).run(session.interrupt())?;
            let said = fs::read_to_string(output.path()).map_err(Error::file(output.path()))?;
            let found = said.trim().parse().unwrap_or(u64::MAX);
            expect(format!("output of {program}"), expected, found)?;
        }
        Ok(())
    }
}
