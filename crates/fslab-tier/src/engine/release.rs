//! Releasing: frees the bytes of archived files.

use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{Attr, FileKind, FileSystem, Ino, Request};

use crate::archive::ContainerKind;
use crate::engine::copies::first_answer;
use crate::engine::files::edits_below::is_same;
use crate::engine::files::residency_xattr::{Durable, PIECES_MAX};
use crate::engine::files::{FileState, KnownResidency, TieredFile};
use crate::engine::metrics::Counter;
use crate::engine::outbound::failover::check_writable;
use crate::engine::{Settings, Tier};
use crate::error::{Error, Result};
use crate::lower::{OwnFile, SECTOR_BYTES};
use crate::object::prefetch::{PlannedReads, Prefetched};
use crate::object::reader::{BlockSum, END_BYTES_MAX, ObjectReader, START_BYTES, ends_of};
use crate::parallel::each_by;
use crate::poison::{Poison, is_in, is_refusal};
use crate::runs::Runs;
use crate::stored::format::blocks_of;
use crate::stored::{BLOCK_BYTES, Version};

pub(super) mod exclusive_lease;

use exclusive_lease::LeaseSupport;

/// Number of blocks that are compared and freed under one lease. The number is limited, because
/// other users of the file wait for the lease, and the kernel revokes a contested lease after
/// `/proc/sys/fs/lease-break-time`.
const SLICE_BLOCKS: usize = 64;

/// Fewer files than this are released by one thread.
const SHARED_MIN: usize = 64;

/// Number of threads that release files. It does not depend on the number of processors, because
/// the threads mostly wait for syncs. Lower file systems perform several syncs at once.
const THREADS: usize = 8;

/// The files that are released together, in one call of [`Tier::release_several`]. Then the threads
/// seldom wait for each other, and few calls read the ends of many objects from an archive.
#[derive(Default)]
pub(crate) struct ReleaseBatch {
    files: usize,
    bytes: u64,
    /// The bytes that are read from an archive.
    read_bytes: u64,
}

impl ReleaseBatch {
    pub(crate) const FILES_MAX: usize = 1024;
    const BYTES_MAX: u64 = 256 << 20;
    const READ_BYTES_MAX: u64 = 16 << 20;

    /// Adds a file of this size; returns whether the batch is complete. The batch is then empty.
    pub(crate) fn add(&mut self, size: u64) -> bool {
        self.files += 1;
        self.bytes += size;
        self.read_bytes += size.min(END_BYTES_MAX + START_BYTES);
        let is_complete = self.files >= Self::FILES_MAX
            || self.bytes >= Self::BYTES_MAX
            || self.read_bytes >= Self::READ_BYTES_MAX;
        if is_complete {
            *self = Self::default();
        }
        is_complete
    }
}

/// The result of a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Bytes that became offline.
    pub bytes: u64,
    /// Space that was freed in the lower file system, in bytes. It may be less than `bytes`,
    /// because holes occupied no space.
    pub freed: u64,
}

/// The part of a file that a release would free.
struct Releasable {
    version: Version,
    copies: Vec<ObjectReader>,
    blocks: Runs,
}

/// State of releasing that all files share.
pub(super) struct Releases {
    poison: Poison,
    leases: LeaseSupport,
}

impl Releases {
    pub(super) fn new(lower: &Arc<dyn FileSystem>, settings: &Settings) -> Self {
        Self { poison: Poison::new(lower, settings.poison), leases: LeaseSupport::default() }
    }
}

impl Tier {
    /// Calls `release` for each file, in parallel for several files. First reads the ends of the
    /// objects of their `version`s together. `planned` gets these reads. Returns the results in
    /// the order of the files.
    pub(crate) fn release_several<T: Send, R: Send>(
        &self,
        files: &mut [T],
        request: &Request,
        version: impl Fn(&T) -> Option<Version> + Sync,
        planned: impl FnOnce(&PlannedReads),
        release: impl Fn(&T, &Prefetched) -> R + Sync,
    ) -> Vec<R> {
        let threads = if files.len() < SHARED_MIN { 1 } else { THREADS };
        let versions = each_by(threads, files, version);
        let reads = self.opening_reads(versions.into_iter().flatten());
        planned(&reads);
        // The heads and the tables are read from the archives themselves, not from a cache.
        let prefetched = reads.read(true, || request.cancellation.check().is_err());
        each_by(threads, files, |file| release(file, &prefetched))
    }

