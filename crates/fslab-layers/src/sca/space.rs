//! Giving back the space of frames that are no longer of use.
//!
//! Headers stay, so that the walk over all frames works for ever: only whole blocks of bodies are
//! punched out. Runs of small frames get one header, that of a gap. It is written over the first
//! one's, which must not be on the way of any walk that a crash may make necessary: only frames
//! before the checkpoint that was durable already take part.

use fslab_vfs::{Errno, Result, WriteOptions};

use super::context::Io;
use super::format::Kind;
use super::frame::{Draft, Reference, gap, parse};
use super::log::Log;

/// Unit in which the file system below gives space back.
const BLOCK_BYTES: u64 = 4096;

/// Frames remembered to be joined with their neighbours.
const FRAGMENTS_MAX: usize = 4096;

impl Log {
    /// Punches what is dead. Frames that end at or before `joinable` may be joined.
    pub fn give_space_back(&mut self, io: Io<'_>, joinable: u64) {
        let dead = std::mem::take(&mut self.dead);
        if let Err(error) = self.try_to_give_back(io, dead, joinable) {
            match error.errno() {
                // The file system below has no holes: space comes back with packing.
                Errno::OPNOTSUPP => {}
                _ => tracing::warn!(%error, ino = io.lower.ino.0, "could not give space back"),
            }
        }
    }

    fn try_to_give_back(&mut self, io: Io<'_>, dead: Vec<Reference>, joinable: u64) -> Result<()> {
        for frame in dead {
            self.punch(io, frame)?;
            self.fragments.push(frame);
        }
        self.fragments.sort_unstable_by_key(|frame| frame.offset);
        for run in runs(&self.fragments, joinable) {
            let joined = self.join(io, &run)?;
            let end = joined.end();
            self.fragments.retain(|frame| frame.offset < joined.offset || frame.offset >= end);
            self.fragments.push(joined);
        }
        self.fragments.truncate(FRAGMENTS_MAX);
        Ok(())
    }

    fn punch(&self, io: Io<'_>, frame: Reference) -> Result<()> {
        let body = frame.offset + self.identity.header_bytes() as u64;
        let start = body.next_multiple_of(BLOCK_BYTES);
        let end = frame.end() / BLOCK_BYTES * BLOCK_BYTES;
        if start < end { io.lower.punch(io.request, start, end - start) } else { Ok(()) }
    }

    /// Makes one gap of frames that lie one behind the other.
    fn join(&self, io: Io<'_>, run: &[Reference]) -> Result<Reference> {
        let (first, last) = (run[0], run[run.len() - 1]);
        let (from, to) = (self.sequences(io, first)?.0, self.sequences(io, last)?.1);
        let stored_length = (last.end() - first.offset) as u32;
        let draft = Draft {
            kind: Kind::Gap,
            raw: false,
            sequence: from,
            position: to - from,
            file_size: self.size,
            from: 0,
            length: 0,
        };
        let header = gap(&self.identity, &draft, first.offset, stored_length);
        io.lower.write(io.request, first.offset, &header, WriteOptions::default())?;
        let joined = Reference { offset: first.offset, stored_length, header_crc: 0 };
        self.punch(io, joined)?;
        Ok(joined)
    }

    /// The first and the last sequence that a frame stands for.
    fn sequences(&self, io: Io<'_>, frame: Reference) -> Result<(u64, u64)> {
        let header = io.lower.read(io.request, frame.offset, self.identity.header_bytes())?;
        let found = parse(&self.identity, &header, frame.offset)
            .map_err(|what| io.damaged(frame.offset, what))?;
        Ok((found.sequence, found.last_sequence()))
    }
}

/// Frames, ordered, that lie one behind the other before `joinable`, and are worth joining.
fn runs(fragments: &[Reference], joinable: u64) -> Vec<Vec<Reference>> {
    let before = fragments.iter().filter(|frame| frame.end() <= joinable).copied();
    let mut runs: Vec<Vec<Reference>> = Vec::new();
    for frame in before {
        match runs.last_mut() {
            Some(run) if run[run.len() - 1].end() == frame.offset => run.push(frame),
            _ => runs.push(vec![frame]),
        }
    }
    let bytes = |run: &[Reference]| run[run.len() - 1].end() - run[0].offset;
    let is_worth_it = |run: &Vec<Reference>| {
        run.len() > 1 && (2 * BLOCK_BYTES..u64::from(u32::MAX)).contains(&bytes(run))
    };
    runs.retain(is_worth_it);
    runs
}
