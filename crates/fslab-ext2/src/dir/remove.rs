//! Removes names and frees the space that they used.
//!
//! Two neighbouring leaves are merged if their names together fill at most half of a block. The
//! entry of the emptied leaf is removed from the index. By the same rule, index nodes are merged
//! and the tree loses levels. A freed block is overwritten with the directory's last block, whose
//! parent is updated. Then the directory is truncated by one block. Names remain in hash order
//! throughout, so that concurrent listings miss no name.

use super::entry::{self, Entries};
use super::index::{self, Table};
use super::path::{Frame, Path};
use super::{
    DirectoryBlocks, DirectoryBlocksMut, Form, Found, change_table, damaged, drop_unused_index,
    htree, read_checked, write_checked,
};
use crate::error::Result;
use crate::flaw::Flaw;
use crate::types::FileBlock;

/// Number of steps into which the fill level of a leaf is divided. Neighbours are examined only
/// when the level falls to a lower step, not for each removed name.
const STEPS: usize = 16;
/// In directories of at most this many blocks, neighbours are examined for each removed name.
const SMALL: u32 = 4;

/// The state of a block after a name was removed.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    /// Size of the name's record in bytes.
    size: usize,
    /// Size of the remaining records in bytes, without slack.
    left: usize,
}

/// Removes a name that was found. The caller then calls [`give_back`].
///
/// # Errors
/// [`crate::Error::Damaged`] if the name is no longer at the position where it was found; errors of
/// reading or writing a block. The directory is then unchanged.
pub fn remove<B: DirectoryBlocksMut>(blocks: &mut B, found: &Found) -> Result<Removed> {
    let (offset, previous) = (found.spot.offset as usize, found.spot.previous);
    let shrinks = blocks.rules().shrink;
    drop_unused_index(blocks, found.leaf.is_some())?;
    write_checked(blocks, found.block, |bytes| {
        let entry = entry::entry_at(bytes, offset)?;
        if entry.inode != Some(found.spot.inode) {
            return Err(Flaw::RecordChanged);
        }
        let size = entry::record_size(entry.name.len());
        // Everything that can fail is checked before the block is changed.
        let left = if shrinks { entry::live_bytes(bytes)? - size } else { usize::MAX };
        entry::remove(bytes, offset, previous.map(|previous| previous as usize))?;
        Ok(Removed { size, left })
    })
}

/// Frees the space that a directory no longer needs after a name was removed.
///
/// # Errors
/// [`crate::Error::Damaged`] if the directory's index is inconsistent; errors of reading or writing
/// a block. The name remains removed.
pub fn give_back<B: DirectoryBlocksMut>(
    blocks: &mut B,
    found: &Found,
    removed: Removed,
) -> Result<()> {
    let Removed { size, left } = removed;
    if !blocks.rules().shrink {
        return Ok(());
    }
    match &found.leaf {
        Some((path, hash)) if is_worth_a_look(blocks, left, size) => {
            // Merge a small leaf with a neighbour if their names fit in half a block, then merge
            // the index nodes on its path. An empty leaf can be merged with any neighbour.
            let most = blocks.block_size().bytes() / if left == 0 { 1 } else { 2 };
            let fits = |blocks: &B, beside: &Path| -> Result<bool> {
                Ok(left + live_bytes(blocks, beside.leaf())? <= most)
            };
            let mut beside = *path;
            if beside.retreat(blocks)? && fits(blocks, &beside)? {
                join_leaves(blocks, &beside, path)?;
            } else {
                beside = *path;
                if !beside.advance(blocks)? || !fits(blocks, &beside)? {
                    return lower(blocks);
                }
                join_leaves(blocks, path, &beside)?;
            }
            for level in (1..path.frames().len()).rev() {
                join_nodes(blocks, hash.major, level)?;
            }
            lower(blocks)
        }
        Some(_) => Ok(()),
        None if left == 0 && found.block.0 + 1 == blocks.count() => trim(blocks),
        None => Ok(()),
    }
}

/// Frees blocks without names at the end of a linear directory. Other empty blocks are kept,
/// because a reader may be listing the directory by offset. For the same reason, two blocks are
/// kept if a directory of one block would become indexed when it grows again.
fn trim<B: DirectoryBlocksMut>(blocks: &mut B) -> Result<()> {
    let least = if blocks.rules().form == Form::Indexed { 2 } else { 1 };
    let mut count = blocks.count();
    while count > least {
        let block = FileBlock(count - 1);
        if live_bytes(blocks, block)? > 0 {
            break;
        }
        count -= 1;
    }
    if count < blocks.count() { blocks.shrink(count) } else { Ok(()) }
}

