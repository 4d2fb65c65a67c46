//! Edits of released files that were made below the mount, while the tree was not mounted.
//!
//! Released blocks are holes. Data in an offline block was written there by a program that saw the
//! file below: it stays, and the recall fills the space around it. Sectors of zeros come from the
//! archive all the same: file systems pad pages with them, preallocation makes them of holes, and a
//! power cut during a recall leaves them. A file without any hole was rewritten completely, zeros
//! included, if its modification time differs and the engine has neither changed nor moved any of
//! it since it was archived: then no block of it is offline.

use std::ops::Range;

use fslab_vfs::{Attr, Errno, FileSystem, Ino, OpenMode, Request, Result, SeekTo, SetAttr};

use crate::engine::Tier;
use crate::engine::files::{FileState, KnownResidency};
use crate::lower::OwnFile;
use crate::object::writer::is_zero;
use crate::poison::{changed_in, differing_sectors};
use crate::runs::Runs;
use crate::stored::{BLOCK_BYTES, Residency};

/// Pages are taken to be so large, as far as a file system says nothing else.
const PAGE_BYTES: Range<u64> = 4096..128 << 10;

/// A file that is looked at.
pub(super) struct DataBelow<'a> {
    own: &'a OwnFile,
    size: u64,
    page_bytes: u64,
    /// The size that was archived.
    archived: u64,
    is_poisoned: bool,
}

impl<'a> DataBelow<'a> {
    pub(in crate::engine) fn new(own: &'a OwnFile, attr: &Attr, residency: &Residency) -> Self {
        let page_bytes = u64::from(attr.block_size).clamp(PAGE_BYTES.start, PAGE_BYTES.end);
        let (archived, is_poisoned) = (residency.version.size, residency.is_poisoned());
        Self { own, size: attr.size, page_bytes, archived, is_poisoned }
    }

    /// What must stay of a block, in its order, as ranges of the file.
    fn pieces(&self, block: u64) -> Result<Vec<Range<u64>>> {
        let (start, mut pieces) = (block * BLOCK_BYTES, Runs::new());
        let end = (start + BLOCK_BYTES).min(self.size);
        if self.is_poisoned {
            let bytes = if start < end { self.bytes(start..end)? } else { Vec::new() };
            return Ok(changed_in(start, &bytes));
        }
        let mut next = start;
        while next < end {
            let Some(data) = self.own.next_run(next)?.filter(|data| data.start < end) else {
                break;
            };
            next = data.end;
            // Beside a border of blocks is what somebody wrote, or what has come back since.
            let within = data.start..data.end.min(end);
            let (first, last) = (self.start_of(&within)?, self.end_of(&within)?);
            self.keep(first..last.max(first), &mut pieces)?;
        }
        Ok(pieces.iter().collect())
    }

    fn has_no_hole(&self) -> Result<bool> {
        Ok(self.own.next_run(0)?.is_some_and(|data| data.start == 0 && data.end >= self.size))
    }

    /// Whether a file without holes was written anew. One of a single page may be what somebody
    /// appended to, or changed in place.
    fn is_rewritten(&self) -> Result<bool> {
        let is_appended = self.start_of(&(0..self.size))? == self.archived;
        let is_in_place = self.size == self.archived && self.size <= self.page_bytes;
        Ok(!is_appended && !is_in_place)
    }

    /// Keeps the sectors of a run of data that are not of zeros.
    fn keep(&self, data: Range<u64>, pieces: &mut Runs) -> Result<()> {
        let bytes = self.bytes(data.clone())?;
        differing_sectors(data.start, bytes.len(), pieces, |within| is_zero(&bytes[within]));
        Ok(())
    }

    /// Behind the zeros with which its first page may have been filled up.
    fn start_of(&self, data: &Range<u64>) -> Result<u64> {
        let page = (data.start / self.page_bytes + 1) * self.page_bytes;
        let end = page.min(data.end).min(self.archived);
        if end <= data.start {
            return Ok(data.start);
        }
        let bytes = self.bytes(data.start..end)?;
        Ok(match bytes.iter().position(|byte| *byte != 0) {
            Some(zeros) => data.start + zeros as u64,
            // Somebody has appended to it.
            None if end == self.archived && data.end > end => end,
            None => data.start,
        })
    }

    /// Before the zeros with which its last page may have been filled up.
    fn end_of(&self, data: &Range<u64>) -> Result<u64> {
        let is_cut = data.end == self.size && self.size != self.archived;
        if data.end > self.archived || is_cut {
            return Ok(data.end);
        }
        let page = (data.end - 1) / self.page_bytes * self.page_bytes;
        let start = page.max(data.start);
        let bytes = self.bytes(start..data.end)?;
        let last = bytes.iter().rposition(|byte| *byte != 0);
        Ok(last.map_or(data.end, |last| start + last as u64 + 1))
    }

    fn bytes(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let count = self.own.read(range.start, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }
}

impl Tier {
    /// Looks whether a file of which nobody here has changed or moved anything was written anew
    /// below the mount. `false` where that can't be told: what was written would be lost.
    pub(super) fn find_rewrite_below(
        &self,
        ino: Ino,
        attr: &Attr,
        known: &mut KnownResidency,
    ) -> Result<bool> {
        let recorded = &known.recorded;
        let is_said = recorded.changed || recorded.moving;
        // What is said to have changed can't be held against its time.
        // Where there is poison, each byte tells for itself.
        let is_plain = known.offline.is_empty() || recorded.is_poisoned();
        if is_plain || is_said || is_same(recorded, attr) {
            return Ok(true);
        }
        let own = self.open_own(ino, false)?;
        let look = DataBelow::new(&own, attr, recorded);
        match look.has_no_hole() {
            Err(error) if is_not_told(&error) => return Ok(false),
            Ok(true) if !self.tells_holes() => return Ok(false),
            has_no_hole => known.is_rewritten = has_no_hole? && look.is_rewritten()?,
        }
        if known.is_rewritten {
            known.offline = Runs::new();
        }
        Ok(true)
    }

