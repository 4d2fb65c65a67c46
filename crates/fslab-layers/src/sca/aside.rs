//! Bytes behind the last whole frame: what a crash or another program left there.
//!
//! They are no frame that this version knows, but they may be somebody's data. Before their space
//! is used, they are copied into frames behind them, and these are made durable.

use std::ops::Range;

use fslab_vfs::{Errno, Result, WriteOptions};

use super::context::Io;
use super::format::{Kind, METADATA_BYTES_MAX};
use super::frame::{Draft, Frame, Identity, append, gap};
use super::log::Log;
use super::roots::{mend_head, new_head};

/// Copies of bytes behind the end, and the gap that they become.
pub struct Aside {
    draft: Draft,
    length: u32,
    kept: Vec<Frame>,
}

impl Log {
    /// Prepares the end for a frame, where nothing must be durable for that.
    pub fn clear_the_end(&mut self, io: Io<'_>) -> Result<()> {
        if !self.is_end_clear() {
            // Callers clear the end first, by `commit::clear_end`.
            return Err(io.damaged(self.end, "bytes where the next frame goes"));
        }
        if self.head_is_damaged {
            mend_head(io, &self.identity)?;
            self.head_is_damaged = false;
        }
        if self.closing_bytes > 0 {
            io.lower.truncate(io.request, self.end)?;
            self.closing_bytes = 0;
        }
        Ok(())
    }

    /// Copies bytes behind the end into frames behind them.
    pub fn copy_aside(&mut self, io: Io<'_>, leftover: &Range<u64>) -> Result<Aside> {
        if !self.has_head {
            let head = new_head(&self.identity);
            io.lower.write(io.request, 0, &head, WriteOptions::default())?;
            self.has_head = true;
        }
        let header_bytes = self.identity.header_bytes() as u64;
        // The gap needs room for its own header.
        let behind = leftover.end.max(leftover.start + header_bytes);
        let length = u32::try_from(behind - leftover.start).or(Err(Errno::FBIG))?;
        let draft = self.gap_draft(leftover);
        let sequence = draft.sequence + draft.position + 1;
        let kept = self.copies_of(io, leftover, behind, sequence)?;
        Ok(Aside { draft, length, kept })
    }

    /// Makes a gap of bytes whose copies are durable.
    pub fn end_aside(&mut self, io: Io<'_>, leftover: &Range<u64>, aside: Aside) -> Result<()> {
        let Aside { draft, length, kept } = aside;
        let header = gap(&self.identity, &draft, leftover.start, length);
        io.lower.write(io.request, leftover.start, &header, WriteOptions::default())?;
        tracing::warn!(
            file = %io.lower.name(),
            offset = leftover.start,
            bytes = leftover.end - leftover.start,
            "bytes that are no frame were kept aside; see `fslab sca dump`"
        );
        self.leftover = None;
        self.writes += 1;
        (self.in_order, self.sequence) = (false, draft.sequence + draft.position);
        kept.iter().try_for_each(|frame| self.apply(io, frame, &[]))
    }

    /// The gap stands for more sequences than there can be frames in the leftover. Headers of
    /// frames that are not whole may be in it: if the gap does not survive the next crash, the walk
    /// over them must not go on into the copies, as if they had been written behind them.
    fn gap_draft(&self, leftover: &Range<u64>) -> Draft {
        Draft {
            kind: Kind::Gap,
            raw: false,
            sequence: self.sequence + 1,
            position: (leftover.end - leftover.start) / self.identity.header_bytes() as u64 + 1,
            file_size: self.size,
            from: 0,
            length: 0,
        }
    }

    /// Copies a range into frames that begin at `behind`, the first of them with `sequence`.
    fn copies_of(
        &self,
        io: Io<'_>,
        range: &Range<u64>,
        behind: u64,
        sequence: u64,
    ) -> Result<Vec<Frame>> {
        let (mut place, mut target) = (range.start, behind);
        let mut frames = Vec::new();
        while place < range.end {
            let count = (range.end - place).min(METADATA_BYTES_MAX as u64) as usize;
            let bytes = io.lower.read(io.request, place, count)?;
            if bytes.is_empty() {
                break;
            }
            let new = self.metadata(Kind::Kept, place, self.size, &bytes);
            let sequence = sequence + frames.len() as u64;
            let draft = Draft { sequence, ..new.draft };
            let mut out = Vec::new();
            let frame = append(&mut out, target, &self.identity, &draft, &new.body);
            io.lower.write(io.request, target, &out, WriteOptions::default())?;
            (place, target) = (place + bytes.len() as u64, frame.reference.end());
            frames.push(frame);
        }
        Ok(frames)
    }
}

/// Overwrites the rest of a header with zeros. A gap's header that a crash tears would else be
/// mixed with it, and the two can add up to a whole header: that of the frame which the crash
/// before had torn, and which was left out.
pub fn blank_header(io: Io<'_>, identity: &Identity, offset: u64) -> Result<()> {
    let blank = vec![0; identity.header_bytes()];
    io.lower.write(io.request, offset, &blank, WriteOptions::default())
}

/// Whether a range holds nothing at all.
pub fn is_zero(io: Io<'_>, range: &Range<u64>) -> Result<bool> {
    const STEP: u64 = 1 << 20;
    let mut place = range.start;
    while place < range.end {
        let bytes = io.lower.read(io.request, place, (range.end - place).min(STEP) as usize)?;
        if bytes.is_empty() {
            break;
        }
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        place += bytes.len() as u64;
    }
    Ok(true)
}
