//! `git`: clones a repository into the target, checks out other commits, and runs `git status` and
//! `git gc`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::application::{FILES, MadeTree, SOURCE, find, require, word, words};
use super::content::{self, Pool};
use super::program::{Program, directory};
use super::{Parameter, Parameters, Preparation, Spec, Workload};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session, Timed};
use fslab_report::sample::CacheState;
use fslab_sys::signals::Interrupt;

const COMMITS: Parameter =
    Parameter::count("commits", "number of commits in a generated history", 40);

pub(super) const SPEC: Spec = Spec {
    name: "git",
    help: "clone a repository, then run checkout, status and gc in it (needs the program git)",
    parameters: &[FILES, COMMITS, SOURCE],
    phases: &["clone", "checkout", "status", "gc"],
    construct: |parameters, seed| Box::new(Git::new(parameters, seed)),
};

struct Git {
    seed: u64,
    files: u64,
    commits: u64,
    given: Option<PathBuf>,
    /// The only configuration file that git reads.
    settings: PathBuf,
    /// The repository to clone. `ends` are its last commit and one in the middle of its history.
    repository: PathBuf,
    ends: [String; 2],
}

/// The name of the clone in the target.
const CLONE: &str = "clone";

/// The percentage of files that a commit changes.
const CHANGED_PERCENT: u64 = 5;

