//! Grows and splits the index of a directory, as the kernel does.
//!
//! A full leaf is split at half of its bytes, in hash order. Names with the same hash may then be
//! in both leaves; the lowest bit of the new index entry records this. A full index node is split
//! at half of its entries. If every node on the path is full, the tree grows by a level at the
//! root.

use fslab_vfs::Errno;

use super::entry::{self, Entries, EntryKind, NewEntry, Packer};
use super::hash::Hasher;
use super::index::{self, RootInfo, Table};
use super::path::{Frame, Path};
use super::{DirectoryBlocks, DirectoryBlocksMut, change_table, dots, read_checked, write_checked};
use crate::error::Result;
use crate::flaw::{Checked, Flaw};
use crate::types::FileBlock;

/// Converts a linear directory of one block: block 0 becomes the root, and its names move to
/// block 1.
pub(crate) fn convert<B: DirectoryBlocksMut>(blocks: &mut B) -> Result<()> {
    let root = FileBlock(0);
    let (old, [own, parent]) = read_checked(blocks, root, |bytes| {
        entry::live_bytes(bytes)?;
        Ok((bytes.to_vec(), dots(bytes)?))
    })?;
    let leaf = blocks.grow()?;
    blocks.expect_names(leaf)?;
    write_checked(blocks, leaf, |bytes| pack(bytes, super::names(root, &old)))?;
    let info = RootInfo { version: blocks.rules().hasher.version(), levels: 0 };
    let kind = blocks.rules().told(EntryKind::DIRECTORY);
    blocks.write(root, |bytes| index::write_root(bytes, info, own, parent, kind, leaf))?;
    blocks.set_indexed(true)
}

/// Fills a block with the live records among `entries`.
pub(crate) fn pack<'a>(
    bytes: &mut [u8],
    entries: impl Iterator<Item = Checked<entry::Entry<'a>>>,
) -> Checked<()> {
    let mut packer = Packer::new(bytes);
    packer.push_all(entries)?;
    packer.finish();
    Ok(())
}

/// Inserts a name into an indexed directory in which no single record of the name's leaf has enough
/// room.
pub(crate) fn insert<B: DirectoryBlocksMut>(
    blocks: &mut B,
    hash: u32,
    new: &NewEntry<'_>,
) -> Result<()> {
    loop {
        let path = Path::to_hash(blocks, hash)?;
        // Check whether the name fits once the leaf's free space is contiguous.
        let fits_packed = read_checked(blocks, path.leaf(), |bytes| {
            Ok(entry::live_bytes(bytes)? + new.size() <= bytes.len())
        })?;
        if fits_packed {
            return pack_and_put(blocks, path.leaf(), new);
        }
        if is_full(blocks, path.bottom()) {
            make_room_above(blocks, &path)?;
            continue;
        }
        let split = split_leaf(blocks, &path)?;
        return pack_and_put(
            blocks,
            if hash >= split.from { split.right } else { split.left },
            new,
        );
    }
}

fn pack_and_put<B: DirectoryBlocksMut>(
    blocks: &mut B,
    leaf: FileBlock,
    new: &NewEntry<'_>,
) -> Result<()> {
    write_checked(blocks, leaf, |bytes| {
        if new.put_anywhere(bytes)? {
            return Ok(());
        }
        pack_in_place(bytes, leaf)?;
        match new.put_anywhere(bytes)? {
            true => Ok(()),
            false => Err(Flaw::LeafChanged),
        }
    })
}

/// Moves the free space of a block to the end of the block.
fn pack_in_place(bytes: &mut [u8], block: FileBlock) -> Checked<()> {
    let old = bytes.to_vec();
    // Everything that can fail is checked before the block is changed.
    entry::live_bytes(&old)?;
    if block.0 == 0 {
        dots(&old)?;
    }
    pack(bytes, Entries::of(&old))
}

fn is_full<B: DirectoryBlocks>(blocks: &B, frame: &Frame) -> bool {
    frame.count >= limit(blocks, frame)
}

/// Returns the maximum number of entries in an index block; only block 0 is a root.
pub(crate) fn limit<B: DirectoryBlocks>(blocks: &B, frame: &Frame) -> usize {
    let size = blocks.block_size().bytes();
    if frame.block.0 == 0 { index::root_limit(size) } else { index::node_limit(size) }
}

/// Performs one step towards making room in the lowest index block of a path. It splits the lowest
/// full node whose parent has room, or adds a level if no parent has room.
fn make_room_above<B: DirectoryBlocksMut>(blocks: &mut B, path: &Path) -> Result<()> {
    let frames = path.frames();
    match frames.iter().rposition(|frame| !is_full(blocks, frame)) {
        Some(level) => split_node(blocks, level, &frames[level], &frames[level + 1]),
        None if frames.len() < usize::from(blocks.rules().levels) => add_level(blocks, path.info()),
        None => Err(Errno::NOSPC.into()),
    }
}

