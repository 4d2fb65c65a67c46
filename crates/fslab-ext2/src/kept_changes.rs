//! Keeps changes after the death of a daemon, on mounts with `-o keep`. A volume records each
//! change that is not on the device yet in shared memory, which the next daemon inherits.
//!
//! The recorded changes of an operation become valid all at once, before its caller gets a reply.
//! After the death of a daemon, the next one restores the changes of all completed operations and
//! writes them to the device in the usual order ([`crate::write_order`]). So the device is
//! consistent even if the power fails meanwhile. The content of files needs no record, because it
//! is written to the device immediately.
//!
//! The memory has two halves. New records are appended to the active half. If it is full, a
//! complete set of records is written to the other half, which then becomes the active one. The
//! halves are also switched after each flush, because few changes then need a record.

mod memory;
mod record;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use fslab_sys::shared_memory::SharedMemory;

use crate::cache::Change;
use crate::error::{Error, Result};
use crate::free_space::Freeing;
use crate::group::Group;
use crate::orphans::OrphanChange;
use crate::types::{BlockNo, GroupNo, InodeNo};
use crate::volume::Volume;
use memory::Halves;
pub use memory::{KEPT_LAYOUT, image_of, note_image};
use record::{Record, Records};
use state::KeptChanges;

/// Maximum number of bytes of changed metadata in memory on a mount with `-o keep`.
pub(crate) const DIRTY_BYTES_MAX: usize = 16 << 20;

/// Size of the shared memory in 64-bit words. Each half has room for three times the maximum of
/// changed metadata. Only written pages need memory.
pub const KEPT_WORDS: usize = 2 * 3 * DIRTY_BYTES_MAX / size_of::<u64>();

/// Flags of a volume: it was marked clean when it was mounted; errors were found.
const WAS_CLEAN: u64 = 1;
const HAS_TROUBLE: u64 = 2;

/// Encodes the counts of a group.
fn put_group(no: GroupNo, groups: &[Group], records: &mut Records) {
    let Some(group) = groups.get(no.0 as usize) else { return };
    let counts = [group.free_blocks, group.free_inodes, group.directories];
    records.put(&Record::Group { no, counts });
}

impl Volume {
    /// Restores the changes that an earlier daemon has recorded in `memory`, if it served the same
    /// volume, and makes them durable. Then records all further changes there.
    ///
    /// # Errors
    /// [`Error::NotKept`] if the memory contains no valid records of this volume; errors of the
    /// device.
    pub(crate) fn keep_changes(&mut self, memory: Arc<SharedMemory>) -> Result<()> {
        let identity = self.superblock.uuid_tag().into();
        let halves = Halves::new(Arc::clone(&memory));
        if !halves.is_begun() {
            self.release_orphans();
        } else {
            let (records, flags) = halves.read(identity).ok_or(Error::NotKept)?;
            self.restore(&records).ok_or(Error::NotKept)?;
            self.was_clean = flags & WAS_CLEAN != 0;
            if flags & HAS_TROUBLE != 0 || halves.has_errors() {
                self.trouble.note();
            }
            // Files may be deleted before the first request, which would provide the current time.
            // Until then, use the time at which the superblock was last written.
            self.now.seconds = i64::from(self.superblock.raw().s_wtime.get());
            self.known.get_mut().expect_more_references();
            self.space.changed = true;
            self.flush()?;
        }
        self.cache.touched.begin();
        self.space.recently_freed.begin();
        self.order.recently_late.begin();
        self.orphans.recent.begin();
        self.kept = Some(KeptChanges::new(halves));
        self.trouble.keep_in(memory, memory::note_errors);
        self.commit();
        Ok(())
    }

    /// Makes the changes since the last commit part of the state that the next daemon restores.
    /// Called when an operation is complete.
    pub(crate) fn commit(&mut self) {
        let Some(mut kept) = self.kept.take() else { return };
        let is_appended = !kept.is_due && {
            kept.buffer.clear();
            self.put_recent(&mut kept);
            kept.halves.append(kept.buffer.words(), self.flags())
        };
        if !is_appended {
            self.put_all(&mut kept);
        }
        self.kept = Some(kept);
    }

