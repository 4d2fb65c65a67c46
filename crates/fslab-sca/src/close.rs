//! Leaves a stored file in order when its writers close it.

use fslab_vfs::Result;

use super::codec::Closing;
use super::context::{Io, is_full};
use super::format::HEAD_BYTES;
use super::frame::Reference;
use super::log::Log;
use super::recovery::reads_of_walk;

/// Reads that may lie between the last checkpoint and the end of a settled file. The next open
/// walks over the frames in between.
const WALK_READS_MAX: u64 = 2;

/// Frames that may lie there. Each costs every open some 0.1 us. A file that is reopened for each
/// small append would pay for all of them each time.
const WALK_FRAMES_MAX: u64 = 256;

/// The seek table is written if it is at most this fraction of the bytes appended since the last
/// one.
const CLOSING_PART: u64 = 16;

impl Log {
    /// Ends a file with a checkpoint if the walk to its last frame is long, and ends a packed file
    /// as its format requires. A tail stays raw: encoding it would turn its pieces into garbage
    /// that only packing removes. On a full disk, the file stays as it is, which is also valid.
    pub fn settle(&mut self, io: Io<'_>) -> Result<()> {
        self.map.cool_down();
        if !self.journal.is_end_clear() {
            return Ok(());
        }
        match self.try_to_settle(io) {
            Err(error) if is_full(&error) => Ok(()),
            answer => answer,
        }
    }

    fn try_to_settle(&mut self, io: Io<'_>) -> Result<()> {
        if self.is_long_to_walk() {
            io.lower.keeping_all(io.request, || self.write_checkpoint(io))?;
            self.map.trim();
        }
        self.close_packed(io)
    }

    /// Whether the walk from the last checkpoint to the last frame exceeds the limits.
    fn is_long_to_walk(&self) -> bool {
        let checkpoint = self.commits.checkpoint();
        let start = if checkpoint.is_none() { HEAD_BYTES } else { checkpoint.end() };
        let bytes = self.end().saturating_sub(start);
        let frames = self.commits.frames_since();
        frames > WALK_FRAMES_MAX || reads_of_walk(frames, bytes) > WALK_READS_MAX
    }

    fn close_packed(&mut self, io: Io<'_>) -> Result<()> {
        let Some(closing) = self.identity().codec.container.closing else { return Ok(()) };
        if !self.is_packed() || self.journal.closing_bytes() > 0 || self.size() == 0 {
            return Ok(());
        }
        // A table helps to seek to a chunk, and would triple the calls to write a small file.
        let chunks = self.size().div_ceil(self.map.chunk_bytes());
        if chunks == 1 {
            return Ok(());
        }
        let estimate = chunks * 16;
        if estimate > 4096 && estimate > self.journal.bytes_since_closing() / CLOSING_PART {
            return Ok(());
        }
        let table = self.closing(io, closing)?;
        io.lower.keeping_all(io.request, || self.journal.write_closing(io, &table))
    }

    /// The end of a packed file.
    pub fn closing(&self, io: Io<'_>, closing: Closing) -> Result<Vec<u8>> {
        Ok(closing(&self.frames_in_order(io)?))
    }

    /// Encoded and decoded lengths of everything in the stored file, as the tools see it.
    fn frames_in_order(&self, io: Io<'_>) -> Result<Vec<(u32, u32)>> {
        let header_bytes = self.identity().header_bytes() as u32;
        let mut frames = Vec::new();
        let mut place = 0;
        let mut add = |frame: Reference, length: u32| {
            if frame.offset > place {
                frames.push(((frame.offset - place).min(u64::from(u32::MAX)) as u32, 0));
            }
            if length > 0 {
                frames.push((header_bytes, 0));
                frames.push((frame.stored_length.saturating_sub(header_bytes), length));
            }
            place = frame.end();
        };
        let (mut next, mut passed) = (0, 0);
        while let Some(chunk) = self.map.next_present(io, next)? {
            self.map
                .entries(io, chunk)?
                .iter()
                .for_each(|entry| add(entry.frame, entry.to - entry.from));
            next = chunk + 1;
            passed += 1;
            self.map.trim_after(passed);
        }
        self.map.trim();
        add(Reference { offset: self.end(), stored_length: 0, header_crc: 0 }, 0);
        Ok(frames)
    }
}
