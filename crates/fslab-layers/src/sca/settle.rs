//! Leaving a stored file in order when its writers are done with it for now.

use fslab_vfs::{Errno, Result, WriteOptions};

use super::codec::Closing;
use super::context::Io;
use super::frame::{Entry, Reference};
use super::index::CLEAN_PAGES_MAX;
use super::log::Log;

/// Garbage that is given back at close, which needs a sync: from `garbage` bytes on, if it is also
/// this part of what is of use.
const GARBAGE_PART: u64 = 4;

/// Whoever opens the file next walks over the frames behind the checkpoint. So many of them are
/// worth another one, if they are small ones, as of a log that each line is written to by an
/// opening of its own: large files are copied in without waiting for the disk.
const WALK_FRAMES_MAX: u64 = 1024;

/// Frames that are smaller on average.
const SMALL_FRAME_BYTES: u64 = 1024;

/// The seek table is written if it is at most this part of what was appended since the last one.
const CLOSING_PART: u64 = 16;

impl Log {
    /// Gives space back, and ends a packed file as its format wants. A tail stays raw: encoding
    /// it would leave its pieces as garbage, which only packing can get rid of. Where there is no
    /// room, everything stays as it is, which is right too.
    pub fn settle(&mut self, io: Io<'_>) -> Result<()> {
        self.hot = None;
        match self.try_to_settle(io) {
            Err(error) if matches!(error.errno(), Errno::NOSPC | Errno::DQUOT) => Ok(()),
            answer => answer,
        }
    }

    fn try_to_settle(&mut self, io: Io<'_>) -> Result<()> {
        let garbage = self.garbage_bytes();
        let is_worth_it =
            garbage >= io.settings.garbage_bytes_max && garbage >= self.live_bytes / GARBAGE_PART;
        // Who opens the file next would find all these pages by the frames, and keep them.
        let has_many_changes = self.index.lock().changed_pages() > CLEAN_PAGES_MAX;
        if is_worth_it || has_many_changes || self.is_long_to_walk() {
            self.sync(io, true)?;
        }
        self.clean_where_due(io)?;
        self.close_packed(io)
    }

    fn is_long_to_walk(&self) -> bool {
        let frames = self.frames_since_checkpoint;
        frames > WALK_FRAMES_MAX && self.bytes_since_checkpoint < frames * SMALL_FRAME_BYTES
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
