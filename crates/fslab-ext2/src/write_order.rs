//! The order in which changes reach the device: soft updates (Ganger and Patt, "Metadata Update
//! Performance in File Systems", OSDI 1994) in coarse steps.
//!
//! - `dependencies` assigns each change to a step when the change is made.
//! - `order` contains the state of changes that have not been written yet.
//! - `flush` writes all changes, step by step.
//! - `closure` writes only the blocks that an fsync of one file needs.

pub(crate) mod closure;
pub(crate) mod dependencies;
pub(crate) mod flush;
pub(crate) mod order;
