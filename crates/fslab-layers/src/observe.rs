//! Observers: layers that watch or disturb operations without changing contents.

pub mod fault;
pub(crate) mod null;
pub mod operation;
pub(crate) mod stats;
mod threads;
pub(crate) mod trace;
