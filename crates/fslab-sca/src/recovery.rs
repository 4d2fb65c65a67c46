//! Opening a stored file: the last good checkpoint, and a walk over the frames behind it.
//!
//! The walk goes from header to header and never looks for frames in what others hold, so that a
//! stored file kept in a stored file can't confuse it. Frames behind a checkpoint may be what a
//! crash left of them; a body that is not whole is left out, and what the chunk held before stays.

use fslab_vfs::Result;
use zerocopy::FromBytes;

use super::chunk_map::chunks_of_hole;
use super::context::Io;
use super::format::{CheckpointRecord, Kind, SIZE_MAX};
use super::frame::{Entry, Frame, Identity, Reference, mended_body, parse_mending};
use super::frame_reader;
use super::journal::{Behind, Head};
use super::log::Log;
use super::ranges::Ranges;
use super::size_xattr::Clean;
use super::superblock::{self, Slot};

/// Bytes read ahead where bodies are looked at, and where only headers are.
const WINDOW_BYTES: usize = 256 << 10;
const HEADER_WINDOW_BYTES: usize = 4 << 10;

/// The same, behind a frame of less than [`SMALL_FRAME_BYTES`].
const SMALL_WINDOW_BYTES: usize = 64 << 10;
const SMALL_FRAME_BYTES: u64 = 16 << 10;

/// About how many reads a walk over the headers of so many frames takes.
pub fn reads_of_walk(frames: u64, bytes: u64) -> u64 {
    if bytes < frames * SMALL_FRAME_BYTES {
        bytes.div_ceil(SMALL_WINDOW_BYTES as u64)
    } else {
        frames
    }
}

/// Opens a stored file of `length` bytes. Where a mark holds, the file was left well.
///
/// # Errors
/// What is damaged beyond what the redundancy covers.
pub fn open(
    io: Io<'_>,
    identity: Identity,
    beginning: &[u8],
    length: u64,
    mark: Option<&Clean>,
) -> Result<Log> {
    let slots = superblock::slots(&identity, beginning);
    let (mut log, is_packed) = mark
        .and_then(|mark| from_mark(io, identity, &slots, mark))
        .map_or_else(|| from_slots(io, identity, &slots), |log| (log, false));
    let is_whole = superblock::is_head_whole(&identity, beginning);
    log.journal.note_head(if is_whole { Head::Whole } else { Head::Damaged });
    let packed_end = is_packed.then_some(log.end());
    let mut log = walk_on(io, log, length, mark.is_some())?;
    // Once anything was added, what lay behind had been cut off.
    if packed_end == Some(log.end()) && matches!(log.journal.behind(), Behind::Unknown(_)) {
        log.journal.note_behind(Behind::Superseded);
    }
    let found = (log.size(), log.journal.sequence());
    if mark.is_some_and(|mark| (mark.file_size, mark.sequence) != found) {
        return Err(io.damaged(log.end(), "a frame header; frames behind it can't be found"));
    }
    Ok(log)
}

fn walk_on(io: Io<'_>, mut log: Log, length: u64, is_left_well: bool) -> Result<Log> {
    if let Err(error) = Walk::new(io, length, is_left_well).run(&mut log) {
        return without_index(io, &log, length)?.ok_or(error);
    }
    if log.commits.frames_since() > 0 {
        log.journal.note_write();
    }
    look_behind(io, &mut log, length)?;
    Ok(log)
}

/// A stored file as its frames alone tell, whatever slots and index say: every header is walked and
/// every body checked.
///
/// # Errors
/// What reading the file below answers.
pub fn by_frames(io: Io<'_>, identity: Identity, length: u64) -> Result<Log> {
    let mut log = Log::new(identity);
    log.journal.note_head(Head::Whole);
    Walk::new(io, length, false).run(&mut log)?;
    log.journal.note_write();
    look_behind(io, &mut log, length)?;
    Ok(log)
}

/// What replaces a log whose index turned out to be damaged: what the frames tell, if that is no
/// less. Nothing if the index is in order.
///
/// # Errors
/// What reading the file below answers.
pub fn without_index(io: Io<'_>, log: &Log, length: u64) -> Result<Option<Log>> {
    if !log.map.is_damaged() {
        return Ok(None);
    }
    let mut found = by_frames(io, *log.identity(), length)?;
    if found.end() < log.end() || found.journal.sequence() < log.journal.sequence() {
        return Ok(None);
    }
    tracing::warn!(file = %io.lower.name(), "an index is damaged; the frames tell what it told");
    found.commits = log.commits.anew(found.commits);
    found.journal.note_head(log.journal.head());
    Ok(Some(found))
}

