//! Campaigns: a comparison whose cells are run in shares, on one machine or on many.
//!
//! A campaign is a directory ([`Frozen`] is its record). It holds the plan, the seed, and the hash
//! of everything that the plan reads. A run of a share appends samples to a file of its own, which
//! nobody else ever writes. What is done follows from those files alone ([`State`]): a share that
//! was cut off is run again, and does the rest. Nothing here prints, and nothing is a daemon.
//!
//! The types to know first: [`Campaign`], [`ShareRun`], [`State`].

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
