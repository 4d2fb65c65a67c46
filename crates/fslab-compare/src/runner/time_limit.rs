//! The time limit of a run. Without it, a hanging target would prevent the measurement of the
//! others.
//!
//! At the limit the run is interrupted. A slow run stops between two operations. A run that waits
//! for a file system in user space can't stop by itself. After 2 seconds the FUSE connections below
//! the work directory are aborted, so that the waiting calls fail. A run that hangs in a file
//! system of the kernel can't be stopped.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use fslab_sys::fuse_control;
use fslab_sys::signals::Interrupt;

use crate::error::{Error, Result};

/// The time that a run has to stop by itself, and the interval between attempts to abort its
/// mounts.
const PATIENCE: Duration = Duration::from_secs(2);

/// A thread that watches the time limit of one run.
pub(super) struct Watch {
    limit: Duration,
    end: Sender<()>,
    thread: JoinHandle<bool>,
}

impl Watch {
    /// Starts the watch of a run that uses the directory `work` and checks `interrupt`.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn begin(limit: Duration, interrupt: Interrupt, work: &Path) -> Result<Self> {
        let (end, ended) = channel();
        let work = work.to_owned();
        let thread = std::thread::Builder::new()
            .name("fslab-limit".to_owned())
            .spawn(move || watch(limit, &interrupt, &work, &ended))
            .map_err(|source| Error::Start { program: "a thread".to_owned(), source })?;
        Ok(Self { limit, end, thread })
    }

    /// Ends the watch and returns the result of the run. A failure after the limit becomes an error
    /// that states the limit.
    pub fn end<T>(self, ran: Result<T>) -> Result<T> {
        // Dropping the sender ends the thread. If the thread has panicked, the limit is treated as
        // not passed.
        drop(self.end);
        let passed = self.thread.join().unwrap_or(false);
        match ran {
            Err(_) if passed => Err(Error::Failed(format!(
                "took longer than {} s (`run_limit_seconds` of the plan)",
                self.limit.as_secs()
            ))),
            ran => ran,
        }
    }
}

/// Waits for the end of the run; returns whether the limit was passed.
fn watch(limit: Duration, interrupt: &Interrupt, work: &Path, ended: &Receiver<()>) -> bool {
    if ended.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
        return false;
    }
    interrupt.raise();
    // This is repeated, because a file system that is mounted in the meantime may hang, too.
    while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        match place(work).and_then(|place| fuse_control::abort_below(work, &place)) {
            Ok(count) => tracing::warn!(count, "aborted hanging FUSE connections"),
            Err(error) => tracing::warn!(%error, "can't abort hanging FUSE connections"),
        }
    }
    true
}

fn place(work: &Path) -> std::io::Result<PathBuf> {
    let place = work.join("fusectl");
    std::fs::create_dir_all(&place).map(|()| place)
}
