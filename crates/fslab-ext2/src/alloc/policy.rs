//! The interface of policies: requests, answers, and what is remembered of a file between them.

use super::cluster::Cluster;
use super::hash_search::hash_search;
use super::reservation::Window;
use super::space::{Run, Space};
use crate::error::Result;
use crate::geometry::Geometry;
use crate::types::{BlockNo, FileBlock, GroupNo, InodeNo};

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
    fn preference(&self, space: &dyn Space, request: &BlockRequest) -> Preference;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
pub const DIRECT_BLOCKS: u32 = crate::format::DIRECT_BLOCKS as u32;

/// What policies remember of an open file. Goes with the file from one request to the next.
#[derive(Clone, Debug, Default)]
pub struct FileState {
    /// For `ext2`: the last block mapped and where it went.
    pub(super) last: Option<(FileBlock, BlockNo)>,
    /// For `ext2`: the file's reservation.
    pub(super) window: Window,
    /// For `ffs`: where the indirect blocks of the present request go.
    pub(super) indirect: Option<Preference>,
    /// The cluster being written.
    pub cluster: Cluster,
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

/// A place for a cluster: the first run of free blocks at or behind where the policy would put
/// its first block, in that group; else the first in another group. The request is that of the
/// cluster's first block; `old` are the addresses of its first and last blocks. What the file
/// remembers of them is as if they lay there.
///
/// # Errors
/// What reading a bitmap answers; `None` where the cluster has to stay.
pub(crate) fn place_cluster(
    policy: &mut dyn Policy,
    space: &mut dyn Space,
    file: &mut FileState,
    request: &BlockRequest,
    old: (BlockNo, BlockNo),
) -> Result<Option<Run>> {
    let geometry = *space.geometry();
    // The allocator meant to go to another group.
    if geometry.group_of(old.0) != geometry.group_of(old.1) {
        return Ok(None);
    }
    let range = request.logical.0..request.logical.0 + request.wanted;
    let crosses = range.start < DIRECT_BLOCKS && range.end > DIRECT_BLOCKS;
    if crosses && policy.keeps_indirect_in_line() {
        return Ok(None);
    }
    let wish = policy.preference(space, request);
    let found = hash_search(space, wish.group, |space, group, preferred| {
        let wished = wish.block.filter(|_| preferred);
        let from = wished.map_or(0, |block| geometry.bit_of(block));
        let bitmap = space.blocks(group)?;
        let found = bitmap.find_run(from..bitmap.length(), request.wanted);
        Ok(found.map(|bit| Run { start: geometry.block_at(group, bit), length: request.wanted }))
    })?;
    if let Some(run) = found {
        file.moved(request.logical, run);
    }
    Ok(found)
}
