//! The order in which changes must reach the device. [`crate::write_order::flush`] writes in steps;
//! this module assigns each change to a step when the change is made. If two changes would have to
//! wait for each other, everything is flushed first.
//!
//! A name must be on the device at its new position before it is removed from the old one. This
//! holds for renames, for a link followed by an unlink, and when directory blocks are split, merged
//! or freed. It also holds if the old directory is removed.
//!
//! The exception is an exchange of two names in different blocks, because each block would have to
//! be written before the other. Until the next sync, a power cut may leave one of the two inodes
//! without a name; a checker finds this inode.

use crate::cache::{Role, STEPS_MAX};
use crate::error::Result;
use crate::free_space::Reuse;
use crate::namei::NamePlace;
use crate::types::{BlockNo, InodeNo};
use crate::volume::Volume;

impl Volume {
    /// Delays the next changes of an inode until changes of directories are on the device.
    pub fn make_late(&mut self, no: InodeNo) -> Result<()> {
        let waits = self.options.reuse == Reuse::AfterFlush;
        if waits && !self.order.late_inodes.contains_key(&no) {
            let before = self.inode_bytes(no, |bytes| Box::<[u8]>::from(bytes))?;
            self.order.late_inodes.insert(no, before);
            self.order.recently_late.add(no);
        }
        Ok(())
    }

    /// Makes sure that the next changes of an inode reach the device before changes of directories.
    pub fn make_early(&mut self, no: InodeNo) -> Result<()> {
        if self.order.late_inodes.contains_key(&no) {
            self.flush_within_operation()
        } else {
            Ok(())
        }
    }

    /// Records the write order for the move of a name between directory blocks. The name must be in
    /// block `to` on the device before it is removed from block `from` of the directory `parent`.
    pub fn order_move(&mut self, parent: InodeNo, from: BlockNo, to: BlockNo) -> Result<()> {
        if self.order.early_blocks.contains(&from) {
            self.flush_within_operation()?;
        }
        self.order_arrival(to)?;
        self.order_departure(parent, from)
    }

    /// Delays the removal of a name from the block `from` until the device has the name in another
    /// block.
    fn order_departure(&mut self, parent: InodeNo, from: BlockNo) -> Result<()> {
        self.order.left.insert(parent);
        // Called before the name is removed, so that a later merge with this block takes the delay
        // into account.
        self.cache.delay(from, 1)
    }

    /// Records that names will be moved to the directory block `to`. This block must be written
    /// before the blocks from which the names are removed.
    pub fn order_arrival(&mut self, to: BlockNo) -> Result<()> {
        if self.is_late(to) {
            self.flush_within_operation()?;
        }
        self.order.early_blocks.insert(to);
        Ok(())
    }

    /// Whether two directory blocks should be merged into the first one. This is so if the first
    /// block is written no later than the second. Blocks that must be written after the second are
    /// then also written after the first, so no flush is needed.
    pub fn keeps_names(&self, one: BlockNo, other: BlockNo) -> bool {
        self.cache.directory_role(one) <= self.cache.directory_role(other)
    }

    /// Records the write order for merging the names of block `from` into block `to`. The caller
    /// has chosen `to` such that it is written no later than `from`
    /// ([`keeps_names`](Self::keeps_names)). Block `to` must be on the device before the names are
    /// removed from block `from`.
    pub fn order_join(&mut self, from: BlockNo, to: BlockNo) -> Result<()> {
        if self.cache.directory_role(to) >= Role::DirectoryLate(STEPS_MAX) {
            self.flush_within_operation()?;
        }
        let step = match self.cache.directory_role(to) {
            Role::DirectoryLate(step) => step + 1,
            _ => 1,
        };
        self.order.early_blocks.remove(&from);
        self.order.early_blocks.insert(to);
        self.cache.delay(from, step)
    }

    /// Records the write order for overwriting a directory block with the directory's last block.
    /// The names of the overwritten block have been moved. The last block is removed afterwards
    /// ([`make_late`](Self::make_late)). Names that were moved to the last block must not be lost
    /// from the device. Therefore the last block is also written at its old address, to which the
    /// device refers until the directory is shortened.
    pub fn order_overwriting(&mut self, block: BlockNo, last: BlockNo) -> Result<()> {
        if self.order.early_blocks.contains(&block) {
            self.flush_within_operation()?;
        }
        if self.order.early_blocks.contains(&last) {
            self.cache.pin(last);
        }
        self.cache.delay(block, 1)
    }

