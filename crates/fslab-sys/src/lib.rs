//! Every unsafe block and libc call of fslab, behind safe functions.
//!
//! What rustix offers is called from where it is needed; this crate holds what it does not offer.
//! Nothing here knows a file system, a layer or a benchmark.
//!
//! Three to know first: [`mounts::Mount`] unmounts when it is dropped, [`loop_device::LoopDevice`]
//! detaches, and [`descriptor`] has what rustix lacks of open files.
//!
//! ```
//! let root = fslab_sys::mounts::mounted_on("/proc".as_ref())?;
//! assert!(root.is_some_and(|mount| mount.file_system == "proc"));
//! # Ok::<(), std::io::Error>(())
//! ```

/// What was counted between two readings of counters that only rise.
macro_rules! impl_sub {
    ($counters:ident { $($field:ident),* $(,)? }) => {
        impl std::ops::Sub for $counters {
            type Output = Self;

            fn sub(self, earlier: Self) -> Self {
                Self { $($field: self.$field.saturating_sub(earlier.$field),)* }
            }
        }
    };
}

pub mod block_counters;
pub mod clone;
pub mod credentials;
pub mod cycles;
pub mod dead_mount;
pub mod descriptor;
pub mod exchange_range;
pub mod exec;
pub mod file_handle;
pub mod fsmap;
pub mod fsxattr;
pub mod fuse_control;
pub mod fuse_device;
pub mod fuse_ring;
pub mod generation;
pub mod huge_pages;
pub mod io_ring;
pub mod lease;
pub mod loop_device;
pub mod make_file_system;
pub mod malloc_trim;
mod mapping;
pub mod memory_bound;
pub mod mount_attributes;
pub mod mounts;
pub mod page_cache;
pub mod pause;
pub mod processors;
pub mod shared_memory;
pub mod signals;
pub mod supervise;
pub mod tracepoint;
pub mod usage;
pub mod user_database;
pub mod verity;
pub mod xfs_inodes;
