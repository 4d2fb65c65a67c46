//! Runs several threads that do the same work on one tree.

use fslab_sys::signals::Interrupt;

use crate::error::{Error, Result};
use crate::runner::Timed;
use crate::tree::Tree;

/// The parts of a [`Timed`] that threads may use at the same time.
#[derive(Clone, Copy)]
pub(super) struct Hand<'a> {
    /// The tree of the target.
    pub tree: &'a dyn Tree,
    interrupt: &'a Interrupt,
}

impl Hand<'_> {
    /// Returns an error if the run was interrupted.
    pub fn check(&self) -> Result<()> {
        if self.interrupt.is_raised() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// Runs `work` on several threads at the same time and returns the results. Each call receives the
/// number of its thread. If any call fails, the first error is returned after all threads have
/// ended.
pub(super) fn in_threads<T: Send>(
    timed: &Timed<'_>,
    threads: u64,
    work: impl Fn(Hand<'_>, u64) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let hand = Hand { tree: timed.tree(), interrupt: timed.interrupt() };
    if threads <= 1 {
        return Ok(vec![work(hand, 0)?]);
    }
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || work(hand, number))).collect();
        let ended = running.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}