/// Whether the neighbours of a leaf are examined after a removal of `size` bytes that left `left`
/// bytes. The leaf must be at most half full, and its fill level must have fallen to a lower step.
/// In a small directory, any decrease of the fill level is enough. An empty leaf always qualifies.
fn is_worth_a_look<B: DirectoryBlocks>(blocks: &B, left: usize, size: usize) -> bool {
    let block_size = blocks.block_size().bytes();
    let step = block_size / STEPS;
    let crosses = left / step != (left + size) / step || blocks.count() <= SMALL;
    left == 0 || (left <= block_size / 2 && crosses)
}

fn live_bytes<B: DirectoryBlocks>(blocks: &B, leaf: FileBlock) -> Result<usize> {
    read_checked(blocks, leaf, entry::live_bytes)
}

/// Merges two neighbouring leaves into one of them and removes the other from the tree.
fn join_leaves<B: DirectoryBlocksMut>(blocks: &mut B, left: &Path, right: &Path) -> Result<()> {
    let (one, other) = (left.leaf(), right.leaf());
    if one == other {
        return Err(damaged(blocks, one, Flaw::IndexTwice));
    }
    let copy = |leaf| read_checked(&*blocks, leaf, |bytes| Ok(bytes.to_vec()));
    let (low, high) = (copy(one)?, copy(other)?);
    let keeper = blocks.join(one, other)?;
    write_checked(blocks, keeper, |bytes| {
        htree::pack(bytes, Entries::of(&low).chain(Entries::of(&high)))
    })?;
    if keeper == other {
        let (bottom, level) = (left.bottom(), left.frames().len() - 1);
        change_table(blocks, bottom.block, level, |table| table.set_block(bottom.at, keeper))?;
    }
    let mut freed = unlink(blocks, right)?;
    freed.push(if keeper == one { other } else { one });
    // Fill gaps from the end, so that a block moved into a gap is not itself a gap.
    freed.sort_unstable_by(|one, other| other.cmp(one));
    freed.into_iter().try_for_each(|block| fill_gap(blocks, block))
}

/// Removes the entry of a leaf from the index. Returns the index nodes that become empty.
fn unlink<B: DirectoryBlocksMut>(blocks: &mut B, path: &Path) -> Result<Vec<FileBlock>> {
    let mut freed = Vec::new();
    let frames = path.frames();
    let Some(level) = frames.iter().rposition(|frame| frame.count > 1) else {
        return Err(damaged(blocks, path.leaf(), Flaw::LoneLeafNeighbour));
    };
    freed.extend(frames[level + 1..].iter().map(|frame| frame.block));
    let frame = &frames[level];
    let implied = change_table(blocks, frame.block, level, |table| table.remove(frame.at))?;
    if let Some(hash) = implied {
        raise(blocks, &frames[..level], hash)?;
    }
    Ok(freed)
}

/// Stores `hash` as the new lowest hash of the subtree under the frames `above`. The first entry of
/// a block stores no hash. So `hash` is stored in the lowest frame whose entry is not the first of
/// its block.
fn raise<B: DirectoryBlocksMut>(blocks: &mut B, above: &[Frame], hash: u32) -> Result<()> {
    let Some(level) = above.iter().rposition(|frame| frame.at > 0) else { return Ok(()) };
    let frame = &above[level];
    change_table(blocks, frame.block, level, |table| table.set_hash(frame.at, hash))
}

/// Moves the directory's last block into a freed block, and truncates the directory by one block.
fn fill_gap<B: DirectoryBlocksMut>(blocks: &mut B, gap: FileBlock) -> Result<()> {
    let last = FileBlock(blocks.count() - 1);
    if gap != last {
        let owner = find_owner(blocks, last)?;
        blocks.fill_with_last(gap, last)?;
        change_table(blocks, owner.block, owner.level, |table| table.set_block(owner.at, gap))?;
    }
    blocks.shrink(last.0)
}

/// The index entry that points to a block.
#[derive(Clone, Copy, Debug)]
struct Owner {
    block: FileBlock,
    level: usize,
    at: usize,
}

/// Finds the index entry that points to a block. Uses a hash in the block itself if possible, else
/// walks the whole index.
fn find_owner<B: DirectoryBlocks>(blocks: &B, child: FileBlock) -> Result<Owner> {
    if let Some(hash) = hint(blocks, child)?
        && let Some(owner) = owner_on_path(&Path::to_hash(blocks, hash)?, child)
    {
        return Ok(owner);
    }
    let mut path = Path::to_hash(blocks, 0)?;
    let mut budget = super::path::LeafBudget::new(blocks);
    loop {
        if let Some(owner) = owner_on_path(&path, child) {
            return Ok(owner);
        }
        budget.spend(blocks)?;
        if !path.advance(blocks)? {
            return Err(damaged(blocks, child, Flaw::BlockNotIndexed));
        }
    }
}