    /// Returns the reads that open all copies of versions.
    fn opening_reads(&self, versions: impl Iterator<Item = Version>) -> PlannedReads {
        self.look_for_archives();
        let mut parts = Vec::new();
        for version in versions {
            for archive in self.writable_holders(&version) {
                let ends = ends_of(version.location).into_iter().flatten();
                let container = version.location.container;
                parts.extend(ends.map(|part| (Arc::clone(&archive), container, part)));
            }
        }
        PlannedReads::of(parts)
    }

    /// Returns the archived version of a file that may be released. Returns `None` for other files,
    /// and if the version is unknown. The file may be released or changed at any time.
    pub(crate) fn releasable_version(&self, attr: &Attr) -> Option<Version> {
        let known = self.residency_of(attr).ok().flatten()?;
        (!known.changed && self.is_own(&known, attr)).then_some(known.version)
    }

    /// Releases a file except for its first `kept` blocks.
    ///
    /// # Errors
    /// If the file is in use or was changed since it was archived, or too few archives contain it.
    pub fn release(self: &Arc<Self>, ino: Ino, path: &[u8], kept: u64) -> Result<Released> {
        self.release_prefetched(ino, path, kept, &Prefetched::default())
    }

    /// Like [`Self::release`], without reading the parts that were read before.
    ///
    /// # Errors
    /// The errors of [`Self::release`].
    pub(crate) fn release_prefetched(
        self: &Arc<Self>,
        ino: Ino,
        path: &[u8],
        kept: u64,
        prefetched: &Prefetched,
    ) -> Result<Released> {
        let file_use = self.enter(ino);
        let file = &file_use.file;
        let releasable = self.releasable(file, path, kept, prefetched)?;
        let Releasable { version, copies, blocks: wanted } = releasable;
        let (mut rest, mut released) = (wanted.iter().flatten(), Released::default());
        loop {
            let blocks: Vec<u64> = rest.by_ref().take(SLICE_BLOCKS).collect();
            if blocks.is_empty() {
                file.lock().close_unused();
                return Ok(released);
            }
            let archived = archived(&copies, &blocks)?;
            let slice = self.release_slice(file, path, &version, &archived)?;
            released.bytes += slice.bytes;
            released.freed += slice.freed;
        }
    }

    /// Returns the version and the blocks that [`Self::release`] would make offline, with an
    /// estimate of their bytes. Does not read the file.
    ///
    /// # Errors
    /// The errors of [`Self::release`]. But a change of the file is not reported if only a
    /// comparison of its bytes with the archived version would find it.
    pub(crate) fn releasable_part(
        self: &Arc<Self>,
        ino: Ino,
        path: &[u8],
        kept: u64,
        prefetched: &Prefetched,
    ) -> Result<(Version, Runs, u64)> {
        let file_use = self.enter(ino);
        let releasable = self.releasable(&file_use.file, path, kept, prefetched)?;
        let Releasable { version, blocks, .. } = releasable;
        let length = |block| version.size.saturating_sub(block * BLOCK_BYTES).min(BLOCK_BYTES);
        let bytes = blocks.iter().flatten().map(length).sum();
        Ok((version, blocks, bytes))
    }

    /// Returns the blocks of a file that may be released, without its first `kept` blocks. Also
    /// returns its version and the copies of the version.
    fn releasable(
        self: &Arc<Self>,
        file: &Arc<TieredFile>,
        path: &[u8],
        kept: u64,
        prefetched: &Prefetched,
    ) -> Result<Releasable> {
        let below = || Error::below(path);
        self.settle(file).map_err(below())?;
        let version = {
            let state = self.state(file).map_err(below())?;
            self.may_release(&state, path)?
        };
        // The state is not locked here, so that an unresponsive archive does not delay other users
        // of the file.
        let copies = self.whole_copies(&version, prefetched)?;
        let blocks = self.with_data(file, kept..blocks_of(version.size)).map_err(below())?;
        Ok(Releasable { version, copies, blocks })
    }

