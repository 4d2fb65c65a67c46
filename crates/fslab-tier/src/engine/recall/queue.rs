//! The queue of all recalls.
//!
//! The most urgent class comes first. Within a class, users take turns, so that a user with many
//! recalls does not delay others. Within one user's recalls, the [`Order`] chooses the next one:
//! first come, first served ([`Fifo`]), or by position in the archive ([`Sweep`]). Every eighth
//! turn goes to the recall that has waited longest, so that none waits forever.
//!
//! One thread is reserved for each archive: see `lanes`.
//!
//! Recalls from an unavailable archive are postponed, so that they do not delay others.

use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::Clock;
use parking_lot::{Condvar, Mutex};

use crate::engine::recall::order::Place;
use crate::engine::recall::pending::Pending;
use crate::engine::recall::waiting::Recall;
use crate::id::Id;

pub use crate::engine::recall::pending::OF_A_USER_MAX;

pub use crate::engine::recall::order::{Class, Fifo, Order, Position, Sweep};

/// Interval at which a waiting thread reads the engine's clock while recalls are postponed. The
/// wait itself uses the system's clock.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A queue of requested recalls that have not begun.
pub struct Queue {
    waiting: Mutex<Pending>,
    came: Condvar,
    clock: Arc<dyn Clock>,
}

