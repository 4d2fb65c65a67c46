//! Packing: rewrites the content within the same stored file, in logical order and without garbage.
//!
//! Names, links and open handles are not affected, because no second file is created. First,
//! garbage collection moves all content past the end, so that the file begins with gaps. The bytes
//! within a gap have no meaning, so ordered frames and an index are written there. Once they are
//! durable, a slot that points to their checkpoint is written. With this write, the packed copy
//! replaces the old content. Then the gap before the copy is shortened, and the old content after
//! it is cut off.
//!
//! Packing proceeds one mebibyte at a time; between two steps others may use the file. If they
//! change the file while it is being copied into the gap, the copy is abandoned, and no data is
//! lost.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{Errno, Result, WriteOptions};

use super::commit::{Stepped, Steps, Stop, clear_end, commit_with_slot, cut_off_superseded};
use super::content::Content;
use super::context::{Io, Settings};
use super::format::HEAD_BYTES;
use super::frame::{Frame, NewFrame};
use super::garbage_collection::{BATCH_FRAMES, Move, end_move, move_some};
use super::journal::Journal;
use super::leading_gaps::end_of;
use super::log::Log;
use super::reclaim_policy::{MOVED_BYTES, SPARE_BYTES, free_bytes};
use super::slices::{visit, visit_in_steps};

/// Bytes copied with one write.
const BATCH_BYTES: usize = 1 << 20;

/// Holes up to this length are filled with zeros, so that ordinary tools decode the file exactly.
const SMALL_HOLE_BYTES: u64 = 1 << 20;

/// A file that is being packed.
struct Packing {
    /// Minimum offset at which the gaps before the moved content must end.
    room_end: u64,
    stage: Stage,
}

enum Stage {
    /// Content is being moved past the old end of the file.
    Moving(Move),
    /// Content is being copied, in order, into the gaps at the beginning of the file.
    Copying(Box<Copying>),
}

struct Copying {
    packed: Log,
    /// Sequence number of the last frame when copying began. If the file has a later frame, the
    /// copy is abandoned.
    sequence: u64,
    /// The gaps at the beginning of the file when copying began.
    gaps: Vec<Frame>,
    /// The next chunk. If `fills` is set, the hole before this chunk is written as zeros.
    next: u64,
    fills: bool,
    /// Frames to be written before those of the next chunk.
    pending: Vec<NewFrame>,
}

/// State of packing after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The step wrote this many bytes to the lower file.
    Going(u64),
    /// The file is packed.
    Done,
    /// Packing was abandoned: the file was changed, or a part can't be read. The file keeps its old
    /// content.
    GivenUp,
}

/// Result of packing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    /// Packing is not worthwhile, for example because the file is packed already.
    Already,
    /// The file was packed.
    Now,
    /// Packing was abandoned: the file changed, a part can't be read, or `goes_on` stopped it.
    GivenUp,
}

/// Layout of a stored file.
struct Shape {
    /// Number of chunks with content.
    chunks: u64,
    /// Number of chunks that packing would write as zeros.
    zeros: u64,
    /// Whether the frames are in the order of the chunks.
    is_ascending: bool,
    has_small_holes: bool,
    /// End of the content visited so far.
    content_end: u64,
    /// Offset of the last frame visited so far.
    last_frame: u64,
}

impl Shape {
    fn new() -> Self {
        Self {
            chunks: 0,
            zeros: 0,
            is_ascending: true,
            has_small_holes: false,
            content_end: 0,
            last_frame: 0,
        }
    }

    /// Adds the next chunk with content.
    fn add(&mut self, io: Io<'_>, log: &Log, chunk: u64) -> Result<()> {
        let (start, end) = log.map.extent(io, chunk)?.unwrap_or((log.size(), 0));
        self.add_hole(log, start);
        self.content_end = end;
        for entry in log.map.entries(io, chunk)? {
            self.is_ascending &= entry.frame.offset > self.last_frame;
            self.last_frame = entry.frame.offset;
        }
        self.chunks += 1;
        Ok(())
    }

    /// Adds the hole between the last content and `end`.
    fn add_hole(&mut self, log: &Log, end: u64) {
        let hole = self.content_end..end.max(self.content_end);
        if log.is_filled(&hole) {
            self.has_small_holes = true;
            self.zeros += log.chunks_within(&hole).count() as u64;
        }
    }
}

/// Returns the layout of a file, read in slices.
///
/// # Errors
/// [`Stop::Gone`] if the file is changed during the call.
fn shape_of(file: &impl Steps) -> Stepped<Shape> {
    let shape = RefCell::new(Shape::new());
    let add = |io: Io<'_>, log: &Log, chunk| shape.borrow_mut().add(io, log, chunk);
    visit_in_steps(file, add, |log| shape.borrow_mut().add_hole(log, log.size()))?;
    Ok(shape.into_inner())
}