    /// Frees blocks under an exclusive lease on the file. They are freed only if all of them have
    /// the archived bytes.
    fn release_slice(
        &self,
        file: &TieredFile,
        path: &[u8],
        version: &Version,
        archived: &[(u64, BlockSum)],
    ) -> Result<Released> {
        let below = || Error::below(path);
        let (mut state, _alone) = self.lock_exclusively(file, path, version.object)?;
        let wanted = fitting(&state, archived);
        if wanted.is_empty() {
            return Ok(Released::default());
        }
        let freed = archived.iter().filter(|(block, _)| wanted.contains(*block));
        if !self.are_archived(&mut state, freed).map_err(below())? {
            // Size and modification time are still those of the archived version, so without this
            // mark a later release would not notice the change.
            self.mark_changed(&mut state).map_err(below())?;
            return Err(changed_behind(path));
        }
        let length = |block| version.size.saturating_sub(block * BLOCK_BYTES).min(BLOCK_BYTES);
        let bytes = wanted.iter().flatten().map(length).sum();
        let freed = self.make_offline(&mut state, &wanted).map_err(below())?;
        // If the file system reports no block counts, all of the bytes are assumed to be freed.
        let freed = freed.unwrap_or(bytes);
        self.counters.add(Counter::ReleasedBytes, freed);
        Ok(Released { bytes, freed })
    }