    /// Prepares a flush, which may be part of an operation that is not complete yet. If the daemon
    /// dies before the operation completes, the next daemon restores the state before the
    /// operation. So for each block and group that the operation has changed, the version on the
    /// device is recorded first.
    pub(crate) fn keep_state_of_flush(&mut self) -> Result<()> {
        let Some(mut kept) = self.kept.take() else { return Ok(()) };
        kept.buffer.clear();
        // The flush changes the device even if it fails.
        kept.is_due = true;
        kept.flushes_within_operation = self.has_uncommitted();
        let answer = self.put_state_on_device(&mut kept);
        if answer.is_err() || !kept.halves.append(kept.buffer.words(), self.flags()) {
            kept.give_up();
        }
        self.kept = Some(kept);
        answer
    }

    fn has_uncommitted(&self) -> bool {
        !self.cache.touched.get().is_empty()
            || !self.space.recently_freed.get().is_empty()
            || !self.order.recently_late.get().is_empty()
    }

    /// Commits after a flush. If the flush was part of an operation, nothing is committed yet. The
    /// next daemon would then restore the state before the operation.
    pub(crate) fn end_state_of_flush(&mut self) {
        if self.kept.as_ref().is_some_and(|kept| !kept.flushes_within_operation) {
            self.commit();
        }
    }

    /// Encodes the blocks and groups that changed since the last commit, as they are on the device.
    /// New blocks are left out, because the committed state does not use them.
    fn put_state_on_device(&mut self, kept: &mut KeptChanges) -> Result<()> {
        let (blocks, groups) = self.recently_changed();
        for block in blocks {
            let Some((change, _)) = self.cache.changed(block).filter(|(change, _)| !change.fresh)
            else {
                continue;
            };
            if kept.blocks.insert(block) {
                let bytes = self.cache.load(block)?;
                let change = Change { role: change.role.without_delay(), ..change };
                kept.buffer.put(&Record::Changed(block, change, &bytes));
            }
        }
        let new: Vec<_> = groups.into_iter().filter(|no| kept.groups.insert(*no)).collect();
        if !new.is_empty() {
            let on_device = Group::read_all(self.cache.device(), self.geometry())?;
            new.iter().for_each(|no| put_group(*no, &on_device, &mut kept.buffer));
        }
        Ok(())
    }

    fn flags(&self) -> u64 {
        let was_clean = if self.was_clean { WAS_CLEAN } else { 0 };
        was_clean | if self.trouble.is_noted() { HAS_TROUBLE } else { 0 }
    }

    /// Writes a complete set of records to the inactive half.
    fn put_all(&mut self, kept: &mut KeptChanges) {
        // The complete set includes the recent changes, so they need no separate records.
        self.cache.touched.take();
        self.space.recently_freed.take();
        self.order.recently_late.take();
        self.orphans.recent.take();
        kept.blocks.clear();
        kept.groups.clear();
        kept.buffer.clear();
        self.put_everything(kept);
        let identity = u64::from(self.superblock.uuid_tag());
        kept.is_due = false;
        if !kept.halves.begin_again(identity, kept.buffer.words(), self.flags()) {
            kept.give_up();
            self.order.must_flush = true;
        }
    }

    /// Returns the blocks and groups that were changed since the last commit.
    fn recently_changed(&self) -> (Vec<BlockNo>, Vec<GroupNo>) {
        let mut blocks = self.cache.touched.get().to_vec();
        blocks.sort_unstable();
        blocks.dedup();
        let of_bitmap = |block: &BlockNo| {
            let (no, _) = self.geometry().place_of_block(*block)?;
            let group = &self.space.groups()[no.0 as usize];
            [group.block_bitmap, group.inode_bitmap].contains(block).then_some(no)
        };
        let of_freed = |one: &Freeing| match one {
            Freeing::Block(block) => self.geometry().place_of_block(*block).map(|place| place.0),
            Freeing::Inode(no) => self.geometry().place_of_inode(*no).map(|place| place.0),
        };
        let freed = self.space.recently_freed.get().iter().filter_map(of_freed);
        let mut groups: Vec<_> = blocks.iter().filter_map(of_bitmap).chain(freed).collect();
        groups.sort_unstable();
        groups.dedup();
        (blocks, groups)
    }

