//! The order in which changes reach the device: soft updates (Ganger and Patt, "Metadata Update
//! Performance in File Systems", OSDI 1994) in coarse steps.
//!
//! - `dependencies` assigns each change to its step as the change is made.
//! - `order` holds the state of changes that wait.
//! - `flush` writes everything, step by step.
//! - `closure` writes only the blocks that an fsync of one file needs.

pub(crate) mod closure;
pub(crate) mod dependencies;
pub(crate) mod flush;
pub(crate) mod order;
