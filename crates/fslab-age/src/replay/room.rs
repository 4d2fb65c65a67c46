//! Room that a target gives back only when it writes back, and nobody else wants any: Btrfs frees
//! the place of what was removed when it commits, and holds space aside for whatever is under way.
//!
//! What does not fit is therefore tried again, alone, after everything was written back, before
//! anybody is told that the target is full. On one that is full indeed that would be a sync for
//! each operation; so after each that made no room, twice as much must have been removed before
//! the next.

use std::sync::atomic::{AtomicU64, Ordering};

use fslab_vfs::Errno;
use parking_lot::RwLock;

use crate::error::Result;

/// An operation is tried again so often: some room is made behind the back of a sync.
const TRIES: u32 = 2;

/// After so many vain tries in a row, no more must have been removed before the next.
const VAIN_MAX: u32 = 12;

/// What is known of the room that writing back may make.
#[derive(Default)]
pub struct Room {
    /// Operations that gave space back, or will when it is written back.
    freed: AtomicU64,
    /// Held for reading by every operation, and for changing by one that is done alone.
    past: RwLock<Past>,
}

#[derive(Default)]
struct Past {
    /// Tries in a row that made no room.
    vain: u32,
    /// [`Room::freed`] at the last of them.
    freed: u64,
}

impl Past {
    fn is_worth_a_try(&self, freed: u64) -> bool {
        self.vain == 0 || freed.saturating_sub(self.freed) >= 1 << self.vain
    }
}

impl Room {
    /// Notes that an operation gave space back.
    pub fn note_freed(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    /// Does an operation beside those of other threads.
    pub fn beside_others<T>(&self, operation: impl FnOnce() -> T) -> T {
        let _no_one_is_alone = self.past.read();
        operation()
    }

    /// Tries an operation again that did not fit, after `sync` wrote everything back. All other
    /// threads wait meanwhile.
    ///
    /// # Errors
    /// Those of `sync`; the operation's are within the answer.
    pub fn again<T>(
        &self,
        first: fslab_vfs::Error,
        sync: impl Fn() -> Result<()>,
        operation: impl Fn() -> fslab_vfs::Result<T>,
    ) -> Result<fslab_vfs::Result<T>> {
        let mut past = self.past.write();
        if !past.is_worth_a_try(self.freed.load(Ordering::Relaxed)) {
            return Ok(Err(first));
        }
        let mut answer = Err(first);
        for _ in 0..TRIES {
            sync()?;
            answer = operation();
            if !answer.as_ref().is_err_and(is_out_of_space) {
                past.vain = 0;
                return Ok(answer);
            }
        }
        past.vain = (past.vain + 1).min(VAIN_MAX);
        past.freed = self.freed.load(Ordering::Relaxed);
        Ok(answer)
    }
}

/// Whether an error is about space, which writing back may give.
pub fn is_out_of_space(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::NOSPC | Errno::DQUOT)
}
