//! Opens a stored file: finds the last valid checkpoint and walks over the frames after it.
//!
//! The walk goes from header to header and never searches the content of frames, so a stored file
//! inside a stored file can't confuse it. A crash may leave incomplete frames after a checkpoint. A
//! frame with an incomplete body is left out, and the chunk keeps its earlier content.

use fslab_vfs::Result;
use zerocopy::FromBytes;

use super::chunk_map::chunks_of_hole;
use super::context::Io;
use super::failed_searches::Searched;
use super::format::{CheckpointRecord, Kind, SIZE_MAX};
use super::frame::{Entry, Frame, Identity, Reference, mended_body, parse_mending};
use super::frame_reader;
use super::journal::{Behind, Head};
use super::log::Log;
use super::ranges::Ranges;
use super::size_xattr::Clean;
use super::superblock::{self, Slot};

/// Bytes read at a time: `WINDOW_BYTES` if bodies are checked, and `HEADER_WINDOW_BYTES` if only
/// headers are read.
const WINDOW_BYTES: usize = 256 << 10;
const HEADER_WINDOW_BYTES: usize = 4 << 10;

/// Bytes read ahead after a frame of less than [`SMALL_FRAME_BYTES`], when only headers are read.
const SMALL_WINDOW_BYTES: usize = 64 << 10;
const SMALL_FRAME_BYTES: u64 = 16 << 10;

/// Returns the approximate number of reads that a walk over `frames` headers in `bytes` bytes
/// needs.
pub fn reads_of_walk(frames: u64, bytes: u64) -> u64 {
    if bytes < frames * SMALL_FRAME_BYTES {
        bytes.div_ceil(SMALL_WINDOW_BYTES as u64)
    } else {
        frames
    }
}

/// Opens a stored file of `length` bytes. `mark` is the content of the file's size xattr, if that
/// is trusted.
///
/// # Errors
/// Damage that redundancy can't repair.
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
    // The old content is not quarantined, because the next writer cuts it off before it appends
    // anything.
    if packed_end == Some(log.end()) && matches!(log.journal.behind(), Behind::Unknown(_)) {
        log.journal.note_behind(Behind::Superseded);
    }
    let found = (log.size(), log.journal.sequence());
    if mark.is_some_and(|mark| (mark.file_size, mark.sequence) != found) {
        return Err(io.damaged(
            log.end(),
            "a damaged frame header, because of which later frames can't be found",
        ));
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

/// Opens a stored file only by its frames, without slots and index: walks over every header and
/// checks every body.
///
/// # Errors
/// Errors of reading the lower file; `EINTR` if the caller no longer waits.
pub fn by_frames(io: Io<'_>, identity: Identity, length: u64) -> Result<Log> {
    Search::begin(io, identity, length)?.end(length)
}

/// A search for all frames of a stored file. Others may append frames between [`Self::begin`] and
/// [`Self::end`].
pub struct Search<'a> {
    walk: Walk<'a>,
    found: Log,
}

impl<'a> Search<'a> {
    /// Walks over the frames of a file of `length` bytes.
    ///
    /// # Errors
    /// As for [`by_frames`].
    pub fn begin(io: Io<'a>, identity: Identity, length: u64) -> Result<Self> {
        let mut found = Log::new(identity);
        found.journal.note_head(Head::Whole);
        let mut walk = Walk { is_interruptible: true, ..Walk::new(io, length, false) };
        walk.run(&mut found)?;
        Ok(Self { walk, found })
    }

    /// The context of the operation that searches.
    pub fn io(&self) -> Io<'a> {
        self.walk.io
    }

    /// Identity of the file that is searched.
    pub fn identity(&self) -> &Identity {
        self.found.identity()
    }

    /// Walks over the frames that were appended since the previous walk; `length` is the current
    /// length of the file.
    ///
    /// # Errors
    /// As for [`by_frames`].
    pub fn end(self, length: u64) -> Result<Log> {
        let Self { walk, mut found } = self;
        let io = walk.io;
        Walk { length, window: Window::default(), ..walk }.run(&mut found)?;
        found.journal.note_write();
        look_behind(io, &mut found, length)?;
        Ok(found)
    }
}

