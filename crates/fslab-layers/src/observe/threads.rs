//! Small numbers for threads, counted from 1 in the order of their first use.

use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn own_number() -> u32 {
    NUMBER.with(|number| *number)
}
