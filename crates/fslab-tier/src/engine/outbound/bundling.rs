//! Bundling: the small files of an archiving run are written to one container.
//!
//! 1. The files are read, several at once; a file that changes while it is read is skipped.
//! 2. The catalogue records all objects of the bundle as pending, in one step.
//! 3. The bundle is written to the required number of archives. It is read back from each archive
//!    that does not prove it by a checksum.
//! 4. The files' xattrs durably refer to the new versions, except for files that a program has
//!    begun to change (`marking`).
//! 5. The catalogue records the objects as the latest versions of their files, in one step.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::{Ino, Request};

use crate::archive::Archive;
use crate::catalogue::ObjectRow;
use crate::engine::copies::put_container;
use crate::engine::metrics::Counter;
use crate::engine::outbound::archiving::{Archived, Block, Job};
use crate::engine::{Tier, WalkEntry};
use crate::error::{Result, shown};
use crate::id::Id;
use crate::object::bundle::{enclose, list_bytes};
use crate::object::writer::{BlockEncoder, Heading, ObjectWriter};
use crate::parallel::{each_by, in_shares};
use crate::rate_limit::{Pace, RateLimit};
use crate::stored::format::{BLOCK_BYTES, BUNDLE_BYTES_MAX, KIND_BUNDLE, MEMBERS_MAX};
use crate::stored::{Attributes, Location};

/// The highest permitted setting for the maximum size of bundled files, in bytes.
pub const BUNDLED_BYTES_MAX: u64 = BLOCK_BYTES;

/// Bundles with fewer files than this are read, encoded and recorded by one thread.
pub(super) const SHARED_MIN: usize = 64;

/// Number of files that [`READERS`] threads read in parallel before they are bundled.
const READ_TOGETHER: usize = 256;

/// Number of threads that read files. It does not depend on the number of processors, because these
/// threads mostly wait for the disk.
const READERS: usize = 8;

/// A bundle is archived once it has this many bytes of files.
const BUNDLE_BYTES: usize = 8 << 20;

/// A bundle is archived once its first file has waited this long, even if the bundle is small.
/// While a file waits, other callers can't archive or release it.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The rule by which small files are divided into bundles. An archiving run and its plan both use
/// it.
#[derive(Debug, Default)]
pub(in crate::engine) struct Filling {
    /// Number of files that were not read yet, and their bytes.
    waiting: (usize, usize),
    /// Number of files that were read, and their bytes.
    gathered: (usize, usize),
}

impl Filling {
    /// Adds a file that is not read yet.
    pub(in crate::engine) fn wait(&mut self, bytes: u64) {
        self.waiting = (self.waiting.0 + 1, self.waiting.1 + bytes as usize);
    }

    /// Returns whether the waiting files must be read now.
    pub(in crate::engine) fn must_read(&self) -> bool {
        self.waiting.0 == READ_TOGETHER || self.is_full()
    }

    /// Begins to read the waiting files.
    pub(in crate::engine) fn begin_reading(&mut self) {
        self.waiting = (0, 0);
    }

    /// Adds a file that was read, with the bytes of its contents and its metadata. Returns whether
    /// the gathered files must be archived now.
    pub(in crate::engine) fn gather(&mut self, bytes: usize) -> bool {
        self.gathered = (self.gathered.0 + 1, self.gathered.1 + bytes);
        self.gathered.1 >= BUNDLE_BYTES
    }

    /// Begins a new bundle, after the gathered files were archived.
    pub(in crate::engine) fn begin_bundle(&mut self) {
        self.gathered = (0, 0);
    }

    /// Returns whether the bundle is complete.
    pub(in crate::engine) fn is_full(&self) -> bool {
        let [files, bytes] = [self.waiting.0 + self.gathered.0, self.waiting.1 + self.gathered.1];
        bytes >= BUNDLE_BYTES || files >= MEMBERS_MAX
    }
}

/// Returns whether the bundle that is being collected is archived before a file of this size is
/// archived separately. Copying a large file may take hours, and the gathered files could not be
/// released meanwhile.
pub(in crate::engine) fn is_bundle_first(size: u64) -> bool {
    size >= BUNDLE_BYTES as u64
}

/// A file in a bundle that is being collected.
struct Gathered {
    job: Job,
    contents: Contents,
}

/// The files of a bundle by inode, each with other names under which it was submitted later.
type Names = HashMap<Ino, Vec<Vec<u8>>>;

