//! A cache of metadata blocks: all changed blocks and some unchanged ones.
//!
//! Changed blocks are kept in memory until they are written, in the order of their roles
//! ([`Role`]). This order of writes keeps a file system without a journal consistent. A written
//! block is kept until its slot is needed for another changed block. Unchanged blocks are kept
//! while there is room. File content does not pass through this cache.

mod arena;
mod table;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::BlockDevice;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use arena::{Arena, Slot};
use table::Table;
pub(crate) use table::{Hashing, hashing};

use crate::error::Result;
use crate::recent::Recent;
use crate::types::{BlockNo, BlockSize};

pub(crate) type Block = Arc<[u8]>;

/// Maximum number of bytes in one write to the device.
const RUN_BYTES_MAX: usize = 1 << 20;

/// The purpose of a changed block. Blocks are written in the order of these roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// New blocks of all kinds, indirect blocks that gain pointers, and extended attributes. They
    /// can be written first: nothing on the device refers to a new block yet, and existing pointers
    /// to the other blocks remain correct.
    Map,
    /// Blocks of the inode table.
    Inodes,
    /// Directory blocks that gain names.
    Directory,
    /// Directory blocks that lose names to other blocks. Those other blocks are written earlier, at
    /// the latest in the previous step.
    DirectoryLate(Step),
    /// Indirect blocks that lose pointers. The device needs the old pointers until their
    /// replacement is written.
    MapLate,
    /// Bitmaps, which can be rebuilt from all other blocks.
    Bitmap,
}

impl Role {
    /// Returns the role for a block that need not wait until other blocks are written.
    pub fn without_delay(self) -> Self {
        match self {
            Self::DirectoryLate(_) => Self::Directory,
            Self::MapLate => Self::Map,
            role => role,
        }
    }
}

/// The step in which a delayed directory block is written, from 1 to [`STEPS_MAX`].
pub(crate) type Step = u8;

/// Maximum number of steps in which directory blocks are written; each step costs a barrier.
pub(crate) const STEPS_MAX: Step = 6;

/// The cache. It has no internal lock: reading needs `&self`, changing needs `&mut self`.
pub(crate) struct BlockCache {
    device: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    /// Unchanged blocks that were read.
    clean: Cache<BlockNo, Block, UnitWeighter, Hashing>,
    arena: Arena,
    /// Blocks in the arena: changed blocks, and blocks written since their last change.
    held: Table<Held>,
    /// Soft limit on held blocks; exceeded only while all held blocks are changed.
    held_max: usize,
    /// The held blocks that still must be written.
    changed: HashSet<BlockNo, Hashing>,
    /// For each slot, the block that it contains, or the last block that it contained.
    holders: Vec<BlockNo>,
    /// Blocks that were changed or written, for `kept_changes`.
    pub touched: Recent<BlockNo>,
    /// The slot after which the search for an unchanged block continues.
    hand: usize,
}

/// A block in the arena.
#[derive(Clone, Copy)]
struct Held {
    slot: Slot,
    /// `None` if the device has the same bytes.
    change: Option<Change>,
}

/// Whether a write left out some changes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The device now has the same bytes as memory.
    Nothing,
    /// Some names were left out; the block remains marked as changed and is written again.
    Names,
}

/// Blocks that were written to the device and not yet passed to [`BlockCache::note`].
pub(crate) type Written = Vec<(BlockNo, Left)>;

/// How a changed block must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub role: Role,
    /// The block is new: the device does not refer to it yet.
    pub fresh: bool,
    /// The block must be written even if it is freed first.
    pub pinned: bool,
}

/// Returns the role of a block that is changed again before it is written.
fn joined(before: Role, role: Role) -> Role {
    match (before, role) {
        (Role::DirectoryLate(_), Role::Directory) => before,
        (before, role) => before.min(role),
    }
}

