//! Ages a simulated file system without data: runs the engine's allocation policies on bitmaps,
//! with a virtual clock. Simulating seven months of use takes seconds.

mod block_map_image;
mod disk;
mod report;
mod sequential;
mod volume;

pub use block_map_image::picture;
pub(crate) use disk::Arm;
pub use disk::{DISKS, Disk};
pub use report::{Aged, Distant, Hot};
pub use sequential::{BySize, FirstSwitch};
pub(crate) use sequential::{PER_DIRECTORY, TOTAL, sizes};
pub use volume::{Point, Simulator};

use std::num::NonZeroU32;

use fslab_ext2::alloc::{Clustering, DIRECT_BLOCKS};
use fslab_ext2::{BlockSize, Geometry, InodeNo};

use crate::error::{Error, Result};
use crate::workload::{OperationKind, Population};

/// The settings of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Size of the file system, in bytes.
    pub volume_bytes: u64,
    /// Block size in bytes: a power of two from 1 to 64 KiB.
    pub block_bytes: u32,
    /// Group size in bytes, rounded down to a multiple of eight blocks.
    pub group_bytes: u64,
    /// Bytes of the volume per inode.
    pub bytes_per_inode: u32,
    /// Share of the blocks that may not be used, from 0 to 0.5.
    pub reserved: f64,
    /// Interval between scores, in days.
    pub score_every_days: u32,
    /// Hot files are the files that changed in this many days before the end of the workload.
    pub hot_days: u32,
}

impl Default for Settings {
    /// The file system of Smith and Seltzer (1997): 1 GB, blocks of 8 KB, cylinder groups of 16
    /// cylinders of the Fujitsu M2694ES, one inode per 4 KB.
    fn default() -> Self {
        Self {
            volume_bytes: 1 << 30,
            block_bytes: 8192,
            group_bytes: 16 * 15 * 94 * 512,
            bytes_per_inode: 4096,
            reserved: 0.1,
            score_every_days: 10,
            hot_days: 30,
        }
    }
}

impl Settings {
    /// Returns the geometry of a volume with these settings. Inodes have 128 bytes.
    ///
    /// # Errors
    /// Fails if no such volume is possible.
    pub fn geometry(&self) -> Result<Geometry> {
        let block_size = BlockSize::new(self.block_bytes)
            .ok_or_else(|| Error::parameter("a block must have 1, 2, 4, 8, 16, 32 or 64 KiB"))?;
        let block = u64::from(self.block_bytes);
        let blocks = u32::try_from(self.volume_bytes / block).unwrap_or(u32::MAX);
        let most = block_size.bits().min(65_528);
        let group = (self.group_bytes / block).clamp(256, u64::from(most)) as u32 / 8 * 8;
        if blocks < 256 || blocks == u32::MAX || self.bytes_per_inode < 512 {
            return Err(Error::parameter(
                "a simulated volume must have from 256 to 4 billion blocks, and at least 512 bytes \
                 for each inode",
            ));
        }
        let first_data_block = u32::from(self.block_bytes == 1024);
        // An incomplete last group is dropped.
        let groups = ((blocks - first_data_block) / group).max(1);
        let inodes = u64::from(group) * block / u64::from(self.bytes_per_inode);
        let inodes_per_group = (inodes.clamp(8, u64::from(most)) as u32).next_multiple_of(8);
        if groups.checked_mul(inodes_per_group).is_none() {
            return Err(Error::parameter(format!(
                "a simulated volume of {} bytes with one inode for each {} bytes has too many \
                 inodes; use a smaller volume",
                self.volume_bytes, self.bytes_per_inode
            )));
        }
        Ok(Geometry {
            block_size,
            blocks: blocks.min(first_data_block + groups * group),
            first_data_block,
            blocks_per_group: group,
            inodes_per_group,
            inode_size: 128,
            first_inode: InodeNo(11),
            groups,
            sparse_super: false,
            sparse_super2: false,
            reserved_descriptor_blocks: 0,
        })
    }
}

/// Returns the number of bytes that fragments of `fragment_bytes` would save for the files of a
/// population, compared with blocks of `block_bytes`. Unlike the Fast File System of 1997, the
/// simulated policies have no fragments. A simulated volume must be larger by this amount to have
/// the same utilisation.
#[must_use]
pub fn saved_by_fragments(
    population: &Population,
    block_bytes: u32,
    fragment_bytes: NonZeroU32,
) -> u64 {
    let (block, fragment) = (u64::from(block_bytes), u64::from(fragment_bytes.get()));
    let files = population.members().filter(|(_, member)| member.kind == OperationKind::Create);
    // Only a file without indirect blocks ends in a fragment.
    let small = files.filter(|(_, member)| member.size <= u64::from(DIRECT_BLOCKS) * block);
    let saved =
        |size: u64| size.next_multiple_of(block).saturating_sub(size.next_multiple_of(fragment));
    small.map(|(_, member)| saved(member.size)).sum()
}

/// A simulated policy with its clustering; one row of the results.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// The name of the policy.
    pub policy: &'static str,
    /// Whether scattered blocks are moved together while they are written.
    pub clustering: Clustering,
}

impl Variant {
    /// Returns the names of the policy and of the clustering.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.policy, self.clustering.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_of_too_many_inodes_is_refused() {
        let settings = Settings {
            volume_bytes: (u64::from(u32::MAX) - 1) << 16,
            block_bytes: 65_536,
            group_bytes: u64::MAX,
            bytes_per_inode: 512,
            ..Settings::default()
        };
        let fewer = Settings { bytes_per_inode: 1 << 20, ..settings };
        assert!(fewer.geometry().is_ok());
        let small = Settings { group_bytes: 256 << 16, ..settings };
        let message = small.geometry().unwrap_err().to_string();
        assert!(message.contains("inodes"), "{message}");
    }
}
