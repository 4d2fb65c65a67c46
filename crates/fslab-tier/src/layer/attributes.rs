//! Attributes that programs see while the engine changes a file.

use fslab_vfs::{Entry, FileSystem, Ino, Request, Result};

use super::TierFs;

impl TierFs {
    /// Calls `ask` while no recalled block of the file is being written. Writing a recalled block
    /// temporarily gives the file other times, permissions, set-id bits and capabilities.
    pub(super) fn settled<T>(&self, ino: Ino, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.tier.in_use(ino) {
            Some(file) => self.tier.at_rest(&file, ask),
            None => ask(),
        }
    }

    /// Returns an entry with the attributes that programs see. For a file in use the attributes are
    /// read again, because a recalled block may have been written during the lookup.
    pub(super) fn shown_entry(&self, request: &Request, entry: Entry) -> Result<Entry> {
        let ino = entry.attr.ino;
        let attr = match self.tier.in_use(ino) {
            Some(file) => self.tier.at_rest(&file, || self.lower.getattr(request, ino, None)),
            None => Ok(entry.attr),
        };
        let shown = attr.and_then(|attr| self.tier.shown(attr));
        let attr = shown.inspect_err(|_| self.lower.forget(ino, 1))?;
        Ok(Entry { attr, generation: entry.generation })
    }
}
