//! Interrupts that come before their requests are begun.
//!
//! The kernel tells once that the caller of a request was signalled, and may tell one thread while
//! another, which has just read the request, has not begun to serve it yet. So the numbers of
//! requests that nobody serves are kept until one is begun. Most are of requests that have just
//! ended, which nobody will ask for: those make room in their turn.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Numbers that are kept. Only a thread that reads can be about to begin a request, and there are
/// no more of those than processors.
const KEPT_MAX: usize = 64;

/// The requests to be given up as soon as they begin.
#[derive(Debug)]
pub(crate) struct EarlyInterrupts {
    /// 0 where there is none.
    uniques: [AtomicU64; KEPT_MAX],
    /// How many there are, so that a request costs one load as long as there are none.
    kept: AtomicUsize,
    /// Where the next one goes.
    next: AtomicUsize,
}

impl Default for EarlyInterrupts {
    fn default() -> Self {
        let uniques = [const { AtomicU64::new(0) }; KEPT_MAX];
        Self { uniques, kept: AtomicUsize::new(0), next: AtomicUsize::new(0) }
    }
}

impl EarlyInterrupts {
    /// Keeps the number of a request, in the place of the oldest where there is no more room.
    pub fn keep(&self, unique: u64) {
        let place = self.next.fetch_add(1, Ordering::SeqCst) % KEPT_MAX;
        if self.uniques[place].swap(unique, Ordering::SeqCst) == 0 {
            self.kept.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whether the number of a request was kept, which it then is no more.
    pub fn take(&self, unique: u64) -> bool {
        self.kept.load(Ordering::SeqCst) != 0
            && self.uniques.iter().any(|kept| self.take_from(kept, unique))
    }

    fn take_from(&self, kept: &AtomicU64, unique: u64) -> bool {
        // Nothing is written where there is nothing to take: all threads look here.
        let taken = kept.load(Ordering::SeqCst) == unique
            && kept.compare_exchange(unique, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if taken {
            self.kept.fetch_sub(1, Ordering::SeqCst);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_taken_once_and_the_oldest_make_room() {
        let early = EarlyInterrupts::default();
        let count = KEPT_MAX as u64;
        (1..=count + 2).for_each(|unique| early.keep(unique));
        let taken = |unique: &u64| early.take(*unique);
        assert_eq!(
            (1..=count + 2).filter(taken).collect::<Vec<_>>(),
            Vec::from_iter(3..=count + 2)
        );
        assert_eq!((1..=count + 2).filter(taken).count(), 0);
        assert_eq!(early.kept.load(Ordering::SeqCst), 0);
    }
}
