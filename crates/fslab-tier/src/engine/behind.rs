//! What was written to a released file while nobody moved its bytes: behind the mount.
//!
//! What is released are holes. Data in a block that is said to be offline was written there by
//! somebody who saw the file below: it stays, and the archive fills what is around it. File systems
//! write whole pages, so that zeros at the ends of a run of data may be such as fill a page up:
//! these come from the archive, unless the whole page is of zeros or lies behind the end that was
//! archived. A file without any hole was written anew, and nothing of it is in archives.
//!
//! A crash in a recall leaves data, too: the archive's own, or what a power cut tore, which is
//! sectors of zeros. So where a crash may have done it, such sectors come from the archive.

use std::ops::Range;

use fslab_vfs::{Attr, Errno, FileSystem, Ino, OpenMode, Request, Result, SeekTo, SetAttr};

use super::Tier;
use super::file::{FileState, Known, TieredFile};
use crate::lower::OwnFile;
use crate::runs::Runs;
use crate::stored::{BLOCK_BYTES, Residency};

/// Ranges of bytes in the order of a file.
pub type Pieces = Vec<Range<u64>>;

/// Pages are taken to be so large, as far as a file system says nothing else.
const PAGE_BYTES: Range<u64> = 4096..128 << 10;

/// What a power cut leaves whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// What lies below in blocks that are said to be offline.
enum Behind {
    /// Data here and there.
    Pieces(Pieces),
    /// The whole file was written anew.
    Whole,
    /// Holes can't be told from data.
    Unclear,
}

/// A file that is looked at.
struct Look<'a> {
    own: &'a OwnFile,
    size: u64,
    page_bytes: u64,
    /// The size that was archived.
    archived: u64,
    /// Data may be what a crash left of the archive's.
    is_torn: bool,
}

impl<'a> Look<'a> {
    fn new(own: &'a OwnFile, attr: &Attr, residency: &Residency, is_torn: bool) -> Self {
        let page_bytes = u64::from(attr.block_size).clamp(PAGE_BYTES.start, PAGE_BYTES.end);
        Self { own, size: attr.size, page_bytes, archived: residency.version.size, is_torn }
    }

    /// What must stay in blocks of these runs.
    fn pieces(&self, offline: &Runs) -> Result<Pieces> {
        let mut pieces = Pieces::new();
        for run in offline.iter() {
            let (start, end) = (run.start * BLOCK_BYTES, (run.end * BLOCK_BYTES).min(self.size));
            let mut next = start;
            while next < end {
                let Some(data) = self.own.next_run(next)? else { break };
                if data.start >= end {
                    break;
                }
                let begins = data.start > start || start == 0 || !self.is_data(start - 1)?;
                let piece = data.start..data.end.min(end);
                self.keep(piece, begins, data.end <= end, &mut pieces)?;
                next = data.end;
            }
        }
        Ok(pieces)
    }

    fn is_data(&self, at: u64) -> Result<bool> {
        Ok(self.own.next_run(at)?.is_some_and(|data| data.start == at))
    }

    fn has_no_hole(&self) -> Result<bool> {
        Ok(self.own.next_run(0)?.is_some_and(|data| data.start == 0 && data.end >= self.size))
    }

    /// Whether a file without holes was written anew. One of a single page may be what somebody
    /// appended to, or changed in place.
    fn is_rewritten(&self, pieces: &Pieces) -> bool {
        let is_appended = pieces.first().is_some_and(|piece| piece.start == self.archived);
        let is_in_place = self.size == self.archived && self.size <= self.page_bytes;
        !self.is_torn && !is_appended && !is_in_place
    }

