//! Records whether the file system needs a check, because damage was found or an operation failed
//! halfway. The image is then no longer marked clean, and the superblock records that errors were
//! found.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// A flag that is never reset while the volume is in use. All clones share it.
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
