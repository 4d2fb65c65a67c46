//! Queries about files and recalls.

use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{Attr, Errno, Ino, Result};

use crate::engine::{Recall, Tier, TieredFile, WalkEntry};
use crate::error::{Error, shown};
use crate::event::{ArchivedVersion, ExportedFile, FileSummary, Residence};
use crate::runs::Runs;
use crate::stored::residency::{ReadResidency, Unreadable, Version};
use crate::stored::{BLOCK_BYTES, Residency};

impl Tier {
    /// Returns the number of resident bytes of a file in use.
    pub(crate) fn resident_bytes(&self, file: &TieredFile, size: u64) -> Result<u64> {
        let state = self.state(file)?;
        Ok(state.known().map_or(size, |known| resident(size, &known.offline)))
    }

    /// Returns the number of offline blocks in a range of a file in use.
    pub(crate) fn offline_blocks(&self, file: &TieredFile, blocks: &Range<u64>) -> Result<u64> {
        let state = self.state(file)?;
        let offline = state.known().map(|known| known.offline.clone()).unwrap_or_default();
        Ok(within(offline, blocks).count())
    }

    /// Returns whether a block of a file in use is resident.
    pub(crate) fn is_here(&self, file: &TieredFile, block: u64) -> Result<bool> {
        let state = self.state(file)?;
        Ok(state.known().is_none_or(|known| !known.offline.contains(block)))
    }

    /// Returns the present residency of a file in use.
    pub(super) fn present_residency(&self, file: &TieredFile) -> ReadResidency {
        match self.state(file) {
            Ok(state) => Ok(state.known().map(|known| Residency {
                offline: known.offline.clone(),
                ..known.recorded.clone()
            })),
            Err(_) => self.residency_below(file.ino()),
        }
    }

    /// Returns whether programs have a file open, and whether one of them may write to it.
    pub(crate) fn openings(&self, ino: Ino) -> (bool, bool) {
        let Some(file) = self.in_use(ino) else { return (false, false) };
        let state = file.lock();
        (state.handles > 0, state.writers > 0)
    }

    /// Returns the recalls that are not finished, most urgent class first.
    pub(crate) fn recalls(&self) -> Vec<Arc<Recall>> {
        let flights =
            |file: &Arc<TieredFile>| file.lock().flight.values().cloned().collect::<Vec<_>>();
        let mut recalls: Vec<_> = self.files.all().iter().flat_map(flights).collect();
        recalls.sort_by_key(|recall| (recall.class(), recall.asked_ns));
        recalls
    }

    /// Cancels the queued recalls of a file that have not begun; returns their number. Waiting
    /// readers get `ECANCELED`.
    pub(crate) fn cancel(&self, ino: Ino) -> u64 {
        let Some(file) = self.in_use(ino) else { return 0 };
        let mut state = file.lock();
        let recalls: Vec<_> = state.flight.values().cloned().collect();
        let cancelled = recalls.iter().filter(|recall| self.queue().cancel(recall));
        let cancelled: Vec<_> = cancelled.collect();
        cancelled.iter().for_each(|recall| drop(state.flight.remove(&recall.block)));
        // Ending a recall may drop the file's last use, which locks the state.
        drop(state);
        cancelled.iter().for_each(|recall| recall.end(Err(Errno::CANCELED)));
        cancelled.len() as u64
    }

    /// Returns which bytes of a file are resident, and whether it was changed since it was
    /// archived. Also returns its copies, and whether it is pinned.
    pub(crate) fn file_summary(&self, attr: &Attr, path: &[u8]) -> crate::Result<FileSummary> {
        self.summary_and_version(attr, path).map(|(summary, _version)| summary)
    }

