//! A table of open files and directories.

use std::sync::Arc;

use parking_lot::RwLock;
use slab::Slab;

use crate::error::{Errno, Result};
use crate::types::Handle;

/// Assigns a small number, its handle, to each open item.
#[derive(Debug)]
pub struct HandleTable<T> {
    items: RwLock<Slab<Arc<T>>>,
}

impl<T> Default for HandleTable<T> {
    fn default() -> Self {
        Self { items: RwLock::new(Slab::new()) }
    }
}

impl<T> HandleTable<T> {
    /// Adds an open item.
    pub fn insert(&self, item: T) -> Handle {
        Handle(self.items.write().insert(Arc::new(item)) as u64)
    }

    /// Returns an open item.
    ///
    /// # Errors
    /// `EBADF` for a handle that isn't open.
    pub fn get(&self, handle: Handle) -> Result<Arc<T>> {
        let items = self.items.read();
        Ok(Arc::clone(items.get(key(handle)).ok_or(Errno::BADF)?))
    }

    /// Removes and returns an item.
    ///
    /// # Errors
    /// `EBADF` for a handle that isn't open.
    pub fn remove(&self, handle: Handle) -> Result<Arc<T>> {
        Ok(self.items.write().try_remove(key(handle)).ok_or(Errno::BADF)?)
    }
}

fn key(handle: Handle) -> usize {
    usize::try_from(handle.0).unwrap_or(usize::MAX)
}
