//! The plans of a scrub and of a drain. They count the reads and writes of a run that finds no
//! damage.
//! The lists of bundles and the archived trees, which a scrub also reads, are not counted.

use std::collections::HashSet;
use std::sync::Arc;

use super::Planner;
use crate::archive::{Archive, Traffic};
use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::Tier;
use crate::error::Result;
use crate::event::{Bound, Plan};
use crate::id::Id;
use crate::object::shape::Shape;

/// The plan of a scrub or a drain.
pub(crate) struct CopiesPlan<'a> {
    planner: Planner<'a>,
    /// The archive that is drained.
    drained: Option<Id>,
    /// The containers that will be copied, each with the target archive. A bundle is copied as a
    /// whole.
    copied: HashSet<(Id, Id)>,
}

impl<'a> CopiesPlan<'a> {
    /// Begins the plan of a scrub, or of a drain if an archive is given.
    ///
    /// # Errors
    /// Errors of the catalogue.
    pub(crate) fn begin(tier: &'a Arc<Tier>, drained: Option<Id>) -> Result<Self> {
        let command = if drained.is_some() { "drain" } else { "scrub" };
        let planner = tier.planner(command, Bound::AtLeast)?;
        Ok(Self { planner, drained, copied: HashSet::new() })
    }

    /// Adds an object of the catalogue.
    pub(crate) fn row(&mut self, row: &ObjectRow) {
        let (tier, version) = (self.planner.tier, &row.version);
        let is_elsewhere = self.drained.is_some_and(|drained| !version.copies.contains(&drained));
        if row.state == ObjectState::Pending || is_elsewhere {
            return;
        }
        self.planner.plan.files += 1;
        let (mut holders, mut counted) = (tier.holders(version), 0);
        holders.retain(|archive| Some(archive.id()) != self.drained);
        for archive in &holders {
            self.verify(archive, row);
            counted += usize::from(archive.refusal().is_none());
        }
        let lacking = tier.settings.copies.saturating_sub(counted);
        let drained = tier.holders(version).into_iter().find(|one| Some(one.id()) == self.drained);
        // The drained copy is needed only if the others are too few.
        let drained = drained.filter(|_| lacking > 0);
        drained.iter().for_each(|archive| self.verify(archive, row));
        let mut targets = tier.active_archives();
        targets.retain(|target| {
            !version.copies.contains(&target.id()) && Some(target.id()) != self.drained
        });
        let source = holders.into_iter().next().or(drained);
        for target in targets.iter().take(lacking) {
            if let Some(source) = &source {
                self.copy(source, target, row);
            }
        }
    }

    /// Adds the reads that verify a copy.
    fn verify(&mut self, archive: &Arc<dyn Archive>, row: &ObjectRow) {
        let version = &row.version;
        self.planner.plan.bytes += version.size;
        let sources = row.sources.as_ref().map_or(0, Vec::len);
        let shape = Shape::of_archived(version.location.length, version.size, sources);
        self.planner.forget(archive, version.location.container);
        self.planner.read(archive, version.location, shape.opening_reads().into_iter());
        let (reads, bytes) = shape.least_block_reads();
        let blocks = Traffic { get_requests: reads, received_bytes: bytes, ..Traffic::default() };
        self.planner.add(archive, blocks, 0);
    }

    /// Adds the copy of an object to another archive.
    fn copy(&mut self, from: &Arc<dyn Archive>, to: &Arc<dyn Archive>, row: &ObjectRow) {
        let version = &row.version;
        let (length, container) = (version.location.length, version.location.container);
        self.planner.add(from, Traffic { received_bytes: length, ..Traffic::default() }, 0);
        if self.copied.insert((container, to.id())) {
            let first = to.traffic_of_writing(0);
            let first = Traffic { sent_bytes: 0, received_bytes: 0, ..first };
            self.planner.add(to, first, 0);
            self.planner.add(from, Traffic::get(0), 0);
        }
        self.planner.add(to, Traffic { sent_bytes: length, ..Traffic::default() }, length);
        self.verify(to, row);
    }

    /// Returns the complete plan.
    ///
    /// # Errors
    /// Errors of the catalogue.
    pub(crate) fn finish(self) -> Result<Plan> {
        self.planner.finish()
    }
}