/// Whether packing the file is worthwhile.
///
/// # Errors
/// [`Stop::Gone`] if the file is changed during the call.
pub fn gains_by_packing(file: &impl Steps) -> Stepped<bool> {
    match file.look(|io, log| Ok(log.gains_by_numbers(io.settings)))? {
        Some(gains) => Ok(gains),
        None => {
            let shape = shape_of(file)?;
            file.look(|_, log| Ok(log.gains_by_order(&shape)))
        }
    }
}

/// Packs a file. After each step `goes_on` receives the number of bytes written and decides whether
/// to continue. The file is not locked during this call.
///
/// # Errors
/// `ENOSPC` if the lower file system has no room for a copy of the live content.
pub fn pack(file: &impl Steps, goes_on: &mut dyn FnMut(u64) -> bool) -> Stepped<Packed> {
    let mut packing = in_turn(file, || begin(file))?;
    loop {
        match in_turn(file, || pack_some(file, &mut packing))? {
            Progress::Done => return Ok(Packed::Now),
            Progress::Going(bytes) if goes_on(bytes) => {}
            Progress::Going(_) => break,
            Progress::GivenUp => return Ok(Packed::GivenUp),
        }
    }
    in_turn(file, || give_up(file, &packing))?;
    Ok(Packed::GivenUp)
}

fn in_turn<T>(file: &impl Steps, work: impl FnOnce() -> Stepped<T>) -> Stepped<T> {
    let _turn = file.turn();
    work()
}

fn begin(file: &impl Steps) -> Stepped<Packing> {
    clear_end(file)?;
    let shape = shape_of(file)?;
    let room_end = file.look(|io, log| log.room_for_a_copy(io, &shape))?;
    let has_room = file.look(|io, log| Ok(end_of(&log.leading_gaps(io)?) >= room_end))?;
    let stage = if has_room {
        Stage::Copying(begin_copying(file, room_end)?)
    } else {
        Stage::Moving(file.step(|io, log| {
            log.add_room(io, room_end)?;
            Ok(log.begin_move())
        })?)
    };
    Ok(Packing { room_end, stage })
}

/// Runs the next step of packing. After an error, packing can't continue.
fn pack_some(file: &impl Steps, packing: &mut Packing) -> Stepped<Progress> {
    // A writer may have staged chunks since the last step.
    clear_end(file)?;
    match &mut packing.stage {
        Stage::Moving(moving) => {
            let before = file.look(|_, log| Ok(log.end()))?;
            if !move_some(file, moving)? {
                if !end_move(file, moving)? {
                    return Ok(Progress::GivenUp);
                }
                packing.stage = Stage::Copying(begin_copying(file, packing.room_end)?);
            }
            let after = file.look(|_, log| Ok(log.end()))?;
            Ok(Progress::Going(after.saturating_sub(before)))
        }
        Stage::Copying(copying) => match copy_some(file, copying) {
            Ok(Progress::Done) => become_packed(file),
            Err(Stop::Failed(error)) => {
                give_up(file, packing)?;
                Err(error.into())
            }
            answer => answer,
        },
    }
}

fn begin_copying(file: &impl Steps, room_end: u64) -> Stepped<Box<Copying>> {
    if !commit_with_slot(file)? {
        return Err(Stop::Failed(Errno::NOSPC.into()));
    }
    file.step(|io, log| log.begin_copying(io, room_end))
}

/// Copies about a mebibyte. Returns `Done` once a slot points to the copy, which then replaces the
/// old content.
fn copy_some(file: &impl Steps, copying: &mut Copying) -> Stepped<Progress> {
    let copied = file.step(|io, log| log.copy_some(io, copying))?;
    if copied != Progress::Done {
        return Ok(copied);
    }
    file.sync_below(true)?;
    file.step(|io, log| log.point_to_copy(io, copying))
}

/// Removes the old content. If the slot can't be made durable, a crash may leave either version. So
/// nothing is then appended to either version.
fn become_packed(file: &impl Steps) -> Stepped<Progress> {
    file.sync_below(true)?;
    cut_off_superseded(file)?;
    Ok(Progress::Done)
}

/// Releases the space that an abandoned packing used.
fn give_up(file: &impl Steps, packing: &Packing) -> Stepped<()> {
    let Stage::Copying(copying) = &packing.stage else { return Ok(()) };
    file.step(|io, log| {
        if let Err(error) = log.empty_gaps(io, &copying.gaps) {
            tracing::warn!(
                %error,
                file = %io.lower.name(),
                "can't free the space that an abandoned packing used"
            );
        }
        Ok(())
    })
}