/// The state at the newest checkpoint that is whole, or that of an empty file; and whether packing
/// made it.
fn from_slots(io: Io<'_>, identity: Identity, slots: &[Slot]) -> (Log, bool) {
    for slot in slots {
        let mut log = Log::new(identity);
        match adopt(io, &mut log, slot) {
            Ok(()) => return (log, slot.is_packed),
            Err(error) => {
                tracing::warn!(%error, file = %io.lower.name(), "a checkpoint is damaged");
            }
        }
    }
    (Log::new(identity), false)
}

/// The state at the checkpoint that a mark leads to, if that is whole: it may have no slot.
fn from_mark(io: Io<'_>, identity: Identity, slots: &[Slot], mark: &Clean) -> Option<Log> {
    let slot = slots.first();
    if mark.checkpoint.is_none() || slot.is_some_and(|slot| slot.is_packed) {
        return None;
    }
    let mut log = Log::new(identity);
    let (frame, payload) = frame_reader::metadata(io, &identity, mark.checkpoint).ok()?;
    if frame.kind != Kind::Checkpoint || frame.sequence > mark.sequence {
        return None;
    }
    log.adopt(&frame, &payload)?;
    log.commits = log.commits.with_slot(slot);
    if !mark.durable {
        log.journal.note_write();
    }
    Some(log)
}

fn adopt(io: Io<'_>, log: &mut Log, slot: &Slot) -> Result<()> {
    let offset = slot.checkpoint.offset;
    let (frame, payload) = frame_reader::metadata(io, log.identity(), slot.checkpoint)?;
    // A slot whose number is not its checkpoint's would be taken for newer, or for older, than one
    // that is written next.
    let is_right = frame.kind == Kind::Checkpoint
        && frame.sequence == slot.sequence
        && log.adopt(&frame, &payload).is_some()
        && log.commits.ordinal() == slot.ordinal;
    if is_right { Ok(()) } else { Err(io.damaged(offset, "a checkpoint that makes no sense")) }
}

/// What lies behind the last frame: nothing, a seek table, or something to be kept aside.
fn look_behind(io: Io<'_>, log: &mut Log, length: u64) -> Result<()> {
    let behind = length.saturating_sub(log.end());
    if behind == 0 {
        return Ok(());
    }
    let has_closing = log.identity().codec.container.closing.is_some();
    log.journal.note_behind(match has_closing && is_closing(io, log.end(), behind)? {
        true => Behind::SeekTable(behind),
        false => Behind::Unknown(log.end()..length),
    });
    Ok(())
}

/// Whether a frame with content, or with a hole, whose body is not whole lies behind all that are.
/// A crash leaves such, and so does damage. Checkpoints and index pages are no content: the frames
/// before them say the same.
///
/// # Errors
/// What reading the file below answers.
pub fn ends_torn(io: Io<'_>, log: &Log, length: u64) -> Result<bool> {
    if !matches!(log.journal.behind(), Behind::Unknown(_)) {
        return Ok(false);
    }
    let mut walk = Walk::new(io, length, true);
    let (mut end, mut sequence) = (log.end(), log.journal.sequence());
    while let Some(frame) = walk.next(log.identity(), end, sequence)? {
        if frame.kind.has_content() || frame.kind == Kind::Hole {
            return Ok(true);
        }
        (end, sequence) = (frame.reference.end(), frame.last_sequence());
    }
    Ok(false)
}

/// Whether exactly one seek table lies there: it begins and ends as one, and is as long as it says.
pub fn is_closing(io: Io<'_>, offset: u64, length: u64) -> Result<bool> {
    const BEGIN: [u8; 4] = 0x184D_2A5E_u32.to_le_bytes();
    const END: [u8; 4] = 0x8F92_EAB1_u32.to_le_bytes();
    if length < 17 {
        return Ok(false);
    }
    let begin = io.lower.read(io.request, offset, 8)?;
    let end = io.lower.read(io.request, offset + length - 4, 4)?;
    let said = begin.get(4..8).and_then(<[u8]>::first_chunk).map(|said| u32::from_le_bytes(*said));
    Ok(begin.starts_with(&BEGIN) && end == END && said.map(u64::from) == Some(length - 8))
}

