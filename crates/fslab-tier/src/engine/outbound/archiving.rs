//! Archiving a file. Its offline blocks are read from archives and remain offline.
//!
//! 1. The catalogue records the object as pending, so that it is found after a crash.
//! 2. The file is written to the required number of archives. It is read back from each archive
//!    that does not prove it by a checksum.
//! 3. The file is synced, and its xattr durably refers to the new version, unless a change of the
//!    file has begun meanwhile.
//! 4. The catalogue records the object as the latest version of the file, and the previous one as
//!    replaced.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{Attr, Errno, FileKind, Ino, Request};

use crate::archive::{Archive, ContainerKind, Deletion, Proof};
use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::copies::{CopyWriter, read_back, verify};
use crate::engine::files::TieredFile;
use crate::engine::metrics::Counter;
use crate::engine::outbound::basis::{Basis, Unchanged};
use crate::engine::recall::cold_storage::MayStage;
use crate::engine::recall::fetching::Fetched;
use crate::engine::{FileUse, Tier};
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::SECTOR_BYTES;
use crate::object::writer::{BATCH_BLOCKS, BlockEncoder, Heading, ObjectWriter, Referred};
use crate::rate_limit::{Pace, RateLimit};
use crate::runs::Runs;
use crate::stored::format::{EntryRecord, KIND_FILE, PAGE_ENTRIES, PAGES_MAX, blocks_of};
use crate::stored::residency::Unreadable;
use crate::stored::{BLOCK_BYTES, Location, Residency, Version};

/// The result of archiving a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archived {
    /// Copies were made.
    Now {
        /// Size of the file in bytes.
        bytes: u64,
    },
    /// Archives already contained the file in its present state.
    Before,
}

/// Maximum size in bytes of the block table of a file that consists mostly of holes. It is enough
/// for a file of some 300 GiB.
const HOLES_TABLE_BYTES_MAX: u64 = 16 << 20;

/// A block of a file that is being archived.
pub(in crate::engine) enum Block<'a> {
    /// A hole, or a part of one, of this many bytes.
    Zeros(u64),
    /// The bytes of the block.
    Bytes(&'a [u8]),
    /// The block is offline. It has this many bytes.
    Offline(u64),
}

/// What an object contains for a block.
enum Part<'a> {
    /// Zeros of this many bytes, which are not stored.
    Zeros(u64),
    /// The bytes of the block.
    Read(Cow<'a, [u8]>),
    /// A reference to the object that contains the block.
    Referred(Referred),
}

/// A file that is being archived. Other callers can't archive it meanwhile.
pub(in crate::engine) struct Job {
    used: FileUse,
    pub(in crate::engine) path: Vec<u8>,
    /// The value of `changes` in the file's state when the job began.
    pub(super) changes: u64,
    pub(in crate::engine) attr: Attr,
    identity: Id,
    before: Option<Residency>,
    /// Blocks that were offline when the job began.
    offline: Runs,
}

impl Job {
    pub(in crate::engine) fn file(&self) -> &TieredFile {
        &self.used.file
    }

    /// Returns the object to which the file referred when the job began.
    pub(in crate::engine) fn object_before(&self) -> Option<Id> {
        self.before.as_ref().map(|before| before.version.object)
    }

    /// Returns the sequence of the previous version; 0 if there is none.
    pub(super) fn sequence_before(&self) -> u64 {
        self.before.as_ref().map_or(0, |before| before.version.sequence)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.used.file.lock().is_archiving = false;
    }
}

impl Tier {
    /// Archives a file, unless archives contain its present state.
    ///
    /// # Errors
    /// If the file is open for writing or was changed meanwhile, or if an archive fails. The file
    /// is then unchanged.
    pub fn archive(self: &Arc<Self>, ino: Ino, path: &[u8], request: &Request) -> Result<Archived> {
        self.archive_within(ino, path, self.pace(request, None))
    }

    /// Archives a file within a rate limit, in addition to the tier's own limit.
    ///
    /// # Errors
    /// The errors of [`Self::archive`].
    pub fn archive_within(
        self: &Arc<Self>,
        ino: Ino,
        path: &[u8],
        pace: Pace<'_>,
    ) -> Result<Archived> {
        match self.begin_job(self.enter(ino), path, pace.request)? {
            Some(job) => self.copy_out(&job, pace),
            None => Ok(Archived::Before),
        }
    }

