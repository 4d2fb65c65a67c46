//! Workloads: work done in a target, in phases that are timed separately.
//!
//! A workload uses a `Tree` and a `Session`. It does not know which file system it uses, or whether
//! that file system is mounted or runs in this process. To add a workload, write a file with a
//! `SPEC`, and add it to [`WORKLOADS`].

mod application;
mod bonnie;
pub(crate) mod command;
mod compile;
mod content;
mod crew;
mod file_append;
mod file_attributes;
mod file_copy;
mod fio;
mod git;
mod given;
mod hot_files;
mod lookup;
mod metadata;
mod names;
pub(crate) mod output;
mod overwrite;
mod parameters;
mod pgbench;
pub(crate) mod program;
pub(crate) mod random_access;
mod random_io;
mod replay;
mod rsync;
mod sequential_by_size;
mod small_files;
mod sqlite;
mod stream;
mod together;
mod tool;
mod tree_check;
mod untar;

use std::path::Path;

use crate::error::Result;
use crate::host::Host;

// Items used to write a workload.
pub use crate::runner::{Phase, Session, Timed};
pub use crate::tree::{Access, Status, Tree, TreeFile};
pub use fslab_stats::Stopwatch;
pub(crate) use parameters::percent;
pub use parameters::{DefaultValue, Parameter, Parameters, bytes};

/// All workloads.
pub const WORKLOADS: &[&Spec] = &[
    &bonnie::SPEC,
    &compile::CARGO_SPEC,
    &command::SPEC,
    &compile::SPEC,
    &file_append::SPEC,
    &file_attributes::SPEC,
    &file_copy::SPEC,
    &fio::SPEC,
    &git::SPEC,
    &hot_files::SPEC,
    &lookup::SPEC,
    &metadata::SPEC,
    &names::SPEC,
    &overwrite::SPEC,
    &pgbench::SPEC,
    &random_io::SPEC,
    &replay::SPEC,
    &rsync::SPEC,
    &sequential_by_size::SPEC,
    &small_files::SPEC,
    &sqlite::SPEC,
    &stream::SPEC,
    &together::SPEC,
    &tool::SPEC,
    &untar::SPEC,
];

/// The declaration of a workload.
#[derive(Debug)]
pub struct Spec {
    /// Its name in plans.
    pub name: &'static str,
    /// One line that describes it.
    pub help: &'static str,
    /// The parameters that a plan may set.
    pub parameters: &'static [Parameter],
    /// The names of the phases that its samples may have.
    pub phases: &'static [&'static str],
    /// Constructs it for one comparison.
    pub construct: fn(&Parameters, seed: u64) -> Box<dyn Workload>,
}

impl Spec {
    /// Returns the names of the declared phases.
    pub(crate) fn phase_names(&self) -> Vec<String> {
        self.phases.iter().map(|phase| (*phase).to_owned()).collect()
    }
}

/// The environment in which a workload is prepared, once for each comparison.
pub struct Preparation<'a> {
    /// A directory for the workload's own files, outside the targets.
    pub directory: &'a Path,
    /// The program that uses this crate.
    pub host: &'a dyn Host,
}

/// A workload with its parameters set. It runs once for each target and round.
pub trait Workload: Sync {
    /// Makes the data outside the target that the runs read, such as source files.
    ///
    /// # Errors
    /// Returns errors of writing these data.
    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        Ok(())
    }

    /// Checks for parameters that contradict each other.
    ///
    /// # Errors
    /// Returns the reason in one line, without the workload's name.
    fn check(&self) -> std::result::Result<(), String> {
        Ok(())
    }

    /// Returns the phases if they depend on the parameters; `None` if they are those of the
    /// [`Spec`].
    fn phases(&self) -> Option<Vec<String>> {
        None
    }

    /// Runs its phases on a new target.
    ///
    /// # Errors
    /// Returns errors of the target's operations, wrong contents, and interruption.
    fn run(&self, session: &mut Session<'_>) -> Result<()>;
}

/// Returns the workload with a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Spec> {
    WORKLOADS.iter().copied().find(|spec| spec.name == name)
}

/// Returns text of made-up words, the same kind that workloads write. It compresses to about a
/// third and depends only on the seed.
#[must_use]
pub fn text(seed: u64, length: usize) -> Vec<u8> {
    content::make("text", seed, length)
}

/// Returns sizes that double from `smallest` up to `largest`.
fn doubling(smallest: u64, largest: u64) -> impl Iterator<Item = u64> {
    let sizes = std::iter::successors(Some(smallest), |size| size.checked_mul(2));
    sizes.take_while(move |size| *size <= largest)
}
