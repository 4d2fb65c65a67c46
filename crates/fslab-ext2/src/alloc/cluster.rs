//! Smart clustering: blocks of a file that were placed apart are moved together while they are
//! still being written (`ffs_reallocblks` of 4.4BSD).
//!
//! A cluster is a few blocks being appended. When one of them does not follow its predecessor on
//! the device, and the cluster could have gone on, all of it is moved to the first run of free
//! blocks that holds it. Nothing is moved that does not end at the file's end, in a full block.

use std::ops::Range;

use crate::error::Result;
use crate::types::{BlockNo, FileBlock};

/// Whether blocks are moved together while they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clustering {
    /// They are.
    Smart,
    /// They stay where the policy put them.
    Dumb,
}

impl Clustering {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Smart, Self::Dumb];

    /// Its name on command lines and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Smart => "smart",
            Self::Dumb => "dumb",
        }
    }

    /// That of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|clustering| clustering.name() == name)
    }
}

/// A block that has been written to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Which block of the file.
    pub logical: FileBlock,
    /// Where it lies.
    pub address: BlockNo,
    /// Whether it is full and the file ends with it.
    pub ends_file: bool,
    /// How many blocks of the file behind it follow it on the device.
    pub contiguous: u32,
}

/// The cluster of an open file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    start: u32,
    /// Blocks it may have; 0 when there is none.
    length: u32,
    last: Option<(u32, BlockNo)>,
}

/// The most bytes of a cluster, and one block more.
const CLUSTER_BYTES: u32 = 65_536;

impl Cluster {
    /// Blocks of a cluster, at the most, for a block size in bytes; at least 1.
    #[must_use]
    pub fn blocks_max(block_size: u32) -> u32 {
        (CLUSTER_BYTES / block_size).saturating_sub(1).max(1)
    }

    /// Takes note of a written block. `relocate` is asked to move the blocks of a range of the
    /// file, the written one its last, and answers where that one lies then, or `None` if all
    /// stayed.
    ///
    /// # Errors
    /// Those of `relocate`.
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

    /// Whether the cluster, with this block, is one that could be moved.
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
