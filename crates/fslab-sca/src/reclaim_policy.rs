//! Decides when space is freed.
//!
//! A commit frees the space of dead frames. Garbage collection frees the space of a file that
//! consists mostly of holes and headers (see `garbage_collection`). Packing frees all unused space
//! (see `pack`).

use fslab_vfs::Result;

use super::context::{Io, Settings};
use super::format::HEAD_BYTES;
use super::log::Log;
use super::next_checks::DEAD_BYTES_MIN;

/// Uncommitted bytes at which the writer itself commits, because the background thread is too slow.
const UNCOMMITTED_BYTES_MAX: u64 = 256 << 20;

/// Dead frames are worth a commit if their size reaches both [`DEAD_BYTES_MIN`] and the file's size
/// divided by this number. The space of small frames is freed by the second commit after their
/// death (see `dead_frames`). So a file written in small pieces takes at most a twelfth more space.
const DEAD_PART: u64 = 24;

/// Dead frames are worth a commit if the free space is less than this many times their size.
const ROOM_TIMES: u64 = 8;

/// Minimum number of bytes written between two checks.
const LOOK_BYTES_MIN: u64 = 64 << 10;

/// Maximum number of bytes written between two checks for garbage collection. A file may exceed
/// twice its live bytes by this much.
const LOOK_BYTES: u64 = 8 << 20;

/// Packing is worthwhile if the garbage exceeds the live bytes divided by `PACKED_PART`, plus
/// `PACKED_BYTES` (or the option `garbage`, if that is less).
const PACKED_PART: u64 = 4;
const PACKED_BYTES: u64 = 64 << 10;

/// A raw tail is tolerated up to this length plus the live bytes divided by [`PACKED_PART`].
const TAIL_BYTES: u64 = 4 << 10;

/// When a file is closed, its garbage is worth a commit, which needs a sync, if two conditions
/// hold. It is at least `garbage` bytes, and at least the live bytes divided by this number.
const CLOSED_PART: u64 = 4;

/// Bytes of content that are moved before their old space is freed. Garbage collection temporarily
/// needs this much extra space.
pub const MOVED_BYTES: u64 = 8 << 20;

/// Space that must remain free in the lower file system, in addition to twice the bytes moved at a
/// time.
pub const SPARE_BYTES: u64 = 8 << 20;

/// The urgency of a file's maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Nothing,
    /// Soon, in the background.
    Soon,
    /// At once, before the next change.
    Now,
}

impl Log {
    /// Returns the maintenance that the last changes made due, judged only by state in memory.
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

    /// Whether the background thread is slower than the writer.
    fn is_late(&self, settings: &Settings) -> bool {
        let most = self.garbage_bytes_max(settings);
        let is_far = self.end().saturating_sub(self.commits.end()) >= UNCOMMITTED_BYTES_MAX;
        let is_full_of_dead = self.may_want_commit() && self.garbage.bytes() / 2 >= most;
        let is_overdue = self.garbage_in_all() / 2 >= most
            && self.next_checks.is_cleaning_due(self.end().saturating_sub(most));
        is_far || is_full_of_dead || is_overdue
    }

    fn may_want_commit(&self) -> bool {
        self.next_checks.is_commit_due(self.end()) && self.garbage.bytes() > 0
    }

    /// Whether the file has enough garbage that a collection may be due.
    pub fn may_want_cleaning(&self, settings: &Settings) -> bool {
        self.next_checks.is_cleaning_due(self.end())
            && self.garbage_in_all() > self.garbage_bytes_max(settings)
    }

    /// Whether a commit is due, or the dead frames are worth one.
    pub fn wants_commit(&self, io: Io<'_>) -> Result<bool> {
        if self.commits.is_due() {
            return Ok(true);
        }
        let dead = self.garbage.bytes();
        let much = DEAD_BYTES_MIN.max(self.size() / DEAD_PART);
        Ok(self.may_want_commit() && (dead >= much || dead >= free_bytes(io)? / ROOM_TIMES))
    }

    /// Postpones the next check for a commit until enough more frames may be dead, or enough of the
    /// free space may be used.
    pub fn put_off_commit(&mut self, free_bytes: u64) {
        let much = DEAD_BYTES_MIN.max(self.size() / DEAD_PART).min(free_bytes / ROOM_TIMES);
        let more = much.saturating_sub(self.garbage.bytes()).max(LOOK_BYTES_MIN);
        self.next_checks.put_off_commit(self.end() + more);
    }

    /// Whether the file, once committed, has enough garbage to collect.
    pub fn wants_cleaning(&self, io: Io<'_>) -> Result<bool> {
        let allocated = io.lower.attr(io.request)?.blocks * 512;
        let most = self.map.live_bytes().saturating_add(self.garbage_bytes_max(io.settings));
        Ok(allocated.min(self.end()) > most)
    }

    /// Postpones the next check for garbage collection.
    pub fn put_off_cleaning(&mut self, settings: &Settings) {
        let more = (self.garbage_bytes_max(settings) / 2).min(LOOK_BYTES);
        self.next_checks.put_off_cleaning(self.end() + more);
    }

    /// Returns the garbage that is tolerated before it is collected, in bytes.
    fn garbage_bytes_max(&self, settings: &Settings) -> u64 {
        settings.garbage_bytes_max.max(self.map.live_bytes())
    }

    /// Whether there is enough free space to move content and leave space for other writers.
    pub fn has_room_to_clean(&self, io: Io<'_>) -> Result<bool> {
        Ok(free_bytes(io)? >= 2 * self.map.live_bytes().min(MOVED_BYTES) + SPARE_BYTES)
    }

    /// Whether the file has enough garbage, or a tail long enough, to be packed when the mount is
    /// idle. Judged only by state in memory.
    pub fn wants_packing(&self, settings: &Settings) -> bool {
        self.is_whole() && self.has_much_to_pack(settings)
    }

    /// Whether the file has enough garbage, or a tail long enough, to be packed, even if it is not
    /// whole (see [`Log::is_whole`]).
    pub fn has_much_to_pack(&self, settings: &Settings) -> bool {
        self.garbage_in_all() > self.garbage_left_unpacked(settings) || self.has_long_tail()
    }

    /// Whether a large part of a file consists of small appended pieces, which are raw. A file of
    /// less than a chunk may consist only of such pieces.
    fn has_long_tail(&self) -> bool {
        self.identity().codec.compresses
            && self.map.segment_bytes() > TAIL_BYTES + self.map.live_bytes() / PACKED_PART
    }

    /// Returns the bytes of everything except the head and live content. Freed space is included.
    pub fn garbage_in_all(&self) -> u64 {
        (self.end() - HEAD_BYTES).saturating_sub(self.map.live_bytes())
    }

    /// Returns the bytes of garbage up to which a file is not packed.
    pub fn garbage_left_unpacked(&self, settings: &Settings) -> u64 {
        let least = PACKED_BYTES.min(settings.garbage_bytes_max);
        (self.map.live_bytes() / PACKED_PART).saturating_add(least)
    }

    /// Whether there is enough garbage at close to be worth a sync.
    pub fn wants_commit_at_close(&self, settings: &Settings) -> bool {
        let garbage = self.garbage.bytes();
        garbage >= settings.garbage_bytes_max && garbage >= self.map.live_bytes() / CLOSED_PART
    }
}

/// Returns the free space of the lower file system, in bytes.
pub fn free_bytes(io: Io<'_>) -> Result<u64> {
    let below = io.lower.fs.statfs(io.request, io.lower.ino)?;
    Ok(below.blocks_available.saturating_mul(u64::from(below.fragment_size)))
}
