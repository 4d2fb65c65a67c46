//! Smart clustering: moves scattered blocks of a file together while the file is still being
//! written (`ffs_reallocblks` of 4.4BSD).
//!
//! A cluster is a short run of file blocks that are being appended. A cluster that is not yet full
//! is moved if its newest block does not follow the previous block on the device. The new position
//! is the first free run that is long enough. A cluster is moved only if its last block is full and
//! is the last block of the file.

use std::ops::Range;

use crate::error::Result;
use crate::types::{BlockNo, FileBlock};

/// Whether scattered blocks are moved together while they are being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clustering {
    /// Scattered blocks are moved together.
    Smart,
    /// Blocks are left where the policy placed them.
    Dumb,
}

impl Clustering {
    /// All variants.
    pub const ALL: [Self; 2] = [Self::Smart, Self::Dumb];

    /// Returns the name used on command lines and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Smart => "smart",
            Self::Dumb => "dumb",
        }
    }

    /// Returns the variant with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|clustering| clustering.name() == name)
    }
}

/// A block that has just been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The block's index in the file.
    pub logical: FileBlock,
    /// The block's address on the device.
    pub address: BlockNo,
    /// Whether the block is full and is the last block of the file.
    pub ends_file: bool,
    /// Number of file blocks after this one that continue it without a gap on the device.
    pub contiguous: u32,
}

/// The cluster of an open file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    start: u32,
    /// Maximum number of blocks in the cluster; 0 if there is no cluster.
    length: u32,
    last: Option<(u32, BlockNo)>,
}

/// Upper limit of a cluster in bytes; [`Cluster::blocks_max`] subtracts one block from it.
const CLUSTER_BYTES: u32 = 65_536;

impl Cluster {
    /// Returns the maximum number of blocks in a cluster, at least 1, for a block size in bytes.
    #[must_use]
    pub fn blocks_max(block_size: u32) -> u32 {
        (CLUSTER_BYTES / block_size).saturating_sub(1).max(1)
    }

    /// Records a written block. May call `relocate` to move a range of the file's blocks that ends
    /// with the written block. `relocate` returns the new address of that block, or `None` if no
    /// block was moved.
    ///
    /// # Errors
    /// Errors of `relocate`.
    pub fn written(
        &mut self,
        block: &Written,
        blocks_max: u32,
        relocate: impl FnOnce(Range<u32>) -> Result<Option<BlockNo>>,
    ) -> Result<()> {
        let logical = block.logical.0;
        if logical == 0 {
            *self = Self::default();
        }
        let mut address = block.address;
        let in_order = self.last.is_some_and(|(last, _)| logical == last + 1);
        let beside = self.last.is_some_and(|(_, last)| address.0 == last.0 + 1);
        if self.length == 0 || !in_order || !beside {
            if self.may_go_on(block, in_order)
                && let Some(moved) = relocate(self.start..logical + 1)?
            {
                address = moved;
            } else {
                self.begin(block, blocks_max);
            }
        } else if logical == self.start + self.length {
            *self = Self { start: logical + 1, length: 0, last: None };
        }
        self.last = Some((logical, address));
        Ok(())
    }

    /// Whether the cluster, with `block` added to it, may be moved.
    fn may_go_on(&self, block: &Written, in_order: bool) -> bool {
        let filled = self.last.map_or(0, |(last, _)| (last + 1).saturating_sub(self.start));
        self.length > 0 && block.ends_file && in_order && self.length > filled
    }

    fn begin(&mut self, block: &Written, blocks_max: u32) {
        let logical = block.logical.0;
        self.length = if block.ends_file { blocks_max } else { block.contiguous.min(blocks_max) };
        self.start = if self.length == 0 { logical + 1 } else { logical };
    }
}
