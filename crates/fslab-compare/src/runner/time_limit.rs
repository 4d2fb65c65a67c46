//! How long one run may take: a target that hangs must not cost the others their samples.
//!
//! At the limit the run is asked to stop, which one that is only slow does between two
//! operations. A run that waits for a file system in user space can't: after a little patience
//! the connections below the work directory are broken off, and the waiting ends with errors.
//! A kernel's own file system that hangs can't be helped from outside.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use fslab_sys::fuse_control;
use fslab_sys::signals::Interrupt;

use crate::error::{Error, Result};

/// How long a run is given to stop by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// The watch over one run.
pub(super) struct Watch {
    limit: Duration,
    end: Sender<()>,
    thread: JoinHandle<bool>,
}

impl Watch {
    /// Begins to watch a run that works below `work` and looks at `interrupt`.
    ///
    /// # Errors
    /// Where there can be no thread more.
    pub fn begin(limit: Duration, interrupt: Interrupt, work: &Path) -> Result<Self> {
        let (end, ended) = channel();
        let work = work.to_owned();
        let thread = std::thread::Builder::new()
            .name("fslab-limit".to_owned())
            .spawn(move || watch(limit, &interrupt, &work, &ended))
            .map_err(|source| Error::Start { program: "a thread".to_owned(), source })?;
        Ok(Self { limit, end, thread })
    }

    /// Ends the watch with the run, and answers what the run came to: its failure is that it took
    /// too long, where it did.
    pub fn end<T>(self, ran: Result<T>) -> Result<T> {
        // Nobody listens any more where the thread has panicked, which joining it tells.
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

/// Answers whether the limit was passed.
fn watch(limit: Duration, interrupt: &Interrupt, work: &Path, ended: &Receiver<()>) -> bool {
    if ended.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
        return false;
    }
    interrupt.raise();
    // Again and again: what is mounted anew meanwhile may hang as well.
    while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        match place(work).and_then(|place| fuse_control::abort_below(work, &place)) {
            Ok(count) => tracing::warn!(count, "broke off what hangs"),
            Err(error) => tracing::warn!(%error, "can't break off what hangs"),
        }
    }
    true
}

fn place(work: &Path) -> std::io::Result<PathBuf> {
    let place = work.join("fusectl");
    std::fs::create_dir_all(&place).map(|()| place)
}
