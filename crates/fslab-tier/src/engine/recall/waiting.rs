//! The recall of one block, and the processes that wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fslab_vfs::{Errno, Waker};
use parking_lot::{Condvar, Mutex};

use crate::archive::Later;
use crate::engine::files::{FileUse, TieredFile};
use crate::engine::recall::cold_storage::{Asker, MayStage, Staging};
use crate::engine::recall::order::{Class, Place, Position};

/// The recall of one requested block.
pub struct Recall {
    /// The file that contains the block.
    pub file: Arc<TieredFile>,
    /// The number of the block in the file.
    pub block: u64,
    /// The user who requested the block first.
    pub user: u32,
    /// When the block was requested, in nanoseconds of the engine's clock.
    pub asked_ns: u64,
    /// The position of the block in its archive.
    pub position: Position,
    pub(super) class: Mutex<Class>,
    /// The processes that wait for the recall.
    pub(super) waiters: Mutex<Waiters>,
    /// The recall's entry in the queue; `None` if it is not queued. Changed only by the queue.
    pub(super) place: Mutex<Option<Place>>,
    /// Whether the block is being read.
    pub(super) is_begun: AtomicBool,
    /// How often the recall was postponed because each archive that contains the block was
    /// unavailable or had it in cold storage.
    pub(super) times_postponed: AtomicU32,
    /// If the block is in cold storage: whether an archive stages it, at the last attempt.
    pub(super) staging: Mutex<Option<Staging>>,
    /// Keeps the file in use until the recall ends, so that later users share the state that the
    /// recall changes.
    pub(super) used: Mutex<Option<FileUse>>,
    /// Whether the block was written, so that the recall is about to end.
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
            place: Mutex::default(),
            is_begun: AtomicBool::new(false),
            times_postponed: AtomicU32::new(0),
            staging: Mutex::default(),
            used: Mutex::new(used),
            has_landed: AtomicBool::new(false),
            outcome: Mutex::new(None),
            done: Condvar::new(),
        })
    }

    /// Returns the urgency of the recall.
    pub fn class(&self) -> Class {
        *self.class.lock()
    }

    pub(crate) fn set_class(&self, class: Class) {
        *self.class.lock() = class;
    }

    /// Returns the number of waiting processes.
    pub fn waiters(&self) -> usize {
        self.waiters.lock().by_number.len()
    }

    /// Returns the waiting processes.
    pub(crate) fn who_waits(&self) -> Vec<WaitingFor> {
        self.waiters.lock().by_number.values().map(|(who, _)| *who).collect()
    }

    /// Returns whether a copy in cold storage may be staged for the recall.
    pub(super) fn may_stage(&self) -> MayStage {
        match self.class() {
            // Perhaps no program ever reads the block.
            Class::Ahead if self.waiters() == 0 => MayStage::No,
            Class::Bulk => MayStage::For(Asker::Command),
            Class::Ahead | Class::Waiting => MayStage::For(Asker::Program),
        }
    }

    /// Returns the reason why the recall waits, if an archive is staging its block.
    pub(crate) fn later(&self) -> Option<Later> {
        match self.staging()? {
            Staging::Begun(later) => Some(later),
            Staging::NotYet => None,
        }
    }

    /// Returns whether an archive stages the block; `None` if the block was not in cold storage.
    pub(super) fn staging(&self) -> Option<Staging> {
        self.staging.lock().clone()
    }

    /// Records whether an archive stages the block. An archive that began to stage the block and is
    /// unavailable now probably continues, so `NotYet` does not replace `Begun`.
    pub(super) fn note_staging(&self, staging: Staging) {
        let mut known = self.staging.lock();
        if known.is_none() || matches!(staging, Staging::Begun(_)) {
            *known = Some(staging);
        }
    }

    /// Returns whether a thread is already reading the block.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::SeqCst)
    }

    /// Ends the recall with an outcome, and wakes all waiting processes.
    pub(crate) fn end(&self, outcome: std::result::Result<(), Errno>) {
        // The recall's use of the file ends before processes are woken, because a woken process may
        // have to be the file's only user.
        self.leave();
        *self.outcome.lock() = Some(outcome);
        self.done.notify_all();
        self.wake_deferred();
    }

    /// Wakes the deferred requests.
    fn wake_deferred(&self) {
        let mut waiters = self.waiters.lock();
        let wakers = waiters.by_number.values_mut().filter_map(|(_, waker)| waker.take());
        let wakers: Vec<_> = wakers.collect();
        drop(waiters);
        wakers.iter().for_each(Waker::wake);
    }

    /// Ends the recall's use of the file.
    pub(super) fn leave(&self) {
        drop(self.used.lock().take());
    }

    pub(super) fn has_ended(&self) -> bool {
        self.outcome.lock().is_some()
    }

    /// Waits until the recall has ended.
    pub(super) fn join(&self) {
        let mut outcome = self.outcome.lock();
        self.done.wait_while(&mut outcome, |outcome| outcome.is_none());
    }
}

/// A process that waits for a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingFor {
    /// The user of the process.
    pub user: u32,
    /// The process ID; 0 if unknown.
    pub pid: u32,
}

/// The waiting processes of one recall, in the order of their arrival.
#[derive(Default)]
pub(super) struct Waiters {
    pub(super) by_number: BTreeMap<u64, (WaitingFor, Option<Waker>)>,
    /// The number that the next waiting process gets.
    pub(super) next: u64,
}

/// Returns a recall of a placeholder file, for tests of queues.
#[cfg(test)]
pub(crate) fn recall_of(block: u64, user: u32, class: Class, asked_ns: u64) -> Arc<Recall> {
    recall_at(Position { place: block, ..Position::default() }, user, class, asked_ns)
}

/// Returns a recall of a placeholder file at a position.
#[cfg(test)]
pub(crate) fn recall_at(position: Position, user: u32, class: Class, asked_ns: u64) -> Arc<Recall> {
    Recall::new((&Arc::default(), position.place), user, asked_ns, position, class, None)
}
