//! Directories: maps from names to inodes, stored as an unsorted list of records or indexed by the
//! names' hashes.
//!
//! A directory is a sequence of blocks ([`DirectoryBlocks`]). In the *linear* form, blocks contain
//! unordered records ([`entry`]). In the *indexed* form (HTree, Phillips 2001) block 0 is the root
//! of a tree of at most three levels ([`index`]). Its leaves are linear blocks, each with the names
//! of one hash range.
//!
//! Searching and changing are separate steps, so that creating a name needs only one search.
//! [`find()`] returns the position of a name, or a position where it can be inserted. [`insert()`],
//! [`remove()`] and [`replace`] use that position. The directory must not change between the two
//! steps; the caller holds its lock. If the position no longer matches, the second step reports
//! damage instead of overwriting data.
//!
//! Blocks are changed in an order that keeps every name findable after each single change. A new
//! leaf is written before the index entry that points to it. The index is written before names are
//! removed from the old leaf.
//!
//! Unlike the kernel, this code merges leaves and shrinks directories in place.
//!
//! This module does not depend on inodes, caches or permissions; inode numbers in entries are
//! opaque to it.

pub mod entry;
mod find;
pub mod hash;
pub mod htree;
pub mod index;
mod insert;
mod list;
pub mod outline;
mod path;
mod remove;
#[cfg(test)]
mod tests;
mod vector;
pub mod verify;

pub use entry::{Entry, EntryKind};
pub use find::{Found, Search, Vacancy, find};
pub use hash::{HashVersion, Hasher, NameHash};
pub use insert::insert;
pub use list::{Cookie, InodeOrder, Listed, list};
pub use remove::{Removed, give_back, remove};
pub use vector::VectorBlocks;

use crate::error::{Error, Place, Result};
use crate::flaw::{Checked, Flaw};
use crate::types::{BlockSize, FileBlock, InodeNo};
use entry::Entries;
use index::{Table, TableMut};

/// Read access to the blocks of one directory.
///
/// # Errors
/// `read` returns errors of its store, and [`Error::Damaged`] for a hole.
pub trait DirectoryBlocks {
    /// Returns the directory's inode number, for reports of damage.
    fn inode(&self) -> InodeNo;

    /// Returns the rules for directories of this file system.
    fn rules(&self) -> Rules;

    /// Returns the block size in bytes; every slice passed to a closure has this length.
    fn block_size(&self) -> BlockSize;

    /// Returns the number of blocks in the directory.
    fn count(&self) -> u32;

    /// Whether the inode's flags mark block 0 as the root of an index.
    fn is_indexed(&self) -> bool;

    /// Records that the index is damaged and is not used.
    fn distrust_index(&self, _flaw: Flaw) {}

    /// Passes a block to `look`; `block` must be below [`count`](Self::count).
    fn read<R>(&self, block: FileBlock, look: impl FnOnce(&[u8]) -> R) -> Result<R>;
}

/// Write access to the blocks of one directory.
///
/// # Errors
/// Errors of reading or writing a block; `ENOSPC` if the directory cannot grow. A failed operation
/// does not change the directory.
pub trait DirectoryBlocksMut: DirectoryBlocks {
    /// Passes a block to `change`, which may modify it; `block` must be below `count`.
    fn write<R>(&mut self, block: FileBlock, change: impl FnOnce(&mut [u8]) -> R) -> Result<R>;

    /// Announces that names of another block of the directory will be moved to this block. An
    /// implementation that writes blocks separately must write this block before it removes the
    /// names from the other block.
    fn expect_names(&mut self, _block: FileBlock) -> Result<()> {
        Ok(())
    }

    /// Announces that the names of two blocks will be merged into one of the two, and returns the
    /// block that will keep them. The caller then removes the names from the other block, as with
    /// [`expect_names`](Self::expect_names).
    fn join(&mut self, one: FileBlock, other: FileBlock) -> Result<FileBlock> {
        Ok(one.min(other))
    }

    /// Overwrites a block with a copy of the last block. The names of the overwritten block were
    /// moved elsewhere before. The caller then removes the last block.
    fn fill_with_last(&mut self, block: FileBlock, last: FileBlock) -> Result<()> {
        let bytes = self.read(last, <[u8]>::to_vec)?;
        self.write(block, |target| target.copy_from_slice(&bytes))
    }

