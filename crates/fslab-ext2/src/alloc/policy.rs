//! The interface of policies: requests, results, and the state of a file between requests.

use super::cluster::Cluster;
use super::hash_search::hash_search;
use super::reservation::Window;
use super::space::{Run, Space};
use crate::error::Result;
use crate::geometry::Geometry;
use crate::types::{BlockNo, FileBlock, GroupNo, InodeNo};

/// The declaration of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicySpec {
    /// The name used on command lines and in files.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Builds the policy for a file system; the seed determines its random choices.
    pub build: fn(&Geometry, seed: u64) -> Box<dyn Policy>,
}

/// An allocation policy, which chooses inodes and blocks.
///
/// # Errors
/// Errors of reading a bitmap. If there is not enough space, the result is `None`.
pub trait Policy: Send {
    /// Chooses a free inode for a new file.
    fn place_inode(
        &mut self,
        space: &mut dyn Space,
        request: &InodeRequest,
    ) -> Result<Option<InodeNo>>;

    /// Chooses free blocks for a file: from one to `missing + wanted` blocks, all in one group.
    fn place_blocks(
        &mut self,
        space: &mut dyn Space,
        file: &mut FileState,
        request: &BlockRequest,
    ) -> Result<Option<Run>>;

    /// Returns the preferred position for the blocks of a request. Used to move clusters.
    fn preference(&self, space: &dyn Space, request: &BlockRequest) -> Preference;

    /// Whether the policy places the first indirect block between the twelfth and the thirteenth
    /// block. If so, clusters that span it are not moved, because a reader would have to seek back
    /// to the indirect block. The placement and the rule for clusters are both from FreeBSD; 4.4BSD
    /// had neither.
    fn keeps_indirect_in_line(&self) -> bool {
        false
    }

    /// Notifies the policy that an inode became free.
    fn inode_freed(&mut self, _geometry: &Geometry, _inode: InodeNo) {}

    /// Notifies the policy that a file is no longer being written, or that it was truncated.
    fn file_closed(&mut self, _file: &mut FileState) {}
}

/// The group, and optionally the block in it, at which a policy prefers to allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference {
    /// The group to search first.
    pub group: GroupNo,
    /// The block of that group to start from.
    pub block: Option<BlockNo>,
}

impl Preference {
    /// Returns a preference for the block after `block`, or for the home group if there is no block
    /// after it.
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

/// A request for the inode of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRequest {
    /// The directory in which the file is created.
    pub parent: InodeNo,
    /// Whether the new file is a directory.
    pub directory: bool,
    /// Whether directories in this parent are spread over the groups. They are if the parent is the
    /// root or has the top-level attribute (`chattr +T`).
    pub top_level: bool,
}

/// A request for blocks of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRequest {
    /// The group of the file's inode.
    pub home: GroupNo,
    /// Whether the file is a regular file.
    pub regular: bool,
    /// The first file block that needs a device block.
    pub logical: FileBlock,
    /// Number of missing indirect blocks on the path to `logical`; they are placed before it.
    pub missing: u32,
    /// Number of file blocks wanted, starting at `logical`; at least 1. For
    /// [`Policy::place_blocks`], all of them are unmapped, and their pointers are in one array.
    pub wanted: u32,
    /// The index of the pointer to `logical` in its array, which is in the inode or in an indirect
    /// block.
    pub index: u32,
    /// The block that the previous entry of that array points to.
    pub before: Option<BlockNo>,
    /// The last nonzero pointer before the first missing pointer, in the array that contains both.
    pub nearest: Option<BlockNo>,
    /// The indirect block that contains the array of the first missing pointer.
    pub holder: Option<BlockNo>,
    /// The last block that the inode maps directly, if it is mapped.
    pub last_direct: Option<BlockNo>,
    /// The inode's single-indirect block, if it exists.
    pub first_indirect: Option<BlockNo>,
}

/// Number of blocks that an inode maps directly.
pub const DIRECT_BLOCKS: u32 = crate::format::DIRECT_BLOCKS as u32;

/// The state that policies keep for an open file between requests.
#[derive(Clone, Debug, Default)]
pub struct FileState {
    /// For `ext2`: the last file block that was mapped, and its address.
    pub(super) last: Option<(FileBlock, BlockNo)>,
    /// For `ext2`: the file's reservation window.
    pub(super) window: Window,
    /// For `ffs`: the preference for the indirect blocks of the current request.
    pub(super) indirect: Option<Preference>,
    /// The cluster that is being written.
    pub cluster: Cluster,
}

impl FileState {
    /// Records that blocks of the file, starting at `logical`, were moved to `run`, so that later
    /// blocks follow them.
    fn moved(&mut self, logical: FileBlock, run: Run) {
        if let Some((last, block)) = &mut self.last
            && let Some(distance) = last.0.checked_sub(logical.0)
            && distance < run.length
        {
            *block = BlockNo(run.start.0 + distance);
        }
    }
}

/// Chooses new blocks for a cluster: the first free run in the preferred group, starting at the
/// block preferred for the cluster's first block. If there is none, chooses the first free run in
/// another group. `request` describes the cluster's first block; `old` contains the current
/// addresses of the cluster's first and last blocks. Updates the file state as if the cluster had
/// been moved.
///
/// # Errors
/// Errors of reading a bitmap. The result is `None` if the cluster should not be moved.
pub(crate) fn place_cluster(
    policy: &mut dyn Policy,
    space: &mut dyn Space,
    file: &mut FileState,
    request: &BlockRequest,
    old: (BlockNo, BlockNo),
) -> Result<Option<Run>> {
    let geometry = *space.geometry();
    // Do not move a cluster that spans groups, because the policy switched groups on purpose.
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
