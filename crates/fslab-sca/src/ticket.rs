//! Ticket ordering for concurrent writers.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// A ticket lock: threads may prepare in parallel, but then proceed in the order of their tickets.
#[derive(Default)]
pub struct TicketQueue {
    present: Mutex<Present>,
    changed: Condvar,
}

#[derive(Default)]
struct Present {
    next: u64,
    numbers: VecDeque<u64>,
}

/// A position in the queue, released when dropped.
pub struct Ticket<'a> {
    turns: &'a TicketQueue,
    number: u64,
}

impl TicketQueue {
    /// Takes the next ticket, runs `prepare`, and waits for all earlier tickets to be released.
    /// Returns the ticket with the result.
    pub fn in_order<T>(&self, prepare: impl FnOnce() -> T) -> (Ticket<'_>, T) {
        let ticket = self.come();
        let prepared = prepare();
        ticket.wait();
        (ticket, prepared)
    }

    /// Takes the next ticket.
    fn come(&self) -> Ticket<'_> {
        let mut present = self.present.lock();
        let number = present.next;
        present.next += 1;
        present.numbers.push_back(number);
        Ticket { turns: self, number }
    }
}

impl Ticket<'_> {
    /// Waits for all earlier tickets to be released.
    fn wait(&self) {
        let mut present = self.turns.present.lock();
        while present.numbers.front() != Some(&self.number) {
            self.turns.changed.wait(&mut present);
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut present = self.turns.present.lock();
        present.numbers.retain(|number| *number != self.number);
        if !present.numbers.is_empty() {
            self.turns.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_run_in_order_and_dropped_tickets_are_skipped() {
        let (turns, acted) = (TicketQueue::default(), Mutex::new(Vec::new()));
        let [first, second, third] = [turns.come(), turns.come(), turns.come()];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let third = third;
                third.wait();
                acted.lock().push(3);
            });
            drop(second);
            first.wait();
            acted.lock().push(1);
            drop(first);
        });
        assert_eq!(*acted.lock(), [1, 3]);
        assert_eq!(turns.in_order(|| 4).1, 4);
    }
}
