//! Workloads: what is done to a target, in phases that are timed apart.
//!
//! A workload sees a `Tree` and a `Session`: it can't know whether it runs over a
//! mount or in process, nor on which file system. A new workload is one file with a `SPEC` and a
//! line in [`WORKLOADS`].

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

// What a workload is written with.
pub use crate::runner::{Phase, Session, Timed};
pub use crate::tree::{Access, Status, Tree, TreeFile};
pub use fslab_stats::Stopwatch;
pub(crate) use parameters::percent;
pub use parameters::{DefaultValue, Parameter, Parameters, bytes};

/// Every workload.
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

/// A workload as the registry knows it.
#[derive(Debug)]
pub struct Spec {
    /// Its name in plans.
    pub name: &'static str,
    /// One line: what it does.
    pub help: &'static str,
    /// What a plan may set.
    pub parameters: &'static [Parameter],
    /// The phases it may have, as samples call them.
    pub phases: &'static [&'static str],
    /// Makes it, for one comparison.
    pub construct: fn(&Parameters, seed: u64) -> Box<dyn Workload>,
}

impl Spec {
    /// The phases it declares.
    pub(crate) fn phase_names(&self) -> Vec<String> {
        self.phases.iter().map(|phase| (*phase).to_owned()).collect()
    }
}

/// What a workload prepares itself with, once for a comparison.
pub struct Preparation<'a> {
    /// A directory of its own outside the targets.
    pub directory: &'a Path,
    /// What this programme can do for it.
    pub host: &'a dyn Host,
}

/// A workload with its parameters set. It runs once for each target and round.
pub trait Workload: Sync {
    /// Makes what the runs read from outside the target, such as source files.
    ///
    /// # Errors
    /// Those of writing there.
    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        Ok(())
    }

    /// Refuses parameters that contradict each other; the error says which, and why.
    ///
    /// # Errors
    /// One line, without the workload's name.
    fn check(&self) -> std::result::Result<(), String> {
        Ok(())
    }

    /// The phases it may have, where they follow from its parameters; `None` for those of its
    /// [`Spec`].
    fn phases(&self) -> Option<Vec<String>> {
        None
    }

    /// Runs its phases on a fresh target.
    ///
    /// # Errors
    /// Those of the target's operations, wrong contents, and interruption.
    fn run(&self, session: &mut Session<'_>) -> Result<()>;
}

/// The workload of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Spec> {
    WORKLOADS.iter().copied().find(|spec| spec.name == name)
}

/// Made-up words, as workloads write them: text that compresses to about a third, the same for the
/// same seed.
#[must_use]
pub fn text(seed: u64, length: usize) -> Vec<u8> {
    content::make("text", seed, length)
}

/// Sizes from `smallest` doubling up to `largest`.
fn doubling(smallest: u64, largest: u64) -> impl Iterator<Item = u64> {
    let sizes = std::iter::successors(Some(smallest), |size| size.checked_mul(2));
    sizes.take_while(move |size| *size <= largest)
}
