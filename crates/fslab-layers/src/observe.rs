//! Observers: layers that watch or disturb but change no meaning.

pub(crate) mod null;
