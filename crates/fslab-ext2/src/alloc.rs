//! Allocation policies, which choose the blocks and inodes of files.
//!
//! A [`Policy`] chooses blocks or an inode for one request at a time. It sees only the free space
//! ([`Space`]) and the request, which describes the file. It does no I/O, and it changes only its
//! own state. The caller marks the returned blocks as in use before the next request. A policy
//! keeps its state for one file in a [`FileState`], which exists while the file is open.
//!
//! ```text
//! engine            policy
//!   place_blocks --->  looks at bitmaps through Space
//!   <--- Run of 1 to `missing + wanted` blocks
//!   marks them as in use: missing indirect blocks first, then blocks of the file
//! ```
//!
//! [`POLICIES`] lists the policies. [`cluster`] works with all of them: it moves scattered blocks
//! together while they are still being written.

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

/// All policies, in the order in which help texts list them.
pub const POLICIES: &[PolicySpec] = &[ext2::SPEC, ffs::SPEC, ffs_noswitch::SPEC];

/// Returns the policy with this name.
#[must_use]
pub fn policy(name: &str) -> Option<&'static PolicySpec> {
    POLICIES.iter().find(|spec| spec.name == name)
}
