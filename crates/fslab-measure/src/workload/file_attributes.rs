//! `file-attributes`: a tree of small files listed recursively with the attributes of each, as
//! `ls -lR` does; cold and warm.

use super::{DefaultValue, Parameter, Spec, Workload, content};
use crate::error::{Error, Result};
use crate::runner::{CacheState, Phase, Session, Timed};
use crate::tree::Tree;

const FILES: Parameter =
    Parameter { name: "files", help: "files in all", default: DefaultValue::Count(5_000) };

const PER_DIRECTORY: Parameter = Parameter {
    name: "per_directory",
    help: "files in a directory",
    default: DefaultValue::Count(25),
};

const FILE_SIZE: Parameter = Parameter {
    name: "file_size",
    help: "size of each file",
    default: DefaultValue::Bytes(1 << 10),
};

/// Directories of one parent, so that the tree grows in depth as well.
const FAN_OUT: u64 = 25;

/// The registry's entry.
pub(super) const SPEC: Spec = Spec {
    name: "file-attributes",
    help: "build a tree of small files; list it recursively with attributes, cold and warm",
    parameters: &[FILES, PER_DIRECTORY, FILE_SIZE, content::DATA],
    construct: |parameters, seed| {
        let size = parameters.number(&FILE_SIZE) as usize;
        Box::new(FileAttributes {
            files: parameters.number(&FILES),
            per_directory: parameters.number(&PER_DIRECTORY),
            contents: content::make(parameters.word(&content::DATA), seed, size),
        })
    },
};

struct FileAttributes {
    files: u64,
    per_directory: u64,
    contents: Vec<u8>,
}

impl Workload for FileAttributes {
    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.measure(Phase::new("build"), |timed| self.build(timed))?;
        session.make_cold()?;
        session
            .measure(Phase::new("list cold").cache(CacheState::Cold), |timed| self.list(timed))?;
        session.measure(Phase::new("list warm").cache(CacheState::Warm), |timed| self.list(timed))
    }
}

impl FileAttributes {
    fn directories(&self) -> u64 {
        self.files.div_ceil(self.per_directory)
    }

    /// Groups of directories below the root, directories below the groups.
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

    fn list(&self, timed: &mut Timed<'_>) -> Result<()> {
        let mut found = Found::default();
        list(timed, timed.tree(), "", &mut found)?;
        timed.count(found.files + found.directories, 0);
        expect("files listed", self.files, found.files)?;
        expect("bytes listed", self.files * self.contents.len() as u64, found.bytes)
    }
}

#[derive(Default)]
struct Found {
    files: u64,
    directories: u64,
    bytes: u64,
}

fn list(timed: &Timed<'_>, tree: &dyn Tree, path: &str, found: &mut Found) -> Result<()> {
    let mut names = Vec::new();
    tree.list(path, &mut |name| names.push(name.to_owned()))?;
    for name in names {
        timed.check()?;
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        // What mkfs puts into the root is not the workload's.
        if path == "lost+found" {
            continue;
        }
        let status = tree.status(&path)?;
        if status.is_directory {
            found.directories += 1;
            list(timed, tree, &path, found)?;
        } else {
            found.files += 1;
            found.bytes += status.size;
        }
    }
    Ok(())
}

fn expect(what: &str, expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::WrongCount { what: what.to_owned(), expected, found })
}
