//! Making ranges read as zeros: whole chunks become holes, parts are written anew.

use std::sync::Arc;

use fslab_vfs::{Result, WriteOptions};

use super::context::Io;
use super::log::{Content, Log};
use super::reader::{Piece, pieces};
use super::writer::NewFrame;

impl Log {
    /// Makes a range read as zeros. As far as whole chunks and ends of chunks go it becomes holes.
    pub fn zero(
        &mut self,
        io: Io<'_>,
        offset: u64,
        length: u64,
        options: WriteOptions,
    ) -> Result<()> {
        let end = offset.saturating_add(length).min(self.size);
        if offset >= end {
            return Ok(());
        }
        let chunk_bytes = self.chunk_bytes();
        // What is behind the end reads as zeros already: the last chunk counts as whole.
        let whole_end =
            if end == self.size { end.div_ceil(chunk_bytes) } else { end / chunk_bytes };
        let whole = offset.div_ceil(chunk_bytes)..whole_end;
        let mut frames = Vec::new();
        for piece in self.edges(offset, end, &whole) {
            frames.extend(self.zeroed(io, piece)?);
        }
        let present = if whole.is_empty() { None } else { self.next_present(io, whole.start)? };
        if present.is_some_and(|chunk| chunk < whole.end) {
            let rest = self.drop_but_for_the_rest(io, whole.clone(), options)?;
            frames.push(self.hole(rest..whole.end));
        }
        // In one go: where there is no room for all, nothing is changed.
        self.hot = None;
        self.append_frames(io, frames, options)
    }

    /// The parts of a range in chunks that are not zeroed as a whole: at most two.
    fn edges(&self, offset: u64, end: u64, whole: &std::ops::Range<u64>) -> Vec<Piece> {
        let chunk_bytes = self.chunk_bytes();
        if whole.is_empty() {
            return pieces(chunk_bytes, offset, end - offset).collect();
        }
        let first_whole = whole.start * chunk_bytes;
        let behind_whole = (whole.end * chunk_bytes).min(end);
        let before = pieces(chunk_bytes, offset, first_whole.saturating_sub(offset));
        before.chain(pieces(chunk_bytes, behind_whole, end - behind_whole)).collect()
    }

    /// The frame after which a piece reads as zeros, if it does not already.
    fn zeroed(&self, io: Io<'_>, piece: Piece) -> Result<Option<NewFrame>> {
        let content = self.chunk_content(io, piece.chunk)?;
        let (from, to) = (content.from.max(piece.start), content.to().min(piece.end));
        if from >= to {
            return Ok(None);
        }
        let frame = match without(&content, from, to) {
            Some(rest) => self.encoded(io, piece.chunk, &rest)?,
            None => self.hole(piece.chunk..piece.chunk + 1),
        };
        Ok(Some(frame))
    }
}

/// Content with zeros from `from` to `to`, which lie within it; nothing if nothing is left.
fn without(content: &Content, from: u32, to: u32) -> Option<Content> {
    let (start, end) = (content.from, content.to());
    let at = |place: u32| (place - start) as usize;
    let bytes = &content.bytes;
    let (from_is_edge, to_is_edge) = (from == start, to == end);
    let (begin, rest) = match (from_is_edge, to_is_edge) {
        (true, true) => return None,
        (true, false) => (to, bytes[at(to)..].to_vec()),
        (false, true) => (start, bytes[..at(from)].to_vec()),
        (false, false) => {
            let mut whole = bytes.to_vec();
            whole[at(from)..at(to)].fill(0);
            (start, whole)
        }
    };
    Some(Content { from: begin, bytes: Arc::new(rest) })
}
