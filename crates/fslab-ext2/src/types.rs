//! The numbers of an ext2 file system as distinct types, so that, for example, a block number can't
//! be passed as a group number.

use std::fmt;

/// A block number, in units of the block size from the start of the device.
///
/// Block 0 never contains file data, so 0 means "none" wherever the format stores a block number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockNo(pub u32);

/// A block group number, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupNo(pub u32);

/// The index of a block in a file, from 0. The block map translates it to a [`BlockNo`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileBlock(pub u32);

/// An inode number, from 1; 0 means "none" wherever the format stores one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeNo(pub u32);

impl InodeNo {
    /// The root directory.
    pub const ROOT: Self = Self(2);
    /// The first inode that is not reserved, by convention the inode of `lost+found`.
    pub const FIRST_FREE: Self = Self(11);
}

macro_rules! display_as_number {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    )*};
}

display_as_number!(BlockNo, GroupNo, FileBlock, InodeNo);

/// A block size: a power of two from 1 KiB to 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockSize(u32);

impl BlockSize {
    /// Minimum block size.
    pub const MIN: Self = Self(1024);
    /// Maximum block size that the kernel mounts on all machines.
    pub const KERNEL_MAX: Self = Self(4096);
    /// Maximum block size.
    pub const MAX: Self = Self(65_536);

    /// Makes a block size from bytes; `None` if it is not a valid block size of ext2.
    #[must_use]
    pub fn new(bytes: u32) -> Option<Self> {
        let fits = bytes.is_power_of_two() && (Self::MIN.0..=Self::MAX.0).contains(&bytes);
        fits.then_some(Self(bytes))
    }

    /// Decodes the superblock's `s_log_block_size`; `None` for more than 64 KiB.
    #[must_use]
    pub fn from_log(log: u32) -> Option<Self> {
        (log <= 6).then(|| Self(1024 << log))
    }

    /// Returns the value of the superblock's `s_log_block_size`.
    #[must_use]
    pub fn log(self) -> u32 {
        self.0.trailing_zeros() - 10
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Returns the size in bytes, for arithmetic with offsets.
    #[must_use]
    pub fn bytes_u64(self) -> u64 {
        u64::from(self.0)
    }

    /// Returns the size in bytes, for arithmetic with fields of the format.
    #[must_use]
    pub fn bytes_u32(self) -> u32 {
        self.0
    }

    /// Returns the size in units of 512 bytes.
    #[must_use]
    pub fn sectors(self) -> u32 {
        self.0 / 512
    }

    /// Returns how many block numbers fit in a block: the fan-out of an indirect block.
    #[must_use]
    pub fn pointers(self) -> u32 {
        self.0 / 4
    }

    /// Returns the number of bits in a bitmap block: the maximum number of blocks or inodes in a
    /// group.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0 * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_from_1_to_64_kib_are_block_sizes() {
        let sizes: Vec<_> = (0..200_000).filter_map(BlockSize::new).map(BlockSize::bytes).collect();
        assert_eq!(sizes, [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536]);
        for log in 0..7 {
            assert_eq!(BlockSize::from_log(log).map(BlockSize::log), Some(log));
        }
        assert_eq!(BlockSize::from_log(7), None);
    }
}
