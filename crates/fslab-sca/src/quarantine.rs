//! Quarantine of bytes after the last complete frame, left by a crash or another program.
//!
//! This version of fslab does not recognise the bytes as frames, but they may be valuable data.
//! Before their space is used, they are copied into durable frames after them.

use std::ops::Range;

use fslab_vfs::{Errno, Result, WriteOptions};

use super::context::Io;
use super::format::{Kind, METADATA_BYTES_MAX};
use super::frame::{Frame, Identity, gap};
use super::journal::{Batch, Behind};
use super::log::Log;

/// Frames with copies of the quarantined bytes, and the gap that will replace these bytes.
pub struct Aside {
    gap: Frame,
    length: u32,
    kept: Vec<Frame>,
}

impl Log {
    /// Copies the unknown bytes in `leftover` into frames that follow them.
    pub fn copy_aside(&mut self, io: Io<'_>, leftover: &Range<u64>) -> Result<Aside> {
        self.journal.write_head(io)?;
        let header_bytes = self.identity().header_bytes() as u64;
        // The gap needs room for its own header.
        let behind = leftover.end.max(leftover.start + header_bytes);
        let length = u32::try_from(behind - leftover.start).or(Err(Errno::FBIG))?;
        let gap = self.gap_for(leftover);
        let kept = self.copies_of(io, leftover, behind, gap.last_sequence())?;
        Ok(Aside { gap, length, kept })
    }

    /// Replaces the quarantined bytes by a gap. Their copies must be durable.
    pub fn end_aside(&mut self, io: Io<'_>, leftover: &Range<u64>, aside: Aside) -> Result<()> {
        let header = gap(self.identity(), aside.gap, leftover.start, aside.length);
        io.lower.write(io.request, leftover.start, &header, WriteOptions::default())?;
        tracing::warn!(
            file = %io.lower.name(),
            offset = leftover.start,
            bytes = leftover.end - leftover.start,
            "bytes that are not a frame were quarantined; see `fslab sca dump`"
        );
        self.journal.note_behind(Behind::Nothing);
        self.journal.note_write();
        self.journal.go_on_at(leftover.start, aside.gap.last_sequence());
        self.map.note_disorder();
        aside.kept.iter().try_for_each(|frame| self.apply(io, frame, &[]))
    }

    /// Makes the gap that will replace the unknown bytes in `leftover`. The bytes may contain
    /// headers of incomplete frames. If the next crash loses the gap, a walk over these headers
    /// must not continue into the copies. So the gap covers more sequence numbers than these bytes
    /// can contain frames, and the copies' numbers do not follow those of the headers.
    fn gap_for(&self, leftover: &Range<u64>) -> Frame {
        let header_bytes = self.identity().header_bytes() as u64;
        let first = self.journal.sequence() + 1;
        let more = (leftover.end - leftover.start) / header_bytes + 1;
        Frame::gap(&(first..=first + more), self.size())
    }

    /// Copies a range into frames that begin at `behind` and follow the frame with the number
    /// `sequence`.
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
            // The hole of 128 MiB before a staging area is skipped.
            place = io.lower.next_data(io.request, place).min(range.end);
            let count = (range.end - place).min(METADATA_BYTES_MAX as u64) as usize;
            let bytes = io.lower.read(io.request, place, count)?;
            if bytes.is_empty() {
                break;
            }
            if bytes.iter().all(|byte| *byte == 0) {
                place += bytes.len() as u64;
                continue;
            }
            let new = self.metadata(Kind::Kept, place, self.size(), &bytes);
            let mut batch = Batch::new(target, sequence + frames.len() as u64);
            let frame = batch.add(self.identity(), new);
            batch.write(io)?;
            (place, target) = (place + bytes.len() as u64, frame.reference.end());
            frames.push(frame);
        }
        Ok(frames)
    }
}

/// Overwrites the remains of a header with zeros. Otherwise a crash could leave half of a gap's
/// header and half of an old header. Together they could form a valid header: that of the torn
/// frame that recovery had left out.
pub fn blank_header(io: Io<'_>, identity: &Identity, offset: u64) -> Result<()> {
    let blank = vec![0; identity.header_bytes()];
    io.lower.write(io.request, offset, &blank, WriteOptions::default())
}
