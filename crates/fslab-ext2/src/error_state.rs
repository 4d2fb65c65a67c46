//! Whether something was seen that only a check of the whole file system can put right: damage, or
//! a change that could be made in part only. The image is not called clean then, and says that a
//! check is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// A note that is never taken back while the volume is in use. All clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorState(Arc<AtomicBool>);

impl ErrorState {
    /// Whether there was any.
    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Passes an answer on, and takes note of damage.
    pub fn see<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(Error::Damaged(_)) = &answer {
            self.note();
        }
        answer
    }

    /// Notes and logs what went wrong after the first change of an operation, where the caller is
    /// not told or can't undo it.
    pub fn log(&self, what: &str, error: &Error) {
        self.note();
        tracing::error!("{what}, a check of the file system is due: {error}");
    }
}
