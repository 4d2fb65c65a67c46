//! Observers: layers that watch or disturb but change no meaning.

pub(crate) mod null;
pub(crate) mod stats;
pub(crate) mod trace;

mod call;
mod threads;
mod watch;
