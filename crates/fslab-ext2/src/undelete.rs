//! Finds deleted files whose content is still on the device.
//!
//! The engine keeps the size and pointers in a deleted inode, like Linux before it had journals. So
//! the file can be recovered until its blocks are reused. The kernel clears these fields, so files
//! deleted by the kernel can't be found.

use fslab_vfs::{FileKind, Timestamp};
use zerocopy::FromBytes;

use crate::bits;
use crate::error::Result;
use crate::format::{INODE_FOREIGN, RawInode};
use crate::fs::Ext2;
use crate::inode::Inode;
use crate::types::{BlockNo, InodeNo};
use crate::volume::Volume;

/// A deleted file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// The file's inode.
    pub inode: InodeNo,
    /// The file's size in bytes.
    pub size: u64,
    /// The time of deletion.
    pub time: Timestamp,
    /// Number of the file's blocks, including indirect blocks.
    pub blocks: u64,
    /// Number of these blocks that are free now.
    pub free: u64,
}

impl Deleted {
    /// Whether all blocks of the file are free, so that none belongs to another file. A block that
    /// was reused and then freed again is not detected.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.free == self.blocks
    }
}

impl Ext2 {
    /// Returns the regular files whose deleted inodes still contain pointers, in inode order.
    ///
    /// # Errors
    /// Errors of the device; invalid inodes are skipped.
    pub fn deleted(&self) -> Result<Vec<Deleted>> {
        let volume = self.volume();
        let mut found = Vec::new();
        for number in volume.geometry().first_inode.0..=volume.geometry().inodes() {
            let no = InodeNo(number);
            if let Some(inode) = volume.buried(no)? {
                found.extend(volume.describe(&inode)?);
            }
        }
        Ok(found)
    }

    /// Reads from a deleted file. Returns the number of bytes read; 0 past the end of the file.
    ///
    /// # Errors
    /// `ENOENT` if the inode is not a deleted file; errors of reading.
    pub fn read_deleted(&self, no: InodeNo, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let volume = self.volume();
        let inode = volume.buried(no)?.ok_or(fslab_vfs::Errno::NOENT)?;
        volume.read_data(&inode, offset, buffer)
    }

    /// Whether a block is marked as free.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn is_free(&self, block: BlockNo) -> Result<bool> {
        self.volume().is_free(block)
    }
}

impl Volume {
    /// Returns a deleted regular file that still has pointers, as it was before its deletion.
    fn buried(&self, no: InodeNo) -> Result<Option<Inode>> {
        if !self.geometry().is_usable(no) {
            return Ok(None);
        }
        let mut bytes = self.inode_bytes(no, <[u8]>::to_vec)?;
        let is_file = RawInode::mut_from_prefix(&mut bytes).is_ok_and(|(raw, _)| {
            let is_deleted = raw.i_links_count.get() == 0 && raw.i_dtime.get() != 0;
            let is_regular =
                FileKind::from_mode(raw.i_mode.get().into()) == Some(FileKind::Regular);
            let has_map = raw.i_block.iter().any(|pointer| pointer.get() != 0);
            let deleted = raw.i_dtime.get();
            // Parse the bytes as an inode with one link; otherwise they would be treated as unused.
            raw.i_links_count = 1.into();
            is_deleted
                && is_regular
                && has_map
                && deleted >= self.geometry().inodes()
                && raw.i_flags.get() & INODE_FOREIGN == 0
        });
        if !is_file {
            return Ok(None);
        }
        // An inode that can't be parsed can't be recovered.
        Ok(Inode::parse(no, &bytes).ok().flatten())
    }

    /// Describes a deleted file; `None` if its pointers can't be followed.
    fn describe(&self, inode: &Inode) -> Result<Option<Deleted>> {
        let (mut all, mut free) = (0, 0);
        let mut answer = Ok(());
        let walked = self.walk(inode, &mut |block, _| {
            all += 1;
            match self.is_free(block) {
                Ok(is_free) => free += u64::from(is_free),
                Err(error) => answer = Err(error),
            }
        });
        answer?;
        let time = Timestamp { seconds: inode.deleted.into(), nanoseconds: 0 };
        let deleted = Deleted { inode: inode.no, size: inode.size, time, blocks: all, free };
        Ok(walked.is_ok().then_some(deleted).filter(|deleted| deleted.blocks > 0))
    }

    pub(crate) fn is_free(&self, block: BlockNo) -> Result<bool> {
        let Some((group, bit)) = self.geometry().place_of_block(block) else { return Ok(false) };
        let bitmap = self.space.groups()[group.0 as usize].block_bitmap;
        Ok(!bits::is_set(&self.cache.read(bitmap)?, bit))
    }
}
