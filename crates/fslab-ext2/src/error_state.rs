//! Records whether the file system needs a check, because damage was found or an operation failed
//! halfway. The image is then no longer marked clean, and the superblock records that errors were
//! found.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fslab_sys::shared_memory::SharedMemory;

use crate::error::{Error, Result};

/// A flag that is never reset while the volume is in use. All clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorState(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    is_noted: AtomicBool,
    /// On a mount with `-o keep`: where the next daemon finds that an error was recorded.
    kept: OnceLock<KeptFlag>,
}

/// The flag in memory that the next daemon inherits.
#[derive(Debug)]
struct KeptFlag {
    memory: Arc<SharedMemory>,
    /// Sets the flag.
    set: fn(&SharedMemory),
}

impl KeptFlag {
    fn set(&self) {
        (self.set)(&self.memory);
    }
}

impl ErrorState {
    /// Whether an error was recorded.
    pub fn is_noted(&self) -> bool {
        self.0.is_noted.load(Ordering::Relaxed)
    }

    /// Records an error. On a mount with `-o keep`, the record outlives the daemon at once, even if
    /// a reader found the error and no change follows.
    pub fn note(&self) {
        self.0.is_noted.store(true, Ordering::Relaxed);
        self.0.kept.get().into_iter().for_each(KeptFlag::set);
    }

    /// Records errors in memory that the next daemon inherits, too, by calling `set`.
    pub fn keep_in(&self, memory: Arc<SharedMemory>, set: fn(&SharedMemory)) {
        let kept = self.0.kept.get_or_init(|| KeptFlag { memory, set });
        if self.is_noted() {
            kept.set();
        }
    }

    /// Returns the result unchanged, and records damage.
    pub fn see<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(Error::Damaged(_)) = &answer {
            self.note();
        }
        answer
    }

    /// Records and logs an error that occurred after the first change of an operation. Used if the
    /// caller does not get the error or can't undo the change.
    pub fn log(&self, what: &str, error: &Error) {
        self.note();
        tracing::error!("{what}; check the file system: {error}");
    }
}
