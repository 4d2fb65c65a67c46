//! The [`FileSystem`] trait, its types, and the leaves that store files.
//!
//! A *leaf* stores files (a host directory, memory); a *layer* is a file system over another. Both
//! implement the same trait, so a stack of any height is one `dyn FileSystem`.
//!
//! This crate does not depend on FUSE and prints nothing. The current time comes with the
//! [`Request`], or from a [`Clock`] passed by the caller.
//!
//! Start with these types: [`FileSystem`], [`HostFs`] (a directory of the host), [`MemFs`]
//! (memory).
//!
//! ```
//! use fslab_vfs::{FileKind, FileSystem, Ino, MemFs, Request};
//!
//! let fs = MemFs::default();
//! let root = fs.getattr(&Request::default(), Ino::ROOT, None)?;
//! assert_eq!(root.kind, FileKind::Directory);
//! # Ok::<(), fslab_vfs::Error>(())
//! ```

mod access_times;
mod block_device;
mod call;
mod clock;
mod deferral;
mod duration;
mod errno_names;
mod error;
mod file_attr;
mod file_system;
mod handle_table;
mod host;
mod inode_paths;
mod interceptor;
mod layout;
mod memory;
mod operation;
mod read_only;
pub mod rules;
mod signatures;
mod size;
mod slice_device;
mod split_mix;
mod synchronous;
mod types;

pub use access_times::AccessTimes;
pub use block_device::{BlockDevice, FileDevice, MemoryDevice};
pub use call::{Answer, Outcome, Reply};
pub use clock::{Clock, MonotonicClock, SteppingClock};
pub use deferral::{Deferral, Deferrer, Memory, Waker};
pub use duration::parse_duration;
pub use errno_names::{ERRNO_LAST, ERRNO_NAMES, errno_from_name, errno_name};
pub use error::{Errno, Error, Result};
pub use file_attr::{ExtendedAttr, FileAttr, FileAttrForm};
pub use file_system::{DirectorySink, FileSystem, KernelCache};
pub use handle_table::HandleTable;
pub use host::{HostFs, HostOptions, encode_device, is_lock_file_name};
pub use inode_paths::InodePaths;
pub use interceptor::{Intercepted, Interceptor, Watch};
pub use layout::{Extent, Layout};
pub use memory::{Capacity, MemFs};
pub use operation::{Call, Named, Operation};
pub use read_only::ReadOnly;
pub use signatures::{Signature, signatures_of, wipe_signatures};
pub use size::Size;
pub use slice_device::SliceDevice;
pub use split_mix::{SPLIT_MIX_STEP, split_mix};
pub use synchronous::{Synchronous, SynchronousFs};
pub use types::*;
