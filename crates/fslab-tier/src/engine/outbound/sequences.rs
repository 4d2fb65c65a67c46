//! Version numbers of uploads in progress. A tree that is archived meanwhile must have a lower
//! number: otherwise a rebuild would take the versions that it does not name for older ones, and
//! leave them out.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::engine::Tier;
use crate::error::Result;

/// Numbers that were drawn and whose versions are on their way.
#[derive(Default)]
pub(super) struct Sequences(Mutex<BTreeSet<u64>>);

/// The number of a version that is on its way for as long as this is there.
pub(super) struct ReservedSequence<'a> {
    sequences: &'a Sequences,
    pub(in crate::engine) number: u64,
}

impl Tier {
    /// Draws the number of a version, above that of the version before, of which a catalogue that
    /// was lost may know nothing yet.
    pub(super) fn reserve_sequence(&self, above: u64) -> Result<ReservedSequence<'_>> {
        let mut under_way = self.outbound.sequences.0.lock();
        let number = self.catalogue.next_sequence(self.around.calendar.now(), above)?;
        under_way.insert(number);
        Ok(ReservedSequence { sequences: &self.outbound.sequences, number })
    }

    /// A number above those of all versions that were drawn before, and below those of all that are
    /// still on their way.
    pub(in crate::engine) fn sequence_below_pending(&self) -> Result<u64> {
        let under_way = self.outbound.sequences.0.lock();
        let drawn = self.catalogue.next_sequence(self.around.calendar.now(), 0)?;
        Ok(under_way.first().map_or(drawn, |first| drawn.min(first.saturating_sub(1))))
    }
}

impl Drop for ReservedSequence<'_> {
    fn drop(&mut self) {
        self.sequences.0.lock().remove(&self.number);
    }
}
