//! Checkpoints of the index, and the root slots that lead to them.
//!
//! A checkpoint is written at any time; a slot leads to it only once it is durable (see `commit`).

use fslab_vfs::{Errno, Result, WriteOptions};
use zerocopy::{FromBytes, IntoBytes};

use super::context::Io;
use super::format::{
    CheckpointRecord, FLAG_IN_ORDER, HEAD_BYTES, Kind, LEVELS_MAX, SEGMENTS_MAX, SIZE_MAX,
    SegmentRecord,
};
use super::frame::{Draft, Entry, Frame, Reference, append};
use super::index::Index;
use super::log::Log;
use super::roots::{Slot, write_slot};

impl Log {
    /// The slot that leads to the last checkpoint. `is_packed`: made by packing.
    pub fn slot_of_checkpoint(&self, is_packed: bool) -> Slot {
        Slot {
            ordinal: self.ordinal,
            checkpoint: self.checkpoint,
            sequence: self.sequence,
            file_size: self.size,
            is_packed,
        }
    }

    /// Writes a slot. Its checkpoint is durable.
    pub fn write_slot(&mut self, io: Io<'_>, slot: &Slot) -> Result<()> {
        write_slot(io, &self.identity, slot)?;
        (self.slotted, self.slot_ordinal) = (slot.checkpoint, slot.ordinal);
        Ok(())
    }

    /// Whether a checkpoint's slot would be the one that was written last.
    pub fn is_slot_taken(&self, ordinal: u64) -> bool {
        !self.slotted.is_none() && ordinal % 2 == self.slot_ordinal % 2
    }

    /// The number of the next checkpoint: its slot must not be the one that was written last.
    fn next_ordinal(&self) -> u64 {
        self.ordinal_behind(self.ordinal)
    }

    fn ordinal_behind(&self, ordinal: u64) -> u64 {
        let next = ordinal + 1;
        if self.is_slot_taken(next) { next + 1 } else { next }
    }

    /// The number of the last checkpoint, to be told by a log that takes this one's place and knows
    /// of no slot: the next is newer than all, and its slot not the one that was written last.
    pub fn ordinal_before_anew(&self, found: u64) -> u64 {
        self.ordinal_behind(self.ordinal.max(found)) - 1
    }

    /// Appends the changed pages of the index and a checkpoint, if any frame lies behind the last
    /// one. The pages replaced are dead once a slot leads here (see [`Log::superseded`]).
    pub fn write_checkpoint(&mut self, io: Io<'_>) -> Result<()> {
        self.encode_long_tails(io)?;
        if self.frames_since_checkpoint == 0 && !self.checkpoint.is_none() {
            return Ok(());
        }
        self.clear_the_end(io)?;
        let (mut out, base) = self.begin_batch();
        let mut retired = Vec::new();
        // The other slot leads to the checkpoint before, as long as there is no third.
        retired.extend(Some(self.checkpoint).filter(|before| !before.is_none()));
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
        self.ordinal = self.next_ordinal();
        self.frames_since_checkpoint = 0;
        self.superseded.extend(retired);
        Ok(())
    }

    /// Encodes tails as long as there are more pieces than a checkpoint may list. A writer leaves
    /// no more, but a crash may tear the frame that was to replace them, and leave those behind it.
    fn encode_long_tails(&mut self, io: Io<'_>) -> Result<()> {
        let mut count = self.segment_count();
        if count <= SEGMENTS_MAX {
            return Ok(());
        }
        let tail = |(chunk, pieces): (&u64, &Vec<Entry>)| (pieces.len(), *chunk);
        let mut tails: Vec<(usize, u64)> = self.segments.iter().map(tail).collect();
        tails.sort_unstable();
        for (pieces, chunk) in tails.into_iter().rev() {
            if count <= SEGMENTS_MAX {
                return Ok(());
            }
            // Making room at the end of the file may have encoded it already.
            if !self.segments.contains_key(&chunk) {
                count -= pieces;
                continue;
            }
            match self.encode_tail(io, chunk) {
                // What is lost stays in pieces, as long as the others make room.
                Err(error) if error.errno() == Errno::IO && !self.sync_has_failed => {}
                encoded => {
                    encoded?;
                    count -= pieces;
                }
            }
        }
        if count <= SEGMENTS_MAX { Ok(()) } else { Err(Errno::IO.into()) }
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
            ordinal: self.next_ordinal().into(),
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
        let root = Reference::from_record(&record.root);
        let is_sound = segments.len() == count
            && record.levels <= LEVELS_MAX
            && root.is_sound()
            && frame.reference.offset >= HEAD_BYTES
            && record.ordinal.get() <= SIZE_MAX;
        if !is_sound {
            return None;
        }
        self.segments.clear();
        for segment in segments {
            let entry = Entry::from_record(&segment.entry)?;
            let chunk = segment.chunk.get();
            if chunk > SIZE_MAX >> self.identity.chunk_log2 {
                return None;
            }
            self.segments.entry(chunk).or_default().push(entry);
        }
        *self.index.lock() = Index::stored(record.levels, root);
        self.in_order = record.flags & FLAG_IN_ORDER != 0;
        self.content_end = record.content_end.get();
        // Not all who wrote files of this version kept that.
        self.note_size(frame.file_size);
        self.live_bytes = record.live_bytes.get().min(SIZE_MAX);
        self.ordinal = record.ordinal.get();
        self.checkpoint = frame.reference;
        (self.slotted, self.slot_ordinal) = (frame.reference, self.ordinal);
        self.size = frame.file_size;
        self.sequence = frame.sequence;
        self.end = frame.reference.end();
        (self.frames_since_checkpoint, self.committed_end) = (0, self.end);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Identity;
    use super::*;

    fn adopted(content_end: u64, size: u64) -> Log {
        let identity = Identity::from_stored(1, 12, 7).unwrap();
        let mut log = Log::new(identity);
        (log.content_end, log.size) = (content_end, size);
        let payload = log.checkpoint_payload(Reference::NONE);
        let new = log.metadata(Kind::Checkpoint, 0, size, &payload);
        let frame = append(&mut Vec::new(), 1024, &identity, &new.draft, &new.body);
        let mut found = Log::new(identity);
        found.adopt(&frame, &payload).unwrap();
        found
    }

    /// Checkpoints of files that were cut shorter used to say so.
    #[test]
    fn content_that_ends_behind_the_file_is_not_in_order() {
        assert!(adopted(5000, 5000).in_order && adopted(5000, 6000).in_order);
        assert!(!adopted(5000, 4000).in_order);
    }
}