    /// Keeps a run of data without what fills its pages up.
    fn keep(&self, data: Range<u64>, begins: bool, ends: bool, pieces: &mut Pieces) -> Result<()> {
        let start = if begins { self.start_of(&data)? } else { data.start };
        let end = if ends { self.end_of(&data)? } else { data.end };
        if !self.is_torn {
            pieces.push(start..end);
            return Ok(());
        }
        let mut next = start;
        while next < end {
            let sector = next..end.min((next / SECTOR_BYTES + 1) * SECTOR_BYTES);
            next = sector.end;
            if self.bytes(sector.clone())?.iter().all(|byte| *byte == 0) {
                continue;
            }
            match pieces.last_mut().filter(|last| last.end == sector.start) {
                Some(last) => last.end = sector.end,
                None => pieces.push(sector),
            }
        }
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
    fn look(&self, look: &Look<'_>, offline: &Runs) -> Result<Behind> {
        let pieces = match look.pieces(offline) {
            Err(error) if is_not_told(&error) => return Ok(Behind::Unclear),
            pieces => pieces?,
        };
        if pieces.is_empty() || !look.has_no_hole()? {
            return Ok(Behind::Pieces(pieces));
        }
        Ok(match (self.tells_holes(), look.is_rewritten(&pieces)) {
            (false, _) => Behind::Unclear,
            (true, true) => Behind::Whole,
            (true, false) => Behind::Pieces(pieces),
        })
    }

    /// Looks for what was written behind the mount to a file of which it is not known that it was
    /// not. `false` where that can't be told: what was written would be lost.
    pub(super) fn find_behind(&self, ino: Ino, attr: &Attr, known: &mut Known) -> Result<bool> {
        let recorded = &known.recorded;
        let is_said = recorded.changed || recorded.moving;
        if known.offline.is_empty() || (is_same(recorded, attr) && !is_said) {
            return Ok(true);
        }
        let own = self.open_own(ino, false)?;
        let look = Look::new(&own, attr, recorded, self.may_be_torn(recorded, attr));
        let pieces = match self.look(&look, &known.offline)? {
            Behind::Pieces(pieces) => pieces,
            Behind::Whole => {
                known.offline = Runs::new();
                Pieces::new()
            }
            // As everywhere, what is said to have changed can't be held against its time.
            Behind::Unclear if is_said => Pieces::new(),
            Behind::Unclear => return Ok(false),
        };
        if !look.is_torn && !pieces.is_empty() {
            let bytes: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
            let name = self.name(ino);
            tracing::warn!("{name}: {bytes} bytes that were written behind the mount stay");
        }
        known.behind = Some(pieces);
        Ok(true)
    }

    /// Says for good that nothing of a file which was written anew is in archives.
    pub(super) fn record_rewritten(&self, ino: Ino, known: &mut Known) -> Result<()> {
        let is_rewritten = known.offline.is_empty() && known.behind.is_some();
        if !is_rewritten || known.recorded.offline.is_empty() {
            return Ok(());
        }
        tracing::warn!("{}: was written anew behind the mount, and stays so", self.name(ino));
        let own = self.open_own(ino, true)?;
        own.sync()?;
        self.repair(&own, known, Residency { offline: Runs::new(), ..known.recorded.clone() })
    }

    /// What must stay of a block when its bytes come back; the file is said to be changed where
    /// that is not what the archive has.
    pub(super) fn kept_of(
        &self,
        file: &TieredFile,
        state: &mut FileState,
        block: u64,
        archived: &[u8],
    ) -> Result<Pieces> {
        self.look_once(file, state)?;
        let begin = block * BLOCK_BYTES;
        let known = state.known().and_then(|known| known.behind.as_deref()).unwrap_or_default();
        let within = |piece: &Range<u64>| {
            let piece = piece.start.max(begin)..piece.end.min(begin + BLOCK_BYTES);
            (!piece.is_empty()).then(|| piece.start - begin..piece.end - begin)
        };
        let kept: Pieces = known.iter().filter_map(within).collect();
        for piece in &kept {
            let mut bytes = vec![0; (piece.end - piece.start) as usize];
            let count = state.own(self, file.ino())?.read(begin + piece.start, &mut bytes)?;
            if archived.get(piece.start as usize..piece.end as usize) != Some(&bytes[..count]) {
                self.mark_changed(file, state)?;
                break;
            }
        }
        Ok(kept)
    }

    /// Before the first block comes back: what is there beside holes then is nobody's of here.
    fn look_once(&self, file: &TieredFile, state: &mut FileState) -> Result<()> {
        let Some(known) = state.known().filter(|known| known.behind.is_none()) else {
            return Ok(());
        };
        let (recorded, offline) = (known.recorded.clone(), known.offline.clone());
        let own = state.own(self, file.ino())?;
        let attr = own.attr()?;
        let look = Look::new(own, &attr, &recorded, self.may_be_torn(&recorded, &attr));
        let pieces = match self.look(&look, &offline)? {
            Behind::Pieces(pieces) => pieces,
            Behind::Whole => look.pieces(&offline)?,
            Behind::Unclear => Pieces::new(),
        };
        if let Some(known) = state.known_mut() {
            known.behind = Some(pieces);
        }
        Ok(())
    }

    /// Whether a crash may have left what is below. Where the time tells of a change at rest, it
    /// was none.
    fn may_be_torn(&self, recorded: &Residency, attr: &Attr) -> bool {
        recorded.moving || (self.is_in_doubt() && (recorded.changed || is_same(recorded, attr)))
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
        *self.tells_holes.get_or_init(ask)
    }
}

/// Whether size and time are those that were archived.
pub(super) fn is_same(recorded: &Residency, attr: &Attr) -> bool {
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
