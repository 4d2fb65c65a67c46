//! Tiering: files that are not used go to archives, and come back when they are.
//!
//! The design of DMFS (W. Studenmund, USENIX 2000), taken further: any part of a file may be
//! resident, a write to a file that is elsewhere recalls only the blocks at its edges, every change
//! survives a crash at any moment, and an archive alone is enough to make the tree again.
//!
//! - `stored`: what is stored, byte for byte. `archive`: where. `catalogue`: an index of it.
//! - `engine`: moves bytes. `queue`: in which order, `limit`: how fast, `deny`: not for whom.
//!   `layer`: the tree as programs see it.
//! - `policy`: decides what goes. `rounds`: has that done every so often. `rebuild`: a tree from
//!   archives alone.
//! - `closed_root`: why released files do not read as zeros while the tree is not mounted.
//! - `home`: the directory with a tier's settings. `command`: what users ask for, and answers.
//!
//! **The truth about a file's bytes is an xattr on the file.** The catalogue can be lost.
//!
//! The engine reads no clock and no random source ([`Surroundings`]), knows archives only as
//! [`archive::Archive`], and the tree below only as a [`fslab_vfs::FileSystem`].

pub mod archive;
mod atomic_write;
pub mod catalogue;
pub mod closed_root;
pub mod command;
mod deny_list;
mod engine;
mod error;
pub mod home;
mod id;
mod layer;
mod lower;
mod maintenance;
pub mod poison;
pub mod policy;
mod private;
pub mod rate_limit;
pub mod rebuild;
mod runs;
mod spool;
pub mod stored;
mod surroundings;

pub use deny_list::{DenyList, Program, Programs};
pub use engine::recall::queue;
pub use engine::{
    ArchiveState, Archived, ArchivedTree, Archiver, BUNDLED_BYTES_MAX, Expired, KnownResidency,
    OutcomeSink, ProgressSink, Recall, Released, Scanned, Scrubbed, Settings, SkippedDirectories,
    Tier, Visit, WalkEntry, age,
};
pub use error::{Error, Result};
pub use id::{Id, NotAnId};
pub use layer::TierFs;
pub use lower::{Found, own_request};
pub use runs::Runs;
pub use surroundings::{
    Calendar, Identities, InodeIdentity, Surroundings, inode_by_number_and_birth,
};
