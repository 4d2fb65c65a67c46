//! The blocks of a directory's index: the root, which is block 0 of the directory, and the nodes
//! under it. Both contain a sorted table of (hash, block) pairs.
//!
//! ```text
//! root   0   "." record, 12 bytes             node   0   free record over the whole block
//!       12   ".." record over the rest                8   table
//!       24   u32 0, u8 hash version, u8 8,
//!            u8 levels below the root, u8 0
//!       32   table
//!
//! table  entry 0: u16 limit, u16 count, u32 block     entry n: u32 hash, u32 block
//! ```
//!
//! Entry n covers the hashes from its own up to that of entry n + 1; entry 0 covers all hashes
//! below entry 1. If the lowest bit of a hash is set, names with this hash begin in the block of
//! the previous entry. A linear reader sees only free space in these blocks.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::entry::{self, EntryKind};
use super::hash::HashVersion;
use crate::flaw::{Checked, Flaw};
use crate::types::{FileBlock, InodeNo};

/// Offset of the table in the root, in bytes.
const ROOT_TABLE: usize = 32;
/// Offset of the table in a node, in bytes.
const NODE_TABLE: usize = 8;
/// Offset of the fields of [`RootInfo`] in the root, in bytes.
const ROOT_INFO: usize = 24;
/// Length of these fields in bytes, which the root also stores.
const INFO_LENGTH: u8 = 8;
/// Mask for the block number in an entry; the highest bits are reserved.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// One entry of a table as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Slot {
    hash: U32,
    block: U32,
}

const _: () = assert!(size_of::<Slot>() == 8);

/// The fields of the root that describe its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootInfo {
    /// The directory's hash function.
    pub version: HashVersion,
    /// Number of node levels between the root and the leaves.
    pub levels: u8,
}

/// The checked table of a root or node: its limit matches the block, and its count does not exceed
/// the limit.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    slots: &'a [Slot],
    count: usize,
}

impl<'a> Table<'a> {
    /// Reads the root of an index.
    ///
    /// # Errors
    /// Returns the flaw if the root is damaged.
    pub fn of_root(block: &'a [u8]) -> Checked<(RootInfo, Self)> {
        let info = RootInfo::read(block)?;
        Ok((info, Self::read(block, ROOT_TABLE)?))
    }

    /// Reads a node of an index.
    ///
    /// # Errors
    /// Returns the flaw if the node is damaged.
    pub fn of_node(block: &'a [u8]) -> Checked<Self> {
        let record = entry::entry_at(block, 0)?;
        if record.inode.is_some() || record.length != block.len() {
            return Err(Flaw::IndexNodeStart);
        }
        Self::read(block, NODE_TABLE)
    }

    /// Reads the table of the root (level 0) or of a node.
    pub(crate) fn of_level(block: &'a [u8], level: usize) -> Checked<Self> {
        if level == 0 { Self::of_root(block).map(|(_, table)| table) } else { Self::of_node(block) }
    }

    fn read(block: &'a [u8], start: usize) -> Checked<Self> {
        let Ok(slots) = <[Slot]>::ref_from_bytes(&block[start..]) else {
            return Err(Flaw::IndexTableSize);
        };
        let header = slots[0].hash.get();
        let (limit, count) = (header & 0xffff, header >> 16);
        if limit as usize != slots.len() {
            return Err(Flaw::IndexLimit);
        }
        if count == 0 || count > limit {
            return Err(Flaw::IndexCount);
        }
        Ok(Self { slots, count: count as usize })
    }

    /// Returns the number of entries in use, which is never 0.
    #[must_use]
    pub fn count(self) -> usize {
        self.count
    }

    /// Returns the maximum number of entries.
    #[must_use]
    pub fn limit(self) -> usize {
        self.slots.len()
    }

    /// Returns the hash of an entry, including the continuation bit; 0 for the first entry.
    #[must_use]
    pub fn hash(self, at: usize) -> u32 {
        if at == 0 { 0 } else { self.slots[at].hash.get() }
    }

    /// Returns the block that an entry points to.
    #[must_use]
    pub fn block(self, at: usize) -> FileBlock {
        FileBlock(self.slots[at].block.get() & BLOCK_MASK)
    }

    /// Returns the index of the last entry whose hash is at most `hash`.
    #[must_use]
    #[inline]
    pub fn search(self, hash: u32) -> usize {
        self.slots[1..self.count].partition_point(|slot| slot.hash.get() <= hash)
    }

    /// Returns the entries in use.
    pub(crate) fn entries(self) -> Vec<(u32, FileBlock)> {
        (0..self.count).map(|at| (self.hash(at), self.block(at))).collect()
    }

    /// Returns the hash of the entry after `at`; `None` for the last entry.
    #[must_use]
    pub(crate) fn next_hash(self, at: usize) -> Option<u32> {
        (at + 1 < self.count).then(|| self.hash(at + 1))
    }
}

impl RootInfo {
    fn read(block: &[u8]) -> Checked<Self> {
        let Some(info) = block.get(ROOT_INFO..).and_then(<[u8]>::first_chunk::<8>) else {
            return Err(Flaw::IndexRootSize);
        };
        let &[r0, r1, r2, r3, version, length, levels, flags] = info;
        if [r0, r1, r2, r3] != [0; 4] || length != INFO_LENGTH || flags & 1 != 0 {
            return Err(Flaw::IndexRootFields);
        }
        let Some(version) = HashVersion::from_code(version) else {
            return Err(Flaw::IndexHashVersion);
        };
        Ok(Self { version, levels })
    }

