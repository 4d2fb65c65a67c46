//! The chunk map, which maps each chunk to the frames with its content.
//!
//! It changes in only two ways: [`ChunkMap::apply`] applies an appended frame, and
//! [`ChunkMap::adopt`] loads a checkpoint. Only `apply` interprets frames, for the writer and for
//! recovery. The map does not write to the file. Its methods return the frames that a change made
//! dead.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use fslab_vfs::Result;
use parking_lot::Mutex;

use super::content::{Content, Hot, merge};
use super::context::Io;
use super::format::{
    CheckpointRecord, FAN_OUT, FLAG_IN_ORDER, Kind, LEVELS_MAX, SIZE_MAX, SegmentRecord,
};
use super::frame::{Entry, Frame, Identity, Reference};
use super::frame_reader;
use super::index::{Index, WritePage, leads_at_most_to};

/// The logical size of a stored file, and the frames with the content of each chunk.
pub struct ChunkMap {
    identity: Identity,
    size: u64,
    index: Mutex<Index>,
    /// Whether an index page could not be read, so that the map must be rebuilt from the frames.
    is_damaged: AtomicBool,
    /// Raw pieces that were appended to the indexed content of a chunk, the oldest first.
    segments: BTreeMap<u64, Vec<Entry>>,
    /// The pieces of staged chunks, which the journal does not contain yet (see `staging`).
    staged: BTreeMap<u64, Vec<Entry>>,
    /// Offset in the logical file at which the content of the last data frame ends.
    content_end: u64,
    /// Whether the data frames are in logical order and all of their content is valid.
    in_order: bool,
    /// Bytes of frames with live content.
    live_bytes: u64,
    /// The chunk written last, in decoded form.
    hot: Option<Hot>,
}

/// Frames that are no longer needed.
pub type Retired = Vec<Reference>;