    /// Appends a block of zeros.
    fn grow(&mut self) -> Result<FileBlock>;

    /// Truncates the directory to its first `count` blocks.
    fn shrink(&mut self, count: u32) -> Result<()>;

    /// Sets in the inode whether block 0 is the root of an index.
    fn set_indexed(&mut self, indexed: bool) -> Result<()>;
}

/// The rules for directories of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The hash function for newly indexed directories.
    pub hasher: Hasher,
    /// The form of a directory that grows beyond its first block. A directory that is already
    /// indexed keeps its index.
    pub form: Form,
    /// Number of index levels, including the root, that the file system's features allow.
    pub levels: u8,
    /// Whether a directory frees blocks when names are removed.
    pub shrink: bool,
    /// Whether entries store the kind of their inode (the `filetype` feature).
    pub kinds: bool,
}

impl Rules {
    /// Maximum number of levels without `large_dir`.
    pub const LEVELS: u8 = 2;
    /// Maximum number of levels with `large_dir`.
    pub const LEVELS_LARGE: u8 = 3;

    /// Returns the kind to store in an entry: `kind`, or unknown if entries store no kinds.
    #[must_use]
    pub fn told(&self, kind: EntryKind) -> EntryKind {
        if self.kinds { kind } else { EntryKind::UNKNOWN }
    }
}

/// The form of a directory with more than one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Unordered records.
    Linear,
    /// A tree ordered by the names' hashes.
    Indexed,
}

/// Writes the first block of a new directory.
pub fn create(block: &mut [u8], rules: &Rules, own: InodeNo, parent: InodeNo) {
    entry::put_dots(block, own, parent, rules.told(EntryKind::DIRECTORY));
}

/// Returns the inode of `..`.
///
/// # Errors
/// Damage if block 0 does not begin with `.` and `..`.
pub fn parent<B: DirectoryBlocks>(blocks: &B) -> Result<InodeNo> {
    let dots = blocks.read(FileBlock(0), dots)?;
    placed(blocks, FileBlock(0), dots).map(|[_, parent]| parent)
}

/// Sets the inode of `..`.
///
/// # Errors
/// Damage if block 0 does not begin with `.` and `..`.
pub fn set_parent<B: DirectoryBlocksMut>(blocks: &mut B, parent: InodeNo) -> Result<()> {
    let kind = blocks.rules().told(EntryKind::DIRECTORY);
    let answer = blocks.write(FileBlock(0), |block| {
        dots(block)?;
        entry::set_inode(block, entry::RECORD_MIN, parent, kind);
        Ok(())
    })?;
    placed(blocks, FileBlock(0), answer)
}

/// Makes a name refer to another inode.
///
/// # Errors
/// [`Error::Damaged`] if the name is no longer at the position where it was found.
pub fn replace<B: DirectoryBlocksMut>(
    blocks: &mut B,
    found: &Found,
    inode: InodeNo,
    kind: EntryKind,
) -> Result<()> {
    let (offset, kind) = (found.spot.offset as usize, blocks.rules().told(kind));
    let answer = blocks.write(found.block, |block| {
        let entry = entry::entry_at(block, offset)?;
        if entry.inode != Some(found.spot.inode) {
            return Err(Flaw::RecordChanged);
        }
        entry::set_inode(block, offset, inode, kind);
        Ok(())
    })?;
    placed(blocks, found.block, answer)
}