impl Queue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(order: Arc<dyn Order>, clock: Arc<dyn Clock>) -> Self {
        let waiting = Pending::new(order);
        Self { waiting: Mutex::new(waiting), came: Condvar::new(), clock }
    }

    /// Sets the number of threads that serve the queue.
    pub(crate) fn set_threads(&self, threads: usize) {
        self.waiting.lock().lanes.set_threads(threads);
        self.came.notify_all();
    }

    /// Reserves a thread for an archive.
    pub(crate) fn reserve(&self, archive: Id) {
        self.waiting.lock().lanes.reserve(archive);
    }

    /// Ends the reservation of a thread for a detached archive.
    pub(crate) fn release(&self, archive: Id) {
        self.waiting.lock().lanes.release(archive);
        self.came.notify_all();
    }

    /// Adds a recall.
    pub fn push(&self, recall: Arc<Recall>) {
        self.waiting.lock().push(recall);
        // Any thread can serve any recall, so waking one thread is enough.
        self.came.notify_one();
    }

    /// Records that a recall has ended and its thread is free.
    pub(crate) fn served(&self, recall: &Recall) {
        self.waiting.lock().lanes.leave(recall.position.archive);
        // One more thread may serve a recall now: the calling one, or another if it must wait.
        self.came.notify_one();
    }

    /// Postpones a recall that has begun, until a time of the engine's clock; returns `false` if
    /// the queue is closed.
    pub(crate) fn postpone(&self, recall: &Arc<Recall>, until_ns: u64) -> bool {
        let mut pending = self.waiting.lock();
        if !pending.is_closed {
            pending.postpone(recall, until_ns);
            // Wakes waiting threads, because they must read the clock at intervals while recalls
            // are postponed.
            self.came.notify_all();
        }
        !pending.is_closed
    }

    /// Returns whether a recall is postponed now.
    pub(crate) fn is_postponed(&self, recall: &Arc<Recall>) -> bool {
        matches!(*recall.place.lock(), Some(Place::Postponed(..)))
    }

    /// Requeues all postponed recalls. Called when an archive is available again.
    pub(crate) fn resume_postponed(&self) {
        self.waiting.lock().resume_postponed(u64::MAX);
        self.came.notify_all();
    }

    /// Moves a recall to a more urgent class, unless it has begun. A postponed recall is also
    /// requeued, because the program that now waits for it may reach its time limit before the
    /// postponement ends. Read-ahead does not requeue a postponed recall.
    pub fn promote(&self, recall: &Arc<Recall>, class: Class) {
        let mut pending = self.waiting.lock();
        if recall.class() > class && pending.take(recall) {
            recall.set_class(class);
            pending.push(Arc::clone(recall));
        } else if class != Class::Ahead && pending.take_postponed(recall) {
            pending.push(Arc::clone(recall));
            self.came.notify_all();
        }
    }

    /// Records that a program began or stopped waiting for a recall.
    pub(crate) fn note_waiters(&self, recall: &Arc<Recall>) {
        self.waiting.lock().note_waiters(recall);
    }

    /// Removes a recall that has not begun; returns whether it was in the queue.
    pub fn cancel(&self, recall: &Arc<Recall>) -> bool {
        self.waiting.lock().take(recall)
    }

    /// Waits for the next recall; returns `None` once the queue is closed.
    pub fn next(&self) -> Option<Arc<Recall>> {
        let mut pending = self.waiting.lock();
        loop {
            if pending.is_closed {
                return None;
            }
            pending.resume_postponed(self.clock.now_ns());
            if let Some(recall) = pending.next() {
                return Some(recall);
            }
            if pending.has_postponed() {
                self.came.wait_for(&mut pending, LOOK_EVERY);
            } else {
                self.came.wait(&mut pending);
            }
        }
    }

    /// Returns the queued and postponed recalls, in no particular order.
    pub fn list(&self) -> Vec<Arc<Recall>> {
        self.waiting.lock().list()
    }

    /// Returns a user's surplus recalls that no program waits for: all postponed ones, and in each
    /// class the oldest queued ones beyond the limit [`OF_A_USER_MAX`].
    pub fn surplus(&self, user: u32) -> Vec<Arc<Recall>> {
        self.waiting.lock().surplus(user)
    }

    /// Returns whether the queue is closed.
    pub fn is_closed(&self) -> bool {
        self.waiting.lock().is_closed
    }

    /// Closes the queue. Waiting threads return, and later calls of [`Self::next`] return at once.
    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.came.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use fslab_vfs::{MonotonicClock, SteppingClock};

    use super::*;
    use crate::engine::recall::waiting::recall_of;

    fn pending(order: Arc<dyn Order>, asked: &[(u64, u32, Class)]) -> Pending {
        let mut pending = Pending::new(order);
        for (number, (block, user, class)) in asked.iter().enumerate() {
            pending.push(recall_of(*block, *user, *class, number as u64));
        }
        pending
    }

    fn blocks(mut pending: Pending) -> Vec<u64> {
        std::iter::from_fn(|| pending.next()).map(|recall| recall.block).collect()
    }

    #[test]
    fn urgent_classes_come_first_and_users_take_turns() {
        use Class::{Ahead, Bulk, Waiting};
        let asked = [
            (1, 7, Ahead),
            (2, 7, Bulk),
            (3, 7, Bulk),
            (4, 7, Bulk),
            (5, 8, Bulk),
            (6, 9, Waiting),
        ];
        assert_eq!(blocks(pending(Arc::new(Fifo), &asked)), [6, 2, 5, 3, 4, 1]);
    }

    /// Recalls of the less urgent classes are served even while programs keep requesting urgent
    /// ones.
    #[test]
    fn every_recall_is_served_eventually() {
        let mut pending =
            pending(Arc::new(Fifo), &[(1000, 7, Class::Ahead), (1001, 8, Class::Bulk)]);
        let mut served = Vec::new();
        for number in 0..16 {
            pending.push(recall_of(number, 9, Class::Waiting, 100 + number));
            served.push(pending.next().unwrap().block);
        }
        let turn_of = |block| served.iter().position(|served| *served == block);
        assert_eq!((turn_of(1000), turn_of(1001)), (Some(7), Some(15)));
    }

    #[test]
    fn sweep_order_serves_recalls_by_position() {
        let asked = [5, 9, 2, 7, 3].map(|block| (block, 7, Class::Bulk));
        assert_eq!(blocks(pending(Arc::new(Sweep), &asked)), [2, 3, 5, 7, 9]);
        let mut pending = pending(Arc::new(Sweep), &asked);
        pending.last = Some(recall_of(6, 7, Class::Bulk, 0).position);
        assert_eq!(blocks(pending), [7, 9, 2, 3, 5]);
    }

    #[test]
    fn oldest_recalls_above_a_users_limit_are_surplus() {
        let queue = Queue::new(Arc::new(Fifo), Arc::new(MonotonicClock));
        for block in 0..OF_A_USER_MAX as u64 + 2 {
            queue.push(recall_of(block, 7, Class::Ahead, block));
        }
        queue.push(recall_of(9, 7, Class::Bulk, 0));
        queue.push(recall_of(9, 8, Class::Ahead, 0));
        let surplus =
            |user| -> Vec<u64> { queue.surplus(user).iter().map(|recall| recall.block).collect() };
        assert_eq!((surplus(7), surplus(8)), (vec![0, 1], vec![]));
    }

    #[test]
    fn postponed_recall_delays_no_other() {
        let queue = Queue::new(Arc::new(Fifo), Arc::new(SteppingClock::new(0)));
        let next = || queue.next().map(|recall| recall.block);
        let (away, other) = (recall_of(1, 7, Class::Bulk, 0), recall_of(2, 7, Class::Bulk, 1));
        let postpone = || queue.postpone(&away, 1);
        assert!(postpone());
        queue.push(other);
        assert_eq!(next(), Some(2));
        assert_eq!(queue.surplus(7).len(), 1, "no program waits for it");
        queue.promote(&away, Class::Ahead);
        queue.push(recall_of(3, 7, Class::Bulk, 2));
        assert_eq!(next(), Some(3), "read-ahead does not requeue a postponed recall");
        queue.promote(&away, Class::Bulk);
        assert_eq!(next(), Some(1), "a bulk request requeues it");
        assert!(postpone());
        queue.resume_postponed();
        assert_eq!(next(), Some(1));
        assert!(postpone() && queue.cancel(&away) && queue.list().is_empty());
        queue.close();
        assert!(!postpone());
    }

    #[test]
    fn recalls_can_be_promoted_and_cancelled() {
        let queue = Queue::new(Arc::new(Fifo), Arc::new(MonotonicClock));
        let recalls = [1, 2, 3].map(|block| recall_of(block, 7, Class::Ahead, block));
        recalls.iter().for_each(|recall| queue.push(Arc::clone(recall)));
        queue.promote(&recalls[2], Class::Waiting);
        queue.promote(&recalls[2], Class::Bulk);
        assert!(queue.cancel(&recalls[0]) && !queue.cancel(&recalls[0]));
        let next = || queue.next().map(|recall| (recall.block, recall.class()));
        assert_eq!(next(), Some((3, Class::Waiting)));
        assert_eq!(next(), Some((2, Class::Ahead)));
        queue.close();
        assert_eq!(next(), None);
    }
}
