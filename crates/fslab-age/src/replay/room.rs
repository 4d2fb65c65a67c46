//! Space that a target frees only when it writes back. Btrfs frees the space of removed files when
//! it commits, and reserves space for operations in progress.
//!
//! An operation that does not fit is therefore tried again, alone, after everything was written
//! back, before the target is reported as full. On a target that is really full this would mean a
//! sync for each operation. After each failed try, twice as many removals are therefore required
//! before the next.

use std::sync::atomic::{AtomicU64, Ordering};

use fslab_vfs::Errno;
use parking_lot::RwLock;

use crate::error::Result;

/// Number of repeated tries: some space is freed only after a sync has returned.
const TRIES: u32 = 2;

/// After this many failed tries in a row, the number of required removals no longer doubles.
const VAIN_MAX: u32 = 12;

/// Counts of the operations whose space writing back may free, and of failed tries.
#[derive(Default)]
pub struct Room {
    /// Number of operations that freed space, or will when it is written back.
    freed: AtomicU64,
    /// Locked for reading by every operation, and for writing by one that must run alone.
    past: RwLock<Past>,
}

#[derive(Default)]
struct Past {
    /// Number of failed tries in a row.
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
    /// Records that an operation freed space.
    pub fn note_freed(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs an operation in parallel with those of other threads.
    pub fn beside_others<T>(&self, operation: impl FnOnce() -> T) -> T {
        let _no_one_is_alone = self.past.read();
        operation()
    }

    /// Repeats an operation that did not fit, after `sync` has written everything back. All other
    /// threads wait meanwhile.
    ///
    /// # Errors
    /// Errors of `sync`; errors of the operation are in the inner result.
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

/// Whether an error is a lack of space that writing back may cure.
pub fn is_out_of_space(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::NOSPC | Errno::DQUOT)
}
