//! Finds edits that were made to released files in the lower directory while the tree was not
//! mounted.
//!
//! Released blocks are holes, so data in an offline block was written by a program that accessed
//! the lower directory. A recall keeps this data and fills the rest of the block. Sectors of zeros
//! are not kept, because they may come from padded pages, preallocated holes, or a power cut during
//! a recall. In a poisoned file, bytes that differ from the poison are edits.
//!
//! A file without holes may have been rewritten completely, including zeros. Then none of its
//! blocks is offline. It is treated as rewritten only if its modification time or size differs, and
//! its residency records neither a change nor an unfinished recall or release.

use std::ops::Range;

use fslab_vfs::{Attr, Errno, FileSystem, Ino, OpenMode, Request, Result, SeekTo, SetAttr};

use crate::engine::Tier;
use crate::engine::files::{FileState, KnownResidency};
use crate::lower::OwnFile;
use crate::object::writer::is_zero;
use crate::poison::{changed_in, differing_sectors};
use crate::runs::Runs;
use crate::stored::{BLOCK_BYTES, Residency};

/// Limits of the page size in bytes; the block size of the file is used if it lies between them.
const PAGE_BYTES: Range<u64> = 4096..128 << 10;

/// A lower file that is examined for edits.
pub(super) struct DataBelow<'a> {
    own: &'a OwnFile,
    size: u64,
    page_bytes: u64,
    /// The size of the archived version in bytes.
    archived: u64,
    is_poisoned: bool,
}

impl<'a> DataBelow<'a> {
    pub(in crate::engine) fn new(own: &'a OwnFile, attr: &Attr, residency: &Residency) -> Self {
        let page_bytes = u64::from(attr.block_size).clamp(PAGE_BYTES.start, PAGE_BYTES.end);
        let (archived, is_poisoned) = (residency.version.size, residency.is_poisoned());
        Self { own, size: attr.size, page_bytes, archived, is_poisoned }
    }

