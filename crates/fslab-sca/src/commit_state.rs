//! Which part of a stored file is durable: checkpoints, the slots that lead to them, and syncs.

use super::format::HEAD_BYTES;
use super::frame::Reference;
use super::superblock::Slot;

/// Checkpoints and syncs of one file. Only commits (see `commit`) and checkpoints change it.
pub struct CommitState {
    /// The last checkpoint: how many there were, and where it is.
    ordinal: u64,
    checkpoint: Reference,
    /// The checkpoint that the slot written last leads to, and that slot's number.
    slotted: Reference,
    slot_ordinal: u64,
    /// Frames written since the last checkpoint.
    frames_since: u64,
    /// Where the file ended when it was last committed.
    end: u64,
    /// How often something had been written below when all was last durable.
    durable_writes: u64,
    /// So much was written since the last commit that another is due.
    is_due: bool,
    /// The file below failed to make something durable.
    sync_has_failed: bool,
}

impl CommitState {
    /// Of a file without frames.
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

    /// Of a packed copy: its checkpoint must not take the slot that was written last.
    pub fn of_copy(&self) -> Self {
        let Self { ordinal, slotted, slot_ordinal, .. } = *self;
        Self { ordinal, slotted, slot_ordinal, ..Self::new() }
    }

    /// At a checkpoint that was found, with a slot that leads to it.
    pub fn at_checkpoint(ordinal: u64, checkpoint: Reference) -> Self {
        let (slotted, slot_ordinal, end) = (checkpoint, ordinal, checkpoint.end());
        Self { ordinal, checkpoint, slotted, slot_ordinal, end, ..Self::new() }
    }

    /// The slot that leads somewhere is another than that of the checkpoint: the newest, if any.
    pub fn with_slot(self, slot: Option<&Slot>) -> Self {
        let slotted = slot.map_or(Reference::NONE, |slot| slot.checkpoint);
        let slot_ordinal = slot.map_or(0, |slot| slot.ordinal);
        let end = if slotted.is_none() { HEAD_BYTES } else { slotted.end() };
        Self { slotted, slot_ordinal, end, ordinal: self.ordinal.max(slot_ordinal), ..self }
    }

    /// Of a log that takes the place of this one and knows of no slot: its next checkpoint is newer
    /// than all, and has not the slot that was written last. A failed sync is not forgotten.
    pub fn anew(&self, found: Self) -> Self {
        let ordinal = self.ordinal_behind(self.ordinal.max(found.ordinal)) - 1;
        Self { ordinal, sync_has_failed: self.sync_has_failed, ..found }
    }

    /// The last checkpoint.
    pub fn checkpoint(&self) -> Reference {
        self.checkpoint
    }

    /// The checkpoint that the slot written last leads to.
    pub fn slotted(&self) -> Reference {
        self.slotted
    }

    /// Frames written since the last checkpoint.
    pub fn frames_since(&self) -> u64 {
        self.frames_since
    }

    /// Where the file ended when it was last committed.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether a commit is due.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// A commit is due.
    pub fn ask(&mut self) {
        self.is_due = true;
    }

    /// Whether the file below failed to make something durable.
    pub fn sync_has_failed(&self) -> bool {
        self.sync_has_failed
    }

    /// A sync of the file below failed: nobody knows which writes are durable.
    pub fn note_failed_sync(&mut self) {
        self.sync_has_failed = true;
    }

    /// Whether anything of so many writes is not known to be durable.
    pub fn is_unsynced(&self, writes: u64) -> bool {
        writes != self.durable_writes
    }

    /// So many writes are durable.
    pub fn note_durable(&mut self, writes: u64) {
        self.durable_writes = self.durable_writes.max(writes);
    }

    /// Whether a slot leads to all of so many writes, durably.
    pub fn is_committed(&self, writes: u64) -> bool {
        let is_led_to = self.frames_since == 0 && self.slotted == self.checkpoint;
        is_led_to && !self.is_unsynced(writes) && !self.sync_has_failed
    }

    /// A commit begins of a file that ends at `end`.
    pub fn begin(&mut self, end: u64) {
        (self.is_due, self.end) = (false, end);
        if self.checkpoint != self.slotted && self.is_slot_taken(self.ordinal) {
            // A checkpoint that was written without a slot, and whose slot has been used since.
            self.outdate();
        }
    }

    /// The last checkpoint does not tell all there is: a frame was written behind it, or what its
    /// slot says is no longer so.
    pub fn outdate(&mut self) {
        self.frames_since += 1;
    }

    /// Whether the last checkpoint tells all there is.
    pub fn is_current(&self) -> bool {
        self.frames_since == 0 && !self.checkpoint.is_none()
    }

    /// A checkpoint lies behind all other frames.
    pub fn note_checkpoint(&mut self, checkpoint: Reference) {
        (self.ordinal, self.checkpoint, self.frames_since) = (self.next_ordinal(), checkpoint, 0);
    }

    /// A checkpoint was found on a walk. Frames may lie behind it.
    pub fn note_found(&mut self, ordinal: u64, checkpoint: Reference) {
        (self.ordinal, self.checkpoint) = (self.ordinal.max(ordinal), checkpoint);
    }

    /// A slot was written.
    pub fn note_slot(&mut self, slot: &Slot) {
        (self.slotted, self.slot_ordinal) = (slot.checkpoint, slot.ordinal);
    }

    /// The slot that leads to the last checkpoint, of a file that ends with a sequence and a size.
    pub fn slot(&self, (sequence, file_size): (u64, u64), is_packed: bool) -> Slot {
        let (ordinal, checkpoint) = (self.ordinal, self.checkpoint);
        Slot { ordinal, checkpoint, sequence, file_size, is_packed }
    }

    /// The number of the last checkpoint.
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// The number of the next checkpoint: its slot must not be the one that was written last.
    pub fn next_ordinal(&self) -> u64 {
        self.ordinal_behind(self.ordinal)
    }

    fn ordinal_behind(&self, ordinal: u64) -> u64 {
        let next = ordinal + 1;
        if self.is_slot_taken(next) { next + 1 } else { next }
    }

    /// Whether a checkpoint's slot would be the one that was written last.
    fn is_slot_taken(&self, ordinal: u64) -> bool {
        !self.slotted.is_none() && ordinal % 2 == self.slot_ordinal % 2
    }
}
