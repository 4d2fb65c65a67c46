//! Comparing file systems: plans, targets, workloads and the runner that writes samples.
//!
//! The samples are the truth: a run appends each as a JSON line, and every report is computed
//! from those lines alone (`fslab-report`). Nothing here knows a layer by name (a [`Host`] mounts
//! and constructs them) and nothing here prints.

mod error;
mod host;
mod pinned;
pub mod plan;
mod provenance;
mod runner;
pub mod self_test;
mod target;
mod tree;
pub mod worker;
pub mod workload;

pub use error::{Error, Result};
pub use host::{Host, HostError, Unpacked};
pub use plan::Plan;
pub use runner::{Observer, Outcome, RunOptions, run, samples_path};
pub use target::Refusal;
pub use target::foreign::{Commands, ForeignMount};
pub use target::leftovers::{Leftover, is_work_directory, remove_leftovers};
