//! Capacity of a memory file system, and its use.
//!
//! Invariant: `pages` is the number of pages of all live inodes. Names, attributes and empty inodes
//! use no pages; only the maximum number of inodes limits them.

use crate::error::Errno;

/// The unit of allocation, and the granularity of holes.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// The limits of a [`super::MemFs`].
///
/// The default, 64 GiB and 16 Mi inodes, is larger than any test needs. The machine may have less
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Maximum number of bytes of file contents, in pages of 4 KiB; a remainder below a page is
    /// unused.
    pub bytes: u64,
    /// Maximum number of inodes, including the root.
    pub inodes: u64,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { bytes: 64 << 30, inodes: 16 << 20 }
    }
}

/// The used part of a [`Capacity`].
#[derive(Debug)]
pub(crate) struct Space {
    capacity: Capacity,
    pages: u64,
}

impl Space {
    pub fn new(capacity: Capacity) -> Self {
        Self { capacity, pages: 0 }
    }

    /// Allocates all pages or none.
    pub fn take(&mut self, pages: u64) -> Result<(), Errno> {
        if pages > self.pages_free() {
            return Err(Errno::NOSPC);
        }
        self.pages += pages;
        Ok(())
    }

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
