//! `file-attributes`: lists a tree of small files recursively with all attributes, as `ls -lR`
//! does, cold and warm.

use super::content::{self, Content, expect};
use super::{Parameter, Preparation, Spec, Workload};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use crate::target::fill::FILLING;
use crate::tree::{Status, Tree};
use fslab_report::sample::CacheState;
use fslab_stats::Stopwatch;

const FILES: Parameter = Parameter::count("files", "total number of files", 5_000);

const PER_DIRECTORY: Parameter =
    Parameter::count("per_directory", "number of files in each directory", 25);

const FILE_SIZE: Parameter = Parameter::bytes("file_size", "size of each file", 1 << 10);

const TREE: Parameter = Parameter::choice(
    "tree",
    "built: build a tree and list it; given: list the files that the target's `source` provides",
    &["built", "given"],
);

/// Number of directories in a group. The tree has two levels: groups, and directories in groups.
const FAN_OUT: u64 = 25;

pub(super) const SPEC: Spec = Spec {
    name: "file-attributes",
    help: "build a tree of small files, and list it recursively with attributes, first cold and \
           then warm",
    parameters: &[TREE, FILES, PER_DIRECTORY, FILE_SIZE, content::DATA, content::DATA_FROM],
    phases: &["build", "list cold", "list warm"],
    construct: |parameters, seed| {
        Box::new(FileAttributes {
            given: parameters.word(&TREE) == "given",
            files: parameters.number(&FILES),
            per_directory: parameters.number(&PER_DIRECTORY),
            size: parameters.number(&FILE_SIZE),
            content: Content::new(parameters, seed),
            contents: Vec::new(),
        })
    },
};

struct FileAttributes {
    given: bool,
    files: u64,
    per_directory: u64,
    size: u64,
    content: Content,
    contents: Vec<u8>,
}

impl Workload for FileAttributes {
    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        if !self.given {
            self.contents = self.content.make(0, self.size as usize)?;
        }
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        if !self.given {
            session.describe_data(self.content.describe());
            session.measure(Phase::new("build"), |timed| self.build(timed))?;
        }
        session.make_cold()?;
        let (cold, warm) = (Phase::new("list cold"), Phase::new("list warm"));
        let mut first = Found::default();
        session.measure(cold.cache(CacheState::Cold), |timed| self.list(timed, &mut first))?;
        let mut second = Found::default();
        session.measure(warm.cache(CacheState::Warm), |timed| self.list(timed, &mut second))?;
        expect("files listed again", first.files, second.files)?;
        expect("bytes listed again", first.bytes, second.bytes)
    }
}

impl FileAttributes {
    fn directories(&self) -> u64 {
        self.files.div_ceil(self.per_directory)
    }

    /// Returns the path of a directory. The root contains groups, and the groups contain
    /// directories.
    fn directory(number: u64) -> String {
        format!("group-{:04}/directory-{number:06}", number / FAN_OUT)
    }

    fn build(&self, timed: &mut Timed<'_>) -> Result<()> {
        let mut left = self.files;
        for number in 0..self.directories() {
            if number % FAN_OUT == 0 {
                timed.tree().make_directory(&format!("group-{:04}", number / FAN_OUT))?;
            }
            let directory = Self::directory(number);
            timed.tree().make_directory(&directory)?;
            for file in 0..left.min(self.per_directory) {
                timed.check()?;
                let file = timed.tree().create(&format!("{directory}/file-{file:06}"))?;
                file.write_at(0, &self.contents)?;
                file.close()?;
                left -= 1;
            }
        }
        timed.count(self.files, self.files * self.contents.len() as u64);
        timed.flush()
    }

    fn list(&self, timed: &mut Timed<'_>, found: &mut Found) -> Result<()> {
        let mut stopwatch = Stopwatch::start();
        walk(timed.tree(), "", &mut |path| {
            timed.check()?;
            stopwatch.skip();
            let status = timed.tree().status(path)?;
            stopwatch.lap();
            if status.is_directory {
                found.directories += 1;
            } else {
                found.files += 1;
                found.bytes += status.size;
            }
            Ok(status)
        })?;
        timed.record("stat", stopwatch);
        timed.count(found.files + found.directories, 0);
        if self.given {
            return Ok(());
        }
        expect("files listed", self.files, found.files)?;
        expect("bytes listed", self.files * self.size, found.bytes)
    }
}

#[derive(Default)]
struct Found {
    files: u64,
    directories: u64,
    bytes: u64,
}

/// Calls `status` for every path below a directory, recursively. Files that are not part of a
/// workload are skipped: those that mkfs made and those that filled the target.
pub(super) fn walk(
    tree: &dyn Tree,
    path: &str,
    status: &mut dyn FnMut(&str) -> Result<Status>,
) -> Result<()> {
    let mut names = Vec::new();
    tree.list(path, &mut |name| names.push(name.to_owned()))?;
    for name in names {
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        if !matches!(&*path, "lost+found" | FILLING) && status(&path)?.is_directory {
            walk(tree, &path, status)?;
        }
    }
    Ok(())
}
