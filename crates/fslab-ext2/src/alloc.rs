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
mod reservation;
pub mod space;
#[cfg(test)]
mod tests;
pub mod volume;

pub use bitmap::Bitmap;
pub use cluster::Clustering;
pub use space::{Counts, MemorySpace, Run, Space};

use crate::error::Result;
use crate::geometry::Geometry;
use crate::types::{BlockNo, FileBlock, GroupNo, InodeNo};

/// Every policy, in the order in which they are listed.
pub const POLICIES: &[PolicySpec] = &[ext2::SPEC, ffs::SPEC, ffs_noswitch::SPEC];

/// A policy's declaration of itself.
#[derive(Clone, Copy, Debug)]
pub struct PolicySpec {
    /// Its name on command lines and in files.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Makes one for a file system; the seed decides what the policy leaves to chance.
    pub build: fn(&Geometry, seed: u64) -> Box<dyn Policy>,
}

/// The policy of a name.
#[must_use]
pub fn policy(name: &str) -> Option<&'static PolicySpec> {
    POLICIES.iter().find(|spec| spec.name == name)
}

/// Decides where inodes and blocks go.
///
/// # Errors
/// What reading a bitmap answers; "no space" is `None`.
pub trait Policy: Send {
    /// A free inode for a new file.
    fn place_inode(
        &mut self,
        space: &mut dyn Space,
        request: &InodeRequest,
    ) -> Result<Option<InodeNo>>;

    /// Free blocks for a file: at least one, in one group, and at most `missing + wanted`.
    fn place_blocks(
        &mut self,
        space: &mut dyn Space,
        file: &mut FileState,
        request: &BlockRequest,
    ) -> Result<Option<Run>>;

    /// Where the policy would like the block of a request to be, for moving a cluster there.
    fn preference(
        &mut self,
        space: &mut dyn Space,
        file: &FileState,
        request: &BlockRequest,
    ) -> Result<Preference>;

    /// Whether the first indirect block lies between the twelfth block and the thirteenth. Clusters
    /// are not moved across it then: reading would go past a block that stays behind, and back.
    /// (FreeBSD has had that rule since it keeps that block there; 4.4BSD had neither.)
    fn keeps_indirect_in_line(&self) -> bool {
        false
    }

    /// An inode became free.
    fn inode_freed(&mut self, _geometry: &Geometry, _inode: InodeNo) {}

    /// Nobody writes the file any more, or it was truncated.
    fn file_closed(&mut self, _file: &mut FileState) {}
}

/// A wish for a place: a group, and perhaps a block in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference {
    /// The group to look in first.
    pub group: GroupNo,
    /// The block of that group to look from.
    pub block: Option<BlockNo>,
}

impl Preference {
    /// The block behind one; where the file system ends there, the home group.
    #[must_use]
    pub fn behind(geometry: &Geometry, block: BlockNo, home: GroupNo) -> Self {
        let next = BlockNo(block.0.saturating_add(1));
        if next.0 < geometry.blocks {
            Self { group: geometry.group_of(next), block: Some(next) }
        } else {
            Self { group: home, block: None }
        }
    }
}

/// A new file that needs an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRequest {
    /// The directory it is created in.
    pub parent: InodeNo,
    /// Whether it is a directory.
    pub directory: bool,
    /// Whether a directory created there is to be spread: the parent is the root, or has the
    /// attribute that says so (`chattr +T`).
    pub top_level: bool,
}

/// A file that needs blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// The group of the file's inode.
    pub home: GroupNo,
    /// Whether it is a regular file.
    pub regular: bool,
    /// The first block of the file that is to be mapped.
    pub logical: FileBlock,
    /// Indirect blocks on the way to it that are missing, and to be placed before it.
    pub missing: u32,
    /// Blocks of the file wanted, from `logical` on, all with their numbers in one array and none
    /// of them mapped; at least 1.
    pub wanted: u32,
    /// The place of `logical` in that array: the inode's own, or an indirect block.
    pub index: u32,
    /// What the array holds at the place before.
    pub before: Option<BlockNo>,
    /// The nearest number to the left of the first one missing, in the array that it is missing
    /// from.
    pub nearest: Option<BlockNo>,
    /// The indirect block which that array is.
    pub holder: Option<BlockNo>,
    /// The last block that the inode maps itself.
    pub last_direct: Option<BlockNo>,
    /// The inode's single indirect block.
    pub first_indirect: Option<BlockNo>,
}

/// Blocks that an inode maps itself.
pub const DIRECT_BLOCKS: u32 = 12;

/// What policies remember of an open file. Goes with the file from one request to the next.
#[derive(Clone, Debug, Default)]
pub struct FileState {
    /// For `ext2`: the last block mapped and where it went.
    last: Option<(FileBlock, BlockNo)>,
    /// For `ext2`: the file's reservation.
    window: reservation::Window,
    /// For `ffs`: where the indirect blocks of the present request go.
    indirect: Option<Preference>,
    /// The cluster being written.
    pub cluster: cluster::Cluster,
}

impl FileState {
    /// Blocks of the file, from `logical` on, lie elsewhere now: what follows is to follow there.
    fn moved(&mut self, logical: FileBlock, run: Run) {
        if let Some((last, block)) = &mut self.last
            && let Some(distance) = last.0.checked_sub(logical.0)
            && distance < run.length
        {
            *block = BlockNo(run.start.0 + distance);
        }
    }
}
