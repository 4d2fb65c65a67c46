//! Workloads: what is done to a target, in phases that are timed apart.
//!
//! A workload sees a `Tree` and a `Session`: it can't know whether it runs over a
//! mount or in process, nor on which file system. A new workload is one file with a `SPEC` and a
//! line in [`WORKLOADS`].

mod content;
mod create_delete;
mod file_attributes;
mod file_copy;
mod parameters;
mod replay;
mod stream;

use std::path::Path;

use crate::error::Result;
use crate::runner::Session;

pub use parameters::{DefaultValue, Parameter, Parameters};

/// Every workload.
pub const WORKLOADS: &[&Spec] =
    &[&create_delete::SPEC, &file_attributes::SPEC, &file_copy::SPEC, &replay::SPEC, &stream::SPEC];

/// A workload as the registry knows it.
#[derive(Debug)]
pub struct Spec {
    /// Its name in plans.
    pub name: &'static str,
    /// One line: what it does.
    pub help: &'static str,
    /// What a plan may set.
    pub parameters: &'static [Parameter],
    /// Makes it, for one comparison.
    pub construct: fn(&Parameters, seed: u64) -> Box<dyn Workload>,
}

/// A workload with its parameters set. It runs once for each target and round.
pub trait Workload {
    /// Makes what the runs read from outside the target, such as source files in `directory`.
    ///
    /// # Errors
    /// Those of writing there.
    fn prepare(&mut self, directory: &Path) -> Result<()> {
        std::fs::metadata(directory).map(|_| ()).map_err(crate::Error::file(directory))
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
