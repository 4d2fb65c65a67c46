//! Operations that are due later, given back in the order of their times.

use std::collections::BTreeMap;

use crate::workload::Operation;

/// Operations by their times; those of one time in the order in which they came.
#[derive(Default)]
pub struct Events {
    due: BTreeMap<(u64, u64), Operation>,
    taken: u64,
}

impl Events {
    /// Takes an operation.
    pub fn push(&mut self, operation: Operation) {
        self.taken += 1;
        self.due.insert((operation.time_ns, self.taken), operation);
    }

    /// The earliest one before a time.
    pub fn pop_before(&mut self, time_ns: u64) -> Option<Operation> {
        let first = self.due.first_entry()?;
        (first.key().0 < time_ns).then(|| first.remove())
    }
}
