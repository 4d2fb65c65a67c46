//! What is asked about files and recalls.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_vfs::{Errno, Ino, Request, Result};

use crate::catalogue::{ObjectRow, ObjectState, RowChange};
use crate::engine::copies::patchwork::Patchwork;
use crate::engine::{Recall, Tier, TieredFile};
use crate::error::{Error, shown};
use crate::id::Id;
use crate::lower::Found;
use crate::rebuild::Options;
use crate::stored::residency::Unreadable;
use crate::stored::{Attributes, BLOCK_BYTES, Residency, Version};

impl Tier {
    /// Bytes of a file in use that are here.
    pub(crate) fn resident_bytes(&self, file: &TieredFile, size: u64) -> Result<u64> {
        let state = self.state(file)?;
        let Some(known) = state.known() else { return Ok(size) };
        let offline = known
            .offline
            .iter()
            .map(|run| (run.end * BLOCK_BYTES).min(size).saturating_sub(run.start * BLOCK_BYTES));
        Ok(size - offline.sum::<u64>().min(size))
    }

    /// Blocks of a range of a file in use that are offline.
    pub(crate) fn offline_blocks(&self, file: &TieredFile, blocks: &Range<u64>) -> Result<u64> {
        let state = self.state(file)?;
        let mut offline = state.known().map(|known| known.offline.clone()).unwrap_or_default();
        offline.cut(blocks.end);
        offline.remove(0..blocks.start);
        Ok(offline.count())
    }

    /// Whether a block of a file in use is here.
    pub(crate) fn is_here(&self, file: &TieredFile, block: u64) -> Result<bool> {
        let state = self.state(file)?;
        Ok(state.known().is_none_or(|known| !known.offline.contains(block)))
    }

    /// Where the bytes of a file in use are now.
    pub(super) fn present_residency(
        &self,
        file: &TieredFile,
    ) -> std::result::Result<Option<Residency>, Unreadable> {
        match self.state(file) {
            Ok(state) => Ok(state.known().map(|known| Residency {
                offline: known.offline.clone(),
                ..known.recorded.clone()
            })),
            Err(_) => self.residency_below(file.ino()),
        }
    }

    /// Whether programs have a file open, and whether one of them may write to it.
    pub(crate) fn openings(&self, ino: Ino) -> (bool, bool) {
        let Some(file) = self.in_use(ino) else { return (false, false) };
        let state = file.lock();
        (state.handles > 0, state.writers > 0)
    }

    /// Recalls that were asked for and are not done.
    pub(crate) fn recalls(&self) -> Vec<Arc<Recall>> {
        let flights =
            |file: &Arc<TieredFile>| file.lock().flight.values().cloned().collect::<Vec<_>>();
        let mut recalls: Vec<_> = self.files.all().iter().flat_map(flights).collect();
        recalls.sort_by_key(|recall| (recall.class(), recall.asked_ns));
        recalls
    }

    /// Ends the recalls of a file that were not begun. Who waits for one is answered `ECANCELED`.
    pub(crate) fn cancel(&self, ino: Ino) -> u64 {
        let Some(file) = self.in_use(ino) else { return 0 };
        let mut state = file.lock();
        let recalls: Vec<_> = state.flight.values().cloned().collect();
        let cancelled = recalls.iter().filter(|recall| self.queue.cancel(recall));
        let cancelled: Vec<_> = cancelled.collect();
        cancelled.iter().for_each(|recall| drop(state.flight.remove(&recall.block)));
        // A recall is a use of its file, and the last one locks it.
        drop(state);
        cancelled.iter().for_each(|recall| recall.end(Err(Errno::CANCELED)));
        cancelled.len() as u64
    }

    /// Makes a new file of a version that was replaced or removed; answers its bytes, and what of
    /// it could not be made as it was.
    pub(crate) fn undelete(
        self: &Arc<Self>,
        object: Id,
        path: &[u8],
        request: &Request,
    ) -> crate::Result<(u64, Vec<String>)> {
        let _stays = self.nobody_else(request)?;
        let row = self.catalogue.get(object)?;
        let row =
            row.filter(|row| matches!(row.state, ObjectState::Replaced | ObjectState::Removed));
        let row = row.ok_or_else(|| Error::Refused {
            what: format!("no version {object} was replaced or removed; see `fslab tier versions`"),
        })?;
        if Found::at(&self.lower, path).is_ok() {
            return Err(Error::Refused { what: format!("{}: exists", shown(path)) });
        }
        // From now on it does not expire; a crash before the file is there leaves it to a scan. It
        // is a file of its own: versions of one that it shared its identity with would be its own.
        let (since, file) = (self.around.calendar.now(), self.around.identities.make());
        let path = path.to_vec();
        let live = ObjectRow { state: ObjectState::Live, since, file, path, ..row.clone() };
        self.catalogue.put(std::slice::from_ref(&live))?;
        let before = self.catalogue.get(object)?;
        let made = self.make_undeleted(&live);
        if made.is_err() {
            self.catalogue.put(std::slice::from_ref(&row))?;
        }
        let (after, problems) = made?;
        // The row is of the new inode, unless somebody has said of it meanwhile that it went.
        let change = after.map(|after| RowChange { before, after });
        self.catalogue.put_where_still(&change)?;
        Ok((row.version.size, problems))
    }

    /// Answers the row of what it made, and what could not be made as it was.
    fn make_undeleted(&self, row: &ObjectRow) -> crate::Result<(Option<ObjectRow>, Vec<String>)> {
        let attributes = self.attributes_in_archives(&row.version)?;
        let attributes = Attributes { path: row.path.clone(), ..attributes };
        // What this tree did not archive itself was found in an archive, where others may write.
        let is_trusting = row.inode != Id::default()
            || self.holders(&row.version).iter().all(|archive| archive.is_authentic());
        // The directory that it is in must be durable, too.
        self.has_acted.store(true, Ordering::SeqCst);
        let poison = self.settings.poison;
        let options = Options { trust: is_trusting, poison, ..Options::default() };
        crate::rebuild::make_one_stub(
            &self.lower,
            &self.around,
            self.settings.tier,
            (&attributes, options),
            (row.file, row.version.clone()),
        )
    }

    fn attributes_in_archives(&self, version: &Version) -> crate::Result<Attributes> {
        let kept = self.ask_holders(version, |archive| {
            Ok(self.reader(archive, version)?.attributes().clone())
        });
        match kept {
            // None has it whole; they may have all of it between them.
            Err(_) if self.holders(version).len() > 1 => {
                Patchwork::attributes(self.holders(version), version)
            }
            kept => kept,
        }
    }
}
