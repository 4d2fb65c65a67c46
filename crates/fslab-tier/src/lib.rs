//! Tiering: unused files are moved to archives and recalled when a program reads them.
//!
//! The design follows DMFS (W. Studenmund, USENIX 2000) and extends it:
//!
//! - Any part of a file may be resident.
//! - A write to an offline file recalls only blocks that it overwrites partly.
//! - A crash at any moment leaves the tree and its archives consistent.
//! - One archive is enough to rebuild the tree.
//!
//! The modules:
//!
//! - `stored`: the records on disk. `object`: archived versions of files. `archive`: the stores of
//!   objects. `catalogue`: an index of the objects.
//! - `engine`: moves bytes between the tree and archives. `layer`: the tree as programs see it.
//! - `policy`: decides which files are archived and released. `maintenance`: runs the policy at
//!   intervals. `rebuild`: makes a tree from archives, without other data.
//! - `rate_limit`: limits how fast bytes move. `deny_list`: programs that may not recall.
//! - `closed_root`, `poison`: keep released files from reading as zeros while the tree is not
//!   mounted.
//! - `home`: the directory with a tier's settings. `command`, `event`: the commands of users, and
//!   their output.
//!
//! **An xattr on each file is authoritative for the location of its bytes.** The catalogue is only
//! an index, which can be rebuilt.
//!
//! The engine reads no clock and no random source ([`Environment`]), accesses archives only through
//! [`archive::Archive`], and the lower tree only through [`fslab_vfs::FileSystem`].
//!
//! Start with these types: [`Tier`], [`TierFs`], [`archive::Archive`].
//!
//! ```
//! use fslab_tier::Runs;
//!
//! // The offline blocks of a file are a set of runs.
//! let offline: Runs = [0..4, 8..16].into_iter().collect();
//! assert_eq!(offline.count(), 12);
//! ```

pub mod archive;
mod atomic_write;
mod calendar;
pub mod catalogue;
mod cleanup;
pub mod closed_root;
pub mod command;
mod deny_list;
mod engine;
mod environment;
mod error;
mod event;
pub mod home;
mod id;
mod layer;
mod lower;
mod maintenance;
pub mod object;
mod parallel;
pub mod poison;
pub mod policy;
mod private;
pub mod rate_limit;
pub mod rebuild;
mod runs;
mod spool;
pub mod stored;

pub use calendar::age;
pub use cleanup::Cleanup;
pub use deny_list::{DenyList, Program, Programs};
pub use engine::recall::queue;
pub use engine::{
    Archived, ArchivedTree, Archiver, BUNDLED_BYTES_MAX, Expired, KnownResidency, OutcomeSink,
    ProgressSink, Recall, Released, Scanned, Scrubbed, Settings, Tier, Visit, WalkEntry,
};
pub use environment::{
    Calendar, Environment, Identities, InodeIdentity, inode_by_number_and_birth,
};
pub use error::{Error, Result, shown};
pub use id::{Id, NotAnId};
pub use layer::{TierFs, UserQueue};
pub use lower::{Found, own_request};
pub use runs::Runs;