impl Log {
    /// Whether packing the file is worthwhile. No other thread may change the file during this
    /// call.
    pub fn gains_by_packing(&self, io: Io<'_>) -> Result<bool> {
        match self.gains_by_numbers(io.settings) {
            Some(gains) => Ok(gains),
            None => Ok(self.gains_by_order(&self.shape(io)?)),
        }
    }

    /// Whether packing the file is worthwhile; `None` if that depends on the layout.
    fn gains_by_numbers(&self, settings: &Settings) -> Option<bool> {
        if !self.journal.has_head() || self.commits.sync_has_failed() {
            return Some(false);
        }
        self.has_much_to_pack(settings).then_some(true)
    }

    fn gains_by_order(&self, shape: &Shape) -> bool {
        let is_other = !shape.is_ascending || shape.has_small_holes || self.map.is_cut();
        !self.is_packed() && is_other
    }

    /// Whether the file is packed except for its holes. Ordinary tools then omit the holes, so
    /// their output is shorter than the content.
    pub fn is_packed_but_for_holes(&self, io: Io<'_>) -> Result<bool> {
        let few = self.garbage_in_all() <= self.garbage_left_unpacked(io.settings);
        let is_whole = self.journal.ends_well() && !self.map.is_cut();
        Ok(few && is_whole && self.shape(io)?.is_ascending)
    }

    fn shape(&self, io: Io<'_>) -> Result<Shape> {
        let mut shape = Shape::new();
        visit(io, self, |io, log, chunk| shape.add(io, log, chunk))?;
        shape.add_hole(self, self.size());
        Ok(shape)
    }

    /// Returns the minimum offset at which the gaps must end, so that a packed copy fits into them.
    ///
    /// # Errors
    /// `ENOSPC` if the lower file system has no room for a copy of the live content.
    fn room_for_a_copy(&self, io: Io<'_>, shape: &Shape) -> Result<u64> {
        let live = self.map.live_bytes().min(self.end());
        if free_bytes(io)? < live + 2 * MOVED_BYTES.min(live) + SPARE_BYTES {
            return Err(Errno::NOSPC.into());
        }
        let zeros = shape.zeros * (64 + self.map.chunk_bytes() / 128);
        Ok(HEAD_BYTES + live + live / 8 + shape.chunks * 64 + zeros + (256 << 10))
    }

    /// Returns the hole that follows the content of a chunk; for `None`, the hole at the beginning
    /// of the file. It may be empty.
    fn hole_behind(&self, io: Io<'_>, chunk: Option<u64>) -> Result<Range<u64>> {
        let extent = chunk.map_or(Ok(None), |chunk| self.map.extent(io, chunk))?;
        let start = extent.map_or(0, |(_, end)| end);
        let end = match self.map.next_present(io, chunk.map_or(0, |chunk| chunk + 1))? {
            Some(next) => self.map.extent(io, next)?.map_or(self.size(), |(start, _)| start),
            None => self.size(),
        };
        Ok(start..end.max(start))
    }

    /// Whether packing writes a hole as zeros, so that ordinary tools decode the file exactly. It
    /// does so only for small holes and codecs that compress.
    fn is_filled(&self, hole: &Range<u64>) -> bool {
        let length = hole.end - hole.start;
        self.identity().codec.compresses && (1..=SMALL_HOLE_BYTES).contains(&length)
    }

    /// Chunks that lie entirely within the hole.
    fn chunks_within(&self, hole: &Range<u64>) -> Range<u64> {
        let chunk = self.map.chunk_bytes();
        let is_last = hole.end == self.size();
        let end = if is_last { hole.end.div_ceil(chunk) } else { hole.end / chunk };
        hole.start.div_ceil(chunk)..end
    }

    fn begin_copying(&mut self, io: Io<'_>, room_end: u64) -> Result<Box<Copying>> {
        let gaps = self.leading_gaps(io)?;
        if end_of(&gaps) < room_end {
            return Err(Errno::NOSPC.into());
        }
        let nothing = self.identity().codec.stored(&[]);
        let header_bytes = self.identity().header_bytes() as u64;
        let body = HEAD_BYTES + header_bytes;
        io.lower.write(io.request, body, &nothing, WriteOptions::default())?;
        let (identity, sequence) = (*self.identity(), self.journal.sequence());
        let (begin, limit) = (body + nothing.len() as u64, end_of(&gaps) - header_bytes);
        let mut packed = Log::new(identity);
        packed.map.begin_with_size(self.size());
        packed.journal = Journal::of_copy(identity, begin, sequence, limit);
        packed.commits = self.commits.of_copy();
        let hole = self.hole_behind(io, None)?;
        let fills = self.is_filled(&hole);
        let pending = if fills { self.zeros(io, &hole)? } else { Vec::new() };
        Ok(Box::new(Copying { packed, sequence, gaps, next: 0, fills, pending }))
    }

