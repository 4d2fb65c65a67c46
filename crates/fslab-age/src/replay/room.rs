//! Retries operations that fail for lack of space, because some targets free space only at a sync.
//! Btrfs frees the space of removed files when it commits, and reserves space for pending
//! operations.
//!
//! Therefore an operation that does not fit is retried after a sync, with no other operation
//! running. The target is reported as full only if the retry fails. On a target that is really
//! full, each operation would then cause a sync. Therefore a retry is made only after a number of
//! operations that free space, and this number doubles after each failed retry.

use std::sync::atomic::{AtomicU64, Ordering};

use fslab_vfs::Errno;
use parking_lot::RwLock;

use crate::error::Result;

/// Number of retries. More than one is needed because some space is freed only after a sync has
/// returned.
const TRIES: u32 = 2;

/// After this many consecutive failed retries, the number of required operations no longer doubles.
const VAIN_MAX: u32 = 12;

/// Counts operations that free space at the next sync, and failed retries.
#[derive(Default)]
pub struct Room {
    /// Number of operations that freed space or will free it at the next sync.
    freed: AtomicU64,
    /// Past retries. Each operation holds this lock for reading; an operation that must run alone
    /// holds it for writing.
    past: RwLock<Past>,
}

#[derive(Default)]
struct Past {
    /// Number of consecutive failed retries.
    vain: u32,
    /// [`Room::freed`] at the last failed retry.
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

    /// Runs an operation in parallel with operations of other threads.
    pub fn beside_others<T>(&self, operation: impl FnOnce() -> T) -> T {
        let _no_one_is_alone = self.past.read();
        operation()
    }

    /// Repeats an operation that did not fit, after a call of `sync`. Other threads wait until it
    /// is done.
    ///
    /// # Errors
    /// Fails if `sync` fails. An error of the operation is in the inner result.
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

/// Whether the error is a lack of space that a sync may resolve.
pub fn is_out_of_space(error: &fslab_vfs::Error) -> bool {
    matches!(error.errno(), Errno::NOSPC | Errno::DQUOT)
}
