//! Writing what was changed, in an order in which a power cut at any point leaves what a checker
//! can put right without loss: soft updates (Ganger and Patt, OSDI 1994), with steps that all
//! changes go through instead of dependencies between single ones. [`crate::write_order::closure`]
//! writes a single file.
//!
//! 1. The superblock stops saying that all is in order, and names no orphan that 5 deletes or that
//!    the device doesn't have yet.
//! 2. New blocks and pointers ([`Role::Map`]): nothing on the device leads to what is new.
//! 3. Inodes: they lead to what 2 wrote. Those that lose something wait until 5.
//! 4. Directories: they name the inodes of 3; first where names arrive, then where they leave, in
//!    as many steps as there are such pairs one after the other.
//! 5. Inodes that lost their name or a part, indirect blocks that did, then bitmaps and counts.
//!    Only now may what was freed be used again.
//! 6. The superblock says that all is in order.
//!
//! Between two steps the device is told to make durable what it has. The bytes of files were
//! written before, into blocks that nothing on the device leads to, or in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use fslab_vfs::BlockDevice;

use crate::cache::{Role, STEPS_MAX};
use crate::error::Result;
use crate::format::{STATE_CLEAN, STATE_ERRORS, SUPERBLOCK_OFFSET};
use crate::group::descriptor_table;
use crate::superblock::Superblock;
use crate::types::{BlockNo, GroupNo, InodeNo};
use crate::volume::Volume;

/// What a flush does next. Before each step but the first, and behind the last, the device makes
/// durable what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushStep {
    /// Step 1 of the module's list.
    Begin,
    /// Step 2.
    Map,
    /// Step 3.
    Inodes,
    /// Step 4: names that arrive, then those that leave, by their place in the order.
    Directories(u8),
    /// Step 5.
    Late,
    /// What is left in memory is told that all of it is durable.
    Settled,
}