    /// Copies about a mebibyte. Returns `Done` once everything is copied.
    fn copy_some(&self, io: Io<'_>, copying: &mut Copying) -> Result<Progress> {
        if self.has_changed_since(copying) {
            self.empty_gaps(io, &copying.gaps)?;
            return Ok(Progress::GivenUp);
        }
        let before = copying.packed.end();
        let (mut batch, mut bytes) = (std::mem::take(&mut copying.pending), 0);
        while bytes < BATCH_BYTES && batch.len() < BATCH_FRAMES {
            let Some(chunk) = self.map.next_present(io, copying.next)? else { break };
            let hole = self.hole_behind(io, Some(chunk))?;
            let fills = self.is_filled(&hole);
            let frame = self.filled(io, chunk, (copying.fills, fills))?;
            bytes += frame.body.len();
            batch.push(frame);
            if fills {
                batch.extend(self.zeros(io, &hole)?);
            }
            (copying.next, copying.fills) = (chunk + 1, fills);
        }
        self.map.trim();
        let is_last = batch.is_empty();
        copying.packed.append_frames(io, batch, WriteOptions::default())?;
        copying.packed.map.trim();
        if is_last { self.finish_copy(io, copying) } else { Ok(going(copying, before)) }
    }

    /// Encodes the whole content of a chunk in one frame. `before` and `behind` select whether the
    /// zeros before and after the content are included.
    fn filled(&self, io: Io<'_>, chunk: u64, (before, behind): (bool, bool)) -> Result<NewFrame> {
        let base = chunk * self.map.chunk_bytes();
        let end = self.map.chunk_bytes().min(self.size().saturating_sub(base)) as u32;
        let extent = self.map.extent(io, chunk)?.unwrap_or((base, base));
        let (start, to) = ((extent.0 - base) as u32, (extent.1 - base) as u32);
        let from = if before { 0 } else { start };
        let until = if behind { end.max(to) } else { to };
        if (from, until) == (start, to) {
            return self.moved(io, chunk);
        }
        let mut bytes = vec![0; (until - from) as usize];
        self.map.chunk_content(io, chunk)?.copy_to(from, &mut bytes);
        self.encoded(io, chunk, &Content { from, bytes: Arc::new(bytes) })
    }

    /// Makes frames of zeros for the chunks within a hole.
    fn zeros(&self, io: Io<'_>, hole: &Range<u64>) -> Result<Vec<NewFrame>> {
        let frame = |chunk: u64| {
            let chunk_bytes = self.map.chunk_bytes();
            let length = chunk_bytes.min(self.size() - chunk * chunk_bytes);
            let bytes = Arc::new(vec![0; length as usize]);
            self.encoded(io, chunk, &Content { from: 0, bytes })
        };
        self.chunks_within(hole).map(frame).collect()
    }

    /// Ends the copy with a checkpoint.
    fn finish_copy(&self, io: Io<'_>, copying: &mut Copying) -> Result<Progress> {
        copying.packed.write_checkpoint(io)?;
        // A stale frame of an abandoned packing must not follow the last frame of the copy.
        let blank = vec![0; self.identity().header_bytes()];
        io.lower.write(io.request, copying.packed.end(), &blank, WriteOptions::default())?;
        Ok(Progress::Done)
    }

    /// Whether the file has changed since the copy began.
    fn has_changed_since(&self, copying: &Copying) -> bool {
        copying.sequence != self.journal.sequence() || self.commits.sync_has_failed()
    }

    /// Writes the slot that points to the durable copy, so that opening the file finds the copy.
    /// Replaces this log by the log of the copy.
    fn point_to_copy(&mut self, io: Io<'_>, copying: &mut Copying) -> Result<Progress> {
        if self.has_changed_since(copying) {
            self.empty_gaps(io, &copying.gaps)?;
            return Ok(Progress::GivenUp);
        }
        let slot = copying.packed.slot_of_checkpoint(true);
        copying.packed.write_slot(io, &slot)?;
        // Cached content of the removed frames is no longer needed.
        let identity = *self.identity();
        io.settings.cache.retain(|(file, _), _| *file != identity.file_id);
        *self = std::mem::replace(&mut copying.packed, Log::new(identity));
        self.journal.become_file();
        tracing::debug!(file = %io.lower.name(), bytes = self.end(), "packed a stored file");
        Ok(Progress::Done)
    }
}

fn going(copying: &Copying, before: u64) -> Progress {
    Progress::Going(copying.packed.end() - before)
}

#[cfg(test)]
mod tests;
