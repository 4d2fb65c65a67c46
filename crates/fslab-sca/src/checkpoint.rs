//! Writes and loads checkpoints of the index, and writes the slots that point to them.
//!
//! A checkpoint can be written at any time; a slot points to it only once it is durable (see
//! `commit`).

use fslab_vfs::{Errno, Result, WriteOptions};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::commit_state::CommitState;
use super::context::Io;
use super::format::{CheckpointRecord, HEAD_BYTES, Kind, SEGMENTS_MAX, SIZE_MAX, SegmentRecord};
use super::frame::{Frame, Reference};
use super::journal::Batch;
use super::log::Log;
use super::superblock::{Slot, write_slot};

impl Log {
    /// Makes the slot for the last checkpoint. `is_packed` is set if packing wrote the checkpoint.
    pub fn slot_of_checkpoint(&self, is_packed: bool) -> Slot {
        self.commits.slot((self.journal.sequence(), self.size()), is_packed)
    }

    /// Writes a slot whose checkpoint is durable.
    pub fn write_slot(&mut self, io: Io<'_>, slot: &Slot) -> Result<()> {
        write_slot(io, self.identity(), slot)?;
        self.commits.note_slot(slot);
        Ok(())
    }

    /// Appends the changed index pages and a checkpoint, if any frame follows the last checkpoint.
    /// The replaced pages and the old checkpoint become dead once a slot points to the new
    /// checkpoint (see [`super::dead_frames::Garbage`]).
    pub fn write_checkpoint(&mut self, io: Io<'_>) -> Result<()> {
        self.encode_long_tails(io)?;
        if self.commits.is_current() {
            return Ok(());
        }
        self.journal.prepare_end(io)?;
        let before = self.commits.checkpoint();
        // The previous checkpoint is not dead yet, because the other slot points to it until a
        // third checkpoint is written.
        let mut retired = Vec::from_iter(Some(before).filter(|before| !before.is_none()));
        let mut batch = self.journal.begin(0);
        let root = self.build_pages(&mut batch, &mut retired);
        let payload = self.checkpoint_payload(root);
        let new = self.metadata(Kind::Checkpoint, 0, self.size(), &payload);
        let checkpoint = batch.add(self.identity(), new).reference;
        // Only the write can have failed, because applying index frames can't fail.
        if let Err(error) = self.append(io, &batch, WriteOptions::default()) {
            self.map.unwrite_pages();
            return Err(error);
        }
        self.commits.note_checkpoint(checkpoint);
        self.garbage.add_superseded(retired);
        Ok(())
    }

    /// Encodes tails until at most `SEGMENTS_MAX` raw pieces remain, because a checkpoint can't
    /// list more. Writers never exceed this number. But a crash may tear the frame that replaces
    /// old pieces, and keep the pieces written after it.
    fn encode_long_tails(&mut self, io: Io<'_>) -> Result<()> {
        let mut count = self.map.segment_count();
        if count <= SEGMENTS_MAX {
            return Ok(());
        }
        let mut tails: Vec<(usize, u64)> =
            self.map.tails().map(|(chunk, pieces)| (pieces, chunk)).collect();
        tails.sort_unstable();
        for (pieces, chunk) in tails.into_iter().rev() {
            if count <= SEGMENTS_MAX {
                return Ok(());
            }
            // A tail without remaining pieces needs no encoding.
            if self.map.segments(chunk).is_empty() {
                count -= pieces;
                continue;
            }
            match self.encode_tail(io, chunk) {
                // A damaged tail may remain in pieces, if encoding the other tails is enough.
                Err(error) if error.errno() == Errno::IO && !self.commits.sync_has_failed() => {}
                encoded => {
                    encoded?;
                    count -= pieces;
                }
            }
        }
        if count <= SEGMENTS_MAX { Ok(()) } else { Err(Errno::IO.into()) }
    }

    fn build_pages(&self, batch: &mut Batch, retired: &mut Vec<Reference>) -> Reference {
        self.map.write_pages(
            &mut |_, first, payload| {
                let page = self.metadata(Kind::Index, first, self.size(), payload);
                batch.add(self.identity(), page).reference
            },
            retired,
        )
    }

    fn checkpoint_payload(&self, root: Reference) -> Vec<u8> {
        let mut record = CheckpointRecord::new_zeroed();
        record.ordinal = self.commits.next_ordinal().into();
        record.previous = self.commits.checkpoint().to_record();
        record.root = root.to_record();
        let segments = self.map.describe(&mut record);
        [record.as_bytes(), segments.as_bytes()].concat()
    }

    /// Loads the state that the checkpoint in `frame` records. `payload` is the frame's payload.
    pub fn adopt(&mut self, frame: &Frame, payload: &[u8]) -> Option<()> {
        let (record, rest) = CheckpointRecord::read_from_prefix(payload).ok()?;
        let segments = <[SegmentRecord]>::ref_from_bytes(rest).ok()?;
        let ordinal = record.ordinal.get();
        if frame.reference.offset < HEAD_BYTES || ordinal > SIZE_MAX {
            return None;
        }
        self.map.adopt(&record, segments, frame.file_size)?;
        self.commits = CommitState::at_checkpoint(ordinal, frame.reference);
        self.journal.go_on_at(frame.reference.end(), frame.sequence);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::FLAG_IN_ORDER;
    use super::super::frame::{Identity, append};
    use super::*;

    /// Returns a log of size `size`, from a checkpoint whose content ends at `content_end`.
    fn adopted(content_end: u64, size: u64) -> Log {
        let identity = Identity::from_stored(1, 12, 7).unwrap();
        let mut record = CheckpointRecord::new_zeroed();
        (record.ordinal, record.flags) = (1.into(), FLAG_IN_ORDER);
        record.content_end = content_end.into();
        let payload = record.as_bytes();
        let new = Log::new(identity).metadata(Kind::Checkpoint, 0, size, payload);
        let frame = append(&mut Vec::new(), 1024, &identity, new.frame, &new.body);
        let mut found = Log::new(identity);
        found.adopt(&frame, payload).unwrap();
        found
    }

    /// Older versions of fslab set the flag `FLAG_IN_ORDER` even for truncated files.
    #[test]
    fn content_past_the_end_of_file_is_not_in_order() {
        let in_order = |content_end, size| adopted(content_end, size).map.is_in_order();
        assert!(in_order(5000, 5000) && in_order(5000, 6000));
        assert!(!in_order(5000, 4000));
    }
}