/// Reports the outcome for each name under which a file was submitted.
fn tell(
    path: &[u8],
    other_names: &[Vec<u8>],
    outcome: Result<Archived>,
    told: &mut OutcomeSink<'_>,
) -> Result<()> {
    let is_busy = matches!(&outcome, Err(crate::Error::Busy { .. }));
    let is_archived = outcome.is_ok();
    told(path, outcome)?;
    let why = "was not archived, because archiving it under another name failed";
    other_names.iter().try_for_each(|name| match (is_archived, is_busy) {
        (true, _) => told(name, Ok(Archived::Before)),
        (_, true) => told(name, Err(crate::Error::busy(name, why))),
        (_, false) => told(name, Err(crate::Error::NotNow { path: shown(name), why })),
    })
}

impl Gathered {
    fn tell(
        &self,
        names: &Names,
        outcome: Result<Archived>,
        told: &mut OutcomeSink<'_>,
    ) -> Result<()> {
        let other_names = names.get(&self.job.file().ino()).map_or(&[][..], Vec::as_slice);
        tell(&self.job.path, other_names, outcome, told)
    }
}

/// The parts of a file that are stored in a bundle.
pub(in crate::engine) struct Contents {
    pub(in crate::engine) attributes: Attributes,
    pub(in crate::engine) bytes: Vec<u8>,
}

impl Contents {
    fn bundled_bytes(&self) -> usize {
        bundled_bytes(self.bytes.len(), &self.attributes)
    }
}

/// Returns the bytes of a file that count for the size of a bundle.
pub(in crate::engine) fn bundled_bytes(contents: usize, attributes: &Attributes) -> usize {
    contents + attributes.bytes()
}

/// Receives the path and the outcome of each file to be archived.
pub type OutcomeSink<'a> = dyn FnMut(&[u8], Result<Archived>) -> Result<()> + 'a;

/// A run of archiving: large files are archived at once, small ones bundled.
pub struct Archiver<'a> {
    tier: &'a Arc<Tier>,
    pace: Pace<'a>,
    /// Files of at most this many bytes are bundled; 0 for none.
    bundled: u64,
    /// Files that were not read yet.
    waiting: Vec<Job>,
    gathered: Vec<Gathered>,
    /// The inodes and names of the waiting and the gathered files.
    names: Names,
    filling: Filling,
    /// Time at which the first of them was added, in nanoseconds of the engine's clock.
    since_ns: u64,
}

impl Tier {
    /// Begins a run within a rate limit, in addition to the tier's own limit. `bundled` overrides
    /// the tier's setting of that name.
    #[must_use]
    pub fn archiver<'a>(
        self: &'a Arc<Self>,
        request: &'a Request,
        limit: Option<&'a RateLimit>,
        bundled: Option<u64>,
    ) -> Archiver<'a> {
        let bundled = bundled.unwrap_or(self.settings.bundled);
        let (waiting, gathered, names) = (Vec::new(), Vec::new(), Names::new());
        let pace = self.pace(request, limit);
        let (filling, since_ns) = (Filling::default(), 0);
        Archiver { tier: self, pace, bundled, waiting, gathered, names, filling, since_ns }
    }
}