/// Returns the log that a search found, to replace a log with a damaged index. Returns `None` if
/// the search found fewer frames than `log` has.
pub fn in_place_of(log: &Log, mut found: Log, io: Io<'_>) -> Option<Log> {
    if found.end() < log.end() || found.journal.sequence() < log.journal.sequence() {
        return None;
    }
    tracing::warn!(file = %io.lower.name(), "a damaged index was rebuilt from the frames");
    found.commits = log.commits.anew(found.commits);
    found.journal.note_head(log.journal.head());
    Some(found)
}

/// Rebuilds a log with a damaged index from the frames, unless there are fewer frames than before.
/// Returns `None` if the index is intact, or an earlier search of the file failed.
fn without_index(io: Io<'_>, log: &Log, length: u64) -> Result<Option<Log>> {
    if !log.map.is_damaged() {
        return Ok(None);
    }
    let search = || Ok(in_place_of(log, by_frames(io, *log.identity(), length)?, io));
    io.settings.failed_searches.search(searched(io)?, search)
}

/// Returns the state that identifies a file in [`super::failed_searches::FailedSearches`].
///
/// # Errors
/// Errors of reading the attributes of the lower file.
pub fn searched(io: Io<'_>) -> Result<Searched> {
    let attr = io.lower.attr(io.request)?;
    Ok(Searched { ino: io.lower.ino, length: attr.size, changed: attr.changed })
}

/// Returns the state at the newest valid checkpoint of a slot, or that of an empty file. Also
/// returns whether packing wrote that slot.
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

/// Returns the state at the checkpoint that a size xattr contains, if it is valid. Such a
/// checkpoint may have no slot.
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
    // If the numbers of a slot and its checkpoint differed, the next slot would seem older than
    // this one.
    let is_right = frame.kind == Kind::Checkpoint
        && frame.sequence == slot.sequence
        && log.adopt(&frame, &payload).is_some()
        && log.commits.ordinal() == slot.ordinal;
    if is_right { Ok(()) } else { Err(io.damaged(offset, "an invalid checkpoint")) }
}

/// Records the data after the last frame: nothing, a staging area, a seek table, or unknown bytes.
fn look_behind(io: Io<'_>, log: &mut Log, length: u64) -> Result<()> {
    let behind = length.saturating_sub(log.end());
    if behind == 0 {
        return Ok(());
    }
    if log.find_staged(io, length)? {
        log.journal.note_behind(Behind::Staged);
        return Ok(());
    }
    let has_closing = log.identity().codec.container.closing.is_some();
    log.journal.note_behind(match has_closing && is_closing(io, log.end(), behind)? {
        true => Behind::SeekTable(behind),
        false => Behind::Unknown(log.end()..length),
    });
    Ok(())
}

/// Whether an incomplete frame of content or of a hole follows all complete frames. A crash or
/// damage leaves such a frame. Checkpoints and index pages are ignored, because the frames before
/// them contain the same information.
///
/// # Errors
/// Errors of reading the lower file.
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

/// Whether a range contains exactly one seek table, judged by its beginning, end and length.
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

/// Maximum number of index pages that a walk changes. They cover 16 TiB in chunks of 128 KiB. A
/// writer changes far fewer between two checkpoints, but a crafted file may have no checkpoints.
const PAGES_MAX: usize = 1 << 20;

/// Maximum number of dead frames that a walk keeps in memory. They take 16 MiB.
const DEAD_MAX: usize = 1 << 20;

/// Twice the maximum number of raw pieces in a walk. A writer joins 768 pieces into a frame. Even
/// if none were joined, fewer than 2^20 pieces would be written within the 64 MiB between two
/// commits.
const SEGMENTS_MAX: usize = 2 << 20;

