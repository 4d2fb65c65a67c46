//! Comparing file systems: plans, targets, workloads and the runner that writes samples.
//!
//! A run appends each sample as a JSON line, and every report is computed only from those lines
//! (`fslab-report`). Nothing in this crate knows a layer by name, because a [`Host`] mounts and
//! constructs layers. Nothing in this crate prints.
//!
//! The main types are [`Plan`], [`workload::Spec`] and [`RunOptions`].
//!
//! ```
//! use fslab_compare::Plan;
//! use fslab_compare::plan::Form;
//!
//! let text = "name = 'two'\nbaseline = 'a'\n\
//!     [[target]]\nname = 'a'\nin_process = 'mem:'\n\
//!     [[target]]\nname = 'b'\nin_process = 'null / mem:'\n\
//!     [[workload]]\nname = 'stream'\n";
//! let plan = Plan::parse("two.toml", text, Form::Full)?;
//! assert_eq!(plan.targets.len(), 2);
//! # Ok::<(), fslab_compare::plan::PlanError>(())
//! ```

mod error;
mod host;
mod pinned;
pub mod plan;
mod provenance;
mod refusal;
mod runner;
pub mod self_test;
mod target;
mod tracefs;
mod tree;
pub mod worker;
pub mod workload;

pub use error::{Error, Result};
pub use host::{Host, HostError, Unpacked};
pub use pinned::{Pinned, allowed_processors};
pub use plan::Plan;
pub use refusal::Refusal;
pub use runner::{Observer, Outcome, RunOptions, block_seed, run, samples_path};
pub use target::check_stack;
pub use target::foreign::{Commands, ForeignMount};
pub use target::leftovers::{Leftover, is_work_directory, remove_leftovers};
