//! A directory's blocks in memory, for tests and measurements.

use fslab_vfs::Errno;

use super::{DirectoryBlocks, DirectoryBlocksMut, Rules};
use crate::error::Result;
use crate::types::{BlockSize, FileBlock, InodeNo};

/// A directory stored in a vector of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorBlocks {
    inode: InodeNo,
    rules: Rules,
    block_size: BlockSize,
    /// All blocks, concatenated.
    pub(super) bytes: Vec<u8>,
    indexed: bool,
    /// Maximum number of blocks.
    pub most: u32,
}

impl VectorBlocks {
    /// Makes a new directory.
    #[must_use]
    pub fn new(block_size: BlockSize, rules: &Rules, inode: InodeNo, parent: InodeNo) -> Self {
        let mut bytes = vec![0; block_size.bytes()];
        super::create(&mut bytes, rules, inode, parent);
        Self { inode, rules: *rules, block_size, bytes, indexed: false, most: u32::MAX }
    }

    fn range(&self, block: FileBlock) -> std::ops::Range<usize> {
        let start = block.0 as usize * self.block_size.bytes();
        start..start + self.block_size.bytes()
    }
}

impl DirectoryBlocks for VectorBlocks {
    fn inode(&self) -> InodeNo {
        self.inode
    }

    fn rules(&self) -> Rules {
        self.rules
    }

    fn block_size(&self) -> BlockSize {
        self.block_size
    }

    fn count(&self) -> u32 {
        (self.bytes.len() / self.block_size.bytes()) as u32
    }

    fn is_indexed(&self) -> bool {
        self.indexed
    }

    fn read<R>(&self, block: FileBlock, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        Ok(look(&self.bytes[self.range(block)]))
    }
}

impl DirectoryBlocksMut for VectorBlocks {
    fn write<R>(&mut self, block: FileBlock, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let range = self.range(block);
        Ok(change(&mut self.bytes[range]))
    }

    fn grow(&mut self) -> Result<FileBlock> {
        let block = FileBlock(self.count());
        if block.0 >= self.most {
            return Err(Errno::NOSPC.into());
        }
        self.bytes.resize(self.bytes.len() + self.block_size.bytes(), 0);
        Ok(block)
    }

    fn shrink(&mut self, count: u32) -> Result<()> {
        self.bytes.truncate(count as usize * self.block_size.bytes());
        Ok(())
    }

    fn set_indexed(&mut self, indexed: bool) -> Result<()> {
        self.indexed = indexed;
        Ok(())
    }
}