impl ChunkMap {
    /// The map of a file without frames.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            size: 0,
            index: Mutex::default(),
            is_damaged: AtomicBool::new(false),
            segments: BTreeMap::new(),
            staged: BTreeMap::new(),
            content_end: 0,
            in_order: true,
            live_bytes: 0,
            hot: None,
        }
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn chunk_bytes(&self) -> u64 {
        self.identity.chunk_bytes()
    }

    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Whether the content is in logical order, without invalid content in between.
    #[cfg(test)]
    pub fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// Whether the last data frame has content past the end of the file, because the file was
    /// truncated.
    pub fn is_cut(&self) -> bool {
        self.content_end > self.size
    }

    /// Whether the content is in logical order up to the end of the file.
    pub fn is_complete(&self) -> bool {
        self.in_order && self.content_end == self.size
    }

    /// Records that ordinary tools can't decode the frames to the file's content.
    pub fn note_disorder(&mut self) {
        self.in_order = false;
    }

    /// Sets the size of a file that has no frames yet.
    pub fn begin_with_size(&mut self, size: u64) {
        self.size = size;
    }

    /// Records that a lost frame made the file at least this long. A later frame that shortens the
    /// file then also cuts off the lost content.
    pub fn note_lost_size(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Whether a page of the index could not be read.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Returns the decoded content of `chunk`, if it is the chunk written last.
    pub fn hot(&self, chunk: u64) -> Option<&Content> {
        self.hot.as_ref().filter(|hot| hot.chunk == chunk).map(|hot| &hot.content)
    }

    /// Keeps the current content of a chunk in memory.
    pub fn keep_hot(&mut self, chunk: u64, content: Content) {
        self.hot = Some(Hot { chunk, content });
    }

    /// Appends data to the decoded chunk that is kept in memory. If another chunk is kept, it is
    /// dropped.
    pub fn add_to_hot(&mut self, chunk: u64, start: u32, data: &[u8]) {
        match self.hot.as_mut().filter(|hot| hot.chunk == chunk) {
            Some(hot) => merge(&mut hot.content, start, data),
            None => self.hot = None,
        }
    }

    /// Drops the decoded chunk that is kept in memory.
    pub fn cool_down(&mut self) {
        self.hot = None;
    }

    /// Number of raw pieces.
    pub fn segment_count(&self) -> usize {
        self.segments.values().map(Vec::len).sum()
    }

    /// Bytes of all raw pieces in the stored file.
    pub fn segment_bytes(&self) -> u64 {
        let pieces = self.segments.values().flatten();
        pieces.map(|entry| u64::from(entry.frame.stored_length)).sum()
    }

    /// The raw pieces of a chunk that follow its [entry](Self::entry).
    pub fn segments(&self, chunk: u64) -> &[Entry] {
        match self.staged.get(&chunk) {
            Some(pieces) => pieces.get(1..).unwrap_or_default(),
            None => self.segments.get(&chunk).map_or(&[], Vec::as_slice),
        }
    }

    /// Chunks with raw pieces, and the number of pieces of each.
    pub fn tails(&self) -> impl Iterator<Item = (u64, usize)> {
        self.segments.iter().map(|(chunk, pieces)| (*chunk, pieces.len()))
    }

    /// Returns the frame with the content of a chunk, or with the beginning of its content.
    ///
    /// # Errors
    /// Errors of loading index pages.
    pub fn entry(&self, io: Io<'_>, chunk: u64) -> Result<Option<Entry>> {
        match self.staged.get(&chunk).and_then(|pieces| pieces.first()) {
            Some(first) => Ok(Some(*first)),
            None => self.indexed(io, chunk),
        }
    }

    fn indexed(&self, io: Io<'_>, chunk: u64) -> Result<Option<Entry>> {
        let load = |page, level, first| self.load_page(io, page, (level, first));
        self.index.lock().get(chunk, &load)
    }

    /// All frames with content of a chunk, the oldest first.
    pub fn entries(&self, io: Io<'_>, chunk: u64) -> Result<Vec<Entry>> {
        Ok(self.entry(io, chunk)?.into_iter().chain(self.segments(chunk).iter().copied()).collect())
    }

    /// Returns the first chunk that has content, at or after `chunk`.
    pub fn next_present(&self, io: Io<'_>, chunk: u64) -> Result<Option<u64>> {
        let load = |page, level, first| self.load_page(io, page, (level, first));
        let indexed = self.index.lock().next_present(chunk, &load)?.map(|(chunk, _)| chunk);
        let segmented = self.segments.range(chunk..).next().map(|(chunk, _)| *chunk);
        let staged = self.staged.range(chunk..).next().map(|(chunk, _)| *chunk);
        Ok(indexed.into_iter().chain(segmented).chain(staged).min())
    }

    /// Returns the end of the part of `chunks` that the first `pages` index pages cover.
    pub fn end_of_pages(&self, io: Io<'_>, chunks: &Range<u64>, pages: usize) -> Result<u64> {
        let mut end = chunks.start;
        for _ in 0..pages {
            match self.next_present(io, end)?.filter(|chunk| *chunk < chunks.end) {
                Some(chunk) => end = (chunk / FAN_OUT + 1) * FAN_OUT,
                None => return Ok(chunks.end),
            }
        }
        Ok(end.min(chunks.end))
    }

    /// Loads every index page that is needed to find the chunks of a range.
    pub fn load_range(&self, io: Io<'_>, chunks: Range<u64>) -> Result<()> {
        let mut next = chunks.start;
        while let Some(chunk) = self.next_present(io, next)?.filter(|chunk| *chunk < chunks.end) {
            next = chunk + 1;
        }
        Ok(())
    }

    /// Drops index pages that can be loaded again.
    pub fn trim(&self) {
        self.index.lock().trim();
    }

    /// Calls `trim` once every 512 chunks of a walk over all chunks.
    pub fn trim_after(&self, chunks: u64) {
        const CHUNKS: u64 = 512;
        if chunks.is_multiple_of(CHUNKS) {
            self.trim();
        }
    }

    /// Returns the number of changed index pages, which stay in memory until a checkpoint writes
    /// them.
    pub fn changed_pages(&self) -> usize {
        self.index.lock().changed_pages()
    }

    /// Passes the changed index pages to `write` and returns the new root page. Replaced pages are
    /// added to `retired`.
    pub fn write_pages(&self, write: &mut WritePage<'_>, retired: &mut Retired) -> Reference {
        self.index.lock().write(write, retired)
    }

    /// Reverts `write_pages` if its pages could not be written to the file.
    pub fn unwrite_pages(&self) {
        self.index.lock().unwrite();
    }

    fn load_page(&self, io: Io<'_>, page: Reference, place: (u8, u64)) -> Result<Vec<u8>> {
        let answer = self.try_to_load_page(io, page, place);
        if answer.is_err() {
            self.is_damaged.store(true, Ordering::Relaxed);
        }
        answer
    }

    fn try_to_load_page(
        &self,
        io: Io<'_>,
        page: Reference,
        (level, first): (u8, u64),
    ) -> Result<Vec<u8>> {
        let (frame, body) = frame_reader::frame(io, &self.identity, page)?;
        if frame.kind != Kind::Index || frame.position != first {
            return Err(io.damaged(page.offset, "another frame instead of an index page"));
        }
        let chunk_max = SIZE_MAX >> self.identity.chunk_log2;
        (self.identity.codec.container.unpack)(&body)
            .filter(|payload| payload.len() == frame.length as usize)
            .filter(|payload| leads_at_most_to(payload, level, first, chunk_max))
            .ok_or_else(|| io.damaged(page.offset, "an invalid index page"))
    }

    /// Loads every index page that applying a frame will need, so that applying it can't fail.
    pub fn load_paths(&self, io: Io<'_>, frame: &Frame, payload: &[u8]) -> Result<()> {
        match frame.kind {
            Kind::Data => self.indexed(io, frame.position).map(drop),
            Kind::Size if frame.file_size < self.size => {
                self.load_range(io, frame.file_size / self.chunk_bytes()..u64::MAX)
            }
            Kind::Hole => self.load_range(io, chunks_of_hole(frame, payload)),
            _ => Ok(()),
        }
    }

    /// Applies a frame that follows all others. `payload` is the payload of a metadata frame.
    ///
    /// # Errors
    /// Errors of loading index pages. After an error, the map is unchanged.
    pub fn apply(&mut self, io: Io<'_>, frame: &Frame, payload: &[u8]) -> Result<Retired> {
        let mut retired = Retired::new();
        match frame.kind {
            Kind::Data => {
                self.staged.remove(&frame.position);
                let entry = Some(frame.entry());
                self.forget_chunk(io, frame.position, entry, &mut retired)?;
                self.follow(frame);
            }
            Kind::Segment => {
                self.segments.entry(frame.position).or_default().push(frame.entry());
                self.follow(frame);
            }
            Kind::Size => self.apply_size(io, frame.file_size, &mut retired)?,
            Kind::Hole => {
                self.forget_chunks(io, chunks_of_hole(frame, payload), &mut retired)?;
                self.in_order = false;
            }
            Kind::Gap | Kind::Kept | Kind::Intent => self.in_order = false,
            Kind::Index | Kind::Checkpoint => {}
        }
        if matches!(frame.kind, Kind::Size | Kind::Hole) {
            self.hot = None;
        }
        self.size = self.staged_end().unwrap_or(frame.file_size);
        Ok(retired)
    }

    /// Adds a piece of a staged chunk at the end of the file.
    pub fn stage(&mut self, frame: &Frame) {
        self.staged.entry(frame.position).or_default().push(frame.entry());
        self.size = frame.file_size;
    }

    /// End of the last staged chunk, in the logical file.
    fn staged_end(&self) -> Option<u64> {
        let (chunk, pieces) = self.staged.last_key_value()?;
        Some(chunk * self.chunk_bytes() + u64::from(pieces.last()?.to))
    }

    /// Adds a frame of content to the totals, and checks whether the content is still in order.
    fn follow(&mut self, frame: &Frame) {
        self.live_bytes = self.live_bytes.saturating_add(u64::from(frame.reference.stored_length));
        let start = frame.position * self.chunk_bytes() + u64::from(frame.from);
        self.in_order &= start == self.content_end;
        self.content_end = start + u64::from(frame.length);
    }

    fn apply_size(&mut self, io: Io<'_>, size: u64, retired: &mut Retired) -> Result<()> {
        if size < self.size {
            let chunk = self.chunk_bytes();
            self.forget_chunks(io, size.div_ceil(chunk)..u64::MAX, retired)?;
            if !size.is_multiple_of(chunk) {
                self.cut_chunk(io, size / chunk, (size % chunk) as u32, retired)?;
            }
        }
        self.note_size(size);
        Ok(())
    }

    /// Updates `in_order` for a new size. If the file was truncated, the last frame still contains
    /// the removed content, and ordinary tools decode it. From then on the content is not in order,
    /// even if the file grows again.
    fn note_size(&mut self, size: u64) {
        self.in_order &= self.content_end <= size;
    }

    /// Cuts the content of a chunk at `to`.
    fn cut_chunk(&mut self, io: Io<'_>, chunk: u64, to: u32, retired: &mut Retired) -> Result<()> {
        if let Some(entry) = self.entry(io, chunk)?.filter(|entry| entry.to > to) {
            let cut = (entry.from < to).then_some(Entry { to, ..entry });
            self.set_entry(io, chunk, cut)?;
            if cut.is_none() {
                self.retire(entry.frame, retired);
            }
        }
        let segments = self.segments.remove(&chunk).unwrap_or_default();
        let (kept, cut): (Vec<Entry>, Vec<_>) =
            segments.into_iter().partition(|segment| segment.from < to);
        cut.into_iter().for_each(|segment| self.retire(segment.frame, retired));
        let kept: Vec<_> =
            kept.into_iter().map(|piece| Entry { to: piece.to.min(to), ..piece }).collect();
        if !kept.is_empty() {
            self.segments.insert(chunk, kept);
        }
        Ok(())
    }

    /// Turns chunks into holes.
    fn forget_chunks(
        &mut self,
        io: Io<'_>,
        chunks: Range<u64>,
        retired: &mut Retired,
    ) -> Result<()> {
        let mut next = chunks.start;
        while let Some(chunk) = self.next_present(io, next)?.filter(|chunk| *chunk < chunks.end) {
            self.forget_chunk(io, chunk, None, retired)?;
            next = chunk + 1;
        }
        Ok(())
    }

    /// Replaces the content of a chunk by a frame, or removes it.
    fn forget_chunk(
        &mut self,
        io: Io<'_>,
        chunk: u64,
        entry: Option<Entry>,
        retired: &mut Retired,
    ) -> Result<()> {
        let before = self.set_entry(io, chunk, entry)?;
        let segments = self.segments.remove(&chunk).unwrap_or_default();
        before.into_iter().chain(segments).for_each(|entry| self.retire(entry.frame, retired));
        Ok(())
    }

    fn set_entry(&self, io: Io<'_>, chunk: u64, entry: Option<Entry>) -> Result<Option<Entry>> {
        let load = |page, level, first| self.load_page(io, page, (level, first));
        self.index.lock().set(chunk, entry, &load)
    }

    /// Records that the content of a chunk is lost.
    pub fn mark_lost(&self, io: Io<'_>, chunk: u64, entry: Entry) -> Result<()> {
        self.set_entry(io, chunk, Some(entry)).map(drop)
    }

    fn retire(&mut self, frame: Reference, retired: &mut Retired) {
        if !frame.is_none() {
            self.live_bytes = self.live_bytes.saturating_sub(u64::from(frame.stored_length));
            retired.push(frame);
        }
    }

    /// Fills in the fields of a checkpoint that describe the content. Returns the raw pieces, which
    /// the checkpoint must list.
    pub fn describe(&self, record: &mut CheckpointRecord) -> Vec<SegmentRecord> {
        let pieces = self.segments.iter().flat_map(|(chunk, entries)| {
            entries.iter().map(move |entry| SegmentRecord {
                chunk: (*chunk).into(),
                entry: entry.to_record(),
            })
        });
        let segments: Vec<SegmentRecord> = pieces.collect();
        record.levels = self.index.lock().levels();
        record.flags = if self.in_order { FLAG_IN_ORDER } else { 0 };
        record.segments = (segments.len() as u16).into();
        record.content_end = self.content_end.into();
        record.live_bytes = self.live_bytes.into();
        segments
    }

    /// Loads the fields of a checkpoint that describe the content. Returns `None` if they are
    /// invalid.
    pub fn adopt(
        &mut self,
        record: &CheckpointRecord,
        segments: &[SegmentRecord],
        size: u64,
    ) -> Option<()> {
        let root = Reference::from_record(&record.root);
        let is_sound = segments.len() == usize::from(record.segments.get())
            && record.levels <= LEVELS_MAX
            && root.is_sound();
        if !is_sound {
            return None;
        }
        self.segments.clear();
        for segment in segments {
            let entry = Entry::from_record(&segment.entry)?;
            let chunk = segment.chunk.get();
            if chunk > SIZE_MAX >> self.identity.chunk_log2 {
                return None;
            }
            self.segments.entry(chunk).or_default().push(entry);
        }
        self.index = Mutex::new(Index::stored(record.levels, root));
        self.in_order = record.flags & FLAG_IN_ORDER != 0;
        self.content_end = record.content_end.get();
        // Some earlier versions of fslab did not clear `FLAG_IN_ORDER` for truncated files.
        self.note_size(size);
        self.live_bytes = record.live_bytes.get().min(SIZE_MAX);
        self.size = size;
        Some(())
    }
}

/// The chunks that a frame turns into holes.
pub fn chunks_of_hole(frame: &Frame, payload: &[u8]) -> Range<u64> {
    let count = payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    frame.position..frame.position.saturating_add(count)
}
