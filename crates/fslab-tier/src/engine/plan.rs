//! Plans: what a command would cause in archives, computed by the rules of the commands and without
//! a request.
//!
//! The commands themselves decide which files they process. Here, each such file is converted to
//! calls of archives, and each archive converts these calls to requests and bytes. The requests and
//! bytes are upper bounds, because data is compressed before it is sent. For a scrub and a drain
//! they are lower bounds, because repairs are not known in advance. Not included are the requests
//! that open and close an archive and those that renew its lease at intervals.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{Attr, FileSystem, Ino};

use crate::archive::{Archive, ContainerKind, Traffic};
use crate::engine::{BundledObjects, Tier};
use crate::error::Result;
use crate::event::{Bound, Plan, PlannedTraffic};
use crate::id::Id;
use crate::lower::own_request;
use crate::object::prefetch::{PlannedReads, Prefetched};
use crate::object::reader::whole_to_read;
use crate::object::shape::Shape;
use crate::runs::Runs;
use crate::stored::format::{BUNDLE_BYTES_MAX, SOURCES_MAX, blocks_of};
use crate::stored::{BLOCK_BYTES, Location, Version};

mod archiving;
mod scrubbing;

pub(crate) use archiving::ArchivingPlan;
pub(crate) use scrubbing::CopiesPlan;

/// Maximum number of containers that a plan remembers as located. Archives remember more, so that
/// the planned requests are an upper bound.
const LOCATED_MAX: usize = 128;

/// A plan that is being computed.
pub(crate) struct Planner<'a> {
    tier: &'a Arc<Tier>,
    plan: Plan,
    /// The containers that the archives will have located, because the plan reads them earlier.
    located: HashSet<(Id, Id)>,
    /// The archive and the container whose cached data will be dropped before the next read.
    forgotten: Option<(Id, Id)>,
    /// The files with several names that were planned.
    met: HashSet<Ino>,
    /// The versions in sources, by their containers.
    sources: HashMap<Id, Version>,
}

impl Tier {
    /// Begins the plan of a command.
    ///
    /// # Errors
    /// Errors of the catalogue.
    pub(crate) fn planner(self: &Arc<Self>, command: &str, bound: Bound) -> Result<Planner<'_>> {
        let stat = self.lower.statfs(&own_request(), Ino::ROOT).ok();
        let free = stat.map(|stat| stat.blocks_available.saturating_mul(stat.fragment_size.into()));
        let plan = Plan {
            command: command.to_owned(),
            bound,
            files: 0,
            bytes: 0,
            changed_files: 0,
            needed_bytes: 0,
            freed_bytes: 0,
            free_bytes: free,
            estimated_seconds: None,
            archives: Vec::new(),
        };
        let (located, met) = (HashSet::new(), HashSet::new());
        let sources = self.catalogue.source_versions()?;
        Ok(Planner { tier: self, plan, located, forgotten: None, met, sources })
    }
}

