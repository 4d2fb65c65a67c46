//! `metadata`: creates, stats, opens, renames and removes files. It does so with 1, 2, 4, ...
//! threads up to the requested number, to measure how a file system scales.
//!
//! The number of files is the same for every number of threads. All threads work in one directory,
//! or each in its own.

use super::content::expect;
use super::crew::in_threads;
use super::{Parameter, Spec, Workload};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use crate::tree::{Access, Tree};
use fslab_report::sample::{CacheState, of_threads};
use fslab_stats::Stopwatch;

const FILES: Parameter =
    Parameter::count("files", "total number of files, divided among the threads", 10_000);

const THREADS: Parameter = Parameter::count(
    "threads",
    "maximum number of threads; the workload runs with 1, 2, 4, ... and this number",
    4,
);

const DIRECTORIES: Parameter = Parameter::choice(
    "directories",
    "whether all threads work in one directory, or each in its own",
    &["shared", "own"],
);

pub(super) const SPEC: Spec = Spec {
    name: "metadata",
    help: "create, stat, open, rename and unlink empty files with a growing number of threads",
    parameters: &[FILES, THREADS, DIRECTORIES],
    phases: &["create", "stat", "open", "rename", "unlink"],
    construct: |parameters, _seed| {
        Box::new(Metadata {
            files: parameters.number(&FILES),
            threads: parameters.number(&THREADS),
            is_shared: parameters.word(&DIRECTORIES) == "shared",
        })
    },
};

/// The maximum number of threads.
const THREADS_MOST: u64 = 1024;

struct Metadata {
    files: u64,
    threads: u64,
    is_shared: bool,
}

/// The name of an operation and its function, which is called for each file.
type Operation = (&'static str, fn(&dyn Tree, &str) -> Result<()>);

const OPERATIONS: [Operation; 5] = [
    ("create", |tree, path| tree.create_empty(path)),
    ("stat", |tree, path| tree.status(path).map(drop)),
    ("open", |tree, path| tree.open(path, Access::Read)?.close()),
    ("rename", |tree, path| tree.rename(path, &renamed(path))),
    ("unlink", |tree, path| tree.remove(&renamed(path))),
];

fn renamed(path: &str) -> String {
    format!("{path}-renamed")
}

impl Workload for Metadata {
    fn check(&self) -> std::result::Result<(), String> {
        match self.threads {
            threads if threads > THREADS_MOST => {
                Err(format!("`threads`: must be at most {THREADS_MOST}"))
            }
            threads if threads > self.files => Err("`threads`: must not exceed `files`".to_owned()),
            _ => Ok(()),
        }
    }

    fn phases(&self) -> Option<Vec<String>> {
        let of_count =
            |threads: u64| OPERATIONS.iter().map(move |(name, _)| of_threads(name, threads as u32));
        Some(self.counts().into_iter().flat_map(of_count).collect())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        for threads in self.counts() {
            let place = format!("by-{threads}");
            self.make_directories(session.tree()?, &place, threads)?;
            for (name, act) in OPERATIONS {
                // The names have been in the cache since their creation, so these phases measure
                // the file system's work, not the disk.
                let cache = if ["stat", "open"].contains(&name) {
                    CacheState::Warm
                } else {
                    CacheState::NotAsked
                };
                let phase = Phase::new(name).threads(threads as u32).cache(cache);
                session.measure(phase, |timed| self.work(timed, &place, threads, name, act))?;
                match name {
                    "create" => self.check_names(session, &place, threads, "file", self.files)?,
                    "rename" => {
                        self.check_names(session, &place, threads, "renamed", self.files)?
                    }
                    "unlink" => self.check_names(session, &place, threads, "", 0)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl Metadata {
    /// Returns 1, 2, 4, ... and the requested number of threads.
    fn counts(&self) -> Vec<u64> {
        let doubling = super::doubling(1, self.threads);
        let mut counts: Vec<u64> = doubling.collect();
        counts.extend(Some(self.threads).filter(|last| !last.is_power_of_two()));
        counts
    }

    fn directory(&self, place: &str, thread: u64) -> String {
        if self.is_shared { place.to_owned() } else { format!("{place}/thread-{thread}") }
    }

    fn make_directories(&self, tree: &dyn Tree, place: &str, threads: u64) -> Result<()> {
        tree.make_directory(place)?;
        let own = if self.is_shared { 0 } else { threads };
        (0..own).try_for_each(|thread| tree.make_directory(&self.directory(place, thread)))
    }

    fn work(
        &self,
        timed: &mut Timed<'_>,
        place: &str,
        threads: u64,
        name: &'static str,
        act: fn(&dyn Tree, &str) -> Result<()>,
    ) -> Result<()> {
        let stopwatches = in_threads(timed, threads, |hand, thread| {
            let directory = self.directory(place, thread);
            let mut stopwatch = Stopwatch::start();
            for number in (thread..self.files).step_by(threads as usize) {
                hand.check()?;
                act(hand.tree, &format!("{directory}/file-{number}"))?;
                stopwatch.lap();
            }
            Ok(stopwatch)
        })?;
        timed.record_workers(name, stopwatches);
        timed.count(self.files, 0);
        if ["stat", "open"].contains(&name) { Ok(()) } else { timed.flush() }
    }

    /// Checks the number of listed names that contain `part`.
    fn check_names(
        &self,
        session: &Session<'_>,
        place: &str,
        threads: u64,
        part: &str,
        expected: u64,
    ) -> Result<()> {
        let mut found = 0;
        for thread in 0..if self.is_shared { 1 } else { threads } {
            session.check()?;
            session.tree()?.list(&self.directory(place, thread), &mut |name| {
                found += u64::from(name.contains(part));
            })?;
        }
        expect(format!("listed names that contain {part:?}"), expected, found)
    }
}