fn owner_on_path(path: &Path, child: FileBlock) -> Option<Owner> {
    let mut frames = path.frames().iter().enumerate();
    let (level, frame) = frames.find(|(_, frame)| frame.child == child)?;
    Some(Owner { block: frame.block, level, at: frame.at })
}

/// Returns a hash whose path in the index contains this block: the hash of the block's first name,
/// or of its second index entry.
fn hint<B: DirectoryBlocks>(blocks: &B, block: FileBlock) -> Result<Option<u32>> {
    let version = read_checked(blocks, FileBlock(0), |bytes| Ok(Table::of_root(bytes)?.0.version))?;
    let hasher = blocks.rules().hasher.with_version(version);
    read_checked(blocks, block, |bytes| {
        if let Ok(table) = Table::of_node(bytes) {
            return Ok(table.next_hash(0));
        }
        let name = Entries::of(bytes).find_map(|entry| entry.ok().filter(|e| e.is_live()));
        Ok(name.map(|entry| hasher.hash(entry.name).major))
    })
}

/// Merges the node at `level` of the path to `hash` with a neighbour that has the same parent, if
/// both together fill at most half of a block.
fn join_nodes<B: DirectoryBlocksMut>(blocks: &mut B, hash: u32, level: usize) -> Result<()> {
    let path = Path::to_hash(blocks, hash)?;
    let Some([above, node]) = path.frames().get(level - 1..=level) else { return Ok(()) };
    let most = index::node_limit(blocks.block_size().bytes()) / 2;
    if node.count > most || (node.count > 1 && !node.count.is_multiple_of(STEPS)) {
        return Ok(());
    }
    let pairs = above.at.saturating_sub(1)..(above.at + 1).min(above.count - 1);
    for left_at in pairs {
        let (left, right, hash) = read_checked(blocks, above.block, |bytes| {
            let table = Table::of_level(bytes, level - 1)?;
            if left_at + 1 >= table.count() {
                return Err(Flaw::IndexChanged);
            }
            Ok((table.block(left_at), table.block(left_at + 1), table.hash(left_at + 1)))
        })?;
        let left_count = read_checked(blocks, left, |bytes| Ok(Table::of_node(bytes)?.count()))?;
        let mut moved = read_checked(blocks, right, |bytes| Ok(Table::of_node(bytes)?.entries()))?;
        moved[0].0 = hash;
        if left_count + moved.len() <= most {
            change_table(blocks, left, level, |table| table.extend(&moved))?;
            change_table(blocks, above.block, level - 1, |table| table.remove(left_at + 1))?;
            return fill_gap(blocks, right);
        }
    }
    Ok(())
}

/// Removes a level while the root points to only one node. Makes the directory linear if the root
/// points to only one small leaf.
fn lower<B: DirectoryBlocksMut>(blocks: &mut B) -> Result<()> {
    loop {
        let (info, count, child) = read_checked(blocks, FileBlock(0), |bytes| {
            let (info, table) = Table::of_root(bytes)?;
            Ok((info, table.count(), table.block(0)))
        })?;
        if count > 1 {
            return Ok(());
        }
        if info.levels == 0 {
            // Open listings of a linear directory continue with the file system's hash function. So
            // an index with another function is kept.
            let is_known = info.version == blocks.rules().hasher.version();
            return if is_known { flatten_if_small(blocks, child) } else { Ok(()) };
        }
        let entries = read_checked(blocks, child, |bytes| Ok(Table::of_node(bytes)?.entries()))?;
        if entries.len() > index::root_limit(blocks.block_size().bytes()) {
            return Ok(());
        }
        let info = index::RootInfo { levels: info.levels - 1, ..info };
        blocks.write(FileBlock(0), |bytes| index::rewrite_root(bytes, info, &entries))?;
        fill_gap(blocks, child)?;
    }
}

fn flatten_if_small<B: DirectoryBlocksMut>(blocks: &mut B, leaf: FileBlock) -> Result<()> {
    let most = blocks.block_size().bytes() / 2;
    if blocks.count() != 2 || live_bytes(blocks, leaf)? + 2 * entry::RECORD_MIN > most {
        return Ok(());
    }
    htree::flatten(blocks, leaf)
}
