//! Finding a name, or the place for it.

use super::entry::{Spot, Wanted};
use super::hash::NameHash;
use super::path::{LeafBudget, Path};
use super::{DirectoryBlocks, has_usable_index, read_checked};
use crate::error::{Error, Result};
use crate::types::{FileBlock, InodeNo};

/// What a search for a name ends in.
#[derive(Clone, Copy, Debug)]
pub enum Search {
    /// The name is there.
    Found(Found),
    /// It is not, and could go here.
    Absent(Vacancy),
}

/// A name that was found, and where.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub(crate) block: FileBlock,
    pub(crate) spot: Spot,
    /// The way to its leaf and its hash, where it was found by an index.
    pub(crate) leaf: Option<(Path, NameHash)>,
}

impl Found {
    /// The inode the name stands for.
    #[must_use]
    pub fn inode(&self) -> InodeNo {
        self.spot.inode
    }

    /// The index blocks that lead to the entry, if it was found by an index, and its own block.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = FileBlock> {
        let frames = self.leaf.iter().flat_map(|(path, _)| path.frames());
        frames.map(|frame| frame.block).chain([self.block])
    }
}

/// Where a name that was not found could go.
#[derive(Clone, Copy, Debug)]
pub struct Vacancy {
    /// The block and the record in it that has room.
    pub(crate) room: Option<(FileBlock, u32)>,
    /// The way to the first leaf for the name's hash, and that hash, where an index was used.
    pub(crate) leaf: Option<(Path, NameHash)>,
}

/// Searches a directory for a name other than `.` and `..`; block by block, where it has an index
/// whose root is damaged.
///
/// # Errors
/// [`crate::Error::Damaged`] where a block on the way is, and what the store answers.
pub fn find<B: DirectoryBlocks>(blocks: &B, name: &[u8]) -> Result<Search> {
    let wanted = Wanted::new(name);
    if !blocks.is_indexed() {
        return find_linear(blocks, &wanted);
    }
    match find_indexed(blocks, &wanted) {
        // Asked only now: an index that is whole is not to be read twice.
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
        // Only the first leaf: where the kernel puts a name of a hash that several leaves have.
        if block == first.leaf() {
            room = scan.room.map(|offset| (block, offset));
        }
        if !path.continues(hash.major) || !path.advance(blocks)? {
            return Ok(Search::Absent(Vacancy { room, leaf: Some((first, hash)) }));
        }
        budget.spend(blocks)?;
    }
}
