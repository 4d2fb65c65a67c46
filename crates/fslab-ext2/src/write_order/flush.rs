//! Writes all changes in an order such that, after a power cut at any point, a checker can repair
//! the file system without losing files. The method is soft updates (Ganger and Patt, OSDI 1994),
//! but in steps for all changes together, without dependencies between individual changes.
//! [`crate::write_order::closure`] writes a single file.
//!
//! 1. The superblock, without its clean mark. If its orphan list is not empty, the list begins with
//!    an inode that is on the device and is not deleted in step 5.
//! 2. New blocks and pointers ([`Role::Map`]), which the device does not refer to yet.
//! 3. Inodes, which refer to the blocks of step 2. Inodes that lose names or blocks wait until
//!    step 5.
//! 4. Directories, which refer to the inodes of step 3. Blocks that gain names are written before
//!    the blocks that lose them. Chains of such blocks need several steps.
//! 5. Inodes that lost names or blocks, indirect blocks that lost pointers, then bitmaps and
//!    counts. Only now may freed blocks and inodes be reused.
//! 6. The superblock, marked clean again.
//!
//! The device is flushed after each step. File content has been written before, in place or to
//! blocks that the device does not refer to.

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

/// The next step of a flush. The device is flushed before each step except the first, and after the
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushStep {
    /// Step 1 of the list in the module's documentation.
    Begin,
    /// Step 2.
    Map,
    /// Step 3.
    Inodes,
    /// Step 4: first 0 for blocks that only gain names, then 1 to [`STEPS_MAX`] for blocks that
    /// lose names.
    Directories(u8),
    /// Step 5.
    Late,
    /// Updates the state in memory after everything is durable.
    Settled,
}

impl Volume {
    /// Makes all changes durable.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.flush_within_operation()?;
        self.say_in_order()?;
        // If the superblock was just marked as not clean, this mark must be durable, because a
        // checker skips an image that is marked clean.
        if self.says_clean { Ok(()) } else { self.barrier() }
    }

    /// Does the same as [`flush`](Self::flush) in the middle of an operation, and therefore does
    /// not mark the file system as clean.
    pub(crate) fn flush_within_operation(&mut self) -> Result<()> {
        let flushed = self.flush_steps().try_for_each(|step| {
            self.flush_step(step)?;
            self.barrier()
        });
        let flushed = flushed.and_then(|()| self.barrier());
        self.order.must_flush = flushed.is_err();
        flushed
    }

    /// Returns the steps of a flush; none if there are no changes. The caller flushes the device
    /// after each step and at the end. No other operation may run in between.
    pub(crate) fn flush_steps(&self) -> impl Iterator<Item = FlushStep> + use<> {
        let is_due = !self.options.read_only && self.has_changes();
        let directories = (0..=STEPS_MAX).map(FlushStep::Directories);
        let first = [FlushStep::Begin, FlushStep::Map, FlushStep::Inodes].into_iter();
        let all = first.chain(directories).chain([FlushStep::Late, FlushStep::Settled]);
        all.filter(move |_| is_due)
    }

    pub(crate) fn flush_step(&mut self, step: FlushStep) -> Result<()> {
        match step {
            FlushStep::Begin => {
                self.keep_state_of_flush()?;
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
                self.end_state_of_flush();
                Ok(())
            }
        }
    }

    /// Executes step 6: updates the superblock's clean mark if it is wrong.
    pub(crate) fn say_in_order(&mut self) -> Result<()> {
        let is_clean = self.was_clean && !self.trouble.is_noted() && self.orphans.is_empty();
        if is_clean == self.says_clean || self.options.read_only {
            return Ok(());
        }
        self.write_superblock(is_clean, self.orphans.head())
    }

    /// Returns the device if it was written to since its last flush.
    pub(crate) fn device_to_flush(&self) -> Option<Arc<dyn BlockDevice>> {
        self.data_written.then(|| self.cache.shared_device())
    }

    /// Records the result of a device flush. Must be called before anything else is written.
    pub(crate) fn flushed(&mut self, answer: fslab_vfs::Result<()>) -> Result<()> {
        // A failed flush may have lost earlier writes, and it is unknown which, so a check is
        // needed.
        answer.inspect_err(|_| self.trouble.note())?;
        // Cleared only after a success, so that a failed flush is repeated.
        (self.data_written, self.reuse_waits) = (false, false);
        Ok(())
    }

    fn has_changes(&self) -> bool {
        self.cache.dirty_bytes() > 0 || self.space.changed || self.space.is_waiting()
    }

    /// Flushes the device if it was written to since its last flush.
    fn barrier(&mut self) -> Result<()> {
        match self.device_to_flush() {
            Some(device) => self.flushed(device.flush()),
            None => Ok(()),
        }
    }

    /// Flushes the device before an allocation that could reuse freed blocks, if the removal of the
    /// references to them is not durable yet.
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

    /// Writes the inode table blocks, with delayed inodes in their earlier state.
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
        // This step is reached only if all earlier steps succeeded. Otherwise all blocks remain
        // marked as changed, and the next flush writes them.
        self.order.settled();
        for (block, _) in self.late_blocks()? {
            self.cache.set_role(block, Role::Inodes);
        }
        self.write_role(Role::Inodes)?;
        self.write_role(Role::MapLate)?;
        self.order.late_inodes.clear();
        // The device may write bitmaps and inodes in any order, because a check rebuilds bitmaps
        // from inodes.
        self.reuse_waits |= self.space.is_waiting();
        self.space.settle(&mut self.cache)?;
        self.write_role(Role::Bitmap)?;
        self.write_counts()
    }

    fn late_blocks(&self) -> Result<Vec<(BlockNo, usize)>> {
        self.order.late_inodes.keys().map(|no| self.place_of_bytes(*no)).collect()
    }

    /// Writes the primary copies of the descriptors and the superblock. The backup copies are only
    /// for repair; their counts are not updated, as in the kernel.
    fn write_counts(&mut self) -> Result<()> {
        if self.space.changed {
            let geometry = self.geometry();
            let at = geometry.offset_of(geometry.descriptors_of(GroupNo(0)));
            self.cache.device().write_at(at, &descriptor_table(self.space.groups()))?;
            // Blocks and inodes that still wait for reuse will change the counts later.
            self.space.changed = self.space.is_waiting();
        }
        self.write_superblock(false, self.orphans.head())
    }

    pub(crate) fn write_superblock(&mut self, clean: bool, orphan: u32) -> Result<()> {
        let superblock = self.put_superblock(clean, orphan)?;
        self.says(superblock, clean);
        Ok(())
    }

    /// Records the superblock that was written.
    pub(crate) fn says(&mut self, superblock: Superblock, clean: bool) {
        self.superblock = superblock;
        self.says_clean = clean;
        self.data_written = true;
    }

    /// Writes the superblock with the current counts, and returns the written superblock.
    pub(crate) fn put_superblock(&self, clean: bool, orphan: u32) -> Result<Superblock> {
        let totals = self.space.totals();
        let now = self.now.seconds.clamp(0, i64::from(u32::MAX)) as u32;
        // Change a copy, because the superblock in memory must match the device if the write fails.
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