/// Moves the upper half of a node's entries to a new sibling.
fn split_node<B: DirectoryBlocksMut>(
    blocks: &mut B,
    above_level: usize,
    above: &Frame,
    node: &Frame,
) -> Result<()> {
    let keep = node.count / 2;
    let moved = read_checked(blocks, node.block, |bytes| {
        let table = Table::of_node(bytes)?;
        if table.count() == node.count {
            Ok(table.entries().split_off(keep))
        } else {
            Err(Flaw::IndexChanged)
        }
    })?;
    let new = blocks.grow()?;
    blocks.write(new, |bytes| index::write_node(bytes, &moved))?;
    change_table(blocks, above.block, above_level, |table| {
        table.insert_after(above.at, moved[0].0, new)
    })?;
    change_table(blocks, node.block, above_level + 1, |table| table.truncate(keep))
}

/// Moves all entries of the root to a new node, which becomes the root's only entry.
fn add_level<B: DirectoryBlocksMut>(blocks: &mut B, info: RootInfo) -> Result<()> {
    let root = FileBlock(0);
    let moved = read_checked(blocks, root, |bytes| Ok(Table::of_root(bytes)?.1.entries()))?;
    let node = blocks.grow()?;
    blocks.write(node, |bytes| index::write_node(bytes, &moved))?;
    let info = RootInfo { levels: info.levels + 1, ..info };
    blocks.write(root, |bytes| index::rewrite_root(bytes, info, &[(0, node)]))
}

/// The two leaves of a split.
struct Split {
    left: FileBlock,
    right: FileBlock,
    /// Names whose hash is at least this value belong to the right leaf.
    from: u32,
}

/// A directory entry in use, in a leaf that is being split.
#[derive(Clone, Copy, Debug)]
struct Record {
    hash: u32,
    offset: usize,
    /// Length of the record in bytes, including slack.
    length: usize,
}

/// Splits the leaf of a path in two; its parent must have room for another entry.
fn split_leaf<B: DirectoryBlocksMut>(blocks: &mut B, path: &Path) -> Result<Split> {
    let hasher = blocks.rules().hasher.with_version(path.info().version);
    let left = path.leaf();
    let (old, records) = read_checked(blocks, left, |bytes| {
        let records = records_by_hash(bytes, hasher)?;
        if records.len() < 2 {
            return Err(Flaw::LeafOfOneName);
        }
        Ok((bytes.to_vec(), records))
    })?;
    let (low, high) = records.split_at(cut(&records, old.len()));
    let from = high[0].hash;
    // The lowest bit records that names with this hash begin in the previous leaf.
    let continued = low.last().is_some_and(|last| last.hash == from);
    let right = blocks.grow()?;
    blocks.expect_names(right)?;
    write_checked(blocks, right, |bytes| pack(bytes, in_block(&old, high)))?;
    let (bottom, from_stored) = (path.bottom(), from | u32::from(continued));
    change_table(blocks, bottom.block, path.frames().len() - 1, |table| {
        table.insert_after(bottom.at, from_stored, right)
    })?;
    let mut low = low.to_vec();
    low.sort_unstable_by_key(|record| record.offset);
    write_checked(blocks, left, |bytes| pack(bytes, in_block(&old, &low)))?;
    Ok(Split { left, right, from })
}

fn in_block<'a>(
    block: &'a [u8],
    records: &[Record],
) -> impl Iterator<Item = Checked<entry::Entry<'a>>> {
    records.iter().map(|record| entry::entry_at(block, record.offset))
}

fn records_by_hash(block: &[u8], hasher: Hasher) -> Checked<Vec<Record>> {
    let mut records = Vec::new();
    for entry in Entries::of(block) {
        let entry = entry?;
        if entry.is_live() {
            let hash = hasher.hash(entry.name).major;
            records.push(Record { hash, offset: entry.offset, length: entry.length });
        }
    }
    records.sort_by_key(|record| record.hash);
    Ok(records)
}

/// Returns how many records, in hash order, remain in the left leaf. Records are moved to the right
/// leaf, highest hash first, up to half of the block size. A record that crosses this limit is
/// moved if at least half of it is within the limit. If this would move all records, half of them
/// are moved.
fn cut(records: &[Record], block_size: usize) -> usize {
    let mut size = 0;
    for (at, record) in records.iter().enumerate().rev() {
        if size + record.length / 2 > block_size / 2 {
            return at + 1;
        }
        size += record.length;
    }
    records.len() / 2
}

/// Moves the names of an index with only one leaf back to block 0, and makes the directory linear.
pub(crate) fn flatten<B: DirectoryBlocksMut>(blocks: &mut B, leaf: FileBlock) -> Result<()> {
    let root = FileBlock(0);
    let old = read_checked(blocks, leaf, |bytes| {
        entry::live_bytes(bytes)?;
        Ok(bytes.to_vec())
    })?;
    blocks.expect_names(root)?;
    write_checked(blocks, root, |bytes| {
        let [own, parent] = dots(bytes)?;
        let kind = entry::entry_at(bytes, 0)?.kind;
        let mut packer = Packer::new(bytes);
        packer.push(own, kind, b".");
        packer.push(parent, kind, b"..");
        packer.push_all(Entries::of(&old))?;
        packer.finish();
        Ok(())
    })?;
    blocks.set_indexed(false)?;
    blocks.shrink(1)
}
