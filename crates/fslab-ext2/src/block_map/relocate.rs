//! Moves scattered blocks of a file together while it is being written, as
//! [`crate::alloc::cluster`] decides.
//!
//! The bytes are copied before the pointers change. The old blocks may be reused only when the
//! device no longer refers to them, so the inode is stored together with the move. After a power
//! cut, a pointer refers to the old or the new block, and both contain the same bytes.

use std::ops::Range;

use super::{Reached, Volume};
use crate::alloc::cluster::{Cluster, Written};
use crate::alloc::{BlockRequest, Run};
use crate::error::Result;
use crate::inode::Inode;
use crate::pointer_tree::PointerPath;
use crate::types::{BlockNo, FileBlock};

impl Volume {
    /// Records a block that was written up to its end. Before blocks are moved, `put_down` is
    /// called to write their bytes to the device. After a move, the inode is stored.
    pub(crate) fn written(
        &mut self,
        inode: &mut Inode,
        block: (FileBlock, BlockNo),
        put_down: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let bytes = self.block_size().bytes_u64();
        let blocks_max = Cluster::blocks_max(self.block_size().bytes_u32());
        let (logical, address) = block;
        let ends_file = inode.size <= (u64::from(logical.0) + 1) * bytes;
        let contiguous = match ends_file {
            true => 0,
            false => self.map_run(inode, logical, blocks_max + 1)?.length - 1,
        };
        let written = Written { logical, address, ends_file, contiguous };
        let mut cluster = std::mem::take(self.space.cluster_mut(inode.no));
        let answer = cluster.written(&written, blocks_max, |range| {
            put_down(self)?;
            self.relocate(inode, range)
        });
        *self.space.cluster_mut(inode.no) = cluster;
        answer
    }

    /// Moves blocks of a file to a contiguous run. Returns the new address of the last block, or
    /// `None` if they are not moved.
    fn relocate(&mut self, inode: &mut Inode, range: Range<u32>) -> Result<Option<BlockNo>> {
        let places = range.clone().map(|block| self.map(inode, FileBlock(block)));
        let Some(old) = places.collect::<Result<Option<Vec<_>>>>()? else { return Ok(None) };
        let (Some(first), Some(last)) = (old.first(), old.last()) else { return Ok(None) };
        let path = self.path(FileBlock(range.start))?;
        let Some(reached) = self.follow_to_end(inode, &path)? else { return Ok(None) };
        let request = self.block_request(inode, &path, &reached, &[])?;
        let request = BlockRequest { wanted: range.len() as u32, ..request };
        self.confirm_freed()?;
        let Some(run) =
            self.space.take_cluster(&mut self.cache, inode.no, &request, (*first, *last))?
        else {
            return Ok(None);
        };
        let answer = self.copy_blocks(&old, run);
        let answer = answer.and_then(|()| self.lead_to(inode, range.start, &old, run));
        if answer.is_err() {
            // Free the new blocks that the file does not refer to.
            for (logical, new) in range.zip(run.blocks()) {
                if self.map(inode, FileBlock(logical))? != Some(new) {
                    self.space.untake_block(&mut self.cache, new)?;
                }
            }
        }
        // A later step of this write may flush and then reuse the old blocks. By then the inode on
        // the device must no longer refer to them.
        self.store_inode(inode)?;
        answer?;
        Ok(run.blocks().last())
    }

    /// Follows a path to the slot of its last pointer; `None` if an indirect block is missing.
    fn follow_to_end(&self, inode: &Inode, path: &PointerPath) -> Result<Option<Reached>> {
        Ok(Some(self.follow(inode, path)?).filter(|reached| reached.depth == path.levels()))
    }

    fn copy_blocks(&mut self, old: &[BlockNo], run: Run) -> Result<()> {
        let bytes = self.block_size().bytes();
        let mut buffer = vec![0; old.len() * bytes];
        for (block, piece) in old.iter().zip(buffer.chunks_mut(bytes)) {
            self.cache.device().read_data_at(self.geometry().offset_of(*block), piece)?;
        }
        self.write_bytes(self.geometry().offset_of(run.start), &buffer)
    }

    /// Makes the pointers of a file refer to the new blocks, and frees the old blocks.
    fn lead_to(&mut self, inode: &mut Inode, first: u32, old: &[BlockNo], run: Run) -> Result<()> {
        for ((logical, old), new) in (first..).zip(old).zip(run.blocks()) {
            let path = self.path(FileBlock(logical))?;
            if let Some(reached) = self.follow_to_end(inode, &path)? {
                self.set_slot(inode, reached.slot, new.0)?;
                self.space.free_block(&mut self.cache, inode.no, *old)?;
            }
        }
        Ok(())
    }
}
