//! An ext2 file system (revision 1) over any [`fslab_vfs::BlockDevice`]: make, read, write, check.
//!
//! The directory index and the allocation policy can be chosen per image or per mount. Images with
//! blocks of up to 4 KiB are valid for Linux and e2fsprogs. Larger blocks are only for simulation.
//!
//! This crate does not depend on FUSE or host paths, and it prints nothing. It reads neither a
//! clock nor a source of randomness, because requests contain times and options contain seeds.
//! Images are untrusted. Every value from an image is checked before use, the work on it is
//! limited, and damage is reported as an error.
//!
//! Start with these types: [`Ext2`], [`MkfsOptions`], [`VolumeOptions`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use fslab_ext2::{Ext2, MkfsOptions, VolumeOptions, mkfs};
//! use fslab_vfs::{Ino, MemoryDevice};
//! use fslab_vfs_testing::client::Client;
//!
//! let device = Arc::new(MemoryDevice::new(4 << 20));
//! mkfs(&*device, &MkfsOptions::default())?;
//! let fs = Ext2::open(device, VolumeOptions::default())?;
//! let client = Client::new(&fs);
//! let file = client.file(Ino::ROOT, "name", b"data")?;
//! assert_eq!(client.contents(file)?, b"data");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod acl_format;
pub mod alloc;
mod allocator;
mod attributes;
mod bits;
mod block_map;
mod cache;
pub mod check;
pub mod dir;
mod dir_blocks;
mod error;
mod error_state;
mod file_data;
mod flaw;
pub mod format;
mod free_space;
mod fs;
mod geometry;
mod group;
mod grow;
mod inode;
mod inode_flags;
mod inode_refs;
mod kept_changes;
mod lazy_features;
mod mkfs;
mod namei;
mod orphans;
mod pointer_tree;
mod recent;
mod superblock;
#[cfg(feature = "testing")]
pub mod testing;
mod tune;
mod types;
mod undelete;
mod unknown_features;
mod volume;
mod write_order;
mod xattr;
mod xattr_region;

pub use dir::{Form, HashVersion};
pub use error::{Damage, Error, Place, Result};
pub use flaw::{Checked, Flaw};
pub use free_space::Reuse;
pub use fs::Ext2;
pub use geometry::Geometry;
pub use group::Group;
pub use grow::{Resized, grow};
pub use inode::Inode;
pub use kept_changes::{KEPT_LAYOUT, KEPT_WORDS, image_of, note_image};
pub use lazy_features::Feature;
pub use mkfs::{MkfsOptions, mkfs};
pub use superblock::Superblock;
pub use tune::{Tuning, tune};
pub use types::{BlockNo, BlockSize, FileBlock, GroupNo, InodeNo};
pub use undelete::Deleted;
pub use unknown_features::ForeignFeatures;
pub use volume::VolumeOptions;