    fn write(self, block: &mut [u8]) {
        let fields = [0, 0, 0, 0, self.version.code(), INFO_LENGTH, self.levels, 0];
        block[ROOT_INFO..ROOT_TABLE].copy_from_slice(&fields);
    }
}

/// Returns the maximum number of entries in a root, for a block size in bytes.
#[must_use]
pub fn root_limit(block_size: usize) -> usize {
    (block_size - ROOT_TABLE) / size_of::<Slot>()
}

/// Returns the maximum number of entries in a node, for a block size in bytes.
#[must_use]
pub fn node_limit(block_size: usize) -> usize {
    (block_size - NODE_TABLE) / size_of::<Slot>()
}

/// Writes a root with one entry, together with `.` and `..`.
pub(crate) fn write_root(
    block: &mut [u8],
    info: RootInfo,
    own: InodeNo,
    parent: InodeNo,
    dot_kind: EntryKind,
    child: FileBlock,
) {
    entry::put_dots(block, own, parent, dot_kind);
    info.write(block);
    TableMut::create(block, ROOT_TABLE, &[(0, child)]);
}

/// Writes a node with these entries; the hash of the first is not stored.
pub(crate) fn write_node(block: &mut [u8], entries: &[(u32, FileBlock)]) {
    block.fill(0);
    entry::put_free(block, 0, block.len());
    TableMut::create(block, NODE_TABLE, entries);
}

/// Replaces the number of levels and the entries of a root.
pub(crate) fn rewrite_root(block: &mut [u8], info: RootInfo, entries: &[(u32, FileBlock)]) {
    info.write(block);
    block[ROOT_TABLE..].fill(0);
    TableMut::create(block, ROOT_TABLE, entries);
}

/// A table of a root or node that can be changed.
pub(crate) struct TableMut<'a> {
    slots: &'a mut [Slot],
    count: usize,
}

impl<'a> TableMut<'a> {
    /// Reads the table of the root (level 0) or of a node, with the same checks as [`Table`].
    pub(crate) fn of_level(block: &'a mut [u8], level: usize) -> Checked<Self> {
        let count = Table::of_level(block, level)?.count;
        let start = if level == 0 { ROOT_TABLE } else { NODE_TABLE };
        match <[Slot]>::mut_from_bytes(&mut block[start..]) {
            Ok(slots) => Ok(Self { slots, count }),
            Err(_) => Err(Flaw::IndexTableSize),
        }
    }

    fn create(block: &'a mut [u8], start: usize, entries: &[(u32, FileBlock)]) {
        let Ok(slots) = <[Slot]>::mut_from_bytes(&mut block[start..]) else { return };
        for (slot, &(hash, block)) in slots.iter_mut().zip(entries) {
            *slot = Slot { hash: hash.into(), block: block.0.into() };
        }
        Self { slots, count: 0 }.set_count(entries.len());
    }

    fn set_count(&mut self, count: usize) {
        self.count = count;
        self.slots[0].hash = (self.slots.len() as u32 | (count as u32) << 16).into();
    }

    pub(crate) fn insert_after(&mut self, at: usize, hash: u32, block: FileBlock) -> Checked<()> {
        if self.count >= self.slots.len() || at >= self.count {
            return Err(Flaw::IndexChanged);
        }
        self.slots.copy_within(at + 1..self.count, at + 2);
        self.slots[at + 1] = Slot { hash: hash.into(), block: block.0.into() };
        self.set_count(self.count + 1);
        Ok(())
    }

    /// Removes an entry. If it is the first, the second entry takes its place. The first entry of a
    /// table stores no hash, so the hash of the second entry is returned.
    pub(crate) fn remove(&mut self, at: usize) -> Checked<Option<u32>> {
        if at >= self.count || self.count < 2 {
            return Err(Flaw::IndexChanged);
        }
        let next = (at == 0).then(|| self.slots[1].hash.get());
        self.slots.copy_within(at + 1..self.count, at);
        self.set_count(self.count - 1);
        Ok(next)
    }

    /// Keeps the first `count` entries.
    pub(crate) fn truncate(&mut self, count: usize) -> Checked<()> {
        if count > self.count {
            return Err(Flaw::IndexChanged);
        }
        self.set_count(count);
        Ok(())
    }

    pub(crate) fn extend(&mut self, entries: &[(u32, FileBlock)]) -> Checked<()> {
        entries.iter().try_for_each(|&(hash, block)| self.insert_after(self.count - 1, hash, block))
    }

    pub(crate) fn set_block(&mut self, at: usize, block: FileBlock) -> Checked<()> {
        self.slots.get_mut(at).ok_or(Flaw::IndexChanged)?.block = block.0.into();
        Ok(())
    }

    /// Sets the hash of an entry other than the first.
    pub(crate) fn set_hash(&mut self, at: usize, hash: u32) -> Checked<()> {
        let slot = self.slots.get_mut(at).filter(|_| at > 0);
        slot.ok_or(Flaw::IndexChanged)?.hash = hash.into();
        Ok(())
    }
}
