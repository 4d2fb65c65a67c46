//! A stored file in memory: what its frames add up to.
//!
//! [`Log::apply`] is the one place where a frame gets its meaning, whether it was just written or
//! was found by recovery, so that both always agree.

use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_vfs::Result;
use parking_lot::Mutex;

use super::context::Io;
use super::format::{HEAD_BYTES, Kind, SIZE_MAX};
use super::frame::{Entry, Frame, Identity, Reference, parse_mending};
use super::index::{Index, leads_at_most_to};

/// A stored file.
pub struct Log {
    pub identity: Identity,
    /// Logical size.
    pub size: u64,
    /// Of the last frame.
    pub sequence: u64,
    /// Where the next frame goes.
    pub end: u64,
    pub index: Mutex<Index>,
    /// A page of the index could not be read: all is to be found by the frames again.
    pub index_is_damaged: AtomicBool,
    /// Raw pieces behind what the index says of a chunk, in the order they were appended.
    pub segments: BTreeMap<u64, Vec<Entry>>,
    /// Where in the logical file the content of the last data frame in order ends.
    pub content_end: u64,
    /// Data frames are in order and nothing of them is void.
    pub in_order: bool,
    /// Bytes of frames with content of use.
    pub live_bytes: u64,
    /// Frames of no more use whose space was not given back.
    pub dead: Vec<Reference>,
    /// Pages and checkpoints that were replaced and that a slot may still lead to: dead once
    /// another checkpoint has a slot.
    pub superseded: Vec<Reference>,
    /// Dead frames whose headers could be joined.
    pub fragments: Vec<Reference>,
    /// The last checkpoint: how many there were, and where it is.
    pub ordinal: u64,
    pub checkpoint: Reference,
    /// The checkpoint that the slot written last leads to, and that slot's number.
    pub slotted: Reference,
    pub slot_ordinal: u64,
    /// The file below failed to make something durable.
    pub sync_has_failed: bool,
    /// The head must be written anew: it was lost, and the file was known by its first frame.
    pub head_is_damaged: bool,
    /// Frames written since.
    pub frames_since_checkpoint: u64,
    /// Where the file ended when it was last committed.
    pub committed_end: u64,
    /// Bytes appended since the seek table was last written.
    pub bytes_since_closing: u64,
    /// How often something was written below, and how often it had been when all was last durable.
    pub writes: u64,
    pub durable_writes: u64,
    /// So much was written since the last commit that another is due.
    pub is_commit_due: bool,
    /// Whether the head is in the file below.
    pub has_head: bool,
    /// Bytes behind the end that are no frame and not yet kept aside.
    pub leftover: Option<Range<u64>>,
    /// Recovery left something out, and no checkpoint says so yet.
    pub has_left_out: bool,
    /// What lies behind the end is the file as it was before it was packed.
    pub is_superseding: bool,
    /// Nothing may be written from here on: the file is being packed into a gap of what it was.
    pub limit: Option<u64>,
    /// Bytes behind the end that are a seek table.
    pub closing_bytes: u64,
    /// Where the end must be before anybody looks again whether the file is to be cleaned.
    pub next_look: u64,
    /// The chunk written last, decoded.
    pub hot: Option<Hot>,
}

/// The body of a frame, as it was read with its header.
pub struct Body {
    bytes: Vec<u8>,
    header_bytes: usize,
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.header_bytes..]
    }
}

/// A chunk's content, decoded.
#[derive(Clone, Debug)]
pub struct Hot {
    pub chunk: u64,
    pub content: Content,
}

/// What a chunk holds: bytes from a place on; before and behind them are zeros.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub from: u32,
    pub bytes: Arc<Vec<u8>>,
}

impl Content {
    /// Where the bytes end.
    pub fn to(&self) -> u32 {
        self.from + self.bytes.len() as u32
    }

