//! A run of archiving: it collects small files for bundles, and has several uploads in progress at
//! the same time, because each of them mostly waits for an archive.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::{Ino, Request};

use crate::engine::outbound::archiving::{Archived, Job};
use crate::engine::outbound::bundling::{Filling, SHARED_MIN, is_bundle_first};
use crate::engine::outbound::uploads::{Gathered, Outcomes};
use crate::engine::{Tier, WalkEntry};
use crate::error::{Error, Result, shown};
use crate::parallel::{Workers, each_by};
use crate::rate_limit::{Pace, RateLimit};

/// Number of threads that read files. It does not depend on the number of processors, because these
/// threads mostly wait for the disk.
const READERS: usize = 8;

/// A bundle is archived once its first file has waited this long, even if the bundle is small.
/// While a file waits, other callers can't archive or release it.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Maximum number of bytes of small files and bundles that are being uploaded at the same time.
const UPLOADING_MAX: u64 = 64 << 20;

/// Maximum number of large files that are being uploaded at the same time. Only a part of each is
/// in memory. They don't delay bundles, because a bundle is uploaded before the next large file.
const LARGE_MAX: usize = 4;

/// Receives the path and the outcome of each file to be archived.
pub type OutcomeSink<'a> = dyn FnMut(&[u8], Result<Archived>) -> Result<()> + 'a;

/// A run of archiving: large files are archived separately, small ones bundled. Dropping it waits
/// for the uploads in progress.
pub struct Archiver<'a> {
    tier: &'a Arc<Tier>,
    request: &'a Request,
    limit: Option<Arc<RateLimit>>,
    /// Files of at most this many bytes are bundled; 0 for none.
    bundled: u64,
    /// Files that were not read yet.
    waiting: Vec<Job>,
    gathered: Vec<Gathered>,
    filling: Filling,
    /// Time at which the first of them was added, in nanoseconds of the engine's clock.
    since_ns: u64,
    /// The submitted files by inode, each with other names under which it was submitted later.
    names: HashMap<Ino, Vec<Vec<u8>>>,
    uploads: Workers<(Load, Outcomes)>,
    /// The load of the uploads in progress.
    load: Load,
    /// The first error of recording archived files that was not returned yet.
    unrecorded: Option<Error>,
}

/// What uploads occupy.
#[derive(Clone, Copy, Default)]
struct Load {
    /// The bytes of small files and bundles.
    bytes: u64,
    /// The number of large files.
    large: usize,
}

impl Load {
    fn of(size: u64) -> Self {
        match is_bundle_first(size) {
            true => Self { bytes: 0, large: 1 },
            false => Self { bytes: size, large: 0 },
        }
    }

    /// Returns whether there is room for another upload.
    fn has_room_for(self, other: Self) -> bool {
        let has_room = self.bytes == 0 || self.bytes + other.bytes <= UPLOADING_MAX;
        has_room && self.large + other.large <= LARGE_MAX
    }
}

impl Tier {
    /// Begins a run within a rate limit, in addition to the tier's own limit. `bundled` overrides
    /// the tier's setting of that name.
    #[must_use]
    pub fn archiver<'a>(
        self: &'a Arc<Self>,
        request: &'a Request,
        limit: Option<RateLimit>,
        bundled: Option<u64>,
    ) -> Archiver<'a> {
        Archiver {
            tier: self,
            request,
            limit: limit.map(Arc::new),
            bundled: bundled.unwrap_or(self.settings.bundled),
            waiting: Vec::new(),
            gathered: Vec::new(),
            filling: Filling::default(),
            since_ns: 0,
            names: HashMap::new(),
            uploads: Workers::new(self.settings.uploads),
            load: Load::default(),
            unrecorded: None,
        }
    }
}