    /// Returns the ranges in a block that a recall must preserve, as offsets in the file, in
    /// ascending order.
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
            // Only the data in this block is examined. Data after the block's end may be another
            // edit or a recalled block.
            let within = data.start..data.end.min(end);
            let (first, last) = (self.start_of(&within)?, self.end_of(&within)?);
            self.keep(first..last.max(first), &mut pieces)?;
        }
        Ok(pieces.iter().collect())
    }

    fn has_no_hole(&self) -> Result<bool> {
        Ok(self.own.next_run(0)?.is_some_and(|data| data.start == 0 && data.end >= self.size))
    }

    /// Returns whether a file without holes was rewritten completely. A short file may have no hole
    /// although it was only appended to, or changed in place within its only page.
    fn is_rewritten(&self) -> Result<bool> {
        let is_appended = self.start_of(&(0..self.size))? == self.archived;
        let is_in_place = self.size == self.archived && self.size <= self.page_bytes;
        Ok(!is_appended && !is_in_place)
    }

    /// Adds to `pieces` the sectors of a run of data that are not all zeros.
    fn keep(&self, data: Range<u64>, pieces: &mut Runs) -> Result<()> {
        let bytes = self.bytes(data.clone())?;
        differing_sectors(data.start, bytes.len(), pieces, |within| is_zero(&bytes[within]));
        Ok(())
    }

    /// Returns the offset at which the data starts, after any zeros that pad its first page.
    fn start_of(&self, data: &Range<u64>) -> Result<u64> {
        let page = (data.start / self.page_bytes + 1) * self.page_bytes;
        let end = page.min(data.end).min(self.archived);
        if end <= data.start {
            return Ok(data.start);
        }
        let bytes = self.bytes(data.start..end)?;
        Ok(match bytes.iter().position(|byte| *byte != 0) {
            Some(zeros) => data.start + zeros as u64,
            // The zeros continue to the end of the archived version, and data was appended after
            // it.
            None if end == self.archived && data.end > end => end,
            None => data.start,
        })
    }

    /// Returns the offset at which the data ends, before any zeros that pad its last page.
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
    /// Determines whether a file was rewritten in the lower directory, and stores the result in
    /// `known`. Returns `false` if that can't be determined. The file can't be used then, because a
    /// recall could overwrite edits.
    pub(super) fn find_rewrite_below(
        &self,
        ino: Ino,
        attr: &Attr,
        known: &mut KnownResidency,
    ) -> Result<bool> {
        let recorded = &known.recorded;
        let is_said = recorded.changed || recorded.moving;
        // The test is skipped for a file recorded as changed or `moving`, because its time may
        // differ anyway. It is also skipped for a poisoned file, in which each edit is recognised
        // separately.
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

    /// Durably records that no block of a rewritten file is offline.
    pub(super) fn record_rewritten(&self, ino: Ino, known: &mut KnownResidency) -> Result<()> {
        if !known.is_rewritten {
            return Ok(());
        }
        tracing::warn!(
            "{}: was rewritten in the lower directory; the new content is kept",
            self.name(ino)
        );
        let own = self.open_own(ino, true)?;
        own.sync()?;
        self.repair(&own, known, Residency { offline: Runs::new(), ..known.recorded.clone() })
    }

    /// Returns the offline blocks of a file, and the number of bytes in them that were written in
    /// the lower directory. A rewritten file has no offline blocks. A file that is in use, or
    /// recorded as changed or `moving`, is not examined.
    pub(in crate::engine) fn offline_below(
        &self,
        attr: &Attr,
        recorded: &Residency,
    ) -> Result<(Runs, u64)> {
        let mut known = KnownResidency::at_rest(recorded.clone(), attr.size);
        let is_said = recorded.changed || recorded.moving || is_same(recorded, attr);
        let is_examined = !is_said && self.in_use(attr.ino).is_none();
        if !is_examined || !self.find_rewrite_below(attr.ino, attr, &mut known)? {
            return Ok((known.offline, 0));
        }
        let own = self.open_own(attr.ino, false)?;
        let look = DataBelow::new(&own, attr, recorded);
        let mut edited_bytes = 0;
        for block in known.offline.iter().flatten() {
            let edits = self.edits_in(&look, block)?;
            edited_bytes += edits.iter().map(|edit| edit.end - edit.start).sum::<u64>();
        }
        Ok((known.offline, edited_bytes))
    }

    /// Returns whether a file was changed since it was archived. Its size and time reveal changes
    /// in the lower directory, unless the engine uses the file or a recall was interrupted.
    pub(crate) fn is_changed(&self, known: &Residency, attr: &Attr) -> bool {
        let was_moving = known.moving && attr.size == known.version.size;
        let is_told = was_moving || self.in_use(attr.ino).is_some();
        known.changed || !(is_told || is_same(known, attr))
    }

    /// Returns the ranges in a block that a recall must preserve, as offsets in the block. If their
    /// bytes differ from the archived ones, marks the file as changed. After a failed sync, ranges
    /// with the archived bytes are not preserved but written again, because these bytes may exist
    /// only in the kernel's memory.
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

    /// Returns the ranges in a block that a recall must preserve, as offsets in the file. Returns
    /// none if holes can't be distinguished from data.
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

    /// Returns the first offline block of a poisoned file that was edited in the lower directory.
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

    /// Returns whether the lower file system distinguishes holes from data, tested with a temporary
    /// file.
    fn tells_holes(&self) -> bool {
        let ask = || match has_hole(&*self.lower, &self.request()) {
            Ok(has_hole) => has_hole,
            Err(error) => {
                tracing::info!(%error, "can't test whether the lower file system reports holes");
                false
            }
        };
        *self.files.tells_holes.get_or_init(ask)
    }
}

/// Returns whether size and modification time are those of the archived version.
pub(in crate::engine) fn is_same(recorded: &Residency, attr: &Attr) -> bool {
    (attr.modified, attr.size) == (recorded.version.modified, recorded.version.size)
}

fn is_not_told(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS)
}

/// Returns whether the lower file system reports a hole in a new file that was extended without
/// writing.
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