    /// Also returns the last archived version.
    fn summary_and_version(
        &self,
        attr: &Attr,
        path: &[u8],
    ) -> crate::Result<(FileSummary, Option<Version>)> {
        let below = Error::below(path);
        let path = shown(path);
        let (summary, version) = match self.residency_of(attr) {
            Ok(None) => (plain_state(path, attr.size), None),
            Ok(Some(known)) if self.is_own(&known, attr) => {
                let changed = self.is_changed(&known, attr);
                let (offline, edited_bytes) = self.offline_below(attr, &known).map_err(below)?;
                let known = Residency { changed, offline, ..known };
                (tiered_state(path, attr.size, &known, edited_bytes), Some(known.version))
            }
            Ok(Some(_)) | Err(Unreadable::Corrupt(_)) => {
                let state = Residence::Damaged;
                (FileSummary { state, ..plain_state(path, attr.size) }, None)
            }
            Err(Unreadable::Below(error)) => return Err(below(error)),
            Err(unknown) => return Err(Error::Refused { what: format!("{path}: {unknown}") }),
        };
        Ok((FileSummary { pinned: self.is_pinned(attr), ..summary }, version))
    }

    /// Returns all that the tier knows about a file.
    pub(crate) fn exported(&self, attr: &Attr, path: &[u8]) -> crate::Result<ExportedFile> {
        let (summary, version) = self.summary_and_version(attr, path)?;
        let version = version.map(|version| ArchivedVersion {
            object: version.object,
            container: version.location.container,
            offset: version.location.offset,
            length: version.location.length,
            size: version.size,
            modified_ns: version.modified.to_ns(),
            archives: version.copies,
        });
        Ok(ExportedFile {
            path: path.to_vec(),
            inode: attr.number,
            links: attr.links,
            size: attr.size,
            allocated_bytes: attr.blocks.saturating_mul(512),
            resident_bytes: summary.resident_bytes,
            state: summary.state,
            pinned: summary.pinned,
            uid: attr.uid,
            gid: attr.gid,
            modified_ns: attr.modified.to_ns(),
            accessed_ns: attr.accessed.to_ns(),
            version,
        })
    }

    /// Returns the offline blocks of a file in a range of blocks, with their bytes and the version
    /// that contains them. Returns `None` if there are none, or if the file has a damaged
    /// residency, because such a file can't be recalled.
    pub(crate) fn offline_part(
        &self,
        place: &WalkEntry<'_>,
        blocks: &Range<u64>,
    ) -> crate::Result<Option<(Version, Runs, u64)>> {
        let attr = &place.found.attr;
        let known = match self.residency_of(attr) {
            Ok(known) => known.filter(|known| self.is_own(known, attr)),
            Err(Unreadable::Corrupt(_)) => None,
            Err(Unreadable::Below(error)) => return Err(Error::below(place.path)(error)),
            Err(unknown) => {
                let what = format!("{}: {unknown}", shown(place.path));
                return Err(Error::Refused { what });
            }
        };
        let Some(known) = known else { return Ok(None) };
        let offline = within(known.offline, blocks);
        let bytes = attr.size - resident(attr.size, &offline);
        Ok((bytes > 0).then_some((known.version, offline, bytes)))
    }
}

fn plain_state(path: String, bytes: u64) -> FileSummary {
    FileSummary {
        path,
        state: Residence::Resident,
        bytes,
        resident_bytes: bytes,
        changed: false,
        copies: Vec::new(),
        pinned: false,
    }
}

fn tiered_state(path: String, bytes: u64, known: &Residency, edited_bytes: u64) -> FileSummary {
    let resident_bytes = resident(bytes, &known.offline) + edited_bytes;
    let state = match (resident_bytes == bytes, known.changed) {
        (true, true) => Residence::Changed,
        (true, false) => Residence::Archived,
        (false, _) if resident_bytes == 0 => Residence::Offline,
        (false, _) => Residence::PartlyResident,
    };
    let copies = known.version.copies.iter().map(ToString::to_string).collect();
    let changed = known.changed;
    FileSummary { path, state, bytes, resident_bytes, changed, copies, pinned: false }
}

/// Returns the parts of runs that are in a range of blocks.
fn within(mut runs: Runs, blocks: &Range<u64>) -> Runs {
    runs.cut(blocks.end);
    runs.remove(0..blocks.start);
    runs
}

/// Returns the number of resident bytes of a file, including holes.
fn resident(bytes: u64, offline: &Runs) -> u64 {
    let offline = offline.iter().map(|run| {
        let end = (run.end * BLOCK_BYTES).min(bytes);
        end.saturating_sub(run.start * BLOCK_BYTES)
    });
    bytes - offline.sum::<u64>().min(bytes)
}