impl Archiver<'_> {
    /// Archives a file soon, alone or in a bundle. The delay is at most a few seconds more than a
    /// minute, if [`Self::finish_if_due`] is called every few seconds. `told` receives the outcome
    /// of this file and of others.
    ///
    /// # Errors
    /// Errors of `told`, and of recording archived files in the catalogue. Errors of a file are
    /// passed to `told`.
    pub fn archive(&mut self, place: &WalkEntry<'_>, told: &mut OutcomeSink<'_>) -> Result<()> {
        self.submit(place, told)?;
        self.take_unrecorded()
    }

    fn submit(&mut self, place: &WalkEntry<'_>, told: &mut OutcomeSink<'_>) -> Result<()> {
        self.upload_if_due(told)?;
        let (ino, path, size) = (place.found.ino(), place.path, place.found.attr.size);
        if let Some(names) = self.names.get_mut(&ino) {
            names.push(path.to_vec());
            return Ok(());
        }
        if size > self.bundled && is_bundle_first(size) {
            self.upload_all(told)?;
        }
        let job = match self.begin(ino, path) {
            Ok(Some(job)) => job,
            Ok(None) => return told(path, Ok(Archived::Before)),
            Err(error) => return told(path, Err(error)),
        };
        self.names.insert(ino, Vec::new());
        if self.bundled == 0 || job.attr.size > self.bundled {
            return self.upload_alone(job, told);
        }
        if self.waiting.is_empty() && self.gathered.is_empty() {
            self.since_ns = self.tier.around.clock.now_ns();
        }
        self.filling.wait(job.attr.size);
        self.waiting.push(job);
        if self.filling.must_read() {
            self.read_waiting(told)?;
        }
        if self.filling.is_full() { self.upload_gathered(told) } else { Ok(()) }
    }

    /// Begins to upload the collected files if the first of them has waited for a minute, and
    /// reports the uploads that have ended. Callers that are busy with other files call this
    /// regularly.
    ///
    /// # Errors
    /// The errors of [`Self::archive`].
    pub fn finish_if_due(&mut self, told: &mut OutcomeSink<'_>) -> Result<()> {
        self.upload_if_due(told)?;
        self.take_unrecorded()
    }

    fn upload_if_due(&mut self, told: &mut OutcomeSink<'_>) -> Result<()> {
        while let Some(upload) = self.uploads.take_ended() {
            self.tell(upload, told)?;
        }
        if self.waiting.is_empty() && self.gathered.is_empty() {
            return Ok(());
        }
        let waited_ns = self.tier.around.clock.now_ns().saturating_sub(self.since_ns);
        if Duration::from_nanos(waited_ns) < WAIT_MAX { Ok(()) } else { self.upload_all(told) }
    }

    /// Archives all submitted files, and waits for this.
    ///
    /// # Errors
    /// The errors of [`Self::archive`].
    pub fn finish(&mut self, told: &mut OutcomeSink<'_>) -> Result<()> {
        self.upload_all(told)?;
        while let Some(upload) = self.uploads.wait_for_one() {
            self.tell(upload, told)?;
        }
        self.take_unrecorded()
    }

    /// Returns the error of recording archived files, once all other files were submitted.
    fn take_unrecorded(&mut self) -> Result<()> {
        self.unrecorded.take().map_or(Ok(()), Err)
    }

    fn begin(&self, ino: Ino, path: &[u8]) -> Result<Option<Job>> {
        let held = self.tier.enter_and_hold(ino).map_err(Error::below(path))?;
        self.tier.begin_job(held, path, self.request)
    }

    /// Begins to upload the collected files.
    fn upload_all(&mut self, told: &mut OutcomeSink<'_>) -> Result<()> {
        self.read_waiting(told)?;
        self.upload_gathered(told)
    }

    /// Reads the waiting files into the bundle, which is archived when it is full. Reports the
    /// errors of files that are not added.
    fn read_waiting(&mut self, told: &mut OutcomeSink<'_>) -> Result<()> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let threads = if waiting.len() < SHARED_MIN { 1 } else { READERS };
        let (tier, request) = (self.tier, self.request);
        let contents = each_by(threads, &mut waiting, |job| tier.read_whole(job, request));
        self.filling.begin_reading();
        for (job, contents) in waiting.into_iter().zip(contents) {
            match contents {
                Ok(contents) => {
                    let is_complete = self.filling.gather(contents.bundled_bytes());
                    self.gathered.push(Gathered { job, contents });
                    if is_complete {
                        self.upload_gathered(told)?;
                    }
                }
                Err(error) => {
                    let (ino, path) = (job.file().ino(), job.path.clone());
                    drop(job);
                    self.tell_file(ino, &path, Err(error), told)?;
                }
            }
        }
        Ok(())
    }

    fn upload_gathered(&mut self, told: &mut OutcomeSink<'_>) -> Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        self.filling.begin_bundle();
        // Restarts the waiting time, because the remaining files were submitted later.
        self.since_ns = self.tier.around.clock.now_ns();
        if gathered.is_empty() {
            return Ok(());
        }
        let bytes = gathered.iter().map(|file| file.contents.bundled_bytes() as u64).sum();
        let load = Load { bytes, large: 0 };
        self.upload(load, told, |tier, pace| tier.upload_bundle(gathered, pace))
    }

    fn upload_alone(&mut self, job: Job, told: &mut OutcomeSink<'_>) -> Result<()> {
        let load = Load::of(job.attr.size);
        self.upload(load, told, |tier, pace| tier.upload_alone(job, pace))
    }

    /// Starts an upload, once there is room for it.
    fn upload(
        &mut self,
        load: Load,
        told: &mut OutcomeSink<'_>,
        work: impl FnOnce(&Arc<Tier>, Pace<'_>) -> Outcomes + Send + 'static,
    ) -> Result<()> {
        while self.uploads.are_busy() || !self.load.has_room_for(load) {
            let Some(upload) = self.uploads.wait_for_one() else { break };
            self.tell(upload, told)?;
        }
        self.load.bytes += load.bytes;
        self.load.large += load.large;
        let (tier, request) = (Arc::clone(self.tier), self.request.clone());
        let limit = self.limit.clone();
        self.uploads.start(move || (load, work(&tier, tier.pace(&request, limit.as_deref()))));
        self.upload_if_due(told)
    }

    /// Reports the outcomes of an upload.
    fn tell(
        &mut self,
        (load, outcomes): (Load, Outcomes),
        told: &mut OutcomeSink<'_>,
    ) -> Result<()> {
        self.load.bytes -= load.bytes;
        self.load.large -= load.large;
        let Outcomes { files, recorded } = outcomes;
        // Even if recording failed, the files are archived. The next start or scan records them.
        self.unrecorded = self.unrecorded.take().or(recorded.err());
        files
            .into_iter()
            .try_for_each(|file| self.tell_file(file.ino, &file.path, file.outcome, told))
    }

    /// Reports the outcome for each name under which a file was submitted.
    fn tell_file(
        &mut self,
        ino: Ino,
        path: &[u8],
        outcome: Result<Archived>,
        told: &mut OutcomeSink<'_>,
    ) -> Result<()> {
        let other_names = self.names.remove(&ino).unwrap_or_default();
        let is_busy = matches!(&outcome, Err(Error::Busy { .. }));
        let is_archived = outcome.is_ok();
        told(path, outcome)?;
        let why = "was not archived, because archiving it under another name failed";
        other_names.iter().try_for_each(|name| match (is_archived, is_busy) {
            (true, _) => told(name, Ok(Archived::Before)),
            (_, true) => told(name, Err(Error::busy(name, why))),
            (_, false) => told(name, Err(Error::NotNow { path: shown(name), why })),
        })
    }
}