/// Whether the directory has no names except `.` and `..`.
///
/// # Errors
/// Damage if a damaged record precedes the first name other than `.` and `..`.
pub fn is_empty<B: DirectoryBlocks>(blocks: &B) -> Result<bool> {
    // An indexed directory can be read linearly, because its index blocks look like free space.
    for block in (0..blocks.count()).map(FileBlock) {
        let empty = blocks.read(block, |bytes| {
            let mut names = names(block, bytes);
            names.next().transpose().map(|entry| entry.is_none())
        })?;
        if !placed(blocks, block, empty)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a directory is searched and listed through its index. If the root of the index is
/// damaged, the directory is read linearly, as in the kernel. Even then every name in undamaged
/// blocks is found, because index blocks look like free space.
pub(crate) fn has_usable_index<B: DirectoryBlocks>(blocks: &B) -> Result<bool> {
    if !blocks.is_indexed() {
        return Ok(false);
    }
    let flaw = blocks.read(FileBlock(0), |block| match Table::of_root(block) {
        Ok((info, _)) if info.levels >= blocks.rules().levels => Some(Flaw::IndexTooDeep),
        Ok(_) => None,
        Err(flaw) => Some(flaw),
    })?;
    if let Some(flaw) = flaw {
        blocks.distrust_index(flaw);
    }
    Ok(flaw.is_none())
}

/// Turns a directory into a linear one if its index was not used. Must be called before names are
/// changed, because a change may overwrite the index.
pub(crate) fn drop_unused_index<B: DirectoryBlocksMut>(
    blocks: &mut B,
    was_used: bool,
) -> Result<()> {
    if was_used || !blocks.is_indexed() { Ok(()) } else { blocks.set_indexed(false) }
}

/// Returns the live records of a block, except `.` and `..`.
pub(crate) fn names(block: FileBlock, bytes: &[u8]) -> impl Iterator<Item = Checked<Entry<'_>>> {
    let dots_end = if block.0 == 0 { entry::RECORD_MIN + 1 } else { 0 };
    Entries::of(bytes).filter(move |entry| match entry {
        Ok(entry) => entry.offset >= dots_end && entry.is_live(),
        Err(_) => true,
    })
}

/// Returns the inodes of `.` and `..`, the first entries of every directory.
pub(crate) fn dots(block: &[u8]) -> Checked<[InodeNo; 2]> {
    let own = entry::entry_at(block, 0)?;
    let parent = entry::entry_at(block, entry::RECORD_MIN)?;
    match (own.inode, parent.inode) {
        (Some(own_inode), Some(parent_inode))
            if own.length == entry::RECORD_MIN && own.name == b"." && parent.name == b".." =>
        {
            Ok([own_inode, parent_inode])
        }
        _ => Err(Flaw::NoDots),
    }
}

/// Turns a flaw into an error that identifies the directory and the block.
pub(crate) fn placed<T, B: DirectoryBlocks>(
    blocks: &B,
    block: FileBlock,
    answer: Checked<T>,
) -> Result<T> {
    answer.map_err(|what| damaged(blocks, block, what))
}

pub(crate) fn damaged<B: DirectoryBlocks>(blocks: &B, block: FileBlock, what: Flaw) -> Error {
    Error::damaged(Place::Directory(blocks.inode(), block), what)
}

/// Reads a directory block that an index refers to. Its number comes from the image and is checked
/// first.
pub(crate) fn read_checked<B: DirectoryBlocks, R>(
    blocks: &B,
    block: FileBlock,
    look: impl FnOnce(&[u8]) -> Checked<R>,
) -> Result<R> {
    if block.0 >= blocks.count() {
        return Err(damaged(blocks, block, Flaw::IndexBeyondEnd));
    }
    let answer = blocks.read(block, look)?;
    placed(blocks, block, answer)
}

/// Changes a directory block that an index refers to. Its number comes from the image and is
/// checked first.
pub(crate) fn write_checked<B: DirectoryBlocksMut, R>(
    blocks: &mut B,
    block: FileBlock,
    change: impl FnOnce(&mut [u8]) -> Checked<R>,
) -> Result<R> {
    if block.0 >= blocks.count() {
        return Err(damaged(blocks, block, Flaw::IndexBeyondEnd));
    }
    let answer = blocks.write(block, change)?;
    placed(blocks, block, answer)
}

/// Changes the index table in a root (level 0) or another node.
pub(crate) fn change_table<B: DirectoryBlocksMut, R>(
    blocks: &mut B,
    block: FileBlock,
    level: usize,
    change: impl FnOnce(&mut TableMut<'_>) -> Checked<R>,
) -> Result<R> {
    write_checked(blocks, block, |bytes| change(&mut TableMut::of_level(bytes, level)?))
}
