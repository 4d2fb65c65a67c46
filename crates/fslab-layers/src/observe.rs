//! Observers: layers that watch or disturb but change no meaning.

mod call;
pub mod fault;
mod interceptor;
pub(crate) mod null;
pub mod operation;
pub(crate) mod stats;
mod threads;
pub(crate) mod trace;
