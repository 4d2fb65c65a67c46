//! What a file system is to fslab: the [`FileSystem`] trait, its types, and the leaves that store.
//!
//! A *leaf* stores (a host directory, memory); a *layer* is a file system over another. Both are
//! the same trait, so that a stack of any height is one `dyn FileSystem`.
//!
//! This crate knows nothing of FUSE, reads no clock on behalf of a caller (time comes with the
//! [`Request`]) and prints nothing.

mod block_device;
mod error;
mod file_system;
mod host;
mod layout;
mod memory;
pub mod rules;
#[cfg(feature = "testing")]
pub mod testing;
mod types;

pub use block_device::{BlockDevice, FileDevice, MemoryDevice, MetadataDevice};
pub use error::{Errno, Error, Result};
pub use file_system::{DirectorySink, FileSystem, KernelCache};
pub use host::{HostFs, HostOptions};
pub use layout::{Extent, Layout};
pub use memory::{Capacity, MemFs};
pub use types::*;