    /// Returns whether blocks have the archived bytes. Size and modification time do not prove
    /// this, because stores through a mapping update the time late, and programs can reset it.
    fn are_archived<'a>(
        &self,
        state: &mut FileState,
        archived: impl Iterator<Item = &'a (u64, BlockSum)>,
    ) -> fslab_vfs::Result<bool> {
        let own = state.own(self)?;
        let mut buffer = vec![0; BLOCK_BYTES as usize];
        for (block, sum) in archived {
            let count = own.read(block * BLOCK_BYTES, &mut buffer)?;
            if !sum.is_of(&buffer[..count]) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the archived version that the xattr records, if the file may be released.
    pub(super) fn may_release(&self, state: &FileState, path: &[u8]) -> Result<Version> {
        let not_now = not_now(path);
        let known = state.known().ok_or_else(|| not_now("was never archived"))?;
        if state.handles > 0 || state.is_archiving {
            return Err(Error::busy(path, "is in use"));
        }
        if known.recorded.changed {
            return Err(Error::busy(path, "was changed since it was archived"));
        }
        let version = &known.recorded.version;
        let attr = self.attr_below(state.ino, None);
        let attr = attr.map_err(Error::below(path))?;
        if attr.kind != FileKind::Regular || !is_same(&known.recorded, &attr) {
            return Err(changed_behind(path));
        }
        if !known.is_in_order() {
            return Err(Error::busy(path, "is being recalled"));
        }
        Ok(version.clone())
    }

    /// Opens the copies of a version in archives that this tree writes to. The head and the table
    /// of each copy are read from the archive itself, not from a cache.
    ///
    /// A copy in cold storage exists but can't be read. It counts if another copy was read, whose
    /// sums show whether the file still has the archived bytes.
    ///
    /// # Errors
    /// If fewer archives return a copy than the tier requires.
    fn whole_copies(
        &self,
        version: &Version,
        prefetched: &Prefetched,
    ) -> Result<Vec<ObjectReader>> {
        self.look_for_archives();
        let (mut whole, mut problem, mut cold) = (Vec::new(), None, 0);
        for archive in self.writable_holders(version) {
            let container = version.location.container;
            if !prefetched.has_container(archive.id(), container) {
                archive.forget((ContainerKind::Files, container));
            }
            let opened = ObjectReader::open_prefetched(&archive, version, prefetched);
            match opened.and_then(|reader| reader.check_sources().map(|()| reader)) {
                Ok(reader) => whole.push(reader),
                Err(error) => {
                    cold += usize::from(error.cold_container().is_some());
                    problem = Some(error);
                }
            }
        }
        if !whole.is_empty() && whole.len() + cold >= self.settings.copies {
            return Ok(whole);
        }
        self.holders(version).iter().try_for_each(check_writable)?;
        let (wanted, missing) = (self.settings.copies, self.missing_holders(version));
        let found = whole.len();
        Err(problem.unwrap_or(Error::TooFewCopies { wanted, found, missing }))
    }

    /// Returns the runs of resident blocks with data. A file may have any number of runs, but the
    /// search stops once there are more than a residency can record.
    fn with_data(&self, file: &TieredFile, blocks: Range<u64>) -> fslab_vfs::Result<Runs> {
        let own = self.open_to_read(file)?;
        let (mut runs, mut next) = (Runs::new(), blocks.start);
        while next < blocks.end && runs.pieces() <= PIECES_MAX {
            let Some(data) = own.next_data(next * BLOCK_BYTES)? else { break };
            let first = data / BLOCK_BYTES;
            if first >= blocks.end {
                break;
            }
            let hole = own.next_hole(data)?.unwrap_or(u64::MAX);
            next = hole.div_ceil(BLOCK_BYTES).clamp(first + 1, blocks.end);
            runs.insert(first..next);
        }
        // Poison in the lower file was found as data, too, so offline blocks are removed from the
        // runs.
        let state = self.state(file)?;
        if let Some(known) = state.known() {
            known.offline.iter().for_each(|run| runs.remove(run));
        }
        Ok(runs)
    }

    /// Records blocks as offline and frees their bytes. Returns the freed bytes, if they are known.
    fn make_offline(&self, state: &mut FileState, runs: &Runs) -> fslab_vfs::Result<Option<u64>> {
        let own = state.own(self)?;
        let privileges = own.privileges(&own.attr()?)?;
        // Sets the same set-id bits and capabilities as before. If they can't be set, the release
        // fails here, before any change of the file clears them.
        own.give_back(&privileges)?;
        let Some(known) = state.known() else { return Ok(Some(0)) };
        let version = known.recorded.version.clone();
        let (mut offline, poisoned) = (known.offline.clone(), self.gets_poison(known));
        runs.iter().for_each(|run| offline.insert(run));
        self.change_mark(state, Durable::Now, |residency| {
            (residency.moving, residency.poisoned) = (true, poisoned);
            residency.offline = offline.clone();
        })?;
        if let Some(known) = state.known_mut() {
            known.offline = offline;
        }
        let freed = self.free(state, runs);
        let own = state.own(self)?;
        own.set_modified(version.modified)?;
        own.give_back(&privileges)?;
        self.change_mark(state, Durable::Later, |residency| residency.moving = false)?;
        // If freeing failed, the blocks that were not freed are also recorded as offline. A later
        // read recalls them like the freed ones.
        freed
    }

    /// Returns whether freed bytes are replaced by poison instead of holes. A file has either
    /// poison or holes until it is resident again.
    fn gets_poison(&self, known: &KnownResidency) -> bool {
        if known.offline.is_empty() && known.recorded.offline.is_empty() {
            return self.releases.poison.is_ready(known.recorded.version.size);
        }
        known.recorded.is_poisoned()
    }

    /// Frees the bytes of blocks that are durably recorded as offline.
    fn free(&self, state: &mut FileState, runs: &Runs) -> fslab_vfs::Result<Option<u64>> {
        let Some(known) = state.known() else { return Ok(Some(0)) };
        let is_first = known.offline == *runs;
        if known.recorded.is_poisoned() {
            match self.poison_runs(state, runs) {
                // If the file system refuses to share blocks, and no poison was written yet, the
                // file gets holes instead.
                Err(error)
                    if is_first && is_refusal(&error) && !self.has_poison(state, runs)? =>
                {
                    let name = self.name(state.ino);
                    tracing::debug!(
                        %error,
                        "{name}: can't reflink poison into the released file, so holes are punched \
                         instead"
                    );
                    // The change from poison to holes is recorded durably before the first hole is
                    // punched.
                    self.change_mark(state, Durable::Now, |known| known.poisoned = false)?;
                }
                freed => return freed.map(Some),
            }
        }
        let own = state.own(self)?;
        let before = own.attr()?.blocks;
        runs.iter().try_for_each(|run| {
            own.punch(run.start * BLOCK_BYTES, (run.end - run.start) * BLOCK_BYTES)
        })?;
        let after = own.attr()?.blocks;
        Ok((before > 0).then(|| before.saturating_sub(after) * SECTOR_BYTES))
    }

    /// Returns whether any of the blocks contain poison.
    fn has_poison(&self, state: &mut FileState, runs: &Runs) -> fslab_vfs::Result<bool> {
        let own = state.own(self)?;
        let mut buffer = vec![0; BLOCK_BYTES as usize];
        for offset in runs.iter().flatten().map(|block| block * BLOCK_BYTES) {
            let count = own.read(offset, &mut buffer)?;
            if is_in(offset, &buffer[..count]) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Replaces blocks by poison; returns the number of freed bytes. The block count of the file
    /// does not show this number, because shared blocks are counted for each file.
    fn poison_runs(&self, state: &mut FileState, runs: &Runs) -> fslab_vfs::Result<u64> {
        let own = state.own(self)?;
        let (size, mut freed) = (own.attr()?.size, 0);
        for run in runs.iter() {
            let range = run.start * BLOCK_BYTES..(run.end * BLOCK_BYTES).min(size);
            let data = data_bytes(own, range.clone())?;
            let (_, ino, handle) = own.place();
            let kept = self.releases.poison.put((ino, handle), range.clone(), size)?;
            freed += data.saturating_sub(kept);
        }
        Ok(freed)
    }
}

/// Returns the number of bytes in a range that are not holes.
fn data_bytes(own: &OwnFile, range: Range<u64>) -> fslab_vfs::Result<u64> {
    let (mut at, mut bytes) = (range.start, 0);
    while at < range.end {
        let Some(data) = own.next_data(at)?.filter(|data| *data < range.end) else { break };
        at = own.next_hole(data)?.unwrap_or(range.end).clamp(data + 1, range.end);
        bytes += at - data;
    }
    Ok(bytes)
}

/// Returns the checksums of blocks from the first copy whose table can be read.
///
/// # Errors
/// The error of the first copy.
fn archived(copies: &[ObjectReader], blocks: &[u64]) -> Result<Vec<(u64, BlockSum)>> {
    let sums = |copy: &ObjectReader| {
        let sums = blocks.iter().map(|block| Ok((*block, copy.block_sum(*block)?)));
        sums.collect::<Result<Vec<_>>>()
    };
    let none = || Error::TooFewCopies { wanted: 1, found: 0, missing: Vec::new() };
    first_answer(copies, none, sums)
}

/// Returns the blocks that are not yet offline, as far as the residency has room for them.
fn fitting(state: &FileState, archived: &[(u64, BlockSum)]) -> Runs {
    let (mut wanted, Some(known)) = (Runs::new(), state.known()) else { return Runs::new() };
    let mut offline = known.offline.clone();
    for (block, _) in archived {
        let mut next = offline.clone();
        next.insert(*block..block + 1);
        if next.pieces() <= PIECES_MAX && !offline.contains(*block) {
            wanted.insert(*block..block + 1);
            offline = next;
        }
    }
    wanted
}

fn changed_behind(path: &[u8]) -> Error {
    not_now(path)("was changed in the lower directory after it was archived")
}

fn not_now(path: &[u8]) -> impl Fn(&'static str) -> Error {
    let path = crate::error::shown(path);
    move |why| Error::NotNow { path: path.clone(), why }
}