    /// Copies what lies at `start` in the chunk, with zeros around it.
    pub fn copy_to(&self, start: u32, buffer: &mut [u8]) {
        buffer.fill(0);
        let end = start + buffer.len() as u32;
        let (from, to) = (self.from.max(start), self.to().min(end));
        if from < to {
            let source = &self.bytes[(from - self.from) as usize..(to - self.from) as usize];
            buffer[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
        }
    }
}

impl Log {
    /// A stored file without frames.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            size: 0,
            sequence: 0,
            end: HEAD_BYTES,
            index: Mutex::default(),
            index_is_damaged: AtomicBool::new(false),
            segments: BTreeMap::new(),
            content_end: 0,
            in_order: true,
            live_bytes: 0,
            dead: Vec::new(),
            superseded: Vec::new(),
            fragments: Vec::new(),
            ordinal: 0,
            checkpoint: Reference::NONE,
            slotted: Reference::NONE,
            slot_ordinal: 0,
            sync_has_failed: false,
            head_is_damaged: false,
            frames_since_checkpoint: 0,
            committed_end: HEAD_BYTES,
            bytes_since_closing: 0,
            writes: 0,
            durable_writes: 0,
            is_commit_due: false,
            has_head: false,
            leftover: None,
            has_left_out: false,
            is_superseding: false,
            limit: None,
            closing_bytes: 0,
            next_look: 0,
            hot: None,
        }
    }

    pub fn chunk_bytes(&self) -> u64 {
        self.identity.chunk_bytes()
    }

    /// Whether anything was written that is not known to be durable.
    pub fn is_unsynced(&self) -> bool {
        self.writes != self.durable_writes
    }

    /// Whether the next frame can be written right behind the last one: else see
    /// [`super::commit::clear_end`].
    pub fn is_end_clear(&self) -> bool {
        !self.is_superseding && self.leftover.is_none() && !self.has_left_out
    }

    /// Whether ordinary tools decode the file to exactly its content.
    pub fn is_packed(&self) -> bool {
        let ends_well = self.leftover.is_none() && !self.is_superseding;
        self.in_order && self.content_end == self.size && ends_well
    }

    /// Whether the next who opens the file finds what is here without looking at bodies.
    pub fn is_whole(&self) -> bool {
        let is_durable = !self.sync_has_failed && !self.is_superseding;
        self.has_head && self.leftover.is_none() && !self.has_left_out && is_durable
    }

    /// How many raw pieces there are.
    pub fn segment_count(&self) -> usize {
        self.segments.values().map(Vec::len).sum()
    }

    /// What the index says of a chunk.
    pub fn entry(&self, io: Io<'_>, chunk: u64) -> Result<Option<Entry>> {
        let load = |page, level, first| self.load_page(io, page, (level, first));
        self.index.lock().get(chunk, &load)
    }

    /// The first chunk at or behind `chunk` that holds something.
    pub fn next_present(&self, io: Io<'_>, chunk: u64) -> Result<Option<u64>> {
        let load = |page, level, first| self.load_page(io, page, (level, first));
        let indexed = self.index.lock().next_present(chunk, &load)?.map(|(chunk, _)| chunk);
        let segmented = self.segments.range(chunk..).next().map(|(chunk, _)| *chunk);
        Ok(indexed.into_iter().chain(segmented).min())
    }

    /// Drops pages of the index again, now and then on a way over all chunks: so many were passed.
    pub fn trim_after(&self, chunks: u64) {
        const CHUNKS: u64 = 512;
        if chunks.is_multiple_of(CHUNKS) {
            self.index.lock().trim();
        }
    }

    fn load_page(&self, io: Io<'_>, page: Reference, place: (u8, u64)) -> Result<Vec<u8>> {
        let answer = self.try_to_load_page(io, page, place);
        if answer.is_err() {
            self.index_is_damaged.store(true, Ordering::Relaxed);
        }
        answer
    }

    fn try_to_load_page(
        &self,
        io: Io<'_>,
        page: Reference,
        (level, first): (u8, u64),
    ) -> Result<Vec<u8>> {
        let (frame, body) = self.read_frame(io, page)?;
        // It stays in memory as it is here.
        io.lower.drop_pages(page.offset, page.stored_length.into());
        if frame.kind != Kind::Index || frame.position != first {
            return Err(io.damaged(page.offset, "an index page that is another"));
        }
        let chunk_max = SIZE_MAX >> self.identity.chunk_log2;
        (self.identity.codec.container.unpack)(&body)
            .filter(|payload| payload.len() == frame.length as usize)
            .filter(|payload| leads_at_most_to(payload, level, first, chunk_max))
            .ok_or_else(|| io.damaged(page.offset, "an index page that makes no sense"))
    }

    /// Reads a frame that must be there, header and body, with every checksum.
    pub fn read_frame(&self, io: Io<'_>, reference: Reference) -> Result<(Frame, Body)> {
        let offset = reference.offset;
        if reference.is_none() {
            return Err(io.damaged(offset, "content that was lost"));
        }
        let length = reference.stored_length as usize;
        if length as u64 > super::format::FRAME_BYTES_MAX || length < self.identity.header_bytes() {
            return Err(io.damaged(offset, "a frame of impossible length"));
        }
        let bytes = io.lower.read(io.request, offset, length)?;
        if bytes.len() < length {
            return Err(io.damaged(offset, "the end of the stored file instead of a frame"));
        }
        let body = Body { bytes, header_bytes: self.identity.header_bytes() };
        // As the walk does: what it took for a frame must be one for everybody.
        let header = &body.bytes[..body.header_bytes];
        let frame = parse_mending(&self.identity, header, offset)
            .map_err(|what| io.damaged(offset, what))?;
        if frame.reference != reference {
            return Err(io.damaged(offset, "another frame than the index says"));
        }
        if io.settings.verify && crc32c::crc32c(&body) != frame.body_crc {
            return Err(io.damaged(offset, "a frame with a wrong checksum"));
        }
        Ok((frame, body))
    }

    /// Takes a frame into account that lies behind all others. `payload` is that of metadata.
    ///
    /// # Errors
    /// What loading pages of the index answers; then nothing was changed.
    pub fn apply(&mut self, io: Io<'_>, frame: &Frame, payload: &[u8]) -> Result<()> {
        match frame.kind {
            Kind::Data => self.apply_data(io, frame)?,
            Kind::Segment => self.apply_segment(frame),
            Kind::Size => self.apply_size(io, frame.file_size)?,
            Kind::Hole => {
                let count = payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                let end = frame.position.saturating_add(count);
                self.forget_chunks(io, frame.position, end)?;
                self.in_order = false;
            }
            Kind::Gap | Kind::Kept | Kind::Intent => self.in_order = false,
            Kind::Index | Kind::Checkpoint => {}
        }
        self.size = frame.file_size;
        self.sequence = frame.last_sequence();
        self.end = frame.reference.end();
        self.frames_since_checkpoint += 1;
        self.bytes_since_closing += u64::from(frame.reference.stored_length);
        Ok(())
    }

    fn apply_data(&mut self, io: Io<'_>, frame: &Frame) -> Result<()> {
        let chunk = frame.position;
        let before = self.set_entry(io, chunk, Some(frame.entry()))?;
        let segments = self.segments.remove(&chunk).unwrap_or_default();
        before.into_iter().chain(segments).for_each(|entry| self.retire(entry.frame));
        self.live_bytes = self.live_bytes.saturating_add(u64::from(frame.reference.stored_length));
        self.follow(frame);
        Ok(())
    }

    fn apply_segment(&mut self, frame: &Frame) {
        self.segments.entry(frame.position).or_default().push(frame.entry());
        self.live_bytes = self.live_bytes.saturating_add(u64::from(frame.reference.stored_length));
        self.follow(frame);
    }

    /// Keeps track of whether content comes in order.
    fn follow(&mut self, frame: &Frame) {
        let start = frame.position * self.chunk_bytes() + u64::from(frame.from);
        self.in_order &= start == self.content_end;
        self.content_end = start + u64::from(frame.length);
    }

    fn apply_size(&mut self, io: Io<'_>, size: u64) -> Result<()> {
        if size < self.size {
            let chunk = self.chunk_bytes();
            self.forget_chunks(io, size.div_ceil(chunk), u64::MAX)?;
            if !size.is_multiple_of(chunk) {
                self.cut_chunk(io, size / chunk, (size % chunk) as u32)?;
            }
        }
        self.note_size(size);
        Ok(())
    }

    /// What is cut off stays in its frames, where ordinary tools find it: content is not in order
    /// any more, whatever size the file gets later.
    pub fn note_size(&mut self, size: u64) {
        self.in_order &= self.content_end <= size;
    }

    /// Lets the content of a chunk end at `to` at the latest.
    fn cut_chunk(&mut self, io: Io<'_>, chunk: u64, to: u32) -> Result<()> {
        if let Some(entry) = self.entry(io, chunk)?.filter(|entry| entry.to > to) {
            let cut = (entry.from < to).then_some(Entry { to, ..entry });
            self.set_entry(io, chunk, cut)?;
            if cut.is_none() {
                self.retire(entry.frame);
            }
        }
        if let Some(segments) = self.segments.remove(&chunk) {
            let (kept, cut): (Vec<_>, Vec<_>) =
                segments.into_iter().partition(|segment| segment.from < to);
            cut.into_iter().for_each(|segment| self.retire(segment.frame));
            let kept: Vec<_> = kept
                .into_iter()
                .map(|segment| Entry { to: segment.to.min(to), ..segment })
                .collect();
            if !kept.is_empty() {
                self.segments.insert(chunk, kept);
            }
        }
        Ok(())
    }

    /// Makes holes of chunks from `first` to before `end`.
    fn forget_chunks(&mut self, io: Io<'_>, first: u64, end: u64) -> Result<()> {
        let mut next = first;
        while let Some(chunk) = self.next_present(io, next)?.filter(|chunk| *chunk < end) {
            let before = self.set_entry(io, chunk, None)?;
            let segments = self.segments.remove(&chunk).unwrap_or_default();
            before.into_iter().chain(segments).for_each(|entry| self.retire(entry.frame));
            next = chunk + 1;
        }
        Ok(())
    }

    fn set_entry(&self, io: Io<'_>, chunk: u64, entry: Option<Entry>) -> Result<Option<Entry>> {
        let load = |page, level, first| self.load_page(io, page, (level, first));
        self.index.lock().set(chunk, entry, &load)
    }

    /// Records that what a chunk held is lost.
    pub fn mark_lost(&self, io: Io<'_>, chunk: u64, entry: Entry) -> Result<()> {
        self.set_entry(io, chunk, Some(entry)).map(drop)
    }

    /// A frame is of no more use.
    pub fn retire(&mut self, frame: Reference) {
        if !frame.is_none() {
            self.live_bytes = self.live_bytes.saturating_sub(u64::from(frame.stored_length));
            self.dead.push(frame);
        }
    }

    /// Bytes that are in the stored file and of no use: retired frames, old index pages, gaps.
    pub fn garbage_bytes(&self) -> u64 {
        self.dead.iter().map(|frame| u64::from(frame.stored_length)).sum()
    }
}
