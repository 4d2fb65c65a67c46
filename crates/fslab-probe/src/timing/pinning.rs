//! Keeping a thread on a processor.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// The processors of a set.
pub(super) fn processors(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
}

/// Ties the calling thread to a processor.
pub(super) fn pin_to(processor: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    Ok(sched_setaffinity(None, &only)?)
}
