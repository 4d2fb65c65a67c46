//! What tools ask of a file system beyond the operations of files.

use fslab_vfs::Ino;

use crate::dir::outline::{Branch, outline};
use crate::dir_blocks::DirectoryView;
use crate::error::Result;
use crate::format::INODE_INDEX;
use crate::fs::{Ext2, to_no};
use crate::types::BlockNo;

impl Ext2 {
    /// Gives every block of a directory's index and its leaves to `visit`, each before those
    /// below it. Answers `false` for a directory that is not indexed.
    ///
    /// # Errors
    /// `ENOTDIR`, damage, and what the device answers.
    pub fn index_of(&self, directory: Ino, visit: &mut dyn FnMut(Branch)) -> Result<bool> {
        let volume = self.volume();
        let no = to_no(directory)?;
        let inode = volume.inode(no)?;
        let view = DirectoryView::new(&volume, no, &inode)?;
        let indexed = inode.flags & INODE_INDEX != 0;
        if indexed {
            outline(&view, visit)?;
        }
        Ok(indexed)
    }

    /// Whether a block is marked as free.
    ///
    /// # Errors
    /// What the device answers.
    pub fn is_free(&self, block: BlockNo) -> Result<bool> {
        self.volume().is_free(block)
    }
}
