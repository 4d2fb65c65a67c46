//! Attributes that programs see while the engine works on a file.

use fslab_vfs::{Entry, FileSystem, Ino, Request, Result};

use super::TierFs;

impl TierFs {
    /// Asks while no block of the file is put in its place: until that is done, times and what lets
    /// a program do more are not the file's.
    pub(super) fn settled<T>(&self, ino: Ino, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.tier.in_use(ino) {
            Some(file) => self.tier.at_rest(&file, ask),
            None => ask(),
        }
    }

    /// What a name was found to stand for. Of a file in use, attributes are asked again: when it
    /// was found, a block may have been on its way into its place.
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
