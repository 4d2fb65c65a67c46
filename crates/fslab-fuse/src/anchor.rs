//! Keeps the kernel's table of backing files from being built and torn down at each opening.
//!
//! The table is a radix tree, and its numbers only go up: a single number far from zero needs a
//! node on each level, all made when a lone file is registered and freed (through RCU) when it is
//! closed. One number that stays in the leaf where the next ones will lie keeps those nodes: about
//! 2 us an opening of 13.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::MemfdFlags;

use crate::channel::Channel;

/// Numbers in one leaf of the tree are equal but for so many low bits (`XA_CHUNK_SHIFT`).
const LEAF_BITS: u32 = 6;

/// An empty file without a name, registered where the last file was.
#[derive(Debug)]
pub(crate) struct Anchor {
    /// `None` where it could not be made: openings then cost a little more.
    file: Option<OwnedFd>,
    number: Option<i32>,
}

impl Anchor {
    pub fn new() -> Self {
        let file = rustix::fs::memfd_create("fslab-anchor", MemfdFlags::CLOEXEC);
        let file = file.inspect_err(|error| tracing::debug!(%error, "no anchor")).ok();
        Self { file, number: None }
    }

    /// Follows a number that was just given, if it lies in another leaf.
    pub fn follow(&mut self, given: i32, channel: &dyn Channel) {
        if self.number.is_some_and(|number| number >> LEAF_BITS == given >> LEAF_BITS) {
            return;
        }
        let Some(file) = &self.file else { return };
        let moved = channel.register_backing(file.as_fd()).and_then(|number| {
            self.number.replace(number).map_or(Ok(()), |left| channel.release_backing(left))
        });
        if let Err(error) = moved {
            tracing::debug!(%error, "no anchor any more");
            self.file = None;
        }
    }
}
