//! What must reach the device before what, as changes are made: [`crate::flush`] writes in steps,
//! and this sees to it that each change falls into the right one. Where two changes would have to
//! be before each other, what there is is written first.
//!
//! No name that the device has may be gone from it before it is elsewhere: not when it is moved or
//! linked and removed by users, not when directories split, join and shrink, and not with a
//! directory that it was moved out of.

use std::collections::{BTreeMap, HashMap, HashSet};

use fslab_vfs::Name;

use crate::cache::Role;
use crate::dir::DirectoryBlocks;
use crate::directory::DirectoryView;
use crate::error::Result;
use crate::numbers::{BlockNo, FileBlock, InodeNo};
use crate::space::Reuse;
use crate::volume::Volume;

/// What must reach the device after something else.
#[derive(Default)]
pub(crate) struct Order {
    /// Inodes whose change must not be seen before the directories', as they were before it.
    pub late_inodes: BTreeMap<InodeNo, Box<[u8]>>,
    /// Directory blocks that names were moved to, or that lead to new directories.
    pub early_blocks: HashSet<BlockNo>,
    /// Inodes that were given one more name, and the block that it went to.
    pub linked: HashMap<InodeNo, BlockNo>,
}

impl Volume {
    /// The next changes of an inode must not be seen on the device before those of directories.
    pub fn make_late(&mut self, no: InodeNo) -> Result<()> {
        let waits = self.options.reuse == Reuse::AfterFlush;
        if waits && !self.order.late_inodes.contains_key(&no) {
            let before = self.inode_bytes(no, |bytes| Box::<[u8]>::from(bytes))?;
            self.order.late_inodes.insert(no, before);
        }
        Ok(())
    }

    /// The next changes of an inode must be seen before those of directories.
    pub fn make_early(&mut self, no: InodeNo) -> Result<()> {
        if self.order.late_inodes.contains_key(&no) {
            self.flush_within_operation()
        } else {
            Ok(())
        }
    }

    /// A name is about to move from one directory block to another: it must be on the device in
    /// its new place before it leaves the old one.
    pub fn order_move(&mut self, from: BlockNo, to: BlockNo) -> Result<()> {
        if self.order.early_blocks.contains(&from) {
            self.flush_within_operation()?;
        }
        self.order_arrival(to)
    }

    /// Names of other directory blocks are about to come to this one, which must be on the device
    /// before those are.
    pub fn order_arrival(&mut self, to: BlockNo) -> Result<()> {
        if self.is_late(to) {
            self.flush_within_operation()?;
        }
        self.order.early_blocks.insert(to);
        Ok(())
    }

    /// A directory block whose names were moved is about to be overwritten with those of the
    /// directory's last block, which is cut off after it ([`make_late`](Self::make_late)). Names
    /// that came to one of the two are on the device only where they came from, and that may be
    /// written at the same time as this.
    pub fn order_overwriting(&mut self, block: BlockNo, last: BlockNo) -> Result<()> {
        let early = &self.order.early_blocks;
        if early.contains(&block) || early.contains(&last) {
            self.flush_within_operation()?;
        }
        Ok(())
    }

    /// A new directory was given this name, which what is moved into it needs as early as its own.
    pub fn order_new_directory(&mut self, parent: InodeNo, name: Name<'_>) -> Result<()> {
        let Some(block) = self.block_of_name(parent, name)? else { return Ok(()) };
        if self.is_late(block) {
            return self.flush_within_operation();
        }
        self.order.early_blocks.insert(block);
        Ok(())
    }

    /// A directory is about to lose its name. Names that left it, and that the device may have
    /// nowhere else, must not go with it.
    pub fn order_removal(&mut self, no: InodeNo) -> Result<()> {
        let inode = self.inode(no)?;
        let view = DirectoryView::new(self, no, &inode)?;
        let mut is_left = self.order.late_inodes.contains_key(&no);
        for block in (0..view.count()).map(FileBlock) {
            is_left |= self.is_late(view.physical(block)?);
        }
        if is_left { self.flush_within_operation() } else { Ok(()) }
    }

    /// An inode was given one more name, in this block.
    pub fn order_link(&mut self, no: InodeNo, parent: InodeNo, name: Name<'_>) -> Result<()> {
        let Some(block) = self.block_of_name(parent, name)? else { return Ok(()) };
        if self.is_late(block) {
            return self.flush_within_operation();
        }
        self.order.early_blocks.insert(block);
        self.order.linked.insert(no, block);
        Ok(())
    }

    /// An inode that has others is about to lose this name.
    pub fn order_unlink(&mut self, no: InodeNo, parent: InodeNo, name: Name<'_>) -> Result<()> {
        let Some(other) = self.order.linked.get(&no).copied() else { return Ok(()) };
        match self.block_of_name(parent, name)? {
            Some(block) if block == other => Ok(()),
            Some(block) if self.order.early_blocks.contains(&block) => {
                self.flush_within_operation()
            }
            Some(block) => self.cache.delay(block),
            None => Ok(()),
        }
    }

    fn is_late(&self, block: BlockNo) -> bool {
        self.cache.role(block) == Some(Role::DirectoryLate)
    }
}
