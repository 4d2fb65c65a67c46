//! Making ranges read as zeros: whole chunks become holes, parts are written anew.

use std::sync::Arc;

use fslab_vfs::{Result, WriteOptions};

use super::context::Io;
use super::log::{Content, Log};
use super::reader::{Piece, pieces};

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
        let edges: Vec<Piece> = self.edges(offset, end, &whole);
        for piece in edges {
            self.zero_piece(io, piece, options)?;
        }
        let present = if whole.is_empty() { None } else { self.next_present(io, whole.start)? };
        if present.is_some_and(|chunk| chunk < whole.end) {
            self.drop_chunks(io, whole.start, whole.end - whole.start, options)?;
        }
        Ok(())
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

    fn zero_piece(&mut self, io: Io<'_>, piece: Piece, options: WriteOptions) -> Result<()> {
        let content = self.chunk_content(io, piece.chunk)?;
        let (from, to) = (content.from.max(piece.start), content.to().min(piece.end));
        if from >= to {
            return Ok(());
        }
        match without(&content, from, to) {
            Some(rest) => self.replace(io, piece.chunk, rest, options),
            None => self.drop_chunks(io, piece.chunk, 1, options),
        }
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
