//! Leaving a stored file in order when its writers are done with it for now.

use fslab_vfs::{Result, WriteOptions};

use super::codec::Closing;
use super::context::{Io, Settings, is_full};
use super::format::HEAD_BYTES;
use super::frame::{Entry, Reference};
use super::log::Log;
use super::recovery::reads_of_walk;

/// Garbage that is given back at close, which needs a sync: from `garbage` bytes on, if it is also
/// this part of what is of use.
const GARBAGE_PART: u64 = 4;

/// Whoever opens the file next walks over the frames behind the checkpoint, unless they are few
/// enough to be passed by so many reads.
const WALK_READS_MAX: u64 = 2;

/// The seek table is written if it is at most this part of what was appended since the last one.
const CLOSING_PART: u64 = 16;

impl Log {
    /// Whether there is so much to give back at close that it is worth a sync.
    pub fn wants_commit_at_close(&self, settings: &Settings) -> bool {
        let garbage = self.garbage_bytes();
        garbage >= settings.garbage_bytes_max && garbage >= self.live_bytes / GARBAGE_PART
    }

    /// Ends a file with a checkpoint, if the way to its last frame is long, and a packed one as its
    /// format wants. A tail stays raw: encoding it would leave its pieces as garbage, which only
    /// packing can get rid of. Where there is no room, everything stays as it is, which is right
    /// too.
    pub fn settle(&mut self, io: Io<'_>) -> Result<()> {
        self.hot = None;
        if !self.is_end_clear() {
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
            self.index.lock().trim();
        }
        self.close_packed(io)
    }

    /// Whether more reads than a few lead from the last checkpoint to the last frame.
    fn is_long_to_walk(&self) -> bool {
        let start = if self.checkpoint.is_none() { HEAD_BYTES } else { self.checkpoint.end() };
        let bytes = self.end.saturating_sub(start);
        reads_of_walk(self.frames_since_checkpoint, bytes) > WALK_READS_MAX
    }

    fn close_packed(&mut self, io: Io<'_>) -> Result<()> {
        let Some(closing) = self.identity.codec.container.closing else { return Ok(()) };
        if !self.is_packed() || self.closing_bytes > 0 || self.size == 0 {
            return Ok(());
        }
        let chunks = self.size.div_ceil(self.chunk_bytes());
        let estimate = chunks * 16;
        if estimate > 4096 && estimate > self.bytes_since_closing / CLOSING_PART {
            return Ok(());
        }
        let table = self.closing(io, closing)?;
        io.lower.keeping_all(io.request, || self.append_closing(io, &table))
    }

    fn append_closing(&mut self, io: Io<'_>, table: &[u8]) -> Result<()> {
        if let Err(error) = io.lower.write(io.request, self.end, table, WriteOptions::default()) {
            io.lower.truncate(io.request, self.end)?;
            return Err(error);
        }
        self.closing_bytes = table.len() as u64;
        self.bytes_since_closing = 0;
        Ok(())
    }

    /// What ends a packed file.
    pub fn closing(&self, io: Io<'_>, closing: Closing) -> Result<Vec<u8>> {
        Ok(closing(&self.frames_in_order(io)?))
    }

    /// Lengths of everything in the stored file, as the tools see it: encoded and decoded.
    fn frames_in_order(&self, io: Io<'_>) -> Result<Vec<(u32, u32)>> {
        let header_bytes = self.identity.header_bytes() as u32;
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
        while let Some(chunk) = self.next_present(io, next)? {
            let segments = self.segments.get(&chunk).into_iter().flatten().copied();
            let entries: Vec<Entry> = self.entry(io, chunk)?.into_iter().chain(segments).collect();
            entries.iter().for_each(|entry| add(entry.frame, entry.to - entry.from));
            next = chunk + 1;
            passed += 1;
            self.trim_after(passed);
        }
        self.index.lock().trim();
        add(Reference { offset: self.end, stored_length: 0, header_crc: 0 }, 0);
        Ok(frames)
    }
}
