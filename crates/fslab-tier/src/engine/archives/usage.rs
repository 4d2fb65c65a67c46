//! The traffic of the archives. The catalogue records it, so that it includes earlier runs.

use crate::archive::Usage;
use crate::engine::Tier;
use crate::error::Result;
use crate::id::Id;

impl Tier {
    /// Returns the traffic of an archive, in earlier runs and in this process.
    pub(crate) fn usage_so_far(&self, archive: Id) -> Result<Usage> {
        let meter = self.attached(archive).and_then(|archive| archive.meter());
        let unrecorded = meter.map(|meter| meter.unrecorded()).unwrap_or_default();
        Ok(self.catalogue.usage(archive)?.and(unrecorded))
    }

    /// Returns the identity and the URL of each attached archive that counts its traffic, with the
    /// traffic of this process. The URL is empty if the tier's home does not list the archive.
    #[must_use]
    pub fn traffic(&self) -> Vec<(Id, String, Usage)> {
        let archives = self.archives.read().clone();
        let counted = archives.iter().filter_map(|archive| Some((archive.id(), archive.meter()?)));
        let shown = counted.map(|(id, meter)| {
            let address = self.known_archive(id).map(|known| known.address.to_string());
            (id, address.unwrap_or_default(), meter.usage())
        });
        shown.collect()
    }

    /// Records the traffic in the catalogue. A failure is logged: the traffic is then recorded
    /// later, unless this process is killed before.
    pub(crate) fn record_usage(&self) {
        if self.settings.read_only {
            return;
        }
        let archives = self.archives.read().clone();
        let counted = archives.iter().filter_map(|archive| Some((archive.id(), archive.meter()?)));
        let taken = counted.map(|(id, meter)| (id, meter.take_unrecorded(), meter));
        let taken: Vec<_> = taken.filter(|(_, more, _)| *more != Usage::default()).collect();
        let rows: Vec<_> = taken.iter().map(|(id, more, _)| (*id, *more)).collect();
        if rows.is_empty() {
            return;
        }
        if let Err(error) = self.catalogue.add_usage(&rows) {
            tracing::warn!(%error, "can't record the requests and bytes of archives for now");
            taken.iter().for_each(|(_, more, meter)| meter.give_back(*more));
        }
    }
}
