//! Blocks of metadata in memory: those that were changed, and some of those that were read.
//!
//! A changed block stays until it is written, and is written only when the volume says that its
//! turn has come ([`Role`]): which blocks reach the device before which is what a file system
//! without a journal survives by. Unchanged blocks are kept as long as there is room. The bytes of
//! files don't come here.

mod arena;

use std::collections::HashMap;
use std::sync::Arc;

use fslab_vfs::BlockDevice;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use arena::{Arena, Slot};

use crate::error::Result;
use crate::numbers::{BlockNo, BlockSize};

/// The bytes of a block.
pub(crate) type Block = Arc<[u8]>;

/// Hashes the numbers of blocks, which an image may choose, not by a plain multiplication.
type Hashing = ahash::RandomState;

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
    clean: Cache<BlockNo, Block, UnitWeighter, Hashing>,
    dirty: HashMap<BlockNo, Slot, Hashing>,
    arena: Arena,
    /// By the place of a changed block.
    states: Vec<State>,
}

/// What is known of a changed block.
#[derive(Clone, Copy)]
struct State {
    role: Role,
    /// Nothing on the device leads here.
    fresh: bool,
    /// To be written even when it is freed before.
    pinned: bool,
}

/// The same in each run, so that the same image is worked on in the same order.
fn hashing() -> Hashing {
    Hashing::with_seeds(
        0x243f_6a88_85a3_08d3,
        0x1319_8a2e_0370_7344,
        0xa409_3822_299f_31d0,
        0x082e_fa98_ec4e_6c89,
    )
}

/// The role of a block that is changed once more.
fn joined(before: Role, role: Role) -> Role {
    match (before, role) {
        (Role::DirectoryLate(_), Role::Directory) => before,
        (before, role) => before.min(role),
    }
}

impl BlockCache {
    /// Keeps up to `clean_bytes` of unchanged blocks.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: BlockSize, clean_bytes: usize) -> Self {
        let blocks = (clean_bytes / block_size.bytes()).max(16);
        let (hashing, lifecycle) = (hashing(), DefaultLifecycle::default());
        let clean = Cache::with(blocks, blocks as u64, UnitWeighter, hashing.clone(), lifecycle);
        let dirty = HashMap::with_hasher(hashing);
        let arena = Arena::new(block_size.bytes());
        Self { device, block_size, clean, dirty, arena, states: Vec::new() }
    }

    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Bytes of changed blocks.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty.len() * self.block_size.bytes()
    }

    /// Looks at a block without keeping it.
    pub fn look<R>(&self, block: BlockNo, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match self.dirty.get(&block) {
            Some(slot) => Ok(look(self.arena.get(*slot))),
            None => Ok(look(&self.read_clean(block)?)),
        }
    }

    /// A block as it is now, whatever becomes of it.
    pub fn read(&self, block: BlockNo) -> Result<Block> {
        match self.dirty.get(&block) {
            Some(slot) => Ok(Block::from(self.arena.get(*slot))),
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
        let slot = match self.dirty.get(&block) {
            Some(slot) => {
                let state = &mut self.states[slot.index()];
                state.role = joined(state.role, role);
                *slot
            }
            None => self.fetch(block, role)?,
        };
        Ok(change(self.arena.get_mut(slot)))
    }

    /// Makes an unchanged block one that is to be written.
    fn fetch(&mut self, block: BlockNo, role: Role) -> Result<Slot> {
        let at = self.offset(block);
        let slot = self.arena.take();
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
        self.keep(block, slot, State { role, fresh: false, pinned: false });
        Ok(slot)
    }

    fn keep(&mut self, block: BlockNo, slot: Slot, state: State) {
        if self.states.len() <= slot.index() {
            self.states.resize(slot.index() + 1, state);
        }
        self.states[slot.index()] = state;
        self.dirty.insert(block, slot);
    }

    /// Makes a block zeros, whatever it held. It will be written first of all.
    pub fn create(&mut self, block: BlockNo) {
        self.forget(block);
        let slot = self.arena.take();
        self.arena.get_mut(slot).fill(0);
        self.keep(block, slot, State { role: Role::Map, fresh: true, pinned: false });
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
        if let Some(slot) = self.dirty.get(&block) {
            self.states[slot.index()].pinned = true;
        }
    }

    fn state(&self, block: BlockNo) -> Option<State> {
        self.dirty.get(&block).map(|slot| self.states[slot.index()])
    }

    /// The role a block is to be written in; `None` for one that is unchanged.
    pub fn role(&self, block: BlockNo) -> Option<Role> {
        self.state(block).map(|state| state.role)
    }

    /// Whether a changed block must be written before it loses something that the device still
    /// leads to through it.
    pub fn must_settle(&self, block: BlockNo) -> bool {
        self.state(block).is_some_and(|state| state.role == Role::Map && !state.fresh)
    }

    /// Drops a block that a file no longer uses, and that the device still leads to.
    pub fn release(&mut self, block: BlockNo) {
        if self.state(block).is_none_or(|state| !state.pinned) {
            self.forget(block);
        }
    }

    /// Drops a block that nothing leads to.
    pub fn forget(&mut self, block: BlockNo) {
        if let Some(slot) = self.dirty.remove(&block) {
            self.arena.give_back(slot);
        }
        self.clean.remove(&block);
    }

    /// Whether a block of the role was changed.
    pub fn has(&self, role: Role) -> bool {
        self.dirty.values().any(|slot| self.states[slot.index()].role == role)
    }

    /// Writes all changed blocks of a role. What could not be written stays changed.
    pub fn write_out(&mut self, role: Role) -> Result<()> {
        let wanted = self.dirty.iter().filter(|(_, slot)| self.states[slot.index()].role == role);
        let mut blocks: Vec<(BlockNo, Slot)> =
            wanted.map(|(block, slot)| (*block, *slot)).collect();
        blocks.sort_unstable_by_key(|(block, _)| *block);
        let run_max = (RUN_BYTES_MAX / self.block_size.bytes()).max(1);
        let mut buffer = Vec::new();
        for run in blocks.chunk_by(|(one, _), (next, _)| one.0 + 1 == next.0) {
            for piece in run.chunks(run_max) {
                self.write_run(piece, &mut buffer)?;
            }
        }
        Ok(())
    }

    fn write_run(&mut self, run: &[(BlockNo, Slot)], buffer: &mut Vec<u8>) -> Result<()> {
        let Some((first, slot)) = run.first() else { return Ok(()) };
        let at = self.offset(*first);
        if run.len() == 1 {
            self.device.write_at(at, self.arena.get(*slot))?;
        } else {
            buffer.clear();
            run.iter().for_each(|(_, slot)| buffer.extend_from_slice(self.arena.get(*slot)));
            self.device.write_at(at, buffer)?;
        }
        for (block, slot) in run {
            self.dirty.remove(block);
            self.clean.insert(*block, Block::from(self.arena.get(*slot)));
            self.arena.give_back(*slot);
        }
        Ok(())
    }

    /// Writes a block's bytes with some changed, without calling the block written.
    pub fn write_patched(&self, block: BlockNo, patch: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut bytes = self.read(block)?.to_vec();
        patch(&mut bytes);
        Ok(self.device.write_at(self.offset(block), &bytes)?)
    }

    /// Gives a changed block another role; answers nothing for an unchanged one.
    pub fn set_role(&mut self, block: BlockNo, role: Role) {
        if let Some(slot) = self.dirty.get(&block) {
            self.states[slot.index()].role = role;
        }
    }
}
