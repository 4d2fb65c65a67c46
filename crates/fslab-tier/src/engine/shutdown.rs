//! Shutdown of an engine, also while recalls and commands are running.
//!
//! The process may end right after it. So nobody begins to move bytes once shutdown has begun, and
//! the engine waits for moves under way: a file's state is locked from before its bytes move until
//! its modification time is set back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fslab_vfs::{FileSystem, Ino, Request, Result};
use parking_lot::{Mutex, MutexGuard};

use crate::engine::Tier;
use crate::engine::background::{BackgroundThread, STOP_TIMEOUT};
use crate::error::Error;

/// Interval at which a thread that waits for a lock checks for cancellation.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Where an engine is between its beginning and its end.
#[derive(Default)]
pub(super) struct Lifecycle {
    background: Arc<BackgroundThread>,
    /// From here on nobody moves bytes, or writes where they are.
    is_ending: AtomicBool,
    /// The engine wrote to the tree, or noted that a name went: a clean end makes that durable.
    has_changes: AtomicBool,
}

impl Lifecycle {
    pub(super) fn note_change(&self) {
        self.has_changes.store(true, Ordering::SeqCst);
    }
}

impl Tier {
    /// The thread that does what the mount does by itself.
    pub(crate) fn background(&self) -> &Arc<BackgroundThread> {
        &self.lifecycle.background
    }

    /// Ends: what is known of files in use is written down, and no archive is waited for longer
    /// than a second.
    ///
    /// # Errors
    /// Errors of the file system below.
    pub fn shutdown(&self) -> Result<()> {
        self.lifecycle.is_ending.store(true, Ordering::SeqCst);
        let has_stopped = self.lifecycle.background.stop();
        self.end_queue();
        let settled = self.write_back_all();
        self.wait_for_movers();
        // Who looks for what is needed, or needs it again, looks between two steps whether to go
        // on.
        let alone = self.expiry.try_lock_for(STOP_TIMEOUT);
        if self.lifecycle.has_changes.load(Ordering::SeqCst) {
            self.lower.syncfs(&self.request(), Ino::ROOT)?;
        }
        self.root.leave(&*self.lower)?;
        self.warn_of_busy_archives();
        settled?;
        if !has_stopped || alone.is_none() {
            tracing::warn!(
                "an archive holds the tier up; the next expiry will scan the tree first"
            );
            return Ok(());
        }
        if let Err(error) = self.catalogue.end_use() {
            tracing::warn!(%error, "the next expiry will scan the tree first");
        }
        Ok(())
    }

    /// The kernel keeps a process until all of its calls have returned, and with it its claims.
    fn warn_of_busy_archives(&self) {
        for archive in self.archives.read().iter().filter(|archive| archive.is_busy()) {
            let label = archive.label();
            tracing::warn!("the archive {label} does not answer: this process ends when it does");
        }
    }

    /// Leaves every file in use in order, and waits for who moves bytes of one. What goes wrong
    /// with one keeps none of the others from it.
    fn write_back_all(&self) -> Result<()> {
        let settled: Vec<_> = self.files.all().iter().map(|file| self.settle(file)).collect();
        settled.into_iter().collect()
    }

    /// Asked with a file's state locked, before bytes of it move or it is said where they are.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once the end has begun.
    pub(super) fn check_open(&self) -> crate::Result<()> {
        if self.lifecycle.is_ending.load(Ordering::SeqCst) {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Asked between two steps of what takes long.
    ///
    /// # Errors
    /// [`Error::Interrupted`] where whoever asked is gone, or once the end has begun.
    pub(super) fn check_going(&self, request: &Request) -> crate::Result<()> {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        self.check_open()
    }

    /// Waits for a lock as long as a request goes on.
    pub(super) fn lock_while_going<'a>(
        &self,
        lock: &'a Mutex<()>,
        request: &Request,
    ) -> crate::Result<MutexGuard<'a, ()>> {
        loop {
            self.check_going(request)?;
            if let Some(alone) = lock.try_lock_for(CANCEL_CHECK_INTERVAL) {
                return Ok(alone);
            }
        }
    }
}
