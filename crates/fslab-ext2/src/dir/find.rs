//! Searches for a name, or for a position to insert it.

use super::entry::{Spot, Wanted};
use super::hash::NameHash;
use super::path::{LeafBudget, Path};
use super::{DirectoryBlocks, has_usable_index, read_checked};
use crate::error::{Error, Result};
use crate::types::{FileBlock, InodeNo};

/// The result of a search for a name.
#[derive(Clone, Copy, Debug)]
pub enum Search {
    /// The name exists.
    Found(Found),
    /// The name does not exist and can be inserted here.
    Absent(Vacancy),
}

/// A name and its position.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub(crate) block: FileBlock,
    pub(crate) spot: Spot,
    /// The path to the leaf that contains the name, and the name's hash; `None` if no index was
    /// used.
    pub(crate) leaf: Option<(Path, NameHash)>,
}

impl Found {
    /// Returns the inode that the name refers to.
    #[must_use]
    pub fn inode(&self) -> InodeNo {
        self.spot.inode
    }

    /// Returns the index blocks on the path to the entry, if an index was used, then the block of
    /// the entry.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = FileBlock> {
        let frames = self.leaf.iter().flat_map(|(path, _)| path.frames());
        frames.map(|frame| frame.block).chain([self.block])
    }
}

/// A position for a name that does not exist.
#[derive(Clone, Copy, Debug)]
pub struct Vacancy {
    /// A block with room for the name, and the offset of the record that has the room.
    pub(crate) room: Option<(FileBlock, u32)>,
    /// The path to the first leaf for the name's hash, and that hash; `None` if no index was used.
    pub(crate) leaf: Option<(Path, NameHash)>,
}

/// Searches a directory for a name other than `.` and `..`. If the root of the index is damaged,
/// the directory is searched block by block.
///
/// # Errors
/// [`crate::Error::Damaged`] if a block on the path is damaged; errors of reading a block.
pub fn find<B: DirectoryBlocks>(blocks: &B, name: &[u8]) -> Result<Search> {
    let wanted = Wanted::new(name);
    if !blocks.is_indexed() {
        return find_linear(blocks, &wanted);
    }
    match find_indexed(blocks, &wanted) {
        // The root of the index is checked only after a failure, so that an undamaged root is not
        // read twice.
        Err(Error::Damaged(_)) if !has_usable_index(blocks)? => find_linear(blocks, &wanted),
        answer => answer,
    }
}

fn find_linear<B: DirectoryBlocks>(blocks: &B, wanted: &Wanted<'_>) -> Result<Search> {
    let mut room = None;
    for block in (0..blocks.count()).map(FileBlock) {
        let scan = read_checked(blocks, block, |bytes| wanted.scan(bytes))?;
        if let Some(spot) = scan.found {
            return Ok(Search::Found(Found { block, spot, leaf: None }));
        }
        room = room.or(scan.room.map(|offset| (block, offset)));
    }
    Ok(Search::Absent(Vacancy { room, leaf: None }))
}

fn find_indexed<B: DirectoryBlocks>(blocks: &B, wanted: &Wanted<'_>) -> Result<Search> {
    let (mut path, hash) = Path::to_name(blocks, wanted.name())?;
    let first = path;
    let mut room = None;
    let mut budget = LeafBudget::new(blocks);
    loop {
        let block = path.leaf();
        let scan = read_checked(blocks, block, |bytes| wanted.scan(bytes))?;
        if let Some(spot) = scan.found {
            return Ok(Search::Found(Found { block, spot, leaf: Some((path, hash)) }));
        }
        // Use room only in the first leaf. If a hash occurs in several leaves, the kernel also
        // inserts the name in the first of them.
        if block == first.leaf() {
            room = scan.room.map(|offset| (block, offset));
        }
        if !path.continues(hash.major) || !path.advance(blocks)? {
            return Ok(Search::Absent(Vacancy { room, leaf: Some((first, hash)) }));
        }
        budget.spend(blocks)?;
    }
}
