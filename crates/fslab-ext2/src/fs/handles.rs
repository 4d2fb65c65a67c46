//! Open files and directories. Handle numbers are never reused, so that any use after release is
//! detected.

use std::collections::HashMap;
use std::sync::Arc;

use fslab_vfs::{Errno, Handle, OpenMode};
use parking_lot::Mutex;

use crate::dir::InodeOrder;
use crate::types::InodeNo;

#[derive(Debug, Default)]
pub(super) struct Handles {
    open: HashMap<u64, Open>,
    last: u64,
}

/// The listing of an open directory in inode order; `None` for index order.
pub(super) type Listing = Option<Arc<Mutex<InodeOrder>>>;

/// The file or directory that a handle refers to.
#[derive(Clone, Debug)]
pub(super) enum Open {
    File { no: InodeNo, mode: OpenMode },
    Directory { no: InodeNo, listing: Listing },
}

impl Open {
    pub fn no(&self) -> InodeNo {
        match self {
            Self::File { no, .. } | Self::Directory { no, .. } => *no,
        }
    }
}

impl Handles {
    pub fn add(&mut self, open: Open) -> Handle {
        self.last += 1;
        self.open.insert(self.last, open);
        Handle(self.last)
    }

    pub fn remove(&mut self, handle: Handle) -> Result<Open, Errno> {
        self.open.remove(&handle.0).ok_or(Errno::BADF)
    }

    pub fn get(&self, handle: Handle) -> Result<Open, Errno> {
        self.open.get(&handle.0).cloned().ok_or(Errno::BADF)
    }

    /// Returns the file of a handle if the handle is open for reading.
    pub fn readable(&self, handle: Handle) -> Result<(InodeNo, OpenMode), Errno> {
        match self.get(handle)? {
            Open::File { no, mode } if !mode.contains(OpenMode::WRITE_ONLY) => Ok((no, mode)),
            Open::Directory { .. } => Err(Errno::ISDIR),
            Open::File { .. } => Err(Errno::BADF),
        }
    }

    /// Returns the file of a handle if the handle is open for writing.
    pub fn writable(&self, handle: Handle) -> Result<(InodeNo, OpenMode), Errno> {
        match self.get(handle)? {
            Open::File { no, mode } if mode.writes() => Ok((no, mode)),
            _ => Err(Errno::BADF),
        }
    }

    /// Returns the directory of a handle.
    pub fn directory(&self, handle: Handle) -> Result<(InodeNo, Listing), Errno> {
        match self.get(handle)? {
            Open::Directory { no, listing } => Ok((no, listing)),
            Open::File { .. } => Err(Errno::NOTDIR),
        }
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }
}