impl BlockCache {
    /// Makes a cache of up to `clean_bytes` of blocks that were only read, and up to `held_bytes`
    /// of blocks that were changed. While changed blocks cannot be written, they may exceed
    /// `held_bytes`.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        block_size: BlockSize,
        clean_bytes: usize,
        held_bytes: usize,
    ) -> Self {
        let blocks = (clean_bytes / block_size.bytes()).max(16);
        let (hashing, lifecycle) = (hashing(), DefaultLifecycle::default());
        Self {
            device,
            block_size,
            clean: Cache::with(blocks, blocks as u64, UnitWeighter, hashing.clone(), lifecycle),
            arena: Arena::new(block_size.bytes()),
            held: Table::new(hashing.clone()),
            held_max: held_bytes / block_size.bytes(),
            changed: HashSet::with_hasher(hashing),
            holders: Vec::new(),
            touched: Recent::default(),
            hand: 0,
        }
    }

    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Returns the device, for accesses that bypass the cache.
    pub fn shared_device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.device)
    }

    pub fn dirty_bytes(&self) -> usize {
        self.changed.len() * self.block_size.bytes()
    }

    /// Passes the bytes of a block to `look`, without copying a held block.
    pub fn look<R>(&self, block: BlockNo, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match self.held.get(block) {
            Some(held) => Ok(look(self.arena.get(held.slot))),
            None => Ok(look(&self.read_clean(block)?)),
        }
    }

    /// Returns a copy of a block; later changes do not affect it.
    pub fn read(&self, block: BlockNo) -> Result<Block> {
        match self.held.get(block) {
            Some(held) => Ok(Block::from(self.arena.get(held.slot))),
            None => self.read_clean(block),
        }
    }

    fn read_clean(&self, block: BlockNo) -> Result<Block> {
        if let Some(bytes) = self.clean.get(&block) {
            return Ok(bytes);
        }
        let bytes = self.load(block)?;
        self.clean.insert(block, Arc::clone(&bytes));
        Ok(bytes)
    }

    /// Reads a block from the device. The cache may contain newer bytes of the block.
    pub fn load(&self, block: BlockNo) -> Result<Block> {
        let mut bytes = self.zeros();
        self.device.read_at(self.offset(block), Arc::make_mut(&mut bytes))?;
        Ok(bytes)
    }

    /// Allocates a block of zeros directly in the `Arc`, which avoids a copy.
    fn zeros(&self) -> Block {
        std::iter::repeat_n(0, self.block_size.bytes()).collect()
    }

    fn offset(&self, block: BlockNo) -> u64 {
        u64::from(block.0) * self.block_size.bytes_u64()
    }

    /// Changes the bytes of a block. If the block is already marked as changed, its earlier role is
    /// kept; a delayed directory block remains delayed.
    pub fn modify<R>(
        &mut self,
        block: BlockNo,
        role: Role,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let slot = match self.held.get_mut(block) {
            Some(Held { slot, change: Some(earlier) }) => {
                earlier.role = joined(earlier.role, role);
                self.touched.add(block);
                *slot
            }
            Some(Held { slot, change: None }) => {
                let slot = *slot;
                self.keep(block, slot, Change { role, fresh: false, pinned: false });
                slot
            }
            None => self.fetch(block, role)?,
        };
        Ok(change(self.arena.get_mut(slot)))
    }

    /// Loads a block into the arena and marks it as changed.
    fn fetch(&mut self, block: BlockNo, role: Role) -> Result<Slot> {
        let at = self.offset(block);
        let slot = self.take_slot();
        let target = self.arena.get_mut(slot);
        match self.clean.remove(&block) {
            Some((_, bytes)) => target.copy_from_slice(&bytes),
            None => {
                if let Err(error) = self.device.read_at(at, target) {
                    self.arena.give_back(slot);
                    return Err(error.into());
                }
            }
        }
        self.keep(block, slot, Change { role, fresh: false, pinned: false });
        Ok(slot)
    }

    fn keep(&mut self, block: BlockNo, slot: Slot, change: Change) {
        self.touched.add(block);
        self.changed.insert(block);
        self.held.insert(block, Held { slot, change: Some(change) });
        if self.holders.len() <= slot.index() {
            self.holders.resize(slot.index() + 1, block);
        }
        self.holders[slot.index()] = block;
    }

    /// Returns a slot for a block that will be changed.
    fn take_slot(&mut self) -> Slot {
        if self.held.len() >= self.held_max && self.held.len() > self.changed.len() {
            self.put_one_aside();
        }
        self.arena.take()
    }

    /// Moves an unchanged held block to the clean blocks, as the clock algorithm does: the hand
    /// moves on to the next such block. The caller has checked that one exists. Blocks that change
    /// often remain, because they are usually marked as changed when the hand reaches them.
    fn put_one_aside(&mut self) {
        loop {
            self.hand = (self.hand + 1) % self.holders.len();
            let block = self.holders[self.hand];
            if let Some(Held { slot, change: None }) = self.held.get(block).copied()
                && slot.index() == self.hand
            {
                self.clean.insert(block, Block::from(self.arena.get(slot)));
                self.held.remove(block);
                self.arena.give_back(slot);
                return;
            }
        }
    }

    /// Replaces the content of a block by zeros, without reading it. The block is treated as new
    /// and gets the role [`Role::Map`].
    pub fn create(&mut self, block: BlockNo) {
        self.forget(block);
        let slot = self.take_slot();
        self.arena.get_mut(slot).fill(0);
        self.keep(block, slot, Change { role: Role::Map, fresh: true, pinned: false });
    }

    /// Delays the write of a directory block, which is about to be changed, until the blocks of
    /// earlier steps are written. A new block is not delayed.
    pub fn delay(&mut self, block: BlockNo, step: Step) -> Result<()> {
        self.modify(block, Role::Directory, |_| {})?;
        if self.role(block).is_some_and(|role| role >= Role::Directory) {
            let late = Role::DirectoryLate(step);
            self.set_role(block, late.max(self.directory_role(block)));
        }
        Ok(())
    }

    /// Returns the role that a directory block would have if it were changed now.
    pub fn directory_role(&self, block: BlockNo) -> Role {
        self.role(block).unwrap_or(Role::Directory)
    }

    /// Ensures that a changed block is written even if it is [released](Self::release) first.
    pub fn pin(&mut self, block: BlockNo) {
        if let Some(change) = self.change_mut(block) {
            change.pinned = true;
        }
    }

    fn change(&self, block: BlockNo) -> Option<Change> {
        self.held.get(block)?.change
    }

    fn change_mut(&mut self, block: BlockNo) -> Option<&mut Change> {
        self.touched.add(block);
        self.held.get_mut(block)?.change.as_mut()
    }

    /// Returns the role in which a block will be written; `None` for an unchanged block.
    pub fn role(&self, block: BlockNo) -> Option<Role> {
        self.change(block).map(|change| change.role)
    }

    /// Whether an indirect block has gained pointers that are not yet on the device. It must then
    /// be written before other pointers are removed from it.
    pub fn must_settle(&self, block: BlockNo) -> bool {
        self.change(block).is_some_and(|change| change.role == Role::Map && !change.fresh)
    }

    /// Drops a block that its file no longer uses, unless the block is pinned. The device may still
    /// refer to it.
    pub fn release(&mut self, block: BlockNo) {
        if self.change(block).is_none_or(|change| !change.pinned) {
            self.forget(block);
        }
    }

    /// Drops a block, even if it is changed or pinned.
    pub fn forget(&mut self, block: BlockNo) {
        if let Some(held) = self.held.remove(block) {
            self.touched.add(block);
            self.changed.remove(&block);
            self.arena.give_back(held.slot);
        }
        self.clean.remove(&block);
    }

    /// Returns all changed blocks: how each must be written, and its bytes.
    pub fn all_changed(&self) -> impl Iterator<Item = (BlockNo, Change, &[u8])> {
        self.changed.iter().filter_map(|block| {
            let (change, bytes) = self.changed(*block)?;
            Some((*block, change, bytes))
        })
    }

    /// Returns how a changed block must be written, and its bytes; `None` for an unchanged block.
    pub fn changed(&self, block: BlockNo) -> Option<(Change, &[u8])> {
        let held = self.held.get(block)?;
        Some((held.change?, self.arena.get(held.slot)))
    }

    /// Adds a changed block that an earlier process did not write. `bytes` has the size of a block.
    pub fn restore(&mut self, block: BlockNo, change: Change, bytes: &[u8]) {
        self.forget(block);
        let slot = self.take_slot();
        self.arena.get_mut(slot).copy_from_slice(bytes);
        self.keep(block, slot, change);
    }

    /// Whether there is a changed block with this role.
    pub fn has(&self, role: Role) -> bool {
        self.changed.iter().any(|block| self.role(*block) == Some(role))
    }

    /// Writes all changed blocks that have this role. Blocks that could not be written remain
    /// changed.
    pub fn write_out(&mut self, role: Role) -> Result<()> {
        let all = self.changed.iter().copied();
        let blocks = all.filter(|block| self.role(*block) == Some(role)).collect();
        let mut written = Written::new();
        let answer = self.put_blocks(blocks, &mut written);
        self.note(&written);
        answer
    }

    /// Writes these changed blocks and adds them to `written`. After an error, the blocks that were
    /// not added must remain changed.
    pub fn put_blocks(&self, mut blocks: Vec<BlockNo>, written: &mut Written) -> Result<()> {
        blocks.sort_unstable();
        let run_max = (RUN_BYTES_MAX / self.block_size.bytes()).max(1);
        let mut buffer = Vec::new();
        for run in blocks.chunk_by(|one, next| one.0 + 1 == next.0) {
            for piece in run.chunks(run_max) {
                self.put_run(piece, &mut buffer)?;
                written.extend(piece.iter().map(|block| (*block, Left::Nothing)));
            }
        }
        Ok(())
    }

    fn put_run(&self, run: &[BlockNo], buffer: &mut Vec<u8>) -> Result<()> {
        let (Some(first), held) = (run.first(), &self.held) else { return Ok(()) };
        let bytes =
            run.iter().filter_map(|block| held.get(*block)).map(|it| self.arena.get(it.slot));
        if let ([_], Some(bytes)) = (run, bytes.clone().next()) {
            self.device.write_at(self.offset(*first), bytes)?;
        } else {
            buffer.clear();
            bytes.for_each(|bytes| buffer.extend_from_slice(bytes));
            self.device.write_at(self.offset(*first), buffer)?;
        }
        Ok(())
    }

    /// Records written blocks; must be called before any of them is changed again.
    pub fn note(&mut self, written: &[(BlockNo, Left)]) {
        for (block, left) in written {
            match (left, self.change_mut(*block)) {
                (Left::Nothing, _) => {
                    self.changed.remove(block);
                    if let Some(held) = self.held.get_mut(*block) {
                        held.change = None;
                    }
                }
                (Left::Names, Some(change)) => {
                    // From now on the device refers to this block.
                    change.fresh = false;
                    change.role = change.role.max(Role::Directory);
                }
                (Left::Names, None) => {}
            }
        }
    }

    /// Writes a directory block without some of its changes, which `leave` removes from a copy of
    /// the bytes. If it removed any, the block remains marked as changed and is written again.
    pub fn put_changed(&self, block: BlockNo, leave: impl FnOnce(&mut [u8])) -> Result<Left> {
        let whole = self.read(block)?;
        let mut bytes = whole.to_vec();
        leave(&mut bytes);
        self.device.write_at(self.offset(block), &bytes)?;
        Ok(if *bytes == *whole { Left::Nothing } else { Left::Names })
    }

    /// Writes some ranges of a changed block; the other bytes on the device are not changed.
    /// Returns whether the device had different bytes in these ranges.
    pub fn put_ranges(
        &self,
        block: BlockNo,
        ranges: &[Range<usize>],
        written: &mut Written,
    ) -> Result<bool> {
        if self.change(block).is_none() {
            return Ok(false);
        }
        let (whole, mut bytes) = (self.read(block)?, self.load(block)?.to_vec());
        let before = bytes.clone();
        for range in ranges {
            bytes[range.clone()].copy_from_slice(&whole[range.clone()]);
        }
        let differs = bytes != before;
        if differs {
            self.device.write_at(self.offset(block), &bytes)?;
        }
        if *bytes == *whole {
            written.push((block, Left::Nothing));
        }
        Ok(differs)
    }

    /// Sets the role of a changed block; does nothing for an unchanged one.
    pub fn set_role(&mut self, block: BlockNo, role: Role) {
        if let Some(change) = self.change_mut(block) {
            change.role = role;
        }
    }
}
