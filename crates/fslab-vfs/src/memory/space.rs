//! How much a memory file system may hold, and how much of it is taken.
//!
//! Invariant: `pages` is the number of pages over all live inodes. Names, attributes and empty
//! inodes are bounded by the number of inodes only.

use crate::error::Errno;

/// The unit of allocation, and the granularity of holes.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// The bounds of a [`super::MemFs`].
///
/// The default, 64 GiB and 16 Mi inodes, is meant as "no bound that a test meets": the memory of
/// the machine may end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Most bytes of file contents, counted in pages of 4 KiB; a rest below a page is unused.
    pub bytes: u64,
    /// Most inodes, the root included.
    pub inodes: u64,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { bytes: 64 << 30, inodes: 16 << 20 }
    }
}

/// What is taken of a [`Capacity`].
#[derive(Debug)]
pub(crate) struct Space {
    capacity: Capacity,
    pages: u64,
}

impl Space {
    pub fn new(capacity: Capacity) -> Self {
        Self { capacity, pages: 0 }
    }

    /// Takes pages, all or none.
    pub fn take(&mut self, pages: u64) -> Result<(), Errno> {
        if pages > self.pages_free() {
            return Err(Errno::NOSPC);
        }
        self.pages += pages;
        Ok(())
    }

    /// Gives pages back.
    pub fn give(&mut self, pages: u64) {
        self.pages -= pages;
    }

    pub fn pages_all(&self) -> u64 {
        self.capacity.bytes / PAGE_BYTES
    }

    pub fn pages_free(&self) -> u64 {
        self.pages_all() - self.pages
    }

    pub fn inodes_all(&self) -> u64 {
        self.capacity.inodes
    }
}
