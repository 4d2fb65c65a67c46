//! A flag that is set when a test ends, even if it panics.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, even if the test panics. Threads that work until the flag is set
/// then end, so the test fails instead of waiting for them forever.
pub struct RaisedAtEnd<'a>(pub &'a AtomicBool);

impl Drop for RaisedAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