impl Workload for Git {
    fn check(&self) -> std::result::Result<(), String> {
        match self.commits {
            0 | 1 => {
                Err("`commits`: must be at least 2, for a checkout of another commit".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn prepare(&mut self, preparation: &Preparation<'_>) -> Result<()> {
        // If git is missing, `run` reports it for each target.
        if find("git").is_none() {
            return Ok(());
        }
        self.settings = preparation.directory.join("gitconfig");
        fs::write(&self.settings, SETTINGS).map_err(Error::file(&self.settings))?;
        self.repository = match &self.given {
            Some(given) => given.canonicalize().map_err(Error::file(given))?,
            None => self.make(preparation.directory)?,
        };
        let options = command(&["rev-list", "--first-parent", "HEAD"]);
        let listed = self.git(&options, &self.repository).output_of(&Interrupt::default())?;
        let listed = String::from_utf8_lossy(&listed);
        let commits: Vec<&str> = listed.lines().collect();
        let [last, .., _] = commits[..] else {
            let repository = self.repository.display();
            return Err(Error::Failed(format!("{repository}: at least two commits are needed")));
        };
        self.ends = [last, commits[commits.len() / 2]].map(str::to_owned);
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        require("git", &[("git", "git")])?;
        let root = directory(session, "git")?;
        session.describe_data(match &self.given {
            Some(given) => format!("from {}", given.display()),
            None => format!("{} commits, seed {}", self.commits, self.seed),
        });
        let clone = root.join(CLONE);
        let url = format!("file://{}", word(&self.repository)?);
        session.measure(Phase::new("clone"), |timed| {
            self.execute(timed, &["clone", "--quiet", &url, CLONE], &root)
        })?;
        session.make_cold()?;
        let [last, middle] = &self.ends;
        session.measure(Phase::new("checkout").cache(CacheState::Cold), |timed| {
            self.execute(timed, &["checkout", "--quiet", "--detach", middle], &clone)?;
            self.execute(timed, &["checkout", "--quiet", "--detach", last], &clone)
        })?;
        session.make_cold()?;
        session.measure(Phase::new("status").cache(CacheState::Cold), |timed| {
            self.execute(timed, &["status", "--porcelain"], &clone)
        })?;
        session.make_cold()?;
        session.measure(Phase::new("gc").cache(CacheState::Cold), |timed| {
            self.execute(timed, &["gc", "--quiet", "--prune=now"], &clone)
        })?;
        session.make_cold()?;
        self.verify(session, &clone)
    }
}

impl Git {
    fn new(parameters: &Parameters, seed: u64) -> Self {
        Self {
            seed,
            files: parameters.number(&FILES),
            commits: parameters.number(&COMMITS),
            given: parameters.text(&SOURCE).map(PathBuf::from),
            settings: PathBuf::new(),
            repository: PathBuf::new(),
            ends: Default::default(),
        }
    }

    fn execute(&self, timed: &mut Timed<'_>, options: &[&str], directory: &Path) -> Result<()> {
        let words = command(options);
        self.git(&words, directory).run(timed.interrupt())?;
        timed.count(1, 0);
        timed.flush()
    }

    /// Checks that the repository is intact and that the files are those of the last commit.
    fn verify(&self, session: &Session<'_>, clone: &Path) -> Result<()> {
        let run = |options: &[&str]| -> Result<String> {
            let words = command(options);
            let printed = self.git(&words, clone).output_of(session.interrupt())?;
            Ok(String::from_utf8_lossy(&printed).trim().to_owned())
        };
        run(&["fsck", "--full", "--strict", "--no-progress"])?;
        let [last, _] = &self.ends;
        let head = run(&["rev-parse", "HEAD"])?;
        // Without an index, git compares the contents of the files instead of their times and
        // sizes.
        run(&["rm", "--quiet", "-r", "--cached", "."])?;
        run(&["reset", "--quiet", "--mixed", "HEAD"])?;
        let changed = run(&["status", "--porcelain"])?;
        if head == *last && changed.is_empty() {
            return Ok(());
        }
        Err(Error::Failed(format!(
            "the clone is wrong: HEAD is {head}, expected {last}; changed files: {changed:?}, \
             expected none"
        )))
    }

    /// Returns a git command that ignores the user's settings and environment variables.
    fn git<'a>(&self, words: &'a [String], directory: &Path) -> Program<'a> {
        let program = FOREIGN.into_iter().fold(Program::new(words, directory), Program::without);
        program
            .variable("GIT_CONFIG_NOSYSTEM", "1")
            .variable("GIT_CONFIG_GLOBAL", &self.settings)
            .variable("GIT_TERMINAL_PROMPT", "0")
            .variable("GIT_CEILING_DIRECTORIES", directory.parent().unwrap_or(directory))
    }

    /// Creates a repository with a generated history, by `git fast-import`. The same seed gives the
    /// same history.
    fn make(&self, place: &Path) -> Result<PathBuf> {
        let repository = place.join("made.git");
        let path = word(&repository)?;
        let interrupt = Interrupt::default();
        let options = ["init", "--quiet", "--bare", "--initial-branch=main", &path];
        self.git(&command(&options), place).run(&interrupt)?;
        let import = command(&["fast-import", "--quiet", "--done"]);
        self.git(&import, &repository).input(self.stream()?).run(&interrupt)?;
        Ok(repository)
    }

    /// Returns the history in the format of fast-import.
    fn stream(&self) -> Result<File> {
        let failed = || Error::file(&std::env::temp_dir());
        let mut file = tempfile::tempfile().map_err(failed())?;
        let pool = Pool::of(content::make("text", self.seed, 1 << 20));
        let mut random = Pcg64::seed_from_u64(self.seed);
        for commit in 0..self.commits {
            let mut text = format!(
                "commit refs/heads/main\ncommitter fslab <fslab@localhost> {} +0000\n\
                 data <<END\ncommit {commit}\nEND\n",
                1_000_000_000 + commit * 1000
            );
            for number in 0..self.files {
                if commit > 0 && random.random_range(0..100) >= CHANGED_PERCENT {
                    continue;
                }
                let path = MadeTree::path(number);
                let length = 200 + (number * 7919 + commit * 104_729) % 8000;
                // The text is ASCII, so every piece of it is valid UTF-8.
                let piece = pool.piece(number * 4096 + commit, length as usize);
                let piece = String::from_utf8_lossy(piece);
                // Writing to a string can't fail.
                write!(text, "M 100644 inline {}\ndata {length}\n{piece}\n", path.display())
                    .unwrap_or_default();
            }
            file.write_all(text.as_bytes()).map_err(failed())?;
        }
        file.write_all(b"done\n").and_then(|()| file.rewind()).map_err(failed())?;
        Ok(file)
    }
}

/// Allows git to use a repository of another user, also in the process that serves the clone.
const SETTINGS: &str = "[safe]\n\tdirectory = *\n";

/// Environment variables that select another repository or change the settings.
const FOREIGN: [&str; 9] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
];

/// Returns the words of a git command.
fn command(options: &[&str]) -> Vec<String> {
    let mut all = words(["git", "-c", "gc.auto=0"]);
    all.extend(options.iter().map(|option| (*option).to_owned()));
    all
}