    /// Ensures that the name of a new directory is written early, because names moved into the
    /// directory depend on it.
    pub fn order_new_directory(&mut self, at: NamePlace<'_>) -> Result<()> {
        self.order_early_name(at).map(drop)
    }

    /// Ensures that the block of a new name is written early. Returns the block, or `None` if
    /// everything was flushed.
    fn order_early_name(&mut self, at: NamePlace<'_>) -> Result<Option<BlockNo>> {
        let Some(block) = self.block_of_name(at)? else { return Ok(None) };
        if self.is_late(block) {
            return self.flush_within_operation().map(|()| None);
        }
        self.order.early_blocks.insert(block);
        Ok(Some(block))
    }

    /// Records the write order for the removal of a directory. Names that were moved out of it must
    /// first be on the device at their new positions.
    pub fn order_removal(&mut self, no: InodeNo) -> Result<()> {
        if self.order.left.contains(&no) { self.flush_within_operation() } else { Ok(()) }
    }

    /// Records the write order for adding a name to an inode that already has one.
    pub fn order_link(&mut self, no: InodeNo, at: NamePlace<'_>) -> Result<()> {
        let block = self.order_early_name(at)?;
        self.order.linked.extend(block.map(|block| (no, block)));
        Ok(())
    }

    /// Records the write order for removing a name of an inode that has other names.
    pub fn order_unlink(&mut self, no: InodeNo, at: NamePlace<'_>) -> Result<()> {
        let Some(other) = self.order.linked.get(&no).copied() else { return Ok(()) };
        match self.block_of_name(at)? {
            Some(block) if block == other => Ok(()),
            Some(block) if self.order.early_blocks.contains(&block) => {
                self.flush_within_operation()
            }
            Some(block) => self.order_departure(at.parent, block),
            None => Ok(()),
        }
    }

    fn is_late(&self, block: BlockNo) -> bool {
        matches!(self.cache.role(block), Some(Role::DirectoryLate(_)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fslab_vfs::MemoryDevice;

    use super::*;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::volume::VolumeOptions;

    const PARENT: InodeNo = InodeNo(12);
    /// The directory blocks used by these tests.
    const BLOCKS: [BlockNo; 4] = [BlockNo(500), BlockNo(501), BlockNo(502), BlockNo(503)];

    fn volume() -> Volume {
        let device = Arc::new(MemoryDevice::new(4 << 20));
        mkfs(&*device, &MkfsOptions::default()).unwrap();
        Volume::open(device, VolumeOptions::default()).unwrap()
    }

    fn role(volume: &Volume, block: BlockNo) -> Role {
        volume.cache.directory_role(block)
    }

    /// Moves a name between two blocks and changes them, as a rename does.
    fn move_name(volume: &mut Volume, from: BlockNo, to: BlockNo) {
        volume.order_move(PARENT, from, to).unwrap();
        for block in [to, from] {
            volume.cache.modify(block, Role::Directory, |_| {}).unwrap();
        }
    }

    #[test]
    fn block_joined_into_a_late_block_is_written_a_step_later() {
        let (mut volume, [keeper, other, target, _]) = (volume(), BLOCKS);
        move_name(&mut volume, keeper, target);
        move_name(&mut volume, other, target);
        assert!(volume.keeps_names(keeper, other));
        volume.order_join(other, keeper).unwrap();
        assert_eq!(role(&volume, keeper), Role::DirectoryLate(1));
        assert_eq!(role(&volume, other), Role::DirectoryLate(2));
    }

    #[test]
    fn target_of_moved_names_is_written_before_their_origins() {
        let (mut volume, [origin, came_to, late, target]) = (volume(), BLOCKS);
        move_name(&mut volume, origin, came_to);
        move_name(&mut volume, late, target);
        assert!(volume.keeps_names(came_to, late) && !volume.keeps_names(late, came_to));
        volume.order_join(late, came_to).unwrap();
        assert!(role(&volume, came_to) < role(&volume, origin));
        assert!(role(&volume, came_to) < role(&volume, late));
    }

    #[test]
    fn released_last_block_with_moved_names_is_still_written() {
        let (mut volume, [origin, last, gap, _]) = (volume(), BLOCKS);
        move_name(&mut volume, origin, last);
        volume.order_overwriting(gap, last).unwrap();
        volume.cache.release(last);
        assert_eq!(volume.cache.role(last), Some(Role::Directory));
        assert_eq!(role(&volume, gap), role(&volume, origin), "neither waits for the other");
        volume.flush().unwrap();
        assert_eq!(volume.cache.dirty_bytes(), 0);
    }
}
