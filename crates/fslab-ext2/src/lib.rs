//! An ext2 file system (revision 1) over any [`fslab_vfs::BlockDevice`]: make, read, write, check.
//!
//! The directory index and the policy that decides where blocks go are chosen per image or per
//! mount. What is stored is what Linux and e2fsprogs understand, for block sizes up to 4 KiB;
//! larger blocks exist for simulation.
//!
//! This crate knows no FUSE and no path of the host, reads no clock and no random source (time
//! comes with each request, seeds with the options) and prints nothing. An image is untrusted:
//! whatever is read from one is checked before it is believed, work on it is bounded, and damage
//! is an error.

mod acl_format;
pub mod alloc;
mod attributes;
mod bits;
mod block_map;
mod cache;
pub mod check;
mod closure;
mod data;
pub mod dir;
mod directory;
mod error;
mod features;
mod flush;
mod foreign_features;
pub mod format;
mod fs;
mod geometry;
mod group;
mod grow;
mod inode;
mod inode_flags;
mod kinds;
mod known;
mod mkfs;
mod names;
mod numbers;
mod order;
mod orphans;
mod placement;
mod rename;
mod space;
mod superblock;
#[cfg(feature = "testing")]
pub mod testing;
mod tools;
mod trouble;
mod tune;
mod undelete;
mod volume;
mod xattr;
mod xattr_region;

pub use dir::{Form, HashVersion};
pub use error::{Damage, Error, Place, Result};
pub use features::Feature;
pub use foreign_features::ForeignFeatures;
pub use fs::Ext2;
pub use geometry::Geometry;
pub use group::Group;
pub use grow::{Resized, grow};
pub use inode::Inode;
pub use mkfs::{MkfsOptions, mkfs};
pub use numbers::{BlockNo, BlockSize, FileBlock, GroupNo, InodeNo};
pub use space::Reuse;
pub use superblock::Superblock;
pub use tune::{Tuning, tune};
pub use undelete::Deleted;
pub use volume::VolumeOptions;
