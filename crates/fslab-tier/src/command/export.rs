//! Exports the files of a tree with their residency and their copies.

use super::Execution;
use crate::error::Result;
use crate::event::{Event, go_on};

impl Execution<'_> {
    /// Reports all that the tier knows about each file.
    pub(super) fn export(&mut self, paths: &[Vec<u8>]) -> Result<()> {
        let tier = self.tier;
        self.each_file(paths, &mut |place, tell| {
            let file = tier.exported(&place.found.attr, place.path)?;
            go_on(tell(Event::Exported(Box::new(file))))
        })
    }
}
