//! `names`: creates, stats and deletes very many empty files, in the order of their names and in an
//! order drawn from the seed. It records the time of every operation, so that reports show how this
//! time grows with the number of files.
//!
//! Directories that keep names sorted or hashed treat the two orders differently. The difference is
//! larger for deletion than for creation (Phillips 2001). The random order is a Fisher-Yates
//! permutation, drawn again for each phase. Phillips's program used the remainder of `rand()`,
//! which is not uniform.

use std::fmt::Write;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use super::content::expect;
use super::{Parameter, Spec, Workload};
use crate::error::Result;
use crate::runner::{Phase, Session, Timed};
use crate::tree::Tree;
use fslab_report::sample::CacheState;
use fslab_stats::Stopwatch;

const FILES: Parameter = Parameter::count("files", "total number of files", 10_000);

const DIRECTORIES: Parameter = Parameter::count(
    "directories",
    "number of directories; they are filled one after the other, with equally many files each",
    1,
);

const ORDERS: Parameter = Parameter::choice(
    "orders",
    "order in which the names are used: sorted, random, or both in turn",
    &["both", "ordered", "random"],
);

pub(super) const SPEC: Spec = Spec {
    name: "names",
    help: "create empty files, stat them, delete them; in order of names and in random order",
    parameters: &[FILES, DIRECTORIES, ORDERS],
    phases: &["create", "stat", "delete", "create random", "stat random", "delete random"],
    construct: |parameters, _seed| {
        Box::new(Names {
            files: parameters.number(&FILES),
            directories: parameters.number(&DIRECTORIES),
            orders: parameters.word(&ORDERS),
        })
    },
};

struct Names {
    files: u64,
    directories: u64,
    orders: &'static str,
}

/// An order and the names of its phases.
struct Order {
    prefix: &'static str,
    /// The names of the phases of creation, stat and deletion.
    phases: [&'static str; 3],
    shuffled: bool,
}

const ORDERED: Order =
    Order { prefix: "ordered", phases: ["create", "stat", "delete"], shuffled: false };

const RANDOM: Order = Order {
    prefix: "random",
    phases: ["create random", "stat random", "delete random"],
    shuffled: true,
};

impl Workload for Names {
    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        if self.orders != "random" {
            self.run_order(session, &ORDERED)?;
        }
        if self.orders != "ordered" {
            self.run_order(session, &RANDOM)?;
        }
        Ok(())
    }
}

impl Names {
    fn run_order(&self, session: &mut Session<'_>, order: &Order) -> Result<()> {
        let [create, stat, delete] = order.phases.map(Phase::new);
        let mut random = Pcg64::seed_from_u64(session.seed());
        let mut numbers: Vec<u64> = (0..self.files).collect();
        let mut draw = |numbers: &mut Vec<u64>| {
            // Shuffles within each directory. The order of directories is kept, so that they are
            // filled one after another.
            let size = self.per_directory() as usize;
            let shuffled = order.shuffled;
            numbers.chunks_mut(size).filter(|_| shuffled).for_each(|c| c.shuffle(&mut random));
        };
        self.make_directories(session.tree()?, order)?;
        draw(&mut numbers);
        session.measure(create, |timed| {
            self.for_each(timed, order, &numbers, "create", |tree, path| tree.create_empty(path))?;
            timed.flush()
        })?;
        session.make_cold()?;
        self.check(session, order, self.files)?;
        self.warm_up(session, order)?;
        draw(&mut numbers);
        session.measure(stat.cache(CacheState::Warm), |timed| {
            self.for_each(timed, order, &numbers, "stat", |tree, path| {
                tree.status(path).map(|_| ())
            })
        })?;
        draw(&mut numbers);
        session.measure(delete, |timed| {
            self.for_each(timed, order, &numbers, "delete", |tree, path| tree.remove(path))?;
            timed.flush()
        })?;
        self.check(session, order, 0)
    }

    fn per_directory(&self) -> u64 {
        self.files.div_ceil(self.directories)
    }

    fn make_directories(&self, tree: &dyn Tree, order: &Order) -> Result<()> {
        for directory in 0..self.directories {
            tree.make_directory(&format!("{}-{directory}", order.prefix))?;
        }
        Ok(())
    }

    /// Performs an operation on every file. Names are made when they are needed, because a list of
    /// millions of names would need more memory than their directories.
    fn for_each(
        &self,
        timed: &mut Timed<'_>,
        order: &Order,
        numbers: &[u64],
        operation: &'static str,
        act: impl Fn(&dyn Tree, &str) -> Result<()>,
    ) -> Result<()> {
        let tree = timed.tree();
        let mut paths = Paths::new(order, self.per_directory());
        let stopwatch = Stopwatch::start_along(self.files);
        timed.each(operation, stopwatch, numbers, |_, number| act(tree, paths.of(*number)))?;
        timed.count(self.files, 0);
        Ok(())
    }

    /// Gets the status of every file once, so that it is cached for later operations.
    fn warm_up(&self, session: &Session<'_>, order: &Order) -> Result<()> {
        let mut paths = Paths::new(order, self.per_directory());
        for number in 0..self.files {
            session.check()?;
            session.tree()?.status(paths.of(number))?;
        }
        Ok(())
    }

    /// Compares the number of listed names with the expected number.
    fn check(&self, session: &Session<'_>, order: &Order, expected: u64) -> Result<()> {
        let mut found = 0;
        for directory in 0..self.directories {
            session.check()?;
            session.tree()?.list(&format!("{}-{directory}", order.prefix), &mut |_| found += 1)?;
        }
        expect("names listed", expected, found)
    }
}

/// Makes the paths of files, one at a time, in one buffer. Making a path is timed with the
/// operation, so the common beginning is written only once per directory.
struct Paths {
    path: String,
    prefix: &'static str,
    per_directory: u64,
    /// The directory at the beginning of `path`, and the length of this beginning.
    beginning: Option<(u64, usize)>,
}

impl Paths {
    fn new(order: &Order, per_directory: u64) -> Self {
        let path = String::with_capacity(64);
        Self { path, prefix: order.prefix, per_directory, beginning: None }
    }

    fn of(&mut self, number: u64) -> &str {
        let directory = number / self.per_directory;
        let length = match self.beginning {
            Some((begun, length)) if begun == directory => length,
            _ => self.begin(directory),
        };
        self.path.truncate(length);
        // Writing to a string can't fail.
        write!(self.path, "{number}").unwrap_or_default();
        &self.path
    }

    fn begin(&mut self, directory: u64) -> usize {
        self.path.clear();
        write!(self.path, "{}-{directory}/name", self.prefix).unwrap_or_default();
        self.beginning = Some((directory, self.path.len()));
        self.path.len()
    }
}
