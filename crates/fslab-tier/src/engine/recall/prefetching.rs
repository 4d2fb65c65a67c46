//! Objects of bundles that a command reads together before it recalls their files. The recalls then
//! find them in the cache of readers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use fslab_vfs::Request;

use crate::archive::Archive;
use crate::engine::Tier;
use crate::error::Error;
use crate::object::prefetch::{PlannedReads, Prefetched};
use crate::object::reader::{END_BYTES_MAX, ObjectReader};
use crate::parallel::each_by;
use crate::stored::{Location, Version};

/// Number of files to collect for one call of [`Tier::prefetch`]. The cache of readers has room for
/// their objects.
pub(crate) const RECALLED_TOGETHER: usize = 1024;

/// Interval at which a waiting caller checks whether it was interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(5);

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
        // A file with several names occurs several times.
        let mut members: HashMap<_, HashSet<_>> = HashMap::new();
        for Location { container, offset, .. } in small.iter().map(|version| version.location) {
            members.entry(container).or_default().insert(offset);
        }
        let is_shared = |version: &&Version| members[&version.location.container].len() > 1;
        let shared = small.into_iter().filter(is_shared);
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
    ///
    /// # Errors
    /// [`Error::Interrupted`]. The reads then end in the background.
    pub(crate) fn prefetch(
        &self,
        bundled: BundledObjects<'_>,
        request: &Request,
    ) -> crate::Result<()> {
        let BundledObjects { mut objects, reads } = bundled;
        if objects.is_empty() {
            return Ok(());
        }
        let prefetched = read_in_background(reads, request)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        each_by(processors, &mut objects, |(archive, version)| {
            let part = version.location.range();
            let container = version.location.container;
            if part.is_some_and(|part| prefetched.has(archive.id(), container, &part))
                && let Ok(reader) = ObjectReader::open_prefetched(archive, version, &prefetched)
            {
                self.recalls.readers.put(archive.id(), version, reader);
                // If the archive was detached meanwhile, the reader must not keep it open.
                if !self.has_archive(archive.id()) {
                    self.forget_readers(archive.id());
                }
            }
        });
        Ok(())
    }
}

/// Reads parts in a separate thread, because a caller must not wait for an archive after it was
/// interrupted. The thread keeps the archives open, but not the tier.
fn read_in_background(reads: PlannedReads, request: &Request) -> crate::Result<Prefetched> {
    let (done, is_done) = channel();
    let is_over = request.cancellation.clone();
    let work = move || {
        let prefetched = reads.read(false, || is_over.check().is_err());
        // A caller that was interrupted does not receive this.
        done.send(prefetched).unwrap_or_default();
    };
    if let Err(error) = thread::Builder::new().name("fslab-prefetch".to_owned()).spawn(work) {
        tracing::debug!(%error, "can't read objects together");
        return Ok(Prefetched::default());
    }
    loop {
        match is_done.recv_timeout(LOOK_EVERY) {
            Ok(prefetched) => return Ok(prefetched),
            Err(RecvTimeoutError::Timeout) => {
                request.cancellation.check().or(Err(Error::Interrupted))?;
            }
            // The thread panicked.
            Err(RecvTimeoutError::Disconnected) => return Ok(Prefetched::default()),
        }
    }
}