    /// Encodes the changes since the last commit.
    fn put_recent(&mut self, kept: &mut KeptChanges) {
        let (blocks, groups) = self.recently_changed();
        self.cache.touched.take();
        for block in blocks {
            match self.cache.changed(block) {
                Some((change, bytes)) => {
                    kept.blocks.insert(block);
                    kept.buffer.put(&Record::Changed(block, change, bytes));
                }
                None if kept.blocks.remove(&block) => kept.buffer.put(&Record::Unchanged(block)),
                None => {}
            }
        }
        kept.buffer.put_freed(self.space.recently_freed.take());
        for no in self.order.recently_late.take() {
            if let Some(before) = self.order.late_inodes.get(&no) {
                kept.buffer.put(&Record::Late(no, before));
            }
        }
        for change in self.orphans.recent.take() {
            kept.buffer.put(&match change {
                OrphanChange::Added(no) => self.orphan(no, false),
                OrphanChange::Removed(no) => Record::OrphanRemoved(no),
            });
        }
        for no in groups {
            kept.groups.insert(no);
            put_group(no, self.space.groups(), &mut kept.buffer);
        }
    }

    /// Encodes all changes that are not on the device.
    fn put_everything(&self, kept: &mut KeptChanges) {
        let records = &mut kept.buffer;
        for (block, change, bytes) in self.cache.all_changed() {
            kept.blocks.insert(block);
            records.put(&Record::Changed(block, change, bytes));
        }
        for (no, before) in &self.order.late_inodes {
            records.put(&Record::Late(*no, before));
        }
        let mut freed = Vec::new();
        self.space.each_freed(|one| freed.push(one));
        records.put_freed(freed);
        self.orphans.each(|no, is_settled| records.put(&self.orphan(no, is_settled)));
        if self.space.changed {
            for no in self.geometry().all_groups() {
                kept.groups.insert(no);
                put_group(no, self.space.groups(), records);
            }
        }
    }

    fn orphan(&self, no: InodeNo, is_settled: bool) -> Record<'static> {
        let is_linkable = self.known.lock().is_linkable(no);
        Record::OrphanAdded { no, is_settled, is_linkable }
    }

    /// Applies records; `None` if one of them is invalid.
    fn restore(&mut self, words: &[u64]) -> Option<()> {
        let block_bytes = self.block_size().bytes();
        let inode_bytes = self.geometry().inode_size as usize;
        let mut records = record::parse(words, block_bytes, inode_bytes);
        records.try_for_each(|record| self.apply(record?))
    }

    fn apply(&mut self, record: Record<'_>) -> Option<()> {
        match record {
            Record::Changed(block, change, bytes) => {
                self.geometry().place_of_block(block)?;
                self.cache.restore(block, change, bytes);
            }
            Record::Unchanged(block) => self.cache.forget(block),
            Record::Late(no, before) => {
                self.place_of_bytes(no).ok()?;
                self.order.late_inodes.insert(no, before.into());
            }
            Record::FreedBlocks(first, count) => {
                for number in first.0..first.0.checked_add(count)? {
                    self.space.restore_freed(Freeing::Block(BlockNo(number)))?;
                }
            }
            Record::FreedInode(no) => self.space.restore_freed(Freeing::Inode(no))?,
            Record::Group { no, counts } => self.space.restore_group(no, counts)?,
            Record::OrphanAdded { no, is_settled, is_linkable } => {
                self.place_of_bytes(no).ok()?;
                self.orphans.add(no);
                if is_settled {
                    self.orphans.settled();
                }
                self.known.get_mut().inherit_unnamed(no, is_linkable);
            }
            Record::OrphanRemoved(no) => {
                self.orphans.remove(no);
                self.known.get_mut().disinherit(no);
            }
        }
        Some(())
    }
}