impl Volume {
    /// Makes everything durable.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.flush_within_operation()?;
        self.say_in_order()?;
        // That a check is due must not be forgotten.
        if self.says_clean { Ok(()) } else { self.barrier() }
    }

    /// As [`flush`](Self::flush), within an operation: what is written may not be in order.
    pub(crate) fn flush_within_operation(&mut self) -> Result<()> {
        for step in self.flush_steps() {
            self.flush_step(step)?;
            self.barrier()?;
        }
        self.barrier()
    }

    /// The steps of a flush; none where nothing was changed. Whoever goes through them flushes the
    /// device behind each, and at last; other operations must not come between.
    pub(crate) fn flush_steps(&self) -> impl Iterator<Item = FlushStep> + use<> {
        let is_due = !self.options.read_only && self.has_changes();
        let directories = (0..=STEPS_MAX).map(FlushStep::Directories);
        let first = [FlushStep::Begin, FlushStep::Map, FlushStep::Inodes].into_iter();
        let all = first.chain(directories).chain([FlushStep::Late, FlushStep::Settled]);
        all.filter(move |_| is_due)
    }

    /// Does a step of a flush.
    pub(crate) fn flush_step(&mut self, step: FlushStep) -> Result<()> {
        match step {
            FlushStep::Begin => {
                let head = self.orphans.settled_head();
                if self.says_clean || head != self.superblock.raw().s_last_orphan.get() {
                    self.write_superblock(false, head)?;
                }
                self.data_written = true;
                Ok(())
            }
            FlushStep::Map => self.write_role(Role::Map),
            FlushStep::Inodes => self.write_inodes_without_late(),
            FlushStep::Directories(0) => self.write_role(Role::Directory),
            FlushStep::Directories(number) => self.write_role(Role::DirectoryLate(number)),
            FlushStep::Late => self.write_late(),
            FlushStep::Settled => {
                self.orphans.settled();
                Ok(())
            }
        }
    }

    /// Step 6: makes the superblock say whether all is in order, if it says anything else.
    pub(crate) fn say_in_order(&mut self) -> Result<()> {
        let is_clean = self.was_clean && !self.trouble.is_noted() && self.orphans.is_empty();
        if is_clean == self.says_clean || self.options.read_only {
            return Ok(());
        }
        self.write_superblock(is_clean, self.orphans.head())
    }

    /// The device, if it was given something that is not durable.
    pub(crate) fn device_to_flush(&self) -> Option<Arc<dyn BlockDevice>> {
        self.data_written.then(|| self.cache.shared_device())
    }

    /// Takes note of a flush of the device, before anything else was written.
    pub(crate) fn flushed(&mut self, answer: fslab_vfs::Result<()>) -> Result<()> {
        // What a device dropped that failed so, nobody can tell.
        answer.inspect_err(|_| self.trouble.note())?;
        // Not before: where it failed, the next one is asked for it again.
        (self.data_written, self.reuse_waits) = (false, false);
        Ok(())
    }

    fn has_changes(&self) -> bool {
        self.cache.dirty_bytes() > 0 || self.space.changed || self.space.is_waiting()
    }

    /// Makes durable what the device was given, if it was given something.
    fn barrier(&mut self) -> Result<()> {
        match self.device_to_flush() {
            Some(device) => self.flushed(device.flush()),
            None => Ok(()),
        }
    }

    /// Before something is taken: what was freed may be used again only when the device has
    /// confirmed that nothing leads to it.
    pub(crate) fn confirm_freed(&mut self) -> Result<()> {
        if self.reuse_waits { self.barrier() } else { Ok(()) }
    }

    fn write_role(&mut self, role: Role) -> Result<()> {
        if self.cache.has(role) {
            self.cache.write_out(role)?;
            self.data_written = true;
        }
        Ok(())
    }

    /// Writes the blocks of inodes, with those that must wait as they were before.
    fn write_inodes_without_late(&mut self) -> Result<()> {
        let late = std::mem::take(&mut self.order.late_inodes);
        let answer = self.write_patched(&late);
        self.order.late_inodes = late;
        answer
    }

    fn write_patched(&mut self, late: &BTreeMap<InodeNo, Box<[u8]>>) -> Result<()> {
        let mut by_block: BTreeMap<BlockNo, Vec<(usize, &[u8])>> = BTreeMap::new();
        for (no, before) in late {
            let (block, offset) = self.place_of_bytes(*no)?;
            by_block.entry(block).or_default().push((offset, before));
        }
        for (block, patches) in &by_block {
            self.cache.put_changed(*block, |bytes| {
                for (offset, before) in patches {
                    bytes[*offset..offset + before.len()].copy_from_slice(before);
                }
            })?;
            self.cache.set_role(*block, Role::Bitmap);
            self.data_written = true;
        }
        self.write_role(Role::Inodes)
    }

    fn write_late(&mut self) -> Result<()> {
        // A failure before this leaves everything changed, so that it is written next time.
        self.order.settled();
        for (block, _) in self.late_blocks()? {
            self.cache.set_role(block, Role::Inodes);
        }
        self.write_role(Role::Inodes)?;
        self.write_role(Role::MapLate)?;
        self.order.late_inodes.clear();
        // The device may reorder this with the inodes: bitmaps are made again from inodes.
        self.reuse_waits |= self.space.is_waiting();
        self.space.settle(&mut self.cache)?;
        self.write_role(Role::Bitmap)?;
        self.write_counts()
    }

    fn late_blocks(&self) -> Result<Vec<(BlockNo, usize)>> {
        self.order.late_inodes.keys().map(|no| self.place_of_bytes(*no)).collect()
    }

    /// Writes the first copy of the descriptors and the superblock. The others are for repair and
    /// keep the counts they had, as with the kernel.
    fn write_counts(&mut self) -> Result<()> {
        if self.space.changed {
            let geometry = self.geometry();
            let at = geometry.offset_of(geometry.descriptors_of(GroupNo(0)));
            self.cache.device().write_at(at, &descriptor_table(self.space.groups()))?;
            self.space.changed = false;
        }
        self.write_superblock(false, self.orphans.head())
    }

    pub(crate) fn write_superblock(&mut self, clean: bool, orphan: u32) -> Result<()> {
        let superblock = self.put_superblock(clean, orphan)?;
        self.says(superblock, clean);
        Ok(())
    }

    /// Takes note of a superblock that was written.
    pub(crate) fn says(&mut self, superblock: Superblock, clean: bool) {
        self.superblock = superblock;
        self.says_clean = clean;
        self.data_written = true;
    }

    /// Writes a superblock with the counts of now, and answers it.
    pub(crate) fn put_superblock(&self, clean: bool, orphan: u32) -> Result<Superblock> {
        let totals = self.space.totals();
        let now = self.now.seconds.clamp(0, i64::from(u32::MAX)) as u32;
        // What could not be written is not what the device says.
        let mut superblock = self.superblock.clone();
        let raw = superblock.raw_mut();
        let state = raw.s_state.get() & !STATE_CLEAN;
        let trouble = if self.trouble.is_noted() { STATE_ERRORS } else { 0 };
        raw.s_state = (state | trouble | if clean { STATE_CLEAN } else { 0 }).into();
        raw.s_free_blocks_count = (totals.free_blocks as u32).into();
        raw.s_free_inodes_count = (totals.free_inodes as u32).into();
        raw.s_last_orphan = orphan.into();
        raw.s_wtime = raw.s_wtime.get().max(now).into();
        self.cache.device().write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())?;
        Ok(superblock)
    }
}
