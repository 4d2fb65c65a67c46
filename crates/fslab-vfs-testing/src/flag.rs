//! A flag that other threads wait for.

use std::sync::atomic::{AtomicBool, Ordering};

/// Raises a flag when it is dropped: on every path out of a test, also that of a panic, so that
/// threads which work until then end, and the test fails instead of waiting for them.
pub struct RaisedAtEnd<'a>(pub &'a AtomicBool);

impl Drop for RaisedAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
