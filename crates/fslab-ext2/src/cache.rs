//! Blocks of metadata in memory: those that were changed, and some of those that were read.
//!
//! A changed block stays until it is written, and is written only when the volume says that its
//! turn has come ([`Role`]): which blocks reach the device before which is what a file system
//! without a journal survives by. Then it stays where it is until its place is wanted for another
//! that is changed. Unchanged blocks are kept as long as there is room. The bytes of files don't
//! come here.

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
use crate::types::{BlockNo, BlockSize};

/// The bytes of a block.
pub(crate) type Block = Arc<[u8]>;

/// Most bytes that are written to the device in one piece.
const RUN_BYTES_MAX: usize = 1 << 20;

/// What a block is for, in the order in which changed blocks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Nothing on the device leads here yet, or only pointers that stay right: new blocks of all
    /// kinds, indirect blocks that lead to more, extended attributes.
    Map,
    /// Inodes.
    Inodes,
    /// Directory blocks that names are added to.
    Directory,
    /// Directory blocks that names are taken from, after they were added elsewhere: to a block of
    /// the step before, at most.
    DirectoryLate(Step),
    /// Indirect blocks that lead to less than on the device: what they led to is needed until what
    /// replaces it is there.
    MapLate,
    /// Bitmaps, which can be made again from all the others.
    Bitmap,
}

/// A step among directory blocks that wait for each other, from 1 to [`STEPS_MAX`].
pub(crate) type Step = u8;

/// Most steps in which directory blocks are written one after the other; each costs a barrier.
pub(crate) const STEPS_MAX: Step = 6;

/// The cache. Reading shares it, changing has it alone: there is no lock of its own.
pub(crate) struct BlockCache {
    device: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    /// Blocks that were read.
    clean: Cache<BlockNo, Block, UnitWeighter, Hashing>,
    arena: Arena,
    /// Blocks in the arena: those that were changed, and others that had been.
    held: Table<Held>,
    /// More are held only if all are changed.
    held_max: usize,
    /// Those of the held ones that are to be written.
    changed: HashSet<BlockNo, Hashing>,
    /// By place: the block that is or was there.
    holders: Vec<BlockNo>,
    /// The place from which on the next unchanged block is looked for.
    hand: usize,
}

/// A block in the arena.
#[derive(Clone, Copy)]
struct Held {
    slot: Slot,
    /// `None` where it is as on the device.
    change: Option<Change>,
}

/// What a write left of the changes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The device has the block as it is in memory.
    Nothing,
    /// Names that were left out: the block is written again in its turn.
    Names,
}

/// Blocks that the device was given, until [`BlockCache::note`] is told of them.
pub(crate) type Written = Vec<(BlockNo, Left)>;

/// What is known of a changed block.
#[derive(Clone, Copy)]
struct Change {
    role: Role,
    /// Nothing on the device leads here.
    fresh: bool,
    /// To be written even when it is freed before.
    pinned: bool,
}

/// The role of a block that is changed once more.
fn joined(before: Role, role: Role) -> Role {
    match (before, role) {
        (Role::DirectoryLate(_), Role::Directory) => before,
        (before, role) => before.min(role),
    }
}