    /// Returns the rate limits of archiving: the tier's own, and that of the caller.
    pub(in crate::engine) fn pace<'a>(
        &'a self,
        request: &'a Request,
        limit: Option<&'a RateLimit>,
    ) -> Pace<'a> {
        Pace { request, limits: [self.outbound.limit.as_ref(), limit] }
    }

    pub(super) fn note_archived(&self, bytes: u64) {
        self.counters.add(Counter::ArchivedFiles, 1);
        self.counters.add(Counter::ArchivedBytes, bytes);
    }

    /// Begins to archive a file; returns `None` if archives contain its present state.
    pub(super) fn begin_job(
        self: &Arc<Self>,
        used: FileUse,
        path: &[u8],
        request: &Request,
    ) -> Result<Option<Job>> {
        let below = || Error::below(path);
        loop {
            let file = &used.file;
            let mut state = self.state(file).map_err(below())?;
            if state.writers > 0 {
                return Err(Error::busy(path, "is open for writing"));
            }
            if state.is_archiving {
                return Err(Error::busy(path, "is being archived already"));
            }
            let before = state.known().map(|known| known.recorded.clone());
            let is_done = before.as_ref().is_some_and(|before| self.is_archived(before));
            if is_done {
                return Ok(None);
            }
            let offline = state.known().map(|known| known.offline.clone()).unwrap_or_default();
            if !offline.is_empty() {
                // Fails at once if no archive with the file's offline blocks is available.
                // Otherwise this file would delay all others.
                before.as_ref().map_or(Ok(()), |before| self.is_there(&before.version))?;
                let mixed = before
                    .as_ref()
                    .map_or(Ok(None), |before| self.offline_with_data(file.ino(), &offline, before))
                    .map_err(below())?;
                if let Some(blocks) = mixed {
                    drop(state);
                    self.recall_in_bulk(file, path, blocks, request)?;
                    continue;
                }
            }
            let attr = self.attr_below(file.ino(), None).map_err(below())?;
            self.check_archivable(&attr, &offline, path)?;
            state.is_archiving = true;
            let changes = state.changes;
            drop(state);
            let identity = before.as_ref().map(|before| before.file);
            let identity = identity.unwrap_or_else(|| self.around.identities.make());
            let path = path.to_vec();
            return Ok(Some(Job { used, path, changes, attr, identity, before, offline }));
        }
    }

    /// Fails if a file may not be archived because of its attributes.
    fn check_archivable(&self, attr: &Attr, offline: &Runs, path: &[u8]) -> Result<()> {
        let not_now = |why| Err(Error::NotNow { path: crate::error::shown(path), why });
        if attr.kind != FileKind::Regular {
            return not_now("is not a regular file");
        }
        if !self.around.marks.are_believed(attr) {
            return Err(Error::Foreign { path: crate::error::shown(path) });
        }
        too_large(attr, offline).map_or(Ok(()), not_now)
    }

    /// Returns the residency of a file, if it has one and [`Self::archive`] would now archive the
    /// file. Returns `None` if archives contain its present state. Changes nothing.
    ///
    /// # Errors
    /// The errors of [`Self::archive`] that are known before the file is read.
    pub(in crate::engine) fn would_archive(
        &self,
        attr: &Attr,
        path: &[u8],
    ) -> Result<Option<Option<Residency>>> {
        if let Some(file) = self.in_use(attr.ino) {
            let state = file.lock();
            if state.writers > 0 {
                return Err(Error::busy(path, "is open for writing"));
            }
            if state.is_archiving {
                return Err(Error::busy(path, "is being archived already"));
            }
        }
        let below = Error::below(path);
        let before = match self.residency_of(attr) {
            Ok(None) => None,
            Ok(Some(known)) if self.is_own(&known, attr) => {
                let changed = self.is_changed(&known, attr);
                let (offline, _edited) = self.offline_below(attr, &known).map_err(below)?;
                Some(Residency { changed, offline, ..known })
            }
            Ok(Some(_)) | Err(Unreadable::Corrupt(_)) => return Err(below(Errno::IO.into())),
            Err(Unreadable::Below(error)) => return Err(below(error)),
            Err(unknown @ Unreadable::UnknownObject(_)) => {
                return Err(Error::Refused {
                    what: format!("{}: {unknown}", crate::error::shown(path)),
                });
            }
        };
        if before.as_ref().is_some_and(|before| self.is_archived(before)) {
            return Ok(None);
        }
        let offline = before.as_ref().map(|before| before.offline.clone()).unwrap_or_default();
        self.check_archivable(attr, &offline, path)?;
        Ok(Some(before))
    }

    /// Returns the first run of offline blocks with data, which were edited in the lower directory.
    /// Their contents are known only after a recall.
    fn offline_with_data(
        &self,
        ino: Ino,
        offline: &Runs,
        before: &Residency,
    ) -> fslab_vfs::Result<Option<Range<u64>>> {
        if before.is_poisoned() {
            return self.first_edited_block(ino, offline, before);
        }
        let own = self.open_own(ino, false)?;
        for run in offline.iter() {
            let Some(data) = own.next_data(run.start * BLOCK_BYTES)? else { break };
            let first = data / BLOCK_BYTES;
            if first < run.end {
                let hole = own.next_hole(data)?.unwrap_or(u64::MAX);
                return Ok(Some(first..hole.div_ceil(BLOCK_BYTES).clamp(first + 1, run.end)));
            }
        }
        Ok(None)
    }

    /// Returns whether a file needs no new copies. Copies in an unavailable archive are counted,
    /// because the archive is expected to return. Copies in an archive that another tree writes to
    /// are counted only if the file has offline blocks. Copying these blocks means reading them
    /// from archives, which is left to a scrub.
    fn is_archived(&self, before: &Residency) -> bool {
        let mut holders = self.holders_anywhere(&before.version);
        holders.retain(|archive| !before.offline.is_empty() || archive.refusal().is_none());
        !before.changed && holders.len() >= self.settings.copies
    }

    /// Archives a file in its own container.
    pub(super) fn copy_out(&self, job: &Job, pace: Pace<'_>) -> Result<Archived> {
        self.with_copy_targets(|archives| {
            let container = self.around.identities.make();
            let sequence = self.reserve_sequence(job.sequence_before())?;
            let mut row = self.pending_row(job, container, sequence.number, archives);
            let basis = self.basis((job.before.as_ref(), job.attr.size), archives, pace.request)?;
            let basis = self.put_pending(&mut row, basis)?;
            let done = self
                .copy_verified(job, &row, archives, (basis.as_ref(), pace))
                .and_then(|row| self.commit(job, row));
            if done.is_err() && !self.may_name(job.file().ino(), row.version.object) {
                self.take_back(std::slice::from_ref(&row), archives);
            }
            done
        })
    }

    /// Records a pending object with its sources, so that they do not expire. Returns the basis, if
    /// all of its sources still exist.
    fn put_pending(&self, row: &mut ObjectRow, basis: Option<Basis>) -> Result<Option<Basis>> {
        if let Some(basis) = basis {
            row.sources = Some(basis.source_containers());
            if self.catalogue.put_with_sources(row, basis.sources())? {
                return Ok(Some(basis));
            }
            row.sources = Some(Vec::new());
        }
        self.catalogue.put(std::slice::from_ref(row)).map(|()| None)
    }

    /// Returns the catalogue row of an object before its upload, when its length and root hash are
    /// unknown.
    pub(super) fn pending_row(
        &self,
        job: &Job,
        container: Id,
        sequence: u64,
        archives: &[Arc<dyn Archive>],
    ) -> ObjectRow {
        let version = Version {
            object: self.around.identities.make(),
            location: Location { container, offset: 0, length: 0 },
            size: job.attr.size,
            sequence,
            modified: job.attr.modified,
            root: [0; 32],
            copies: archives.iter().map(|archive| archive.id()).collect(),
        };
        ObjectRow {
            state: ObjectState::Pending,
            file: job.identity,
            inode: (self.around.inode_identity)(&job.attr),
            version,
            since: self.around.calendar.now(),
            seen: 0,
            path: job.path.clone(),
            sources: Some(Vec::new()),
        }
    }

    /// Writes and proves copies of a file. Returns the row with the version and its sources.
    fn copy_verified(
        &self,
        job: &Job,
        row: &ObjectRow,
        archives: &[Arc<dyn Archive>],
        (basis, pace): (Option<&Basis>, Pace<'_>),
    ) -> Result<ObjectRow> {
        let container = row.version.location.container;
        let mut copies = CopyWriter::begin(archives, (ContainerKind::Files, container), pace)?;
        let attributes = self.attributes(&job.attr, &job.path)?;
        let heading = Heading { may_have_sources: basis.is_some(), ..self.heading(row) };
        let mut encoder = BlockEncoder::new(self.settings.level);
        let mut writer = ObjectWriter::begin(&mut copies, &heading, &attributes, &mut encoder)?;
        let mut batch: Vec<Vec<u8>> = Vec::new();
        self.each_block(job, pace.request, &mut |number, block| {
            let part = self.part_of(job, basis, number, block)?;
            if batch.len() == BATCH_BLOCKS || !matches!(part, Part::Read(_)) {
                writer.blocks(&mut std::mem::take(&mut batch))?;
            }
            match part {
                Part::Zeros(length) => writer.zeros(length),
                Part::Referred(referred) => writer.refer(&referred),
                Part::Read(bytes) => {
                    batch.push(bytes.into_owned());
                    Ok(())
                }
            }
        })?;
        writer.blocks(&mut batch)?;
        let sources = writer.sources().iter().map(|source| Id(source.container)).collect();
        let (length, root) = writer.finish()?;
        let written = copies.finish()?;
        let location = Location { length, ..row.version.location };
        let version = Version { location, root, ..row.version.clone() };
        let proofs = read_back(written, |archive| verify(archive, &version, pace))?;
        self.note_proofs(container, &proofs)?;
        Ok(ObjectRow { version, sources: Some(sources), ..row.clone() })
    }

    /// Records how the copies of a container were proved.
    pub(in crate::engine) fn note_proofs(
        &self,
        container: Id,
        proofs: &[(Id, Proof)],
    ) -> Result<()> {
        let now = self.now_seconds().into();
        let note = |(archive, proof): &(Id, Proof)| {
            self.catalogue.note_proved(container, *archive, *proof, now)
        };
        proofs.iter().try_for_each(note)
    }

    pub(in crate::engine) fn heading(&self, row: &ObjectRow) -> Heading {
        Heading {
            kind: KIND_FILE,
            object: row.version.object,
            file: row.file,
            tier: self.settings.tier,
            sequence: row.version.sequence,
            size: row.version.size,
            created: row.since,
            may_have_sources: false,
        }
    }

    /// Returns what the new object contains for a block of a file.
    fn part_of<'b>(
        &self,
        job: &Job,
        basis: Option<&Basis>,
        number: u64,
        block: Block<'b>,
    ) -> Result<Part<'b>> {
        let known = match (&block, basis) {
            (Block::Bytes(bytes), Some(basis)) => basis.same(number, bytes)?,
            (Block::Offline(length), Some(basis)) => basis.unread(number, *length)?,
            _ => None,
        };
        Ok(match (known, block) {
            (Some(Unchanged::Referred(referred)), _) => Part::Referred(referred),
            (Some(Unchanged::Zeros), Block::Offline(length)) => Part::Zeros(length),
            (Some(Unchanged::Zeros), Block::Bytes(bytes)) => Part::Zeros(bytes.len() as u64),
            (_, Block::Zeros(length)) => Part::Zeros(length),
            (None, Block::Bytes(bytes)) => Part::Read(Cow::Borrowed(bytes)),
            (None, Block::Offline(length)) => {
                Part::Read(Cow::Owned(self.offline_block(job, number, length)?))
            }
        })
    }

    /// Visits the blocks of a file from beginning to end, with their numbers. Neither recalls nor
    /// reads offline blocks.
    pub(super) fn each_block(
        &self,
        job: &Job,
        request: &Request,
        visit: &mut dyn FnMut(u64, Block<'_>) -> Result<()>,
    ) -> Result<()> {
        let below = || Error::below(&job.path);
        let own = self.open_to_read(job.file()).map_err(below())?;
        let mut buffer = Vec::new();
        for block in 0..blocks_of(job.attr.size) {
            self.check_going(request)?;
            let offset = block * BLOCK_BYTES;
            let length = (job.attr.size - offset).min(BLOCK_BYTES);
            if job.offline.contains(block) {
                visit(block, Block::Offline(length))?;
                continue;
            }
            if !own.has_data(offset, offset + length).map_err(below())? {
                visit(block, Block::Zeros(length))?;
                continue;
            }
            buffer.resize(length as usize, 0);
            if own.read(offset, &mut buffer).map_err(below())? != buffer.len() {
                return Err(changed_meanwhile(&job.path));
            }
            visit(block, Block::Bytes(&buffer))?;
        }
        Ok(())
    }

    /// Returns the bytes of an offline block, from an archive that contains the previous version.
    pub(super) fn offline_block(&self, job: &Job, block: u64, length: u64) -> Result<Vec<u8>> {
        let before = job.before.as_ref().ok_or_else(|| changed_meanwhile(&job.path))?;
        let fetched = self.fetch(job.file(), &before.version, block, MayStage::No);
        match fetched.map_err(Error::below(&job.path))? {
            Fetched::Block(mut bytes) => {
                // The file may have been truncated within the block.
                bytes.resize(length as usize, 0);
                Ok(bytes)
            }
            Fetched::Unavailable => Err(self.no_copy(&before.version)),
            Fetched::Cold(_) => Err(Error::NotNow {
                path: shown(&job.path),
                why: "blocks of it are in cold storage; recall the file first",
            }),
        }
    }

    /// Records in a file's xattr and in the catalogue that the file is archived. Fails if the file
    /// was changed meanwhile.
    fn commit(&self, job: &Job, row: ObjectRow) -> Result<Archived> {
        self.mark(job, &row)?;
        self.note_archived(job.attr.size);
        let (archived, since) = ([(row, job.object_before())], self.around.calendar.now());
        let settled = self.catalogue.settle(&archived, since);
        settled.map_err(|source| Error::Uncatalogued {
            path: crate::error::shown(&job.path),
            source: Box::new(source),
        })?;
        Ok(Archived::Now { bytes: job.attr.size })
    }

    /// Deletes a container and the rows of its objects, which no file needs. If that fails, the
    /// next scan finds them.
    pub(in crate::engine) fn take_back(&self, rows: &[ObjectRow], archives: &[Arc<dyn Archive>]) {
        let Some(container) = rows.first().map(|row| row.version.location.container) else {
            return;
        };
        let removed =
            delete_from(archives, container).and_then(|_| self.catalogue.remove(rows).map(drop));
        if let Err(error) = removed {
            tracing::warn!(%error, "can't delete an unneeded object; the next scan deletes it");
        }
    }
}