impl Planner<'_> {
    /// Returns whether a file was not planned before under another of its names.
    pub(crate) fn is_new(&mut self, attr: &Attr) -> bool {
        attr.links < 2 || self.met.insert(attr.ino)
    }

    /// Adds files that will be recalled together, each with the blocks to recall and their bytes.
    /// Their objects may be read together, but not within a rate limit of the command.
    ///
    /// # Errors
    /// Errors of the catalogue.
    pub(crate) fn recall(&mut self, files: &[(Version, Runs, u64)], has_limit: bool) -> Result<()> {
        let versions = files.iter().filter(|_| !has_limit).map(|(version, ..)| version);
        let bundled = self.tier.bundled_objects(versions);
        for (archive, container, parts) in bundled.reads.iter() {
            self.read_together(archive, container, parts);
        }
        for (version, offline, bytes) in files {
            self.plan.files += 1;
            self.plan.bytes += bytes;
            self.plan.needed_bytes += bytes;
            self.read_blocks(version, offline, &bundled)?;
        }
        Ok(())
    }

    /// Adds reads that open several objects together. They are read from the archives themselves,
    /// not from a cache.
    pub(crate) fn open_together(&mut self, reads: &PlannedReads) {
        for (archive, container, parts) in reads.iter() {
            self.forget(archive, container);
            self.read_together(archive, container, parts);
        }
    }

    /// Adds reads of a container.
    fn read_together(&mut self, archive: &Arc<dyn Archive>, container: Id, parts: &[Range<u64>]) {
        // An object at offset 0 is alone in its container. The length of a bundle is unknown.
        let is_alone = parts.first().is_some_and(|part| part.start == 0);
        let end = parts.last().filter(|_| is_alone).map(|part| part.end);
        self.read_parts((archive, container), end.unwrap_or(BUNDLE_BYTES_MAX), parts);
    }

    /// Adds a file that will be released. `blocks` are the blocks to release, with `bytes` bytes.
    /// Its copies are opened even if it has none. `prefetched` are the parts that were planned with
    /// [`Self::open_together`].
    ///
    /// # Errors
    /// Errors of the catalogue.
    pub(crate) fn release(
        &mut self,
        version: &Version,
        blocks: &Runs,
        bytes: u64,
        prefetched: &Prefetched,
    ) -> Result<()> {
        self.plan.files += u64::from(bytes > 0);
        self.plan.bytes += bytes;
        self.plan.freed_bytes += bytes;
        let sources = self.sources_of(version)?;
        let shape = shape_of(version, &sources);
        for (number, archive) in self.tier.writable_holders(version).into_iter().enumerate() {
            let Location { container, offset, .. } = version.location;
            if !prefetched.has_container(archive.id(), container) {
                self.forget(&archive, container);
            }
            let is_read = |part: &Range<u64>| {
                prefetched.has(archive.id(), container, &(offset + part.start..offset + part.end))
            };
            let tables = shape.page_reads(blocks.iter().flatten());
            // Only the first copy's table is read.
            let tables = tables.filter(|_| number == 0);
            let reads = shape.opening_reads().into_iter().chain(tables);
            self.read(&archive, version.location, reads.filter(|part| !is_read(part)));
            self.open_sources(&archive, &sources);
        }
        Ok(())
    }

    /// Returns the containers of a version's sources; none if they are unknown, after a loss of a
    /// part of the catalogue. The plan then lacks the reads of sources.
    fn sources_of(&self, version: &Version) -> Result<Vec<Id>> {
        let row = self.tier.catalogue.get(version.object)?;
        Ok(row.and_then(|row| row.sources).unwrap_or_default())
    }

    /// Adds the reads that check that an archive has these sources.
    fn open_sources(&mut self, archive: &Arc<dyn Archive>, sources: &[Id]) {
        for source in sources {
            let Some(version) = self.sources.get(source).cloned() else { continue };
            self.forget(archive, *source);
            // The row of a source does not list the sources of its object, which are read, too.
            let shape = Shape::of_archived(version.location.length, version.size, SOURCES_MAX);
            self.read(archive, version.location, shape.opening_reads().into_iter());
        }
    }

    /// Adds the reads with which archiving finds the blocks that archives already have.
    fn read_basis(&mut self, version: &Version, archives: &[Arc<dyn Archive>]) -> Result<()> {
        let sources = self.sources_of(version)?;
        let shape = shape_of(version, &sources);
        for archive in archives {
            self.read(archive, version.location, shape.opening_reads().into_iter());
            self.open_sources(archive, &sources);
        }
        // Each page is read twice: to choose the sources, and to archive the file.
        for _ in 0..2 {
            if let Some(archive) = archives.last() {
                let pages = shape.page_reads(0..blocks_of(version.size));
                self.read(archive, version.location, pages);
            }
        }
        Ok(())
    }

    /// Adds the reads that fetch blocks of a version from the first archive that may have it.
    fn read_blocks(
        &mut self,
        version: &Version,
        blocks: &Runs,
        bundled: &BundledObjects<'_>,
    ) -> Result<()> {
        let Some(archive) = self.tier.may_hold(version).into_iter().next() else { return Ok(()) };
        let sources = self.sources_of(version)?;
        let is_whole = bundled.has(&archive, version);
        if is_whole && sources.is_empty() {
            return Ok(());
        }
        if whole_to_read(version).is_some() && !self.tier.has_reader(&archive, version) {
            self.read(&archive, version.location, std::iter::once(0..version.location.length));
            return Ok(());
        }
        let shape = shape_of(version, &sources);
        let is_open = is_whole || self.tier.has_reader(&archive, version);
        let end = blocks_of(version.size);
        let numbers = || blocks.iter().flatten().take_while(move |block| *block < end);
        let opening = shape.opening_reads().into_iter().filter(|_| !is_open);
        self.read(&archive, version.location, opening.chain(shape.page_reads(numbers())));
        for read in shape.block_reads(numbers()) {
            // Any block may be the first one that is read from its container.
            let mut location = version.location;
            if let Some(source) = sources.first() {
                self.forget(&archive, *source);
                location.container = *source;
                location.length = version.size.saturating_add(BLOCK_BYTES);
            }
            self.read(&archive, location, [read].into_iter());
        }
        Ok(())
    }

    /// Adds reads of an object.
    fn read(
        &mut self,
        archive: &Arc<dyn Archive>,
        object: Location,
        reads: impl Iterator<Item = Range<u64>>,
    ) {
        // An object at offset 0 is alone in its container. The length of a bundle is unknown.
        let length = if object.offset == 0 { object.length } else { BUNDLE_BYTES_MAX };
        let parts: Vec<_> =
            reads.map(|read| object.offset + read.start..object.offset + read.end).collect();
        self.read_parts((archive, object.container), length, &parts);
    }

    /// Adds reads of a container of this length.
    fn read_parts(
        &mut self,
        (archive, container): (&Arc<dyn Archive>, Id),
        length: u64,
        parts: &[Range<u64>],
    ) {
        let mut traffic = Traffic::default();
        for part in parts {
            let is_located = self.locate(archive, container);
            traffic += archive.traffic_of_reading(part.clone(), length, is_located);
        }
        self.add(archive, traffic, 0);
    }

    /// Notes that a container's cached data will be dropped.
    fn forget(&mut self, archive: &Arc<dyn Archive>, container: Id) {
        self.located.remove(&(archive.id(), container));
        self.forgotten = Some((archive.id(), container));
    }

    /// Returns whether a container is located, and notes that it is from now on.
    fn locate(&mut self, archive: &Arc<dyn Archive>, container: Id) -> bool {
        let key = (archive.id(), container);
        let is_forgotten = self.forgotten.take_if(|forgotten| *forgotten == key).is_some();
        if !is_forgotten && archive.is_located((ContainerKind::Files, container)) {
            return true;
        }
        if self.located.len() >= LOCATED_MAX {
            self.located.clear();
        }
        !self.located.insert(key)
    }

    fn add(&mut self, archive: &Arc<dyn Archive>, traffic: Traffic, stored_bytes: u64) {
        let id = archive.id();
        let known = self.plan.archives.iter().position(|known| known.archive == id);
        let known = known.unwrap_or_else(|| {
            let address = self.tier.archive_state(id).address;
            self.plan.archives.push(PlannedTraffic {
                archive: id,
                address,
                traffic: Traffic::default(),
                stored_bytes: 0,
                free_bytes: archive.free_bytes(),
                estimated_seconds: None,
            });
            self.plan.archives.len() - 1
        });
        self.plan.archives[known].traffic += traffic;
        self.plan.archives[known].stored_bytes += stored_bytes;
    }

    /// Returns the complete plan, with the estimated duration.
    ///
    /// # Errors
    /// Errors of the catalogue.
    pub(crate) fn finish(mut self) -> Result<Plan> {
        for planned in &mut self.plan.archives {
            let usage = self.tier.usage_so_far(planned.archive)?;
            planned.estimated_seconds = usage.seconds_of(&planned.traffic);
        }
        let seconds = self.plan.archives.iter().map(|planned| planned.estimated_seconds);
        self.plan.estimated_seconds = seconds.sum();
        Ok(self.plan)
    }
}

/// Returns the shape of an archived version.
fn shape_of(version: &Version, sources: &[Id]) -> Shape {
    Shape::of_archived(version.location.length, version.size, sources.len())
}

/// Returns the ranges in which a whole container of this length is read, in pieces.
fn pieces(length: u64) -> impl Iterator<Item = Range<u64>> {
    let piece = BLOCK_BYTES;
    (0..length.div_ceil(piece))
        .map(move |number| number * piece..((number + 1) * piece).min(length))
}
