//! Records which part of a stored file is durable: checkpoints, the slots that point to them, and
//! syncs.

use super::format::HEAD_BYTES;
use super::frame::Reference;
use super::superblock::Slot;

/// Checkpoints and syncs of one file. Only commits (see `commit`) and checkpoints change this
/// state.
pub struct CommitState {
    /// The last checkpoint: its ordinal number and its reference.
    ordinal: u64,
    checkpoint: Reference,
    /// The checkpoint of the slot written last, and that slot's number.
    slotted: Reference,
    slot_ordinal: u64,
    /// Frames written since the last checkpoint.
    frames_since: u64,
    /// End of the file at the last commit.
    end: u64,
    /// Number of writes to the lower file when everything was last durable.
    durable_writes: u64,
    /// Whether a commit is due because of the amount written since the last one.
    is_due: bool,
    /// Whether a sync of the lower file has failed.
    sync_has_failed: bool,
}

impl CommitState {
    /// Makes the state of a file without frames.
    pub fn new() -> Self {
        Self {
            ordinal: 0,
            checkpoint: Reference::NONE,
            slotted: Reference::NONE,
            slot_ordinal: 0,
            frames_since: 0,
            end: HEAD_BYTES,
            durable_writes: 0,
            is_due: false,
            sync_has_failed: false,
        }
    }

    /// Makes the state of a packed copy. Its checkpoint must not use the slot that was written
    /// last.
    pub fn of_copy(&self) -> Self {
        let Self { ordinal, slotted, slot_ordinal, .. } = *self;
        Self { ordinal, slotted, slot_ordinal, ..Self::new() }
    }

    /// Makes the state at a checkpoint that was found through a slot.
    pub fn at_checkpoint(ordinal: u64, checkpoint: Reference) -> Self {
        let (slotted, slot_ordinal, end) = (checkpoint, ordinal, checkpoint.end());
        Self { ordinal, checkpoint, slotted, slot_ordinal, end, ..Self::new() }
    }

    /// Sets the newest slot, if any, of a file whose checkpoint was found in another way.
    pub fn with_slot(self, slot: Option<&Slot>) -> Self {
        let slotted = slot.map_or(Reference::NONE, |slot| slot.checkpoint);
        let slot_ordinal = slot.map_or(0, |slot| slot.ordinal);
        let end = if slotted.is_none() { HEAD_BYTES } else { slotted.end() };
        Self { slotted, slot_ordinal, end, ordinal: self.ordinal.max(slot_ordinal), ..self }
    }

    /// Makes the state of a log that was rebuilt without slots and replaces this one. Its next
    /// checkpoint is newer than all others and does not use the slot written last. The record of a
    /// failed sync is kept.
    pub fn anew(&self, found: Self) -> Self {
        let ordinal = self.ordinal_behind(self.ordinal.max(found.ordinal)) - 1;
        Self { ordinal, sync_has_failed: self.sync_has_failed, ..found }
    }

    pub fn checkpoint(&self) -> Reference {
        self.checkpoint
    }

    pub fn slotted(&self) -> Reference {
        self.slotted
    }

    pub fn frames_since(&self) -> u64 {
        self.frames_since
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Marks a commit as due.
    pub fn ask(&mut self) {
        self.is_due = true;
    }

    pub fn sync_has_failed(&self) -> bool {
        self.sync_has_failed
    }

    /// Records a failed sync of the lower file, after which it is unknown which writes are durable.
    pub fn note_failed_sync(&mut self) {
        self.sync_has_failed = true;
    }

    /// Whether some of the first `writes` writes are not known to be durable.
    pub fn is_unsynced(&self, writes: u64) -> bool {
        writes != self.durable_writes
    }

    /// Records that the first `writes` writes are durable.
    pub fn note_durable(&mut self, writes: u64) {
        self.durable_writes = self.durable_writes.max(writes);
    }

    /// Whether the first `writes` writes are durable and a slot covers all of them.
    pub fn is_committed(&self, writes: u64) -> bool {
        let is_led_to = self.frames_since == 0 && self.slotted == self.checkpoint;
        is_led_to && !self.is_unsynced(writes) && !self.sync_has_failed
    }

    /// Begins a commit of a file that ends at `end`.
    pub fn begin(&mut self, end: u64) {
        (self.is_due, self.end) = (false, end);
        if self.checkpoint != self.slotted && self.is_slot_taken(self.ordinal) {
            // No slot was written for this checkpoint, and the slot that its number selects now
            // points to another checkpoint.
            self.outdate();
        }
    }

    /// Marks the last checkpoint as incomplete, because a frame follows it or its slot is out of
    /// date.
    pub fn outdate(&mut self) {
        self.frames_since += 1;
    }

    /// Whether the last checkpoint covers all frames.
    pub fn is_current(&self) -> bool {
        self.frames_since == 0 && !self.checkpoint.is_none()
    }

    /// Records a checkpoint that follows all other frames.
    pub fn note_checkpoint(&mut self, checkpoint: Reference) {
        (self.ordinal, self.checkpoint, self.frames_since) = (self.next_ordinal(), checkpoint, 0);
    }

    /// Records a checkpoint found on a walk over the frames. Other frames may follow it.
    pub fn note_found(&mut self, ordinal: u64, checkpoint: Reference) {
        (self.ordinal, self.checkpoint) = (self.ordinal.max(ordinal), checkpoint);
    }

    /// Records that a slot was written.
    pub fn note_slot(&mut self, slot: &Slot) {
        (self.slotted, self.slot_ordinal) = (slot.checkpoint, slot.ordinal);
    }

    /// Returns the slot for the last checkpoint. `sequence` is the sequence number of the file's
    /// last frame.
    pub fn slot(&self, (sequence, file_size): (u64, u64), is_packed: bool) -> Slot {
        let (ordinal, checkpoint) = (self.ordinal, self.checkpoint);
        Slot { ordinal, checkpoint, sequence, file_size, is_packed }
    }

    /// The number of the last checkpoint.
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Returns the number of the next checkpoint. Its slot must not be the one written last.
    pub fn next_ordinal(&self) -> u64 {
        self.ordinal_behind(self.ordinal)
    }

    fn ordinal_behind(&self, ordinal: u64) -> u64 {
        let next = ordinal + 1;
        if self.is_slot_taken(next) { next + 1 } else { next }
    }

    /// Whether a checkpoint with this number would use the slot written last.
    fn is_slot_taken(&self, ordinal: u64) -> bool {
        !self.slotted.is_none() && ordinal % 2 == self.slot_ordinal % 2
    }
}
