//! The end of an engine, while others still have it do something: recalls whose archive answers
//! late, and what users asked for beside the mount.
//!
//! The process may end right behind it, in the middle of whatever they do. So nobody begins to move
//! bytes once the end has begun, and who had begun is waited for: a file's state is locked from
//! before its bytes move until its time is set back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fslab_vfs::{Errno, FileSystem, Ino, Request, Result};

use crate::engine::Tier;
use crate::error::Error;
use crate::rounds::PATIENCE;

impl Tier {
    /// Ends: what is known of files in use is written down, and no archive is waited for longer
    /// than a second.
    ///
    /// # Errors
    /// What the file system below answers.
    pub fn shutdown(&self) -> Result<()> {
        self.is_ending.store(true, Ordering::SeqCst);
        let has_stopped = self.rounds.stop();
        self.end_queue();
        let settled = self.settle_all();
        self.wait_for_movers();
        // Who looks for what is needed, or needs it again, looks between two steps whether to go
        // on.
        let alone = self.unneeded.try_lock_for(PATIENCE);
        if self.has_acted.load(Ordering::SeqCst) {
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

    fn end_queue(&self) {
        self.queue.close();
        self.queue.list().iter().for_each(|recall| {
            if self.queue.cancel(recall) {
                recall.file.lock().flight.remove(&recall.block);
                recall.end(Err(Errno::INTR));
            }
        });
    }

    /// Waits for the threads that recall files: an idle one ends at once and gives the archives
    /// back. A thread whose archive does not answer is waited for no longer than a second.
    fn wait_for_movers(&self) {
        const PAUSE: Duration = Duration::from_millis(1);
        const PAUSES: usize = 1000;
        let mut movers = self.movers.lock();
        for _ in 0..PAUSES {
            movers.retain(|mover| !mover.is_finished());
            if movers.is_empty() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Leaves every file in use in order, and waits for who moves bytes of one. What goes wrong
    /// with one keeps none of the others from it.
    fn settle_all(&self) -> Result<()> {
        let settled: Vec<_> = self.files.all().iter().map(|file| self.settle(file)).collect();
        settled.into_iter().collect()
    }

    /// Asked with a file's state locked, before bytes of it move or it is said where they are.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once the end has begun.
    pub(super) fn check_open(&self) -> crate::Result<()> {
        if self.is_ending.load(Ordering::SeqCst) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Asked between two steps of what takes long.
    ///
    /// # Errors
    /// [`Error::Interrupted`] where whoever asked is gone, or once the end has begun.
    pub(super) fn check_going(&self, request: &Request) -> crate::Result<()> {
        request.cancellation.check().or(Err(Error::Interrupted))?;
        self.check_open()
    }
}
