//! Objects of bundles that a command reads together before it recalls their files. The recalls then
//! find them in the cache of readers.

use std::collections::HashMap;
use std::sync::Arc;

use fslab_vfs::Request;

use crate::archive::Archive;
use crate::engine::Tier;
use crate::object::prefetch::PlannedReads;
use crate::object::reader::{END_BYTES_MAX, ObjectReader};
use crate::parallel::each_by;
use crate::stored::Version;

/// Number of files to collect for one call of [`Tier::prefetch`]. The cache of readers has room for
/// their objects.
pub(crate) const RECALLED_TOGETHER: usize = 1024;

/// Objects that are read together, each with the archive from which it is read.
#[derive(Default)]
pub(crate) struct BundledObjects<'a> {
    objects: Vec<(Arc<dyn Archive>, &'a Version)>,
    pub(crate) reads: PlannedReads,
}

impl BundledObjects<'_> {
    /// Returns whether an object is read together with others.
    pub(crate) fn has(&self, archive: &Arc<dyn Archive>, version: &Version) -> bool {
        let whole = version.location.range();
        whole.is_some_and(|whole| self.reads.has(archive.id(), version.location.container, &whole))
    }
}

impl Tier {
    /// Returns the small objects that share a container with others of these versions. Returns none
    /// if recalls have a rate limit.
    pub(crate) fn bundled_objects<'a>(
        &self,
        versions: impl Iterator<Item = &'a Version>,
    ) -> BundledObjects<'a> {
        let is_small = |version: &&Version| version.location.length <= END_BYTES_MAX;
        let small: Vec<_> =
            versions.filter(is_small).filter(|_| self.recalls.limit.is_none()).collect();
        let mut counts = HashMap::new();
        for version in &small {
            *counts.entry(version.location.container).or_insert(0) += 1;
        }
        let shared = small.into_iter().filter(|version| counts[&version.location.container] > 1);
        let first_archive = |version| {
            // A recall reads the first archive that has the block.
            let archive = self.may_hold(version).into_iter().next();
            archive.filter(|archive| !self.has_reader(archive, version))
        };
        let objects: Vec<_> =
            shared.filter_map(|version| Some((first_archive(version)?, version))).collect();
        let reads = PlannedReads::of(objects.iter().filter_map(|(archive, version)| {
            let whole = version.location.range()?;
            Some((Arc::clone(archive), version.location.container, whole))
        }));
        BundledObjects { objects, reads }
    }

    /// Reads objects, and keeps them for recalls. Errors are not reported, because the recalls will
    /// read the objects again.
    pub(crate) fn prefetch(&self, mut bundled: BundledObjects<'_>, request: &Request) {
        let prefetched = bundled.reads.read(|| request.cancellation.check().is_err());
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        each_by(processors, &mut bundled.objects, |(archive, version)| {
            let part = version.location.range();
            let container = version.location.container;
            if part.is_some_and(|part| prefetched.has(archive.id(), container, &part))
                && let Ok(reader) = ObjectReader::open_prefetched(archive, version, &prefetched)
            {
                self.recalls.readers.put(archive.id(), version, reader);
            }
        });
    }
}
