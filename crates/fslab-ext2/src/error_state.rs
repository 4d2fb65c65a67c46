//! Whether the file system needs a check: damage was found, or a change could be made only in part.
//! The image is then no longer marked clean, and the superblock records that a check is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// A mark that is never removed while the volume is in use. All clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorState(Arc<AtomicBool>);

impl ErrorState {
    /// Whether an error was recorded.
    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Passes a result on and records damage.
    pub fn see<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(Error::Damaged(_)) = &answer {
            self.note();
        }
        answer
    }

    /// Records and logs an error after the first change of an operation, when the caller is not
    /// informed or can't undo the change.
    pub fn log(&self, what: &str, error: &Error) {
        self.note();
        tracing::error!("{what}, a check of the file system is due: {error}");
    }
}