impl Archiver<'_> {
    /// Archives a file now, or later in a bundle. The delay is at most a few seconds more than a
    /// minute, if [`Self::finish_if_due`] is called every few seconds. `told` receives the outcome
    /// of this file and of others.
    ///
    /// # Errors
    /// Errors of `told`, and of recording archived files in the catalogue. Errors of a file are
    /// passed to `told`.
    pub fn archive(&mut self, place: &WalkEntry<'_>, told: &mut OutcomeSink<'_>) -> Result<()> {
        self.finish_if_due(told)?;
        let (ino, path, size) = (place.found.ino(), place.path, place.found.attr.size);
        if let Some(names) = self.names.get_mut(&ino) {
            names.push(path.to_vec());
            return Ok(());
        }
        if self.bundled == 0 || size > self.bundled {
            if is_bundle_first(size) {
                self.finish(told)?;
            }
            let archived = self.tier.archive_within(ino, path, self.pace);
            return told(path, archived);
        }
        let job = match self.begin(ino, path) {
            Ok(Some(job)) => job,
            Ok(None) => return told(path, Ok(Archived::Before)),
            Err(error) => return told(path, Err(error)),
        };
        if job.attr.size > self.bundled {
            // The file has grown since it was found.
            return told(path, self.tier.copy_out(&job, self.pace));
        }
        if self.names.is_empty() {
            self.since_ns = self.tier.around.clock.now_ns();
        }
        self.names.insert(ino, Vec::new());
        self.filling.wait(job.attr.size);
        self.waiting.push(job);
        if self.filling.must_read() {
            self.read_waiting(told)?;
        }
        if self.filling.is_full() { self.archive_gathered(told) } else { Ok(()) }
    }

    /// Archives the submitted files if the first of them has waited for a minute. Callers that are
    /// busy with other files call this regularly.
    ///
    /// # Errors
    /// The errors of [`Self::archive`].
    pub fn finish_if_due(&mut self, told: &mut OutcomeSink<'_>) -> Result<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        let waited_ns = self.tier.around.clock.now_ns().saturating_sub(self.since_ns);
        if Duration::from_nanos(waited_ns) < WAIT_MAX { Ok(()) } else { self.finish(told) }
    }

    /// Reads the waiting files into the bundle, which is archived when it is full. Reports the
    /// errors of files that are not added.
    fn read_waiting(&mut self, told: &mut OutcomeSink<'_>) -> Result<()> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let threads = if waiting.len() < SHARED_MIN { 1 } else { READERS };
        let contents = each_by(threads, &mut waiting, |job| self.read(job));
        self.filling.begin_reading();
        let mut done = Ok(());
        for (job, contents) in waiting.into_iter().zip(contents) {
            match contents {
                Ok(contents) => {
                    let is_complete = self.filling.gather(contents.bundled_bytes());
                    self.gathered.push(Gathered { job, contents });
                    if is_complete {
                        match self.archive_gathered(told) {
                            Err(error @ crate::Error::Interrupted) => return Err(error),
                            archived => done = done.and(archived),
                        }
                    }
                }
                Err(error) => {
                    let names = self.names.remove(&job.file().ino()).unwrap_or_default();
                    tell(&job.path, &names, Err(error), told)?;
                }
            }
        }
        done
    }

    fn begin(&self, ino: Ino, path: &[u8]) -> Result<Option<Job>> {
        let held = self.tier.enter_and_hold(ino).map_err(crate::Error::below(path))?;
        self.tier.begin_job(held, path, self.pace.request)
    }

    /// Reads a small file.
    fn read(&self, job: &Job) -> Result<Contents> {
        drop(self.tier.unchanged(job)?);
        let attributes = self.tier.attributes(&job.attr, &job.path)?;
        let mut bytes = Vec::new();
        self.tier.each_block(job, self.pace.request, &mut |number, block| {
            match block {
                Block::Zeros(length) => bytes.resize(bytes.len() + length as usize, 0),
                Block::Bytes(block) => bytes.extend(block),
                Block::Offline(length) => {
                    bytes.extend(self.tier.offline_block(job, number, length)?);
                }
            }
            Ok(())
        })?;
        // Checks that the file did not change while it was read, because the archived bytes must be
        // its contents at one moment.
        drop(self.tier.unchanged(job)?);
        Ok(Contents { attributes, bytes })
    }

    /// Archives the submitted files.
    ///
    /// # Errors
    /// The errors of [`Self::archive`].
    pub fn finish(&mut self, told: &mut OutcomeSink<'_>) -> Result<()> {
        self.read_waiting(told)?;
        self.archive_gathered(told)
    }

    fn archive_gathered(&mut self, told: &mut OutcomeSink<'_>) -> Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        let inos = gathered.iter().map(|gathered| gathered.job.file().ino());
        let names = inos.filter_map(|ino| self.names.remove_entry(&ino)).collect();
        self.filling.begin_bundle();
        // Restarts the waiting time, because the remaining files were submitted later.
        self.since_ns = self.tier.around.clock.now_ns();
        if gathered.is_empty() {
            return Ok(());
        }
        let (outcomes, settled) = match self.ship(&gathered) {
            Ok(shipped) => shipped,
            Err(error) => return tell_all(&gathered, &names, error, told),
        };
        let mut told_of = gathered.iter().zip(outcomes);
        told_of.try_for_each(|(gathered, outcome)| gathered.tell(&names, outcome, told))?;
        // Even if recording failed, the files are archived. The next start or scan records them.
        settled
    }

    /// Archives files as a bundle. Returns the outcome of each, and the result of recording them.
    fn ship(&self, gathered: &[Gathered]) -> Result<(Vec<Result<Archived>>, Result<()>)> {
        let tier = self.tier;
        let before = gathered.iter().map(|gathered| gathered.job.sequence_before()).max();
        let sequence = tier.reserve_sequence(before.unwrap_or(0))?;
        let rows = tier.with_copy_targets(|archives| {
            let container = tier.around.identities.make();
            let row = |gathered: &Gathered| {
                tier.pending_row(&gathered.job, container, sequence.number, archives)
            };
            let rows = gathered.iter().map(row).collect();
            let contents = gathered.iter().map(|gathered| &gathered.contents);
            tier.put_bundle(rows, contents, archives, self.pace)
        })?;
        let archived: Vec<_> = gathered.iter().map(|one| &one.job).zip(&rows).collect();
        let marked = tier.mark_all(&archived);
        let settled = tier.settle_bundle(gathered, rows, &marked);
        tier.counters.add(Counter::Bundles, 1);
        let outcome = |(gathered, marked): (&Gathered, Result<()>)| {
            marked.map(|()| {
                tier.note_archived(gathered.job.attr.size);
                Archived::Now { bytes: gathered.job.attr.size }
            })
        };
        let outcomes = gathered.iter().zip(marked).map(outcome).collect();
        Ok((outcomes, settled))
    }
}

