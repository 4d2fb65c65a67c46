//! Honest comparison of file systems: plans, targets, workloads, rounds, statistics, reports.
//!
//! The samples are the truth: a run appends each as a JSON line, and every report is computed
//! from those lines alone. Nothing here knows a layer by name (a [`Host`] mounts and constructs
//! them) and nothing here prints.

mod error;
mod host;
mod latency;
mod margin;
mod names;
mod pinned;
pub mod plan;
pub mod probe;
pub mod provenance;
pub mod report;
pub mod reproduce;
mod runner;
pub mod sample;
pub mod self_test;
pub mod stats;
mod target;
mod tree;
pub mod worker;
pub mod workload;

pub use error::{Error, Result};
pub use host::{Host, HostError, Unpacked};
pub use margin::{Margin, Margins};
pub use plan::Plan;
pub use runner::{Cells, Choice, Observer, Outcome, RunOptions, Share, run, samples_path};
pub use target::Refusal;
pub use target::leftovers::{Leftover, is_work_directory, remove_leftovers};
