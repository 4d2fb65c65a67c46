//! The parts of a stored file that a tool finds, and those known to be missing.
//!
//! Invariant: a tool may show a file that a mount would refuse, but it then always reports missing
//! parts.

use std::ops::Range;

use fslab_vfs::Result;

use super::{Finding, Tool};
use crate::frame::{Frame, parse};
use crate::journal::Behind;
use crate::log::Log;
use crate::recovery::{self, Walk};
use crate::size_xattr::Clean;
use crate::superblock;

/// Bytes searched for a frame at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// The message for unknown bytes after the last frame. [`Tool::check`] uses it too.
pub(super) const NO_FRAME: &str = "bytes that are not a frame, up to the end of the file";
const LEFT_OUT: &str = "incomplete frames after the last checkpoint: their content is missing \
                        or has an older version";
const TORN: &str = "incomplete content at the end of the file, left by a crash or by damage";
const CUT_SHORT: &str = "the last frames are missing or were changed after the file was closed";

/// A stored file and its missing parts.
pub struct Found {
    pub log: Log,
    /// The logical size: that in the size xattr, if this xattr describes other frames than were
    /// found.
    pub size: u64,
    pub missing: Vec<Finding>,
}

impl Tool {
    /// Opens the file as the next mount would. If a mount would refuse the file, finds as many
    /// frames as possible.
    pub(super) fn found(&self) -> Result<Found> {
        let believed = self.mark.filter(|clean| clean.holds(self.length, &self.session));
        if let Some(Ok(log)) = believed.map(|clean| self.open_log(Some(&clean))) {
            return Ok(Found { size: log.size(), log, missing: Vec::new() });
        }
        self.open_log(None).and_then(|log| self.judged(log))
    }

    /// Finds the frames like [`Self::found`], but without slots and index.
    pub(super) fn found_by_frames(&self) -> Result<Found> {
        let log = recovery::by_frames(self.io(), self.identity, self.length)?;
        self.judged(log)
    }

    fn open_log(&self, mark: Option<&Clean>) -> Result<Log> {
        let io = self.io();
        let beginning = io.lower.read(io.request, 0, superblock::BEGINNING_BYTES)?;
        recovery::open(io, self.identity, &beginning, self.length, mark)
    }

    /// Determines the missing parts of a file that was opened without a trusted size xattr.
    fn judged(&self, log: Log) -> Result<Found> {
        let mut missing = Vec::new();
        let mut tell = |offset, what: &str| missing.push(finding(offset, what));
        if log.journal.has_left_out() {
            tell(log.end(), LEFT_OUT);
        }
        if recovery::ends_torn(self.io(), &log, self.length)? {
            tell(log.end(), TORN);
        } else if self.has_rest(&log)? {
            tell(log.end(), NO_FRAME);
        }
        let disagreeing = self.mark.filter(|clean| self.disagrees(clean, &log));
        if disagreeing.is_some() {
            tell(log.end(), CUT_SHORT);
        }
        let size = disagreeing.map_or(log.size(), |clean| clean.file_size);
        Ok(Found { log, size, missing })
    }

    /// Whether the data after the last frame may be the remains of frames.
    fn has_rest(&self, log: &Log) -> Result<bool> {
        // Superseded content, which a crash after packing may leave there, does not count as
        // remains of frames.
        let Behind::Unknown(rest) = log.journal.behind() else { return Ok(false) };
        Ok(!self.lower.is_zero(&self.request, rest)?)
    }

    /// Whether the size xattr describes other frames than were found. If the xattr records another
    /// length, the file was changed later, and need not match. But a file never loses the frames
    /// that it had when the xattr was set.
    fn disagrees(&self, clean: &Clean, log: &Log) -> bool {
        let is_other = (clean.file_size, clean.sequence) != (log.size(), log.journal.sequence());
        is_other && (clean.stored_length == self.length || clean.sequence > log.journal.sequence())
    }

    /// Continues after unknown bytes with the next frame of this file. A frame is accepted only at
    /// the offset that its header records. Content can't imitate a frame, because the file's id
    /// can't be predicted.
    pub(super) fn go_on(&self, found: Found) -> Result<Found> {
        let (mut log, mut at, mut passed) = (found.log, 0, Vec::new());
        if !self.has_rest(&log)? {
            return Ok(Found { log, ..found });
        }
        while let Some(frame) = self.next_frame(at.max(log.end() + 1), &log)? {
            let gap = log.end()..frame.reference.offset;
            at = gap.end + 1;
            log.journal.go_on_at(gap.end, frame.sequence - 1);
            log.map.note_disorder();
            Walk::new(self.io(), self.length, false).run(&mut log)?;
            passed.push(gap);
        }
        log.journal.note_behind(match log.end() < self.length {
            true => Behind::Unknown(log.end()..self.length),
            false => Behind::Nothing,
        });
        let mut found = self.judged(log)?;
        found.missing.extend(passed.iter().map(passed_over));
        Ok(found)
    }

    /// Returns the first frame at or after `from` that is newer than all frames found so far.
    fn next_frame(&self, from: u64, log: &Log) -> Result<Option<Frame>> {
        let header_bytes = self.identity.header_bytes();
        let mut start = from;
        while start + header_bytes as u64 <= self.length {
            let io = self.io();
            let bytes = io.lower.read(io.request, start, WINDOW_BYTES)?;
            let headers = bytes.windows(header_bytes).zip(start..);
            let mut frames =
                headers.filter_map(|(header, at)| parse(&self.identity, header, at).ok());
            let fits = |frame: &Frame| {
                frame.sequence > log.journal.sequence() && frame.reference.end() <= self.length
            };
            if let Some(frame) = frames.find(fits) {
                return Ok(Some(frame));
            }
            start += (bytes.len() + 1).saturating_sub(header_bytes).max(1) as u64;
        }
        Ok(None)
    }
}

fn finding(offset: u64, what: &str) -> Finding {
    Finding { offset, chunk: None, what: what.to_owned() }
}

fn passed_over(gap: &Range<u64>) -> Finding {
    let bytes = gap.end - gap.start;
    let what = format!(
        "{bytes} bytes that are not a frame: their content is missing or has an older version"
    );
    finding(gap.start, &what)
}