    /// Says for good that nothing of a file which was written anew is in archives.
    pub(super) fn record_rewritten(&self, ino: Ino, known: &mut KnownResidency) -> Result<()> {
        if !known.is_rewritten {
            return Ok(());
        }
        tracing::warn!("{}: was written anew behind the mount, and stays so", self.name(ino));
        let own = self.open_own(ino, true)?;
        own.sync()?;
        self.repair(&own, known, Residency { offline: Runs::new(), ..known.recorded.clone() })
    }

    /// Whether a file was changed since it was archived. Its time tells of changes behind the
    /// mount, as long as nobody uses it here or was putting bytes in their places.
    pub(crate) fn is_changed(&self, known: &Residency, attr: &Attr) -> bool {
        let was_moving = known.moving && attr.size == known.version.size;
        let is_told = was_moving || self.in_use(attr.ino).is_some();
        known.changed || !(is_told || is_same(known, attr))
    }

    /// What must stay of a block when its bytes come back, as ranges of it; the file is said to be
    /// changed where that is not what the archive has. Behind a failed sync what is as the archive
    /// has it is written again: it may be in the kernel's memory alone.
    pub(in crate::engine) fn edits_to_keep(
        &self,
        state: &mut FileState,
        block: u64,
        archived: &[u8],
    ) -> Result<Vec<Range<u64>>> {
        let Some(recorded) = state.known().map(|known| known.recorded.clone()) else {
            return Ok(Vec::new());
        };
        let (begin, writes_again) = (block * BLOCK_BYTES, state.sync_failed);
        let own = state.own(self)?;
        let pieces = self.edits_in(&DataBelow::new(own, &own.attr()?, &recorded), block)?;
        let (mut kept, mut is_archived) = (Vec::new(), true);
        for piece in &pieces {
            let mut bytes = vec![0; (piece.end - piece.start) as usize];
            let count = own.read(piece.start, &mut bytes)?;
            let within = (piece.start - begin) as usize..(piece.end - begin) as usize;
            let is_same = archived.get(within) == Some(&bytes[..count]);
            is_archived &= is_same;
            if !(is_same && writes_again) {
                kept.push(piece.start - begin..piece.end - begin);
            }
        }
        if !is_archived {
            self.mark_changed(state)?;
        }
        Ok(kept)
    }

    /// What must stay of a block; none if holes can't be told from data.
    pub(super) fn edits_in(&self, look: &DataBelow<'_>, block: u64) -> Result<Vec<Range<u64>>> {
        if look.is_poisoned {
            return look.pieces(block);
        }
        let pieces = match look.pieces(block) {
            Err(error) if is_not_told(&error) => return Ok(Vec::new()),
            pieces => pieces?,
        };
        let is_told = pieces.is_empty() || !look.has_no_hole()? || self.tells_holes();
        Ok(if is_told { pieces } else { Vec::new() })
    }

    /// The first offline block of a poisoned file that somebody wrote to below.
    pub(in crate::engine) fn first_edited_block(
        &self,
        ino: Ino,
        offline: &Runs,
        recorded: &Residency,
    ) -> Result<Option<Range<u64>>> {
        let own = self.open_own(ino, false)?;
        let look = DataBelow::new(&own, &own.attr()?, recorded);
        for block in offline.iter().flatten() {
            if !look.pieces(block)?.is_empty() {
                return Ok(Some(block..block + 1));
            }
        }
        Ok(None)
    }

    /// Whether the file system below tells holes from data, as an empty file shows.
    fn tells_holes(&self) -> bool {
        let ask = || match has_hole(&*self.lower, &self.request()) {
            Ok(has_hole) => has_hole,
            Err(error) => {
                tracing::info!(%error, "it can't be told whether the tree below shows holes");
                false
            }
        };
        *self.files.tells_holes.get_or_init(ask)
    }
}

/// Whether size and time are those that were archived.
pub(in crate::engine) fn is_same(recorded: &Residency, attr: &Attr) -> bool {
    (attr.modified, attr.size) == (recorded.version.modified, recorded.version.size)
}

fn is_not_told(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS)
}

/// Whether a new file that was made longer is a hole.
fn has_hole(lower: &dyn FileSystem, request: &Request) -> Result<bool> {
    let (entry, opened) = lower.tmpfile(request, Ino::ROOT, 0o600, OpenMode::READ_WRITE)?;
    let (ino, handle) = (entry.attr.ino, opened.handle);
    let longer = SetAttr { size: Some(BLOCK_BYTES), ..SetAttr::default() };
    let made = lower.setattr(request, ino, Some(handle), &longer);
    let found = made.and_then(|_| lower.lseek(request, ino, handle, 0, SeekTo::Data));
    lower.release(request, ino, handle)?;
    lower.forget(ino, 1);
    match found {
        Err(error) if error.errno() == Errno::NXIO => Ok(true),
        found => found.map(|_| false),
    }
}
