//! Interrupts that arrive before their requests begin.
//!
//! The kernel sends each interrupt once. When a thread receives the interrupt, another thread may
//! have read the interrupted request without having begun to serve it. So if no request with this
//! number is being served, the number is kept until the request begins. Most kept numbers belong to
//! requests that were just answered; later numbers replace them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Maximum number of kept interrupts. Few are needed, because only a reader thread can be about to
/// begin a request, and there is at most one reader for each processor.
const KEPT_MAX: usize = 64;

/// Numbers of requests that are cancelled as soon as they begin.
#[derive(Debug)]
pub(crate) struct EarlyInterrupts {
    /// 0 marks a free slot.
    uniques: [AtomicU64; KEPT_MAX],
    /// Number of kept interrupts; while it is zero, a request costs only one load.
    kept: AtomicUsize,
    /// The slot for the next interrupt.
    next: AtomicUsize,
}

impl Default for EarlyInterrupts {
    fn default() -> Self {
        let uniques = [const { AtomicU64::new(0) }; KEPT_MAX];
        Self { uniques, kept: AtomicUsize::new(0), next: AtomicUsize::new(0) }
    }
}

impl EarlyInterrupts {
    /// Keeps the number of a request, replacing the oldest if there is no free slot.
    pub fn keep(&self, unique: u64) {
        let place = self.next.fetch_add(1, Ordering::SeqCst) % KEPT_MAX;
        if self.uniques[place].swap(unique, Ordering::SeqCst) == 0 {
            self.kept.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Removes the number of a request; returns whether it was kept.
    pub fn take(&self, unique: u64) -> bool {
        self.kept.load(Ordering::SeqCst) != 0
            && self.uniques.iter().any(|kept| self.take_from(kept, unique))
    }

    fn take_from(&self, kept: &AtomicU64, unique: u64) -> bool {
        // The number is compared first, because even a failed exchange would take the cache line
        // from other processors, which check the same slots.
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
    fn early_interrupt_is_taken_once_and_the_oldest_are_dropped() {
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
