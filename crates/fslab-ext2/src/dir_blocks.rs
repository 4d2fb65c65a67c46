//! Implements the interface of [`crate::dir`] for directories of a volume, using its block map and
//! cache.

use std::ops::Deref;

use fslab_vfs::{Errno, FileKind};

use crate::cache::Role;
use crate::dir::{DirectoryBlocks, DirectoryBlocksMut, Rules};
use crate::error::{Error, Place, Result};
use crate::flaw::Flaw;
use crate::format::INODE_INDEX;
use crate::inode::Inode;
use crate::types::{BlockNo, BlockSize, FileBlock, InodeNo};
use crate::volume::Volume;

pub(crate) struct Directory<V> {
    volume: V,
    pub inode: Inode,
}

/// A directory that can be read.
pub(crate) type DirectoryView<'a> = Directory<&'a Volume>;

/// A directory that can be read and changed. Changes of its inode are stored immediately.
pub(crate) type DirectoryEdit<'a> = Directory<&'a mut Volume>;

impl Volume {
    pub(crate) fn directory(&self, no: InodeNo) -> Result<DirectoryView<'_>> {
        Ok(Directory { inode: self.directory_inode(no)?, volume: self })
    }

    pub(crate) fn directory_mut(&mut self, no: InodeNo) -> Result<DirectoryEdit<'_>> {
        Ok(Directory { inode: self.directory_inode(no)?, volume: self })
    }

    /// Returns the inode of a directory. Fails with `ENOTDIR` for other kinds, and with
    /// [`Error::Damaged`] if the size is invalid.
    fn directory_inode(&self, no: InodeNo) -> Result<Inode> {
        let inode = self.inode(no)?;
        if inode.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let size = self.block_size().bytes_u64();
        let blocks = inode.size / size;
        let fits = inode.size.is_multiple_of(size) && blocks > 0;
        if fits && blocks <= u64::from(self.geometry().blocks) {
            return Ok(inode);
        }
        Err(Error::damaged(Place::Inode(no), Flaw::BadDirectorySize))
    }
}

impl DirectoryEdit<'_> {
    fn store(&mut self) -> Result<()> {
        self.volume.store_inode(&self.inode)
    }
}

impl<V: Deref<Target = Volume>> Directory<V> {
    /// Returns the device block of a directory block.
    pub fn physical(&self, block: FileBlock) -> Result<BlockNo> {
        let hole = || Error::damaged(Place::Directory(self.inode.no, block), Flaw::DirectoryHole);
        self.volume.map(&self.inode, block)?.ok_or_else(hole)
    }
}

impl<V: Deref<Target = Volume>> DirectoryBlocks for Directory<V> {
    fn inode(&self) -> InodeNo {
        self.inode.no
    }

    fn rules(&self) -> Rules {
        self.volume.rules
    }

    fn block_size(&self) -> BlockSize {
        self.volume.block_size()
    }

    fn count(&self) -> u32 {
        (self.inode.size / self.block_size().bytes_u64()) as u32
    }

    fn is_indexed(&self) -> bool {
        self.inode.flags & INODE_INDEX != 0
    }

    fn distrust_index(&self, flaw: Flaw) {
        let trouble = &self.volume.trouble;
        // Log the damage only if no error was recorded before, because each later search finds the
        // same damage.
        if !trouble.is_noted() {
            let damage = Error::damaged(Place::Directory(self.inode.no, FileBlock(0)), flaw);
            trouble.log("a directory is read without its index", &damage);
        }
    }

    fn read<R>(&self, block: FileBlock, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.volume.cache.look(self.physical(block)?, look)
    }
}

impl DirectoryBlocksMut for DirectoryEdit<'_> {
    fn write<R>(&mut self, block: FileBlock, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let physical = self.physical(block)?;
        self.volume.cache.modify(physical, Role::Directory, change)
    }

    fn expect_names(&mut self, block: FileBlock) -> Result<()> {
        let physical = self.physical(block)?;
        self.volume.order_arrival(physical)
    }

    fn join(&mut self, one: FileBlock, other: FileBlock) -> Result<FileBlock> {
        // If both blocks may receive the names, choose the one nearer to the directory's beginning,
        // because gaps are filled from the end.
        let (near, far) = (one.min(other), one.max(other));
        let blocks = (self.physical(near)?, self.physical(far)?);
        if self.volume.keeps_names(blocks.0, blocks.1) {
            self.volume.order_join(blocks.1, blocks.0)?;
            return Ok(near);
        }
        self.volume.order_join(blocks.0, blocks.1)?;
        Ok(far)
    }

    fn fill_with_last(&mut self, block: FileBlock, last: FileBlock) -> Result<()> {
        let (to, from) = (self.physical(block)?, self.physical(last)?);
        self.volume.order_overwriting(to, from)?;
        let bytes = self.volume.cache.read(from)?;
        self.volume.cache.modify(to, Role::Directory, |target| target.copy_from_slice(&bytes))
    }

    fn grow(&mut self) -> Result<FileBlock> {
        let size = self.inode.size + self.block_size().bytes_u64();
        if size > u64::from(u32::MAX) && self.volume.rules.levels < Rules::LEVELS_LARGE {
            return Err(Errno::NOSPC.into());
        }
        self.volume.make_early(self.inode.no)?;
        let block = FileBlock(self.count());
        let mapped = self.volume.map_for_writing(&mut self.inode, block)?;
        self.volume.cache.create(mapped.block);
        self.inode.size = size;
        self.store()?;
        Ok(block)
    }

    fn shrink(&mut self, count: u32) -> Result<()> {
        self.volume.make_late(self.inode.no)?;
        self.volume.unmap(&mut self.inode, u64::from(count)..u64::MAX)?;
        self.inode.size = u64::from(count) * self.block_size().bytes_u64();
        self.store()
    }

    fn set_indexed(&mut self, indexed: bool) -> Result<()> {
        self.inode.flags &= !INODE_INDEX;
        self.inode.flags |= if indexed { INODE_INDEX } else { 0 };
        self.store()
    }
}
