//! Allocation policies: which blocks and inodes a file gets.
//!
//! A [`Policy`] is asked for one placement at a time and returns a value. It sees the free space
//! ([`Space`]) and the request's description of the file. It does no I/O of its own and changes
//! only its own memory. The caller marks the returned blocks as in use before it asks again. The
//! state of a policy for one file is a [`FileState`], which lives with the open file.
//!
//! ```text
//! engine            policy
//!   place_blocks --->  looks at bitmaps through Space
//!   <--- Run of 1 to `missing + wanted` blocks
//!   marks them, gives the first to missing indirect blocks, the rest to the file
//! ```
//!
//! [`POLICIES`] lists the policies, one file each. [`cluster`] works with any of them: it moves
//! badly placed blocks together while they are still being written.

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

/// All policies, in the order in which they are shown.
pub const POLICIES: &[PolicySpec] = &[ext2::SPEC, ffs::SPEC, ffs_noswitch::SPEC];

/// Returns the policy with a name.
#[must_use]
pub fn policy(name: &str) -> Option<&'static PolicySpec> {
    POLICIES.iter().find(|spec| spec.name == name)
}
