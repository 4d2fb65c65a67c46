//! Shutdown of an engine, even while recalls and commands are running.
//!
//! The process may exit right after the shutdown. So once shutdown has begun, the engine writes and
//! frees no further blocks, and waits for files on which it is doing so. The state of such a file
//! is locked until its modification time is restored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fslab_vfs::{Request, Result};
use parking_lot::{Mutex, MutexGuard};

use crate::engine::Tier;
use crate::engine::background::{BackgroundThread, STOP_TIMEOUT};
use crate::error::Error;

/// Interval at which a thread that waits for a lock checks for cancellation.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The state of an engine from start to shutdown.
#[derive(Default)]
pub(super) struct Lifecycle {
    background: Arc<BackgroundThread>,
    /// Set when shutdown begins. Operations check it before they write or free a file's bytes, or
    /// write a residency.
    is_ending: AtomicBool,
    /// Whether the engine wrote to the tree, or recorded a removed name. A clean shutdown makes
    /// that durable.
    has_changes: AtomicBool,
}

impl Lifecycle {
    pub(super) fn note_change(&self) {
        self.has_changes.store(true, Ordering::SeqCst);
    }
}

impl Tier {
    /// Returns the control of the mount's background thread.
    pub(crate) fn background(&self) -> &Arc<BackgroundThread> {
        &self.lifecycle.background
    }

    /// Shuts down the engine, and writes the residencies of files in use. Waits about one second
    /// for threads that wait for an archive. Waits at most `STOP_TIMEOUT` for a background round,
    /// and again for an operation such as an expiry.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn shutdown(&self) -> Result<()> {
        self.lifecycle.is_ending.store(true, Ordering::SeqCst);
        let has_stopped = self.lifecycle.background.stop();
        self.end_queue();
        let settled = self.write_back_all();
        self.wait_for_movers();
        // A running scan, expiry or repair holds this lock; between two steps it checks for the
        // shutdown.
        let alone = self.expiry.try_lock_for(STOP_TIMEOUT);
        if self.lifecycle.has_changes.load(Ordering::SeqCst) {
            self.sync_tree()?;
        }
        self.root.leave(&*self.lower)?;
        self.warn_of_busy_archives();
        self.record_usage();
        settled?;
        if !has_stopped || alone.is_none() {
            tracing::warn!(
                "an unresponsive archive delays the shutdown; the next expiry will scan the tree \
                 first"
            );
            return Ok(());
        }
        if let Err(error) = self.catalogue.end_use() {
            tracing::warn!(%error, "can't mark the catalogue as closed; the next expiry will scan \
                the tree first");
        }
        Ok(())
    }

    /// Logs the archives with calls in progress. The process can't exit before these calls return,
    /// and keeps its locks until then.
    fn warn_of_busy_archives(&self) {
        for archive in self.archives.read().iter().filter(|archive| archive.is_busy()) {
            let label = archive.label();
            tracing::warn!(
                "the archive {label} does not respond; this process exits only after it responds"
            );
        }
    }

    /// Writes the residency of every file in use, and waits for recalls and releases that are
    /// writing or freeing bytes. An error of one file does not prevent the others from being
    /// written.
    fn write_back_all(&self) -> Result<()> {
        let settled: Vec<_> = self.files.all().iter().map(|file| self.settle(file)).collect();
        settled.into_iter().collect()
    }

    /// Fails once shutdown has begun. Called while a file's state is locked, before its bytes are
    /// written or freed, or its residency is written.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once shutdown has begun.
    pub(super) fn check_open(&self) -> crate::Result<()> {
        if self.lifecycle.is_ending.load(Ordering::SeqCst) {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Fails if the caller has cancelled the request or shutdown has begun. Called between two
    /// steps of long operations.
    ///
    /// # Errors
    /// [`Error::Interrupted`] in both cases.
    pub(super) fn check_going(&self, request: &Request) -> crate::Result<()> {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        self.check_open()
    }

    /// Waits for a lock until the request is cancelled or shutdown begins.
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