/// Pages of the index that a walk changes at most: those of 16 TiB in chunks of 128 KiB. The writer
/// changes far fewer between two checkpoints, but whoever crafts a file needs none.
const PAGES_MAX: usize = 1 << 20;

/// Frames of no more use that a walk remembers: 16 MiB.
const DEAD_MAX: usize = 1 << 20;

/// Twice the raw pieces that a walk bears: a writer makes one frame of 768, and without any such
/// frame, 64 MiB hold no more.
const SEGMENTS_MAX: usize = 2 << 20;

/// A walk over frames.
pub struct Walk<'a> {
    io: Io<'a>,
    /// Of the stored file.
    length: u64,
    /// Bodies need not be looked at.
    trusts: bool,
    window: Window,
    /// Length of the last frame.
    last_bytes: u64,
    /// Chunks that were cut off or became holes on the way.
    emptied: Ranges,
    /// Raw pieces, or more.
    segments: usize,
    /// What stays in memory: pages of the index that are changed, frames of no more use, and twice
    /// the raw pieces.
    pub pages_max: usize,
    pub dead_max: usize,
    pub segments_max: usize,
}

impl<'a> Walk<'a> {
    /// A walk over a file of `length` bytes.
    pub fn new(io: Io<'a>, length: u64, trusts: bool) -> Self {
        Self {
            io,
            length,
            trusts,
            window: Window::default(),
            last_bytes: 0,
            emptied: Ranges::default(),
            segments: 0,
            pages_max: PAGES_MAX,
            dead_max: DEAD_MAX,
            segments_max: SEGMENTS_MAX,
        }
    }

    /// Applies every frame from the end of what is known to the end of what is there.
    pub fn run(&mut self, log: &mut Log) -> Result<()> {
        // Where frames begin that are not whole, with no whole one behind them yet.
        let mut torn = None;
        let (mut end, mut sequence) = (log.end(), log.journal.sequence());
        while let Some(frame) = self.next(log.identity(), end, sequence)? {
            let before = (end, sequence);
            (end, sequence) = (frame.reference.end(), frame.last_sequence());
            match self.body(log, &frame)? {
                Some(payload) => {
                    if let Some(from) = torn.take() {
                        self.lose_all(log, from, before.0)?;
                    }
                    self.take(log, &frame, &payload)?;
                }
                None if frame.kind == Kind::Hole => break,
                // No crash tore it, and what it told is told by the frames since the one before.
                None if self.trusts => self.take(log, &frame, &[])?,
                None => torn = torn.or(Some(before)),
            }
            self.keep_bounded(log)?;
        }
        Ok(())
    }

    /// Loses frames from a place on, behind a sequence, up to where a whole one begins. In a
    /// crafted file there may be millions: their headers are read again, not kept.
    fn lose_all(&mut self, log: &mut Log, from: (u64, u64), until: u64) -> Result<()> {
        let mut headers = Walk::new(self.io, until, true);
        let (mut end, mut sequence) = from;
        while let Some(lost) = headers.next(log.identity(), end, sequence)? {
            (end, sequence) = (lost.reference.end(), lost.last_sequence());
            self.lose(log, &lost)?;
            self.keep_bounded(log)?;
        }
        Ok(())
    }

    /// Whoever crafts a file must not fill the memory by it. Space of what is of no more use, and
    /// forgotten, comes back with packing.
    fn keep_bounded(&mut self, log: &mut Log) -> Result<()> {
        log.garbage.keep_at_most(self.dead_max);
        if self.has_too_many_segments(log) {
            return Err(self.io.damaged(log.end(), "more raw pieces than there can be"));
        }
        if log.map.changed_pages() > self.pages_max {
            return Err(self.io.damaged(log.end(), "frames too far apart to do without an index"));
        }
        Ok(())
    }

    /// Counting takes as long as there are many: it is not done after each.
    fn has_too_many_segments(&mut self, log: &Log) -> bool {
        if self.segments < self.segments_max {
            return false;
        }
        self.segments = log.map.segment_count();
        self.segments > self.segments_max / 2
    }

    /// The frame at a place, if its header is whole and it fits into the file.
    pub fn next(&mut self, identity: &Identity, at: u64, sequence: u64) -> Result<Option<Frame>> {
        let header = self.get(at, identity.header_bytes())?;
        let Some(header) = header else { return Ok(None) };
        let frame = parse_mending(identity, &header, at).ok();
        let fits =
            |frame: &Frame| frame.reference.end() <= self.length && frame.sequence == sequence + 1;
        let frame = frame.filter(fits);
        self.last_bytes = frame.map_or(0, |frame| u64::from(frame.reference.stored_length));
        Ok(frame)
    }

