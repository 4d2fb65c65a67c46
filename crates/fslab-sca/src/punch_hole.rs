//! Makes ranges read as zeros: complete chunks become holes, partly covered chunks are rewritten.

use fslab_vfs::{Result, WriteOptions};

use super::context::Io;
use super::frame::NewFrame;
use super::log::Log;
use super::reader::{Piece, pieces};

impl Log {
    /// Makes a range read as zeros. Chunks that lie in it entirely become holes; the others are
    /// rewritten.
    pub fn zero(
        &mut self,
        io: Io<'_>,
        offset: u64,
        length: u64,
        options: WriteOptions,
    ) -> Result<()> {
        let end = offset.saturating_add(length).min(self.size());
        if offset >= end {
            return Ok(());
        }
        let chunk_bytes = self.map.chunk_bytes();
        // Bytes past the end of the file read as zeros already, so the last chunk counts as
        // complete.
        let whole_end =
            if end == self.size() { end.div_ceil(chunk_bytes) } else { end / chunk_bytes };
        let whole = offset.div_ceil(chunk_bytes)..whole_end;
        let mut frames = Vec::new();
        for piece in self.edges(offset, end, &whole) {
            frames.extend(self.zeroed(io, piece)?);
        }
        let present =
            if whole.is_empty() { None } else { self.map.next_present(io, whole.start)? };
        if present.is_some_and(|chunk| chunk < whole.end) {
            let rest = self.drop_but_for_the_rest(io, whole.clone(), options)?;
            frames.push(self.hole(rest..whole.end));
        }
        // All frames are written with one call, so a full disk leaves the file unchanged.
        self.map.cool_down();
        self.append_frames(io, frames, options)
    }

    /// Returns the parts of a range that lie in partly zeroed chunks; at most two.
    fn edges(&self, offset: u64, end: u64, whole: &std::ops::Range<u64>) -> Vec<Piece> {
        let chunk_bytes = self.map.chunk_bytes();
        if whole.is_empty() {
            return pieces(chunk_bytes, offset, end - offset).collect();
        }
        let first_whole = whole.start * chunk_bytes;
        let behind_whole = (whole.end * chunk_bytes).min(end);
        let before = pieces(chunk_bytes, offset, first_whole.saturating_sub(offset));
        before.chain(pieces(chunk_bytes, behind_whole, end - behind_whole)).collect()
    }

    /// Returns a frame that makes a piece read as zeros, or `None` if it already does.
    fn zeroed(&self, io: Io<'_>, piece: Piece) -> Result<Option<NewFrame>> {
        let content = self.map.chunk_content(io, piece.chunk)?;
        let (from, to) = (content.from.max(piece.start), content.to().min(piece.end));
        if from >= to {
            return Ok(None);
        }
        let frame = match content.without(from, to) {
            Some(rest) => self.encoded(io, piece.chunk, &rest)?,
            None => self.hole(piece.chunk..piece.chunk + 1),
        };
        Ok(Some(frame))
    }
}
