//! Every unsafe block and libc call of fslab, behind safe functions.
//!
//! What rustix offers is called from where it is needed; this crate holds what it does not offer.
//! Nothing here knows a file system, a layer or a benchmark.

pub mod accounts;
pub mod block_counters;
pub mod clone;
pub mod cycles;
pub mod dead_mount;
pub mod descriptor;
pub mod file_handle;
pub mod freed_memory;
pub mod fsxattr;
pub mod fuse_control;
pub mod fuse_device;
pub mod generation;
pub mod id_map;
pub mod identity;
pub mod large_pages;
pub mod lease;
pub mod loop_device;
pub mod make_file_system;
pub mod memory_bound;
pub mod mount_attributes;
pub mod mounts;
pub mod pause;
pub mod residency;
pub mod seal;
pub mod signals;
pub mod space_map;
pub mod tracepoint;
pub mod usage;
