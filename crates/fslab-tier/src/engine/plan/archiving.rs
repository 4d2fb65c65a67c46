//! The plan of archiving files.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::Attr;

use super::{Planner, pieces};
use crate::archive::{Archive, Proof};
use crate::engine::outbound::bundling::{Filling, bundled_bytes, is_bundle_first};
use crate::engine::{BundledObjects, Tier, WalkEntry};
use crate::error::{Error, Result};
use crate::event::{Bound, Plan};
use crate::lower::SECTOR_BYTES;
use crate::object::bundle::list_bytes;
use crate::object::shape::Shape;
use crate::runs::Runs;
use crate::stored::format::blocks_of;
use crate::stored::{Attributes, BLOCK_BYTES};

/// A file of a bundle: the maximum length of its object, and the bytes that count for the size of
/// the bundle.
struct Member {
    object_bytes: u64,
    bundled_bytes: usize,
}

/// The plan of an archiving run. It bundles files as the run does.
pub(crate) struct ArchivingPlan<'a> {
    planner: Planner<'a>,
    targets: Vec<Arc<dyn Archive>>,
    /// Files of at most this many bytes are bundled; 0 for none.
    bundled: u64,
    filling: Filling,
    waiting: Vec<Member>,
    gathered: Vec<Member>,
}

impl<'a> ArchivingPlan<'a> {
    /// Begins the plan. `bundled` overrides the tier's setting of that name.
    ///
    /// # Errors
    /// If too few archives accept copies.
    pub(crate) fn begin(tier: &'a Arc<Tier>, bundled: Option<u64>) -> Result<Self> {
        Ok(Self {
            planner: tier.planner("archive", Bound::AtMost)?,
            targets: tier.copy_targets(&HashSet::new())?,
            bundled: bundled.unwrap_or(tier.settings.bundled),
            filling: Filling::default(),
            waiting: Vec::new(),
            gathered: Vec::new(),
        })
    }

    /// Adds a file; returns whether it would be archived.
    ///
    /// # Errors
    /// The errors of archiving the file.
    pub(crate) fn file(&mut self, place: &WalkEntry<'_>) -> Result<bool> {
        let (tier, attr) = (self.planner.tier, &place.found.attr);
        let Some(before) = tier.would_archive(attr, place.path)? else { return Ok(false) };
        if !self.planner.is_new(attr) {
            return Ok(false);
        }
        let attributes = tier.attributes(attr, place.path)?;
        let mut offline = Runs::new();
        let may_have_basis = tier.settings.deltas && attr.size > self.bundled;
        if let Some(before) = before.as_ref().filter(|_| may_have_basis) {
            self.planner.read_basis(&before.version, &self.targets)?;
            self.planner.plan.changed_files += 1;
        }
        if let Some(before) = before.filter(|before| !before.offline.is_empty()) {
            tier.is_there(&before.version)?;
            self.planner.read_blocks(
                &before.version,
                &before.offline,
                &BundledObjects::default(),
            )?;
            offline = before.offline;
        }
        self.planner.plan.files += 1;
        self.planner.plan.bytes += attr.size;
        if self.bundled > 0 && attr.size <= self.bundled {
            self.bundle(attr.size, &attributes);
            return Ok(true);
        }
        if is_bundle_first(attr.size) {
            self.end_bundle();
        }
        let shape = Shape::of_new(&attributes, attr.size, self.data_bytes(attr, offline)?);
        let blocks = 0..blocks_of(attr.size);
        self.write(shape.length(), || {
            let opening = shape.opening_reads().into_iter();
            let tables = shape.page_reads(blocks.clone());
            opening.chain(tables).chain(shape.block_reads(blocks.clone()))
        });
        Ok(true)
    }

    fn bundle(&mut self, size: u64, attributes: &Attributes) {
        self.filling.wait(size);
        self.waiting.push(Member {
            object_bytes: Shape::of_new(attributes, size, size).length(),
            bundled_bytes: bundled_bytes(size as usize, attributes),
        });
        if self.filling.must_read() {
            self.read_waiting();
        }
        if self.filling.is_full() {
            self.archive_gathered();
        }
    }

    fn read_waiting(&mut self) {
        self.filling.begin_reading();
        for member in std::mem::take(&mut self.waiting) {
            let is_complete = self.filling.gather(member.bundled_bytes);
            self.gathered.push(member);
            if is_complete {
                self.archive_gathered();
            }
        }
    }

    fn archive_gathered(&mut self) {
        self.filling.begin_bundle();
        let gathered = std::mem::take(&mut self.gathered);
        if gathered.is_empty() {
            return;
        }
        let objects: u64 = gathered.iter().map(|member| member.object_bytes).sum();
        let length = 2 * list_bytes(gathered.len()) + objects;
        self.write(length, || pieces(length));
    }

    fn end_bundle(&mut self) {
        self.read_waiting();
        self.archive_gathered();
    }

    /// Adds the writes of a new container to all copies, and the reads that verify each copy that
    /// the archive does not prove by a checksum.
    fn write<R: Iterator<Item = Range<u64>>>(&mut self, length: u64, reads: impl Fn() -> R) {
        for archive in self.targets.clone() {
            let mut traffic = archive.traffic_of_writing(length);
            // Cached data is dropped before a copy is verified.
            let mut is_located = false;
            let is_read_back = archive.proof() == Proof::ReadBack;
            for read in reads().take_while(|_| is_read_back) {
                traffic += archive.traffic_of_reading(read, length, is_located);
                is_located = true;
            }
            self.planner.add(&archive, traffic, length);
        }
    }

    /// Returns the bytes of a file's blocks that are not holes.
    fn data_bytes(&self, attr: &Attr, offline: Runs) -> Result<u64> {
        if attr.blocks.saturating_mul(SECTOR_BYTES) >= attr.size {
            return Ok(attr.size);
        }
        self.planner.tier.bytes_of_data_blocks(attr, offline)
    }

    /// Returns the complete plan.
    ///
    /// # Errors
    /// Errors of the catalogue.
    pub(crate) fn finish(mut self) -> Result<Plan> {
        self.end_bundle();
        self.planner.finish()
    }
}

impl Tier {
    /// Returns the bytes of the blocks of a file that are offline or contain data.
    fn bytes_of_data_blocks(&self, attr: &Attr, offline: Runs) -> Result<u64> {
        let below = || Error::below(b"");
        let own = self.open_own(attr.ino, false).map_err(below())?;
        let (mut blocks, mut next, end) = (offline, 0, blocks_of(attr.size));
        while next < end {
            let Some(data) = own.next_data(next * BLOCK_BYTES).map_err(below())? else { break };
            let first = (data / BLOCK_BYTES).max(next);
            let hole = own.next_hole(data).map_err(below())?.unwrap_or(u64::MAX);
            next = hole.div_ceil(BLOCK_BYTES).clamp(first + 1, end.max(first + 1));
            blocks.insert(first..next);
        }
        let bytes = |run: Range<u64>| {
            (run.end * BLOCK_BYTES).min(attr.size).saturating_sub(run.start * BLOCK_BYTES)
        };
        Ok(blocks.iter().map(bytes).sum())
    }
}
