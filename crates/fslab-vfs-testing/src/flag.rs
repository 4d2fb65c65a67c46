//! A flag that is set when a test ends, even by a panic.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, even by a panic. Threads that work until the flag is set then
/// end, so the test fails instead of waiting for them.
pub struct RaisedAtEnd<'a>(pub &'a AtomicBool);

impl Drop for RaisedAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