/// Deletes a container from every archive, even if one of them fails. Returns whether an archive
/// retains its bytes.
pub(in crate::engine) fn delete_from(
    archives: &[Arc<dyn Archive>],
    container: Id,
) -> Result<Deletion> {
    let deleted: Vec<Result<Deletion>> = archives
        .iter()
        .map(|archive| {
            let done = archive.delete((ContainerKind::Files, container));
            done.map_err(Error::archive(archive.label(), container))
        })
        .collect();
    let deleted: Vec<Deletion> = deleted.into_iter().collect::<Result<_>>()?;
    let is_retained = deleted.contains(&Deletion::Retained);
    Ok(if is_retained { Deletion::Retained } else { Deletion::Done })
}

/// Returns the reason why a file of this size can't be archived, if any. Holes need no space, but
/// the table that describes them does. Without a limit, a file of holes could fill disks and
/// archives.
fn too_large(attr: &Attr, offline: &Runs) -> Option<&'static str> {
    let blocks = blocks_of(attr.size);
    let table_bytes = blocks * size_of::<EntryRecord>() as u64;
    let data_bytes = attr.blocks.saturating_mul(SECTOR_BYTES) + offline.count() * BLOCK_BYTES;
    if blocks > PAGES_MAX * PAGE_ENTRIES {
        Some("is larger than an archive accepts (2 PiB)")
    } else if table_bytes > HOLES_TABLE_BYTES_MAX.max(data_bytes) {
        Some("has so many holes that its block table would be larger than its data")
    } else {
        None
    }
}

pub(super) fn removed_meanwhile(path: &[u8]) -> Error {
    Error::busy(path, "was removed while it was archived")
}

pub(super) fn changed_meanwhile(path: &[u8]) -> Error {
    Error::busy(path, "was changed while it was archived")
}
