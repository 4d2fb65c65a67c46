//! All unsafe blocks and libc calls of fslab, behind safe functions.
//!
//! Other crates call rustix directly; this crate contains the functions that rustix lacks. It
//! depends on no other crate of fslab.
//!
//! Start with these: [`mounts::Mount`] unmounts when dropped, [`loop_device::LoopDevice`] detaches
//! when dropped, and [`descriptor::close`] returns the errors of close(2).
//!
//! ```
//! let root = fslab_sys::mounts::mounted_on("/proc".as_ref())?;
//! assert!(root.is_some_and(|mount| mount.file_system == "proc"));
//! # Ok::<(), std::io::Error>(())
//! ```

/// Implements subtraction of an earlier reading of increasing counters from a later one.
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
pub mod provided_memory;
pub mod shared_memory;
pub mod signals;
pub mod supervise;
pub mod thread_times;
pub mod tracepoint;
pub mod usage;
pub mod user_database;
pub mod verity;
pub mod xfs_inodes;
