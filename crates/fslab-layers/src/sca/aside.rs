//! Bytes behind the last whole frame: what a crash or another program left there.
//!
//! They are no frame that this version knows, but they may be somebody's data. Before their space
//! is used, they are copied into frames behind them, and these are made durable.

use std::ops::Range;

use fslab_vfs::{Errno, Result, WriteOptions};

use super::context::Io;
use super::format::{Kind, METADATA_BYTES_MAX};
use super::frame::{Draft, Frame, append, gap};
use super::log::Log;
use super::roots::{mend_head, new_head};

impl Log {
    /// Makes sure that nothing lies where the next frame goes.
    pub fn clear_the_end(&mut self, io: Io<'_>) -> Result<()> {
        if self.head_is_damaged {
            mend_head(io, &self.identity)?;
            self.head_is_damaged = false;
        }
        if self.closing_bytes > 0 {
            io.lower.truncate(io.request, self.end)?;
            self.closing_bytes = 0;
        }
        if self.is_superseding {
            self.cut_off_superseded(io)?;
        }
        if let Some(leftover) = self.leftover.clone() {
            self.keep_aside(io, leftover)?;
        }
        if std::mem::take(&mut self.has_left_out) {
            // What was decided once must not be decided again with other frames behind it.
            self.sync(io, true)?;
        }
        Ok(())
    }

    fn keep_aside(&mut self, io: Io<'_>, leftover: Range<u64>) -> Result<()> {
        if is_zero(io, &leftover)? {
            io.lower.truncate(io.request, leftover.start)?;
            self.leftover = None;
            return Ok(());
        }
        if !self.has_head {
            let head = new_head(&self.identity);
            io.lower.write(io.request, 0, &head, WriteOptions::default())?;
            self.has_head = true;
        }
        let header_bytes = self.identity.header_bytes() as u64;
        // The gap needs room for its own header.
        let behind = leftover.end.max(leftover.start + header_bytes);
        let length = u32::try_from(behind - leftover.start).or(Err(Errno::FBIG))?;
        let draft = self.gap_draft(&leftover);
        let kept = self.copy_aside(io, &leftover, behind, draft.sequence + draft.position + 1)?;
        io.lower.sync(io.request, false)?;
        self.blank_header(io, leftover.start)?;
        let header = gap(&self.identity, &draft, leftover.start, length);
        io.lower.write(io.request, leftover.start, &header, WriteOptions::default())?;
        tracing::warn!(
            file = %io.lower.name(),
            offset = leftover.start,
            bytes = leftover.end - leftover.start,
            "bytes that are no frame were kept aside; see `fslab sca dump`"
        );
        self.leftover = None;
        self.is_unsynced = true;
        (self.in_order, self.sequence) = (false, draft.sequence + draft.position);
        kept.iter().try_for_each(|frame| self.apply(io, frame, &[]))
    }

    /// Takes away what is left of a header, for good. A gap's header that a crash tears would else
    /// be mixed with it, and the two can add up to a whole header: that of the frame which the
    /// crash before had torn, and which was left out.
    fn blank_header(&self, io: Io<'_>, offset: u64) -> Result<()> {
        let blank = vec![0; self.identity.header_bytes()];
        io.lower.write(io.request, offset, &blank, WriteOptions::default())?;
        io.lower.sync(io.request, false)
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
    fn copy_aside(
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
