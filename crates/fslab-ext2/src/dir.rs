//! Directories: names to inodes, as a plain list of records or indexed by the hash of the names.
//!
//! A directory is a sequence of blocks ([`DirectoryBlocks`]). In the *linear* form they hold
//! records ([`entry`]) in no order. In the *indexed* form (HTree, Phillips 2001) block 0 is the
//! root of a tree of at most three levels ([`index`]) whose leaves are linear blocks, each with
//! the names of one range of hashes.
//!
//! Searching and changing are two steps: [`find()`] answers where a name is or where it would go,
//! and [`insert()`], [`remove()`] or [`replace`] go on from there, so that a create searches once.
//! Between the two steps the directory must not change; whoever calls holds its lock. What the
//! second step finds different from the first is reported as damage, not written over.
//!
//! Blocks are changed in an order in which each state between two of them still holds every name:
//! a new leaf before the index that leads to it, the index before the old leaf loses its names.
//!
//! Beyond the kernel: leaves are merged and the directory shrinks where it lies.
//!
//! What is not here: inodes, caches, permissions, the meaning of an entry's inode number.

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

/// The blocks of one directory, to be read.
///
/// # Errors
/// `read` fails as its store does, and with [`Error::Damaged`] for a hole.
pub trait DirectoryBlocks {
    /// The directory's inode, for naming damage.
    fn inode(&self) -> InodeNo;

    /// How the directories of its file system are kept.
    fn rules(&self) -> Rules;

    /// Bytes a block; every slice this trait hands out has this length.
    fn block_size(&self) -> BlockSize;

    /// How many blocks there are.
    fn count(&self) -> u32;

    /// Whether the inode says that block 0 is the root of an index.
    fn is_indexed(&self) -> bool;

    /// Takes note that the index can't be used and is passed over.
    fn distrust_index(&self, _flaw: Flaw) {}

    /// Looks at a block, which must be one of the `count`.
    fn read<R>(&self, block: FileBlock, look: impl FnOnce(&[u8]) -> R) -> Result<R>;
}

/// The blocks of one directory, to be changed.
///
/// # Errors
/// As the store; `ENOSPC` where there is no block to grow by. A failed operation changes nothing.
pub trait DirectoryBlocksMut: DirectoryBlocks {
    /// Changes a block, which must be one of the `count`.
    fn write<R>(&mut self, block: FileBlock, change: impl FnOnce(&mut [u8]) -> R) -> Result<R>;

    /// Names that lie in another block of the directory are about to be put into this one: a store
    /// that is written in pieces must have them here before they are gone there.
    fn expect_names(&mut self, _block: FileBlock) -> Result<()> {
        Ok(())
    }

    /// The names of two blocks are about to come together in one of them; answers in which. The
    /// names of the other one are gone from it afterwards, as with
    /// [`expect_names`](Self::expect_names).
    fn join(&mut self, one: FileBlock, other: FileBlock) -> Result<FileBlock> {
        Ok(one.min(other))
    }

    /// Makes a block, whose own names are elsewhere by now, hold what the last one does. That will
    /// be cut off next.
    fn fill_with_last(&mut self, block: FileBlock, last: FileBlock) -> Result<()> {
        let bytes = self.read(last, <[u8]>::to_vec)?;
        self.write(block, |target| target.copy_from_slice(&bytes))
    }

    /// Adds a block of zeros at the end.
    fn grow(&mut self) -> Result<FileBlock>;

    /// Cuts the directory to its first `count` blocks.
    fn shrink(&mut self, count: u32) -> Result<()>;

    /// Says in the inode whether block 0 is the root of an index.
    fn set_indexed(&mut self, indexed: bool) -> Result<()>;
}

/// How the directories of a file system are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Hashes names; its function is that of directories yet to be indexed.
    pub hasher: Hasher,
    /// What becomes of a directory that outgrows its first block. One that is indexed stays so.
    pub form: Form,
    /// Levels of index blocks, the root included, that the file system's features allow.
    pub levels: u8,
    /// Whether a directory gives blocks back when names are removed.
    pub shrink: bool,
    /// Whether entries tell the kind of their inode (the `filetype` feature).
    pub kinds: bool,
}

