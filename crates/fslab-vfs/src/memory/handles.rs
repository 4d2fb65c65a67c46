//! Open files and directories.
//!
//! Invariant: a handle's number is used once, so every use after release is detected.

use std::collections::HashMap;

use crate::error::{Errno, Result};
use crate::types::{Handle, Ino, OpenMode};

#[derive(Debug, Default)]
pub(super) struct Handles {
    open: HashMap<u64, Open>,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Open {
    File {
        ino: Ino,
        mode: OpenMode,
    },
    Directory {
        ino: Ino,
        /// The end of the listing. Entries that are created later are not listed before a rewind.
        /// Otherwise, a program that renames each listed entry would never reach the end.
        end: u64,
    },
}

impl Open {
    pub fn ino(self) -> Ino {
        match self {
            Self::File { ino, .. } | Self::Directory { ino, .. } => ino,
        }
    }
}

impl Handles {
    pub fn add(&mut self, open: Open) -> Handle {
        self.last += 1;
        self.open.insert(self.last, open);
        Handle(self.last)
    }

    pub fn get(&self, handle: Handle) -> Result<Open> {
        self.open.get(&handle.0).copied().ok_or_else(|| Errno::BADF.into())
    }

    pub fn remove(&mut self, handle: Handle) -> Result<Open> {
        self.open.remove(&handle.0).ok_or_else(|| Errno::BADF.into())
    }

    /// Returns the file of a handle that is open for reading.
    pub fn readable(&self, handle: Handle) -> Result<(Ino, OpenMode)> {
        match self.get(handle)? {
            Open::File { ino, mode } if !mode.contains(OpenMode::WRITE_ONLY) => Ok((ino, mode)),
            Open::Directory { .. } => Err(Errno::ISDIR.into()),
            Open::File { .. } => Err(Errno::BADF.into()),
        }
    }

    /// Returns the file of a handle that is open for writing.
    pub fn writable(&self, handle: Handle) -> Result<(Ino, OpenMode)> {
        match self.get(handle)? {
            Open::File { ino, mode } if mode.writes() => Ok((ino, mode)),
            _ => Err(Errno::BADF.into()),
        }
    }

    /// Returns an open directory and the end of its listing.
    pub fn directory(&self, handle: Handle) -> Result<(Ino, u64)> {
        match self.get(handle)? {
            Open::Directory { ino, end } => Ok((ino, end)),
            Open::File { .. } => Err(Errno::NOTDIR.into()),
        }
    }

    pub fn set_end(&mut self, handle: Handle, new_end: u64) {
        if let Some(Open::Directory { end, .. }) = self.open.get_mut(&handle.0) {
            *end = new_end;
        }
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }
}
