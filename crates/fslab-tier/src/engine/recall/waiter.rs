//! The registration of a process that waits for a recall, on a thread or with a deferred request.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_vfs::{Request, Waker};

use crate::engine::recall::order::Class;
use crate::engine::recall::queue::Queue;
use crate::engine::recall::waiting::{Recall, WaitingFor};

/// A registered waiting process; dropping this removes the registration. It is created while the
/// file's state is locked, so that no thread cancels the recall as unneeded before the
/// registration.
pub(super) struct Waiter {
    pub(super) recall: Arc<Recall>,
    queue: Arc<Queue>,
    number: u64,
    pub(super) class: Class,
    /// How often the recall had been postponed when the wait began.
    times_postponed: u32,
}

impl Waiter {
    pub(super) fn new(
        queue: &Arc<Queue>,
        recall: &Arc<Recall>,
        request: &Request,
        class: Class,
    ) -> Self {
        let who = WaitingFor { user: request.credentials.uid, pid: request.pid };
        let mut waiters = recall.waiters.lock();
        let number = waiters.next;
        waiters.next += 1;
        waiters.by_number.insert(number, (who, None));
        let is_first = waiters.by_number.len() == 1;
        drop(waiters);
        if is_first {
            queue.note_waiters(recall);
        }
        let times_postponed = recall.times_postponed.load(Ordering::SeqCst);
        let (queue, recall) = (Arc::clone(queue), Arc::clone(recall));
        Self { recall, queue, number, class, times_postponed }
    }

    /// Stores the waker of a deferred request, which the end of the recall will call. The caller
    /// holds the lock of the recall's outcome and has seen that it is `None`.
    pub(super) fn set_waker(&self, waker: Waker) {
        if let Some((_, place)) = self.recall.waiters.lock().by_number.get_mut(&self.number) {
            *place = Some(waker);
        }
    }

    /// Returns whether the caller must stop waiting, because it can continue with other files and
    /// the recall was postponed during the wait.
    pub(super) fn goes_on(&self) -> bool {
        self.class != Class::Waiting
            && self.recall.times_postponed.load(Ordering::SeqCst) > self.times_postponed
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.recall.waiters.lock();
        let removed = waiters.by_number.remove(&self.number);
        let is_last = waiters.by_number.is_empty();
        drop((waiters, removed));
        if is_last {
            self.queue.note_waiters(&self.recall);
        }
    }
}

/// The state of a deferred request. Its process remains registered as waiting.
pub(super) struct Deferred {
    pub(super) waiter: Waiter,
    /// When the wait began, in nanoseconds of the engine's clock.
    pub(super) begun_ns: u64,
}