impl Rules {
    /// Levels without `large_dir`.
    pub const LEVELS: u8 = 2;
    /// Levels with `large_dir`.
    pub const LEVELS_LARGE: u8 = 3;

    /// The kind as entries of this file system tell it.
    #[must_use]
    pub fn told(&self, kind: EntryKind) -> EntryKind {
        if self.kinds { kind } else { EntryKind::UNKNOWN }
    }
}

/// The form of a directory of more than one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Records in no order.
    Linear,
    /// A tree by the hash of the names.
    Indexed,
}

/// Writes the first block of a new directory.
pub fn create(block: &mut [u8], rules: &Rules, own: InodeNo, parent: InodeNo) {
    entry::put_dots(block, own, parent, rules.told(EntryKind::DIRECTORY));
}

/// The inode of `..`.
///
/// # Errors
/// Where block 0 doesn't start as a directory does.
pub fn parent<B: DirectoryBlocks>(blocks: &B) -> Result<InodeNo> {
    let dots = blocks.read(FileBlock(0), dots)?;
    placed(blocks, FileBlock(0), dots).map(|[_, parent]| parent)
}

/// Makes `..` another inode.
///
/// # Errors
/// Where block 0 doesn't start as a directory does.
pub fn set_parent<B: DirectoryBlocksMut>(blocks: &mut B, parent: InodeNo) -> Result<()> {
    let kind = blocks.rules().told(EntryKind::DIRECTORY);
    let answer = blocks.write(FileBlock(0), |block| {
        dots(block)?;
        entry::set_inode(block, entry::RECORD_MIN, parent, kind);
        Ok(())
    })?;
    placed(blocks, FileBlock(0), answer)
}

/// Gives a name another inode.
///
/// # Errors
/// Where the name is no longer at the place that was found.
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

/// Whether there is nothing but `.` and `..`.
///
/// # Errors
/// Where a record is damaged before another name is found.
pub fn is_empty<B: DirectoryBlocks>(blocks: &B) -> Result<bool> {
    // An index is free space to whoever reads linearly.
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

/// Whether a directory is searched and listed by its index. Where the root of the index is damaged
/// it is not: it is read as a linear one then, as by the kernel. Names of a whole directory are
/// found so, because index blocks are free space to whoever reads linearly.
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

/// Before names of a directory change that were found without its index: makes it a linear one.
/// Names may come to lie where its index is.
pub(crate) fn drop_unused_index<B: DirectoryBlocksMut>(
    blocks: &mut B,
    was_used: bool,
) -> Result<()> {
    if was_used || !blocks.is_indexed() { Ok(()) } else { blocks.set_indexed(false) }
}

/// The records of a block that name files, without `.` and `..`.
pub(crate) fn names(block: FileBlock, bytes: &[u8]) -> impl Iterator<Item = Checked<Entry<'_>>> {
    let dots_end = if block.0 == 0 { entry::RECORD_MIN + 1 } else { 0 };
    Entries::of(bytes).filter(move |entry| match entry {
        Ok(entry) => entry.offset >= dots_end && entry.is_live(),
        Err(_) => true,
    })
}

/// The inodes of `.` and `..`, which every directory starts with.
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

/// Names the place of a flaw.
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

/// Reads a block of the directory that an index leads to.
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

/// Changes a block of the directory that an index leads to.
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

/// Changes the table of the root of an index (level 0) or of a node.
pub(crate) fn change_table<B: DirectoryBlocksMut, R>(
    blocks: &mut B,
    block: FileBlock,
    level: usize,
    change: impl FnOnce(&mut TableMut<'_>) -> Checked<R>,
) -> Result<R> {
    write_checked(blocks, block, |bytes| change(&mut TableMut::of_level(bytes, level)?))
}
