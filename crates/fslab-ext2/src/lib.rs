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

pub mod alloc;
pub mod dir;
mod error;
mod numbers;

pub use error::{Damage, Error, Place, Result};
pub use numbers::{BlockNo, BlockSize, FileBlock, GroupNo, InodeNo};