/// Reports a failure of the whole bundle, before any file was archived. Only the first file's
/// report includes the source of the error.
fn tell_all(
    gathered: &[Gathered],
    names: &Names,
    error: crate::Error,
    told: &mut OutcomeSink<'_>,
) -> Result<()> {
    let why = "was in a bundle that could not be archived";
    let mut error = Some(error);
    gathered.iter().try_for_each(|gathered| {
        let path = shown(&gathered.job.path);
        let each = error.take().unwrap_or(crate::Error::NotNow { path, why });
        gathered.tell(names, Err(each), told)
    })
}

impl Tier {
    /// Writes files to one container, in the order of their pending rows; returns the rows with
    /// their locations. If writing fails, the container is deleted from all archives that respond.
    pub(super) fn put_bundle<'a>(
        &self,
        mut rows: Vec<ObjectRow>,
        contents: impl Iterator<Item = &'a Contents>,
        archives: &[Arc<dyn Archive>],
        pace: Pace<'_>,
    ) -> Result<Vec<ObjectRow>> {
        let before = list_bytes(rows.len());
        let mut objects = Vec::new();
        let mut members: Vec<_> = rows.iter_mut().zip(contents).collect();
        let encoded = in_shares(&mut members, SHARED_MIN, |share| {
            self.encode_members(share).map(|encoded| (share.len(), encoded))
        });
        let mut rest = members.iter_mut();
        for encoded in encoded {
            let (count, encoded) = encoded?;
            let offset = before + objects.len() as u64;
            rest.by_ref().take(count).for_each(|(row, _)| row.version.location.offset += offset);
            objects.extend(encoded);
        }
        let Some(first) = rows.first() else { return Ok(rows) };
        let container = first.version.location.container;
        let (object, file) = (self.around.identities.make(), Id::default());
        let heading = Heading { kind: KIND_BUNDLE, object, file, size: 0, ..self.heading(first) };
        let places = rows.iter().map(|row| (row.version.object, row.version.location));
        let bundle = enclose(&heading, &places.collect::<Vec<_>>(), &objects)?;
        if bundle.len() as u64 > BUNDLE_BYTES_MAX {
            let what = "the files and their metadata are too large for one bundle".to_owned();
            return Err(crate::Error::Refused { what });
        }
        self.catalogue.put(&rows)?;
        let put = put_container(archives, container, &bundle, pace);
        let proofs = put.inspect_err(|_| self.take_back(&rows, archives))?;
        self.note_proofs(container, &proofs)?;
        Ok(rows)
    }

    /// Encodes files one after another. Their rows receive the offset in the result, the length and
    /// the root hash.
    fn encode_members(&self, members: &mut [(&mut ObjectRow, &Contents)]) -> Result<Vec<u8>> {
        let (mut objects, mut encoder) = (Vec::new(), BlockEncoder::new(self.settings.level));
        for (row, Contents { attributes, bytes }) in members.iter_mut() {
            let (heading, offset) = (self.heading(row), objects.len() as u64);
            let mut writer = ObjectWriter::begin(&mut objects, &heading, attributes, &mut encoder)?;
            bytes.chunks(BLOCK_BYTES as usize).try_for_each(|block| writer.block(block))?;
            let (length, root) = writer.finish()?;
            row.version.location = Location { offset, length, ..row.version.location };
            row.version.root = root;
        }
        Ok(objects)
    }

    /// Records an object as live if its file refers to it. Deletes the objects that no file refers
    /// to, and the bundle if no object is left. If it is unknown whether a file refers to an
    /// object, the object remains pending.
    fn settle_bundle(
        &self,
        gathered: &[Gathered],
        rows: Vec<ObjectRow>,
        marked: &[Result<()>],
    ) -> Result<()> {
        let (mut live, mut dead) = (Vec::new(), Vec::new());
        for ((Gathered { job, .. }, row), marked) in gathered.iter().zip(rows).zip(marked) {
            if marked.is_ok() {
                live.push((row, job.object_before()));
            } else if !self.may_name(job.file().ino(), row.version.object) {
                dead.push(row);
            }
        }
        self.catalogue.settle(&live, self.around.calendar.now())?;
        self.delete_rows(&dead).map(drop)
    }
}
