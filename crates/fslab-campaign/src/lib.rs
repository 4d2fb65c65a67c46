//! Campaigns: comparisons that are divided into shares, which run on one machine or on several.
//!
//! A campaign is a directory with a record ([`Frozen`]). The record contains the plan, the seed,
//! and the hash of every input of the plan. Each run of a share appends samples to a file of its
//! own, which no other process writes. The state of a campaign ([`State`]) is computed only from
//! those files. A share that was killed is run again, and only its remaining blocks are measured.
//! This crate prints nothing and has no daemon.
//!
//! Start with these types: [`Campaign`], [`ShareRun`], [`State`].

mod attempt;
mod campaign;
mod erasable;
mod error;
mod format;
mod hash;
mod host_lock;
mod program;
mod reader;
mod records;
mod run;
mod shares;
mod slurm;
mod state;
mod writer;

pub use attempt::Attempt;
pub use campaign::{Campaign, Freeze};
pub use erasable::{ERASABLE, Erasable};
pub use error::{Error, Result};
pub use format::{Block, FORMAT, Frozen, Input, InputKind, Program};
pub use host_lock::{HostLock, PLACES as LOCK_PLACES};
pub use program::this_program;
pub use run::{Done, ShareRun};
pub use slurm::Slurm;
pub use state::{BlockState, Cell, CellState, HostState, State, Summary};