impl BlockCache {
    /// Keeps up to `clean_bytes` of blocks that were read, and up to `held_bytes` of those that
    /// were changed, written or not; more of these only until they can be written.
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
            hand: 0,
        }
    }

    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// The device, for whoever uses it without the cache.
    pub fn shared_device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.device)
    }

    /// Bytes of changed blocks.
    pub fn dirty_bytes(&self) -> usize {
        self.changed.len() * self.block_size.bytes()
    }

    /// Looks at a block without keeping it.
    pub fn look<R>(&self, block: BlockNo, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match self.held.get(block) {
            Some(held) => Ok(look(self.arena.get(held.slot))),
            None => Ok(look(&self.read_clean(block)?)),
        }
    }

    /// A block as it is now, whatever becomes of it.
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

    fn load(&self, block: BlockNo) -> Result<Block> {
        let mut bytes = self.zeros();
        self.device.read_at(self.offset(block), Arc::make_mut(&mut bytes))?;
        Ok(bytes)
    }

    /// A block of zeros, made in place: no vector is copied.
    fn zeros(&self) -> Block {
        std::iter::repeat_n(0, self.block_size.bytes()).collect()
    }

    fn offset(&self, block: BlockNo) -> u64 {
        u64::from(block.0) * self.block_size.bytes_u64()
    }

    /// Changes a block. One that is already to be written early stays so, and one of a directory
    /// that must wait for others goes on waiting.
    pub fn modify<R>(
        &mut self,
        block: BlockNo,
        role: Role,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let slot = match self.held.get_mut(block) {
            Some(Held { slot, change: Some(earlier) }) => {
                earlier.role = joined(earlier.role, role);
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

    /// Makes a block that is not held one that is to be written.
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
        self.changed.insert(block);
        self.held.insert(block, Held { slot, change: Some(change) });
        if self.holders.len() <= slot.index() {
            self.holders.resize(slot.index() + 1, block);
        }
        self.holders[slot.index()] = block;
    }

    /// A place for a block that is to be changed.
    fn take_slot(&mut self) -> Slot {
        if self.held.len() >= self.held_max && self.held.len() > self.changed.len() {
            self.put_one_aside();
        }
        self.arena.take()
    }

    /// Puts the next unchanged block that is held, which there must be, among those that were
    /// read. Blocks that are changed again and again are hardly ever unchanged when it is their
    /// turn.
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

    /// Makes a block zeros, whatever it held. It will be written first of all.
    pub fn create(&mut self, block: BlockNo) {
        self.forget(block);
        let slot = self.take_slot();
        self.arena.get_mut(slot).fill(0);
        self.keep(block, slot, Change { role: Role::Map, fresh: true, pinned: false });
    }

    /// Lets a block of a directory, which is about to be changed, wait for those of earlier steps.
    /// A new one is written first all the same.
    pub fn delay(&mut self, block: BlockNo, step: Step) -> Result<()> {
        self.modify(block, Role::Directory, |_| {})?;
        if self.role(block).is_some_and(|role| role >= Role::Directory) {
            let late = Role::DirectoryLate(step);
            self.set_role(block, late.max(self.directory_role(block)));
        }
        Ok(())
    }

    /// When a directory block would be written that is changed now.
    pub fn directory_role(&self, block: BlockNo) -> Role {
        self.role(block).unwrap_or(Role::Directory)
    }

    /// Has a changed block written in its turn even if it is [released](Self::release) before.
    pub fn pin(&mut self, block: BlockNo) {
        if let Some(change) = self.change_mut(block) {
            change.pinned = true;
        }
    }

    fn change(&self, block: BlockNo) -> Option<Change> {
        self.held.get(block)?.change
    }

    fn change_mut(&mut self, block: BlockNo) -> Option<&mut Change> {
        self.held.get_mut(block)?.change.as_mut()
    }

    /// The role a block is to be written in; `None` for one that is unchanged.
    pub fn role(&self, block: BlockNo) -> Option<Role> {
        self.change(block).map(|change| change.role)
    }

    /// Whether a changed block must be written before it loses something that the device still
    /// leads to through it.
    pub fn must_settle(&self, block: BlockNo) -> bool {
        self.change(block).is_some_and(|change| change.role == Role::Map && !change.fresh)
    }

    /// Drops a block that a file no longer uses, and that the device still leads to.
    pub fn release(&mut self, block: BlockNo) {
        if self.change(block).is_none_or(|change| !change.pinned) {
            self.forget(block);
        }
    }

    /// Drops a block that nothing leads to.
    pub fn forget(&mut self, block: BlockNo) {
        if let Some(held) = self.held.remove(block) {
            self.changed.remove(&block);
            self.arena.give_back(held.slot);
        }
        self.clean.remove(&block);
    }

    /// Whether a block of the role was changed.
    pub fn has(&self, role: Role) -> bool {
        self.changed.iter().any(|block| self.role(*block) == Some(role))
    }

    /// Writes all changed blocks of a role. What could not be written stays changed.
    pub fn write_out(&mut self, role: Role) -> Result<()> {
        let all = self.changed.iter().copied();
        let blocks = all.filter(|block| self.role(*block) == Some(role)).collect();
        let mut written = Written::new();
        let answer = self.put_blocks(blocks, &mut written);
        self.note(&written);
        answer
    }

    /// Writes these changed blocks. Those that are not among the `written` ones afterwards stay
    /// changed.
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

    /// Takes note of what was written, before any of these blocks is changed again.
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
                    // From now on the device leads here.
                    change.fresh = false;
                    change.role = change.role.max(Role::Directory);
                }
                (Left::Names, None) => {}
            }
        }
    }

    /// Writes a directory block with some of its changes left out. If any were, it stays changed
    /// and is written again in its turn.
    pub fn put_changed(&self, block: BlockNo, leave: impl FnOnce(&mut [u8])) -> Result<Left> {
        let whole = self.read(block)?;
        let mut bytes = whole.to_vec();
        leave(&mut bytes);
        self.device.write_at(self.offset(block), &bytes)?;
        Ok(if *bytes == *whole { Left::Nothing } else { Left::Names })
    }

    /// Writes some ranges of a changed block; the others stay as the device has them. Answers
    /// whether the device had anything else there.
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

    /// Gives a changed block another role; answers nothing for an unchanged one.
    pub fn set_role(&mut self, block: BlockNo, role: Role) {
        if let Some(change) = self.change_mut(block) {
            change.role = role;
        }
    }
}
