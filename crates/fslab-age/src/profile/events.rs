//! Operations that are due later, given back in the order of their times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::workload::Operation;

/// Operations by their times; those of one time in the order in which they came.
#[derive(Default)]
pub struct Events {
    heap: BinaryHeap<Event>,
    taken: u64,
}

struct Event {
    operation: Operation,
    order: u64,
}

impl Events {
    /// Takes an operation.
    pub fn push(&mut self, operation: Operation) {
        self.taken += 1;
        self.heap.push(Event { operation, order: self.taken });
    }

    /// The earliest one before a time.
    pub fn pop_before(&mut self, time_ns: u64) -> Option<Operation> {
        if self.heap.peek()?.operation.time_ns >= time_ns {
            return None;
        }
        self.heap.pop().map(|event| event.operation)
    }
}

impl Event {
    fn key(&self) -> (u64, u64) {
        (self.operation.time_ns, self.order)
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The heap gives the greatest first: the earliest is the greatest.
impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}