/// A walk over frames.
pub struct Walk<'a> {
    io: Io<'a>,
    /// Length of the stored file.
    length: u64,
    /// Whether bodies are trusted and not checked.
    trusts: bool,
    window: Window,
    /// Length of the last frame.
    last_bytes: u64,
    /// Chunks that the walk has found cut off or turned into holes.
    emptied: Ranges,
    /// Upper bound of the number of raw pieces.
    segments: usize,
    /// Limits of the items kept in memory: changed index pages, dead frames, and twice the raw
    /// pieces.
    pub pages_max: usize,
    pub dead_max: usize,
    pub segments_max: usize,
    /// Whether a signal to the caller ends the walk. A signal does not end the opening of a file,
    /// because a caller with frequent signals could never open one.
    is_interruptible: bool,
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
            is_interruptible: false,
        }
    }

    /// Applies every frame from the log's end to the end of the file.
    pub fn run(&mut self, log: &mut Log) -> Result<()> {
        // Start of the incomplete frames since the last complete one.
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
                // A trusted checkpoint was complete once, so it was damaged later and not torn by a
                // crash. It is not needed, because the frames since the previous checkpoint contain
                // the same information.
                None if self.trusts => self.take(log, &frame, &[])?,
                None => torn = torn.or(Some(before)),
            }
            self.keep_bounded(log)?;
        }
        Ok(())
    }

    /// Marks all frames from an offset up to `until` as lost. A crafted file may contain millions,
    /// so their headers are read again and not kept.
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

    /// Limits the memory that a crafted file can use. Packing frees the space of the dead frames
    /// that are dropped here.
    fn keep_bounded(&mut self, log: &mut Log) -> Result<()> {
        log.garbage.keep_at_most(self.dead_max);
        if self.has_too_many_segments(log) {
            return Err(self.io.damaged(log.end(), "too many raw pieces"));
        }
        if log.map.changed_pages() > self.pages_max {
            return Err(self.io.damaged(log.end(), "frames too far apart to rebuild the index"));
        }
        Ok(())
    }

    /// Whether there are too many raw pieces. Counting is slow, so it is done only when the bound
    /// is reached.
    fn has_too_many_segments(&mut self, log: &Log) -> bool {
        if self.segments < self.segments_max {
            return false;
        }
        self.segments = log.map.segment_count();
        self.segments > self.segments_max / 2
    }

    /// Returns the frame at an offset, if its header is valid and it fits into the file.
    ///
    /// # Errors
    /// Errors of reading the lower file; `EINTR` if the walk is interruptible and the caller no
    /// longer waits.
    pub fn next(&mut self, identity: &Identity, at: u64, sequence: u64) -> Result<Option<Frame>> {
        if self.is_interruptible {
            self.io.request.cancellation.check()?;
        }
        let header = self.get(at, identity.header_bytes())?;
        let Some(header) = header else { return Ok(None) };
        let frame = parse_mending(identity, &header, at).ok();
        let fits =
            |frame: &Frame| frame.reference.end() <= self.length && frame.sequence == sequence + 1;
        let frame = frame.filter(fits);
        self.last_bytes = frame.map_or(0, |frame| u64::from(frame.reference.stored_length));
        Ok(frame)
    }

    /// Returns the payload of a hole or a checkpoint, or an empty one for other frames. Returns
    /// `None` if the body is found to be invalid.
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
            // The walk must know the length of a hole, and ends there if it is unknown.
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
            // Index pages after the last checkpoint belong to a checkpoint without a slot. The walk
            // rebuilds them, so they are dead.
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

    /// Records an incomplete frame that a complete frame follows. The chunk keeps its earlier
    /// content, or zeros if it was emptied. If it never had content, it becomes unreadable.
    fn lose(&mut self, log: &mut Log, frame: &Frame) -> Result<()> {
        // The header contains everything that a size frame records.
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
            "ignored an incomplete frame"
        );
        log.map.note_disorder();
        log.journal.note_left_out();
        // The lost piece was appended past the end, where there were only zeros. The earlier
        // content of the chunk may have been synced, and must stay readable.
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

/// A section of the stored file that was read ahead.
#[derive(Default)]
pub struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Returns bytes of the file; `None` if the file ends before.
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
