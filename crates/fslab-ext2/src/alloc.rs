//! Where blocks and inodes go.
//!
//! A [`Policy`] is asked for one placement at a time and answers a value; it sees the free space
//! ([`Space`]) and what the request says of the file, does no I/O of its own and changes nothing
//! but its own memory. Whoever asked marks the answer as in use before asking again. What a policy
//! remembers of a file is in a [`FileState`] that lives with the open file.
//!
//! ```text
//! engine            policy
//!   place_blocks --->  looks at bitmaps through Space
//!   <--- Run of 1 to `missing + wanted` blocks
//!   marks them, gives the first to missing indirect blocks, the rest to the file
//! ```
//!
//! Policies are listed in [`POLICIES`], each with its file. [`cluster`] moves what was badly
//! placed while it is still being written, for any of them.

pub mod bitmap;
pub mod cluster;
mod ext2;
mod ffs;
mod ffs_noswitch;
mod hash_search;
mod policy;
mod reservation;
pub mod space;
#[cfg(test)]
mod tests;
pub mod volume;

pub use bitmap::Bitmap;
pub use cluster::Clustering;
pub(crate) use policy::place_cluster;
pub use policy::{
    BlockRequest, DIRECT_BLOCKS, FileState, InodeRequest, Policy, PolicySpec, Preference,
};
pub use space::{Counts, MemorySpace, Run, Space};

/// Every policy, in the order in which they are listed.
pub const POLICIES: &[PolicySpec] = &[ext2::SPEC, ffs::SPEC, ffs_noswitch::SPEC];

/// The policy of a name.
#[must_use]
pub fn policy(name: &str) -> Option<&'static PolicySpec> {
    POLICIES.iter().find(|spec| spec.name == name)
}
