//! Making a stored file durable: checkpoints of the index, root slots, and giving space back.
//!
//! Order is everything here. Frames and the checkpoint are durable before a slot points to it;
//! space of frames that are no longer of use is given back only after that. Headers are never
//! given back, so that the walk over all frames works for ever.

use fslab_vfs::{Errno, Result, WriteOptions};
use zerocopy::{FromBytes, IntoBytes};

use super::context::Io;
use super::format::{CheckpointRecord, FLAG_IN_ORDER, Kind, SegmentRecord};
use super::frame::{Draft, Entry, Frame, Reference, append};
use super::index::Index;
use super::log::Log;
use super::roots::{Slot, write_slot};

/// Unit in which the file system below gives space back.
const BLOCK_BYTES: u64 = 4096;

impl Log {
    /// Makes everything durable, and finds everything fast after a crash.
    pub fn sync(&mut self, io: Io<'_>, data_only: bool) -> Result<()> {
        if self.frames_since_checkpoint == 0 && !self.is_unsynced {
            return io.lower.sync(io.request, data_only);
        }
        io.lower.keeping_times(io.request, || self.sync_changes(io, data_only))
    }

    fn sync_changes(&mut self, io: Io<'_>, data_only: bool) -> Result<()> {
        let retired = self.write_checkpoint(io)?;
        io.lower.sync(io.request, data_only)?;
        self.is_unsynced = false;
        let slot = Slot {
            ordinal: self.ordinal,
            checkpoint: self.checkpoint,
            sequence: self.sequence,
            file_size: self.size,
        };
        write_slot(io, &self.identity, &slot)?;
        self.give_space_back(io);
        // The other slot still leads to these: they go with the next checkpoint.
        self.dead = retired;
        Ok(())
    }

    /// Appends the changed pages of the index and a checkpoint; answers the pages replaced.
    fn write_checkpoint(&mut self, io: Io<'_>) -> Result<Vec<Reference>> {
        if self.frames_since_checkpoint == 0 && !self.checkpoint.is_none() {
            return Ok(Vec::new());
        }
        self.clear_the_end(io)?;
        let (mut out, base) = self.begin_batch();
        let mut retired = Vec::new();
        let mut frames = Vec::new();
        let root = self.build_pages(&mut out, base, &mut frames, &mut retired);
        let payload = self.checkpoint_payload(root);
        let sequence = self.sequence + frames.len() as u64 + 1;
        let packed = self.metadata(Kind::Checkpoint, 0, self.size, &payload);
        let draft = Draft { sequence, ..packed.draft };
        frames.push(append(&mut out, base, &self.identity, &draft, &packed.body));
        if let Err(error) = self.write_batch(io, base, &out, WriteOptions::default()) {
            self.index.lock().unwrite();
            return Err(error);
        }
        for frame in &frames {
            self.apply(io, frame, &[])?;
            self.checkpoint = frame.reference;
        }
        self.ordinal += 1;
        (self.frames_since_checkpoint, self.bytes_since_checkpoint) = (0, 0);
        Ok(retired)
    }

    fn build_pages(
        &self,
        out: &mut Vec<u8>,
        base: u64,
        frames: &mut Vec<Frame>,
        retired: &mut Vec<Reference>,
    ) -> Reference {
        let mut index = self.index.lock();
        index.write(
            &mut |_, first, payload| {
                let page = self.metadata(Kind::Index, first, self.size, payload);
                let sequence = self.sequence + frames.len() as u64 + 1;
                let draft = Draft { sequence, ..page.draft };
                let frame = append(out, base, &self.identity, &draft, &page.body);
                frames.push(frame);
                frame.reference
            },
            retired,
        )
    }

    fn checkpoint_payload(&self, root: Reference) -> Vec<u8> {
        let segments: Vec<SegmentRecord> = self
            .segments
            .iter()
            .flat_map(|(chunk, entries)| entries.iter().map(move |entry| (chunk, entry)))
            .map(|(chunk, entry)| SegmentRecord {
                chunk: (*chunk).into(),
                entry: entry.to_record(),
            })
            .collect();
        let record = CheckpointRecord {
            ordinal: (self.ordinal + 1).into(),
            previous: self.checkpoint.to_record(),
            root: root.to_record(),
            levels: self.index.lock().levels(),
            flags: if self.in_order { FLAG_IN_ORDER } else { 0 },
            segments: (segments.len() as u16).into(),
            zero: 0.into(),
            content_end: self.content_end.into(),
            live_bytes: self.live_bytes.into(),
        };
        [record.as_bytes(), segments.as_bytes()].concat()
    }

    /// Takes over what a checkpoint says. The frame is the checkpoint's.
    pub fn adopt(&mut self, frame: &Frame, payload: &[u8]) -> Option<()> {
        let (record, rest) = CheckpointRecord::read_from_prefix(payload).ok()?;
        let count = usize::from(record.segments.get());
        let segments = <[SegmentRecord]>::ref_from_bytes(rest).ok()?;
        if segments.len() != count || record.levels > super::format::LEVELS_MAX {
            return None;
        }
        self.segments.clear();
        for segment in segments {
            let entry = Entry::from_record(&segment.entry);
            self.segments.entry(segment.chunk.get()).or_default().push(entry);
        }
        *self.index.lock() = Index::stored(record.levels, Reference::from_record(&record.root));
        self.in_order = record.flags & FLAG_IN_ORDER != 0;
        self.content_end = record.content_end.get();
        self.live_bytes = record.live_bytes.get();
        self.ordinal = record.ordinal.get();
        self.checkpoint = frame.reference;
        self.size = frame.file_size;
        self.sequence = frame.sequence;
        self.end = frame.reference.end();
        (self.frames_since_checkpoint, self.bytes_since_checkpoint) = (0, 0);
        Some(())
    }

    /// Punches whole blocks out of the bodies of frames that are no longer of use.
    fn give_space_back(&mut self, io: Io<'_>) {
        let header_bytes = self.identity.header_bytes() as u64;
        for frame in std::mem::take(&mut self.dead) {
            let start = (frame.offset + header_bytes).next_multiple_of(BLOCK_BYTES);
            let end = frame.end() / BLOCK_BYTES * BLOCK_BYTES;
            if start >= end {
                continue;
            }
            match io.lower.punch(io.request, start, end - start) {
                Ok(()) => {}
                // The file system below has no holes: space comes back with packing.
                Err(error) if error.errno() == Errno::OPNOTSUPP => return,
                Err(error) => {
                    tracing::warn!(%error, ino = io.lower.ino.0, "could not give space back");
                    return;
                }
            }
        }
    }
}
