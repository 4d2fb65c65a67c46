//! When space is given back: a policy that looks at numbers and changes nothing.
//!
//! Space of dead frames comes back with a commit, that of a file full of holes and headers by
//! cleaning (see `garbage_collection`), and all of it by packing (see `pack`).

use fslab_vfs::Result;

use super::context::{Io, Settings};
use super::format::HEAD_BYTES;
use super::log::{DEAD_BYTES_MIN, Log};

/// Bytes written since the last commit from which on a writer does the next one itself: whoever
/// makes it in the background is too slow.
const UNCOMMITTED_BYTES_MAX: u64 = 256 << 20;

/// Dead frames are worth a commit from [`DEAD_BYTES_MIN`] on, if they are this part of the file.
/// Space of small frames comes back with the second commit after (see `dead_frames`), so that a
/// file that is written in small pieces takes a twelfth more at most.
const DEAD_PART: u64 = 24;

/// Where less room is left than so many times the dead frames, they are worth a commit.
const ROOM_TIMES: u64 = 8;

/// Bytes written at least before anybody looks again.
const LOOK_BYTES_MIN: u64 = 64 << 10;

/// Bytes written after which a file is looked at again at the latest for cleaning: so much more
/// than twice what is of use may it take.
const LOOK_BYTES: u64 = 8 << 20;

/// Packing is worth it above this part of garbage, and so many bytes (or `garbage`, if less).
const PACKED_PART: u64 = 4;
const PACKED_BYTES: u64 = 64 << 10;

/// A tail that is raw is put up with up to this length, and the same part of all content.
const TAIL_BYTES: u64 = 4 << 10;

/// Garbage that is given back at close, which needs a sync: from `garbage` bytes on, if it is also
/// this part of what is of use.
const CLOSED_PART: u64 = 4;

/// Bytes of content moved before the space that it was in is given back: what cleaning takes
/// beyond what the file takes already.
pub const MOVED_BYTES: u64 = 8 << 20;

/// Room that must be left below, besides what is moved at a time.
pub const SPARE_BYTES: u64 = 8 << 20;

/// Whether something is to be done about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Nothing,
    /// In the background.
    Soon,
    /// Before the next change.
    Now,
}

impl Log {
    /// What the last changes made due, from what is in memory.
    pub fn due(&self, settings: &Settings) -> Due {
        if self.commits.sync_has_failed() {
            return Due::Nothing;
        }
        if self.is_late(settings) {
            return Due::Now;
        }
        let is_due =
            self.commits.is_due() || self.may_want_commit() || self.may_want_cleaning(settings);
        if is_due { Due::Soon } else { Due::Nothing }
    }

    /// Whether whoever gives space back in the background is slower than the writer.
    fn is_late(&self, settings: &Settings) -> bool {
        let most = self.garbage_bytes_max(settings);
        let is_far = self.end().saturating_sub(self.commits.end()) >= UNCOMMITTED_BYTES_MAX;
        let is_full_of_dead = self.may_want_commit() && self.garbage.bytes() / 2 >= most;
        let is_overdue = self.garbage_in_all() / 2 >= most
            && self.end() >= self.looks.clean.saturating_add(most);
        is_far || is_full_of_dead || is_overdue
    }

    fn may_want_commit(&self) -> bool {
        self.end() >= self.looks.commit && self.garbage.bytes() > 0
    }

    /// Whether the file holds so much garbage that it may have to be cleaned.
    pub fn may_want_cleaning(&self, settings: &Settings) -> bool {
        self.end() >= self.looks.clean && self.garbage_in_all() > self.garbage_bytes_max(settings)
    }

    /// Whether a commit is due, or dead frames are worth one.
    pub fn wants_commit(&self, io: Io<'_>) -> Result<bool> {
        if self.commits.is_due() {
            return Ok(true);
        }
        let dead = self.garbage.bytes();
        let much = DEAD_BYTES_MIN.max(self.size() / DEAD_PART);
        Ok(self.may_want_commit() && (dead >= much || dead >= free_bytes(io)? / ROOM_TIMES))
    }

    /// Lets nobody look for a while whether dead frames are worth a commit: until as many may be
    /// dead as are worth one, or as fill a part of the room that is left.
    pub fn put_off_commit(&mut self, free_bytes: u64) {
        let much = DEAD_BYTES_MIN.max(self.size() / DEAD_PART).min(free_bytes / ROOM_TIMES);
        let more = much.saturating_sub(self.garbage.bytes()).max(LOOK_BYTES_MIN);
        self.looks.commit = self.end() + more;
    }

    /// Whether the file holds so much garbage that it is to be cleaned, once it was committed.
    pub fn wants_cleaning(&self, io: Io<'_>) -> Result<bool> {
        let allocated = io.lower.attr(io.request)?.blocks * 512;
        let most = self.map.live_bytes().saturating_add(self.garbage_bytes_max(io.settings));
        Ok(allocated.min(self.end()) > most)
    }

    /// Lets nobody look for a while whether the file is to be cleaned.
    pub fn put_off_cleaning(&mut self, settings: &Settings) {
        self.looks.clean = self.end() + (self.garbage_bytes_max(settings) / 2).min(LOOK_BYTES);
    }

    /// Garbage that is put up with before a file is cleaned.
    fn garbage_bytes_max(&self, settings: &Settings) -> u64 {
        settings.garbage_bytes_max.max(self.map.live_bytes())
    }

    /// Whether moving content takes nothing from others who want to write.
    pub fn has_room_to_clean(&self, io: Io<'_>) -> Result<bool> {
        Ok(free_bytes(io)? >= 2 * self.map.live_bytes().min(MOVED_BYTES) + SPARE_BYTES)
    }

    /// Whether there is so much garbage, or so long a tail, that the file should be packed when
    /// nothing else is to be done. From what is in memory.
    pub fn wants_packing(&self, settings: &Settings) -> bool {
        self.is_whole() && self.has_much_to_pack(settings)
    }

    /// The same of a file that is not in order.
    pub fn has_much_to_pack(&self, settings: &Settings) -> bool {
        self.garbage_in_all() > self.garbage_left_unpacked(settings) || self.has_long_tail()
    }

    /// Whether much of a file is what was appended in small pieces, which are raw. A file of less
    /// than a chunk may be nothing else.
    fn has_long_tail(&self) -> bool {
        self.identity().codec.compresses
            && self.map.segment_bytes() > TAIL_BYTES + self.map.live_bytes() / PACKED_PART
    }

    /// Everything but the head and content of use. Space that was given back is still counted.
    pub fn garbage_in_all(&self) -> u64 {
        (self.end() - HEAD_BYTES).saturating_sub(self.map.live_bytes())
    }

    /// Garbage for which a file is not packed.
    pub fn garbage_left_unpacked(&self, settings: &Settings) -> u64 {
        let least = PACKED_BYTES.min(settings.garbage_bytes_max);
        (self.map.live_bytes() / PACKED_PART).saturating_add(least)
    }

    /// Whether there is so much to give back at close that it is worth a sync.
    pub fn wants_commit_at_close(&self, settings: &Settings) -> bool {
        let garbage = self.garbage.bytes();
        garbage >= settings.garbage_bytes_max && garbage >= self.map.live_bytes() / CLOSED_PART
    }
}

/// Room that is left below.
pub fn free_bytes(io: Io<'_>) -> Result<u64> {
    let below = io.lower.fs.statfs(io.request, io.lower.ino)?;
    Ok(below.blocks_available.saturating_mul(u64::from(below.fragment_size)))
}
