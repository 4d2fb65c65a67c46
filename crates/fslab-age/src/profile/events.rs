//! A queue of future operations in chronological order.

use std::collections::BTreeMap;

use crate::workload::Operation;

/// Operations by time; operations with equal times are in the order of insertion.
#[derive(Default)]
pub struct Events {
    due: BTreeMap<(u64, u64), Operation>,
    taken: u64,
}

impl Events {
    pub fn push(&mut self, operation: Operation) {
        self.taken += 1;
        self.due.insert((operation.time_ns, self.taken), operation);
    }

    /// Removes and returns the earliest operation before a time.
    pub fn pop_before(&mut self, time_ns: u64) -> Option<Operation> {
        let first = self.due.first_entry()?;
        (first.key().0 < time_ns).then(|| first.remove())
    }
}
