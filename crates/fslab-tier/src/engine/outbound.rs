//! The way out: files go to archives, alone or bundled.

pub(in crate::engine) mod archiving;
pub(in crate::engine) mod bundling;
pub(in crate::engine) mod failover;
pub(in crate::engine) mod repacking;
pub(in crate::engine) mod sequences;