    /// The payload of a frame whose body is whole; that of content is not unpacked.
    fn body(&mut self, log: &Log, frame: &Frame) -> Result<Option<Vec<u8>>> {
        let is_needed = matches!(frame.kind, Kind::Hole | Kind::Checkpoint);
        if frame.kind == Kind::Gap || self.trusts && !is_needed {
            return Ok(Some(Vec::new()));
        }
        let header_bytes = log.identity().header_bytes();
        let at = frame.reference.offset + header_bytes as u64;
        let Some(mut body) = self.get(at, frame.body_bytes(log.identity()))? else {
            return Ok(None);
        };
        if crc32c::crc32c(&body) != frame.body_crc {
            // Of a hole the walk must know how far it goes: without that it ends there.
            let mended = (frame.kind == Kind::Hole).then(|| mended_body(&body, frame.body_crc));
            let Some(whole) = mended.flatten() else { return Ok(None) };
            body = whole;
        }
        if !is_needed {
            return Ok(Some(Vec::new()));
        }
        Ok((log.identity().codec.container.unpack)(&body))
    }

    fn take(&mut self, log: &mut Log, frame: &Frame, payload: &[u8]) -> Result<()> {
        match frame.kind {
            // Pages belong to a checkpoint that was not reached by a slot: they are built anew.
            Kind::Index => log.garbage.add(vec![frame.reference]),
            Kind::Segment => self.segments += 1,
            Kind::Checkpoint => {
                if let Ok((record, _)) = CheckpointRecord::read_from_prefix(payload) {
                    let ordinal = record.ordinal.get().min(SIZE_MAX);
                    log.commits.note_found(ordinal, frame.reference);
                }
            }
            Kind::Size if frame.file_size < log.size() => {
                self.emptied.insert(frame.file_size / log.map.chunk_bytes()..u64::MAX);
            }
            Kind::Hole => {
                self.emptied.insert(chunks_of_hole(frame, payload));
            }
            _ => {}
        }
        log.apply(self.io, frame, payload)
    }

    /// A frame is not whole, and a whole one lies behind it: what the chunk held before stays,
    /// zeros where it was emptied; where it never held anything is a place that can't be read.
    fn lose(&mut self, log: &mut Log, frame: &Frame) -> Result<()> {
        // All that it says is in its header.
        if frame.kind == Kind::Size {
            return self.take(log, frame, &[]);
        }
        if !frame.kind.has_content() {
            return Ok(());
        }
        log.map.note_lost_size(frame.file_size);
        tracing::warn!(
            file = %self.io.lower.name(),
            chunk = frame.position,
            offset = frame.reference.offset,
            "a frame is not whole and was left out"
        );
        log.map.note_disorder();
        log.journal.note_left_out();
        // What it added lay behind the end, where there were zeros; what the chunk held before may
        // have been synced, and must not be refused together with it.
        if frame.kind == Kind::Segment {
            return Ok(());
        }
        if self.emptied.contains(frame.position)
            || log.map.entry(self.io, frame.position)?.is_some()
        {
            return Ok(());
        }
        let entry = Entry { frame: Reference::NONE, ..frame.entry() };
        log.map.mark_lost(self.io, frame.position, entry)
    }

    fn get(&mut self, at: u64, length: usize) -> Result<Option<Vec<u8>>> {
        if at + length as u64 > self.length {
            return Ok(None);
        }
        let ahead = match self.trusts {
            true if self.last_bytes < SMALL_FRAME_BYTES => SMALL_WINDOW_BYTES,
            true => HEADER_WINDOW_BYTES,
            false => WINDOW_BYTES,
        };
        self.window.get(self.io, at, length, ahead)
    }
}

/// A piece of the stored file that was read ahead.
#[derive(Default)]
pub struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Bytes of the file; `None` where it ends before.
    fn get(&mut self, io: Io<'_>, at: u64, length: usize, ahead: usize) -> Result<Option<Vec<u8>>> {
        let end = self.start + self.bytes.len() as u64;
        if at < self.start || at + length as u64 > end {
            self.bytes = io.lower.read(io.request, at, length.max(ahead))?;
            self.start = at;
        }
        let from = (at - self.start) as usize;
        Ok(self.bytes.get(from..from + length).map(<[u8]>::to_vec))
    }
}
