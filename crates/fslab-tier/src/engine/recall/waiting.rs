//! The recall of one block, and who waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fslab_vfs::{Errno, Request};
use parking_lot::{Condvar, Mutex};

use crate::engine::files::{FileUse, TieredFile};
use crate::engine::recall::order::{Class, Position};

/// A block on its way.
pub struct Recall {
    /// The file.
    pub file: Arc<TieredFile>,
    /// The block.
    pub block: u64,
    /// Who asked first.
    pub user: u32,
    /// When, by the engine's clock.
    pub asked_ns: u64,
    /// Where it lies.
    pub position: Position,
    pub(super) class: Mutex<Class>,
    /// Who waits for it.
    pub(super) waiters: Mutex<Vec<WaitingFor>>,
    /// It is being read.
    pub(super) is_begun: AtomicBool,
    /// How often all archives that hold it were unavailable.
    pub(super) times_postponed: AtomicU32,
    /// The file stays in use until this is done: a later use must not find it otherwise than this.
    pub(super) used: Mutex<Option<FileUse>>,
    /// Its block is in its place, and it is about to end.
    pub(super) has_landed: AtomicBool,
    pub(super) outcome: Mutex<Option<std::result::Result<(), Errno>>>,
    pub(super) done: Condvar,
}

impl Recall {
    pub(super) fn new(
        (file, block): (&Arc<TieredFile>, u64),
        user: u32,
        asked_ns: u64,
        position: Position,
        class: Class,
        used: Option<FileUse>,
    ) -> Arc<Self> {
        Arc::new(Self {
            file: Arc::clone(file),
            block,
            user,
            asked_ns,
            position,
            class: Mutex::new(class),
            waiters: Mutex::default(),
            is_begun: AtomicBool::new(false),
            times_postponed: AtomicU32::new(0),
            used: Mutex::new(used),
            has_landed: AtomicBool::new(false),
            outcome: Mutex::new(None),
            done: Condvar::new(),
        })
    }

    /// How urgent it is.
    pub fn class(&self) -> Class {
        *self.class.lock()
    }

    pub(crate) fn set_class(&self, class: Class) {
        *self.class.lock() = class;
    }

    /// How many wait for it.
    pub fn waiters(&self) -> usize {
        self.waiters.lock().len()
    }

    /// Who waits for it.
    pub(crate) fn who_waits(&self) -> Vec<WaitingFor> {
        self.waiters.lock().clone()
    }

    /// Whether a thread reads it already.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::SeqCst)
    }

    /// Whether it waits for an archive that is unavailable.
    pub(crate) fn is_postponed(&self) -> bool {
        self.times_postponed.load(Ordering::SeqCst) > 0
    }

    /// Ends it for all who wait.
    pub(crate) fn end(&self, outcome: std::result::Result<(), Errno>) {
        // Before anybody goes on: he may find nobody else who uses the file.
        self.leave();
        *self.outcome.lock() = Some(outcome);
        self.done.notify_all();
    }

    /// Ends its use of the file.
    pub(super) fn leave(&self) {
        drop(self.used.lock().take());
    }

    /// Waits until it has ended.
    pub(super) fn join(&self) {
        let mut outcome = self.outcome.lock();
        self.done.wait_while(&mut outcome, |outcome| outcome.is_none());
    }
}

/// A process that waits for a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingFor {
    /// Its user.
    pub user: u32,
    /// Its number, 0 where that is not known.
    pub pid: u32,
}

/// Who waits for a recall, until dropped. Begun with the file locked: nobody ends a recall for want
/// of waiters meanwhile.
pub(super) struct Waiter {
    pub(super) recall: Arc<Recall>,
    who: WaitingFor,
    pub(super) class: Class,
    /// How often it was put off before.
    times_postponed: u32,
}

impl Waiter {
    pub(super) fn new(recall: &Arc<Recall>, request: &Request, class: Class) -> Self {
        let who = WaitingFor { user: request.credentials.uid, pid: request.pid };
        recall.waiters.lock().push(who);
        let times_postponed = recall.times_postponed.load(Ordering::SeqCst);
        Self { recall: Arc::clone(recall), who, class, times_postponed }
    }

    /// Whether all archives are unavailable that hold it, and other files are to be gone on with.
    pub(super) fn goes_on(&self) -> bool {
        self.class != Class::Waiting
            && self.recall.times_postponed.load(Ordering::SeqCst) > self.times_postponed
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.recall.waiters.lock();
        if let Some(index) = waiters.iter().position(|who| *who == self.who) {
            waiters.swap_remove(index);
        }
    }
}

/// A recall of no file, for tests of queues.
#[cfg(test)]
pub(crate) fn recall_of(block: u64, user: u32, class: Class, asked_ns: u64) -> Arc<Recall> {
    let position = Position { place: block, ..Position::default() };
    Recall::new((&Arc::default(), block), user, asked_ns, position, class, None)
}
