//! Sequence numbers of versions that are being uploaded. A tree that is archived during an upload
//! must get a lower number than the upload. Otherwise the uploaded version, which is missing in the
//! archived tree, would seem older than that tree, and a rebuild would omit it.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::engine::Tier;
use crate::error::Result;

/// Numbers of versions whose upload is in progress.
#[derive(Default)]
pub(super) struct Sequences(Mutex<BTreeSet<u64>>);

/// The number of a version that is being uploaded; dropping this ends the reservation.
pub(super) struct ReservedSequence<'a> {
    sequences: &'a Sequences,
    pub(in crate::engine) number: u64,
}

impl Tier {
    /// Reserves the number of a new version. It is greater than `above`, the number of the previous
    /// version, which a new catalogue may not contain.
    pub(super) fn reserve_sequence(&self, above: u64) -> Result<ReservedSequence<'_>> {
        let mut under_way = self.outbound.sequences.0.lock();
        let number = self.catalogue.next_sequence(self.around.calendar.now(), above)?;
        under_way.insert(number);
        Ok(ReservedSequence { sequences: &self.outbound.sequences, number })
    }

    /// Returns a number that is lower than those of all versions being uploaded, but not lower than
    /// the numbers that were drawn before the first of these uploads.
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
