//! Rebuilds the damaged index of a stored file from its frames.
//!
//! The walk over all frames takes long, so other threads may use the file during the walk.

use std::time::Duration;

use fslab_vfs::{Errno, Request, Result};
use parking_lot::MutexGuard;

use super::{Kind, State, StoredFile};
use crate::context::Io;
use crate::frame::Identity;
use crate::log::Log;
use crate::recovery::{Search, in_place_of, searched};

/// Interval at which a waiting caller checks for cancellation.
const CHECK_EVERY: Duration = Duration::from_millis(50);

impl StoredFile {
    /// Runs `work`. If it fails and the index is damaged, rebuilds the index from the frames and
    /// runs `work` again. That is safe, because an operation that fails for this reason has changed
    /// nothing.
    pub(super) fn healing<T>(
        &self,
        request: &Request,
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        match work() {
            Err(_) if self.is_to_be_healed() && self.heal(request)? => work(),
            answer => answer,
        }
    }

    fn is_to_be_healed(&self) -> bool {
        self.state.read().to_be_healed().is_some()
    }

    /// Replaces a damaged index with one built from the frames; returns whether it is intact now.
    ///
    /// # Errors
    /// Errors of reading the lower file; `EINTR` if the caller no longer waits.
    fn heal(&self, request: &Request) -> Result<bool> {
        // The maintenance lock is held, because frames that are freed or moved during the walk
        // would seem damaged.
        let _turn = self.turn_of(request)?;
        let state = self.state.read();
        let Some(log) = state.to_be_healed() else {
            // Another caller has rebuilt the index, or has failed to rebuild it.
            return Ok(!state.heal_has_failed);
        };
        let (lower, identity) = (state.lower.clone(), *log.identity());
        drop(state);
        let io = Io::new(&lower, request, &self.settings);
        let search = || {
            let search = Search::begin(io, identity, lower.length(request)?)?;
            self.take_over(search)
        };
        let healed = self.settings.failed_searches.search(searched(io)?, search);
        let is_cut_short = matches!(&healed, Err(error) if error.errno() == Errno::INTR);
        if !is_cut_short && !matches!(healed, Ok(Some(()))) {
            let mut state = self.state.write();
            state.heal_has_failed = state.is_stored_as(&identity);
        }
        Ok(healed?.is_some())
    }

    /// Ends a search and replaces the log by the one that it found. Returns `None` if frames are
    /// missing.
    fn take_over(&self, search: Search<'_>) -> Result<Option<()>> {
        let (io, identity) = (search.io(), *search.identity());
        let mut state = self.state.write();
        if !state.is_stored_as(&identity) {
            // The file was emptied during the search, so it needs no index.
            return Ok(Some(()));
        }
        let Kind::Stored(log) = &mut state.kind else { return Ok(None) };
        let found = search.end(io.lower.length(io.request)?)?;
        let found = in_place_of(log, found, io).filter(|found| found.size() == log.size());
        Ok(found.map(|found| **log = found))
    }

    /// Waits for the maintenance lock, or until the caller cancels.
    fn turn_of(&self, request: &Request) -> Result<MutexGuard<'_, ()>> {
        loop {
            if let Some(turn) = self.maintenance.try_lock_for(CHECK_EVERY) {
                return Ok(turn);
            }
            request.cancellation.check()?;
        }
    }
}

impl State {
    /// Returns the stored file, if its index is damaged and may be rebuilt.
    fn to_be_healed(&self) -> Option<&Log> {
        let Kind::Stored(log) = &self.kind else { return None };
        // Superseded content is about to be cut off, but a walk over the frames would still find
        // it.
        let may_be_healed = !log.journal.is_superseding() && !self.heal_has_failed;
        (may_be_healed && log.map.is_damaged()).then_some(log)
    }

    fn is_stored_as(&self, identity: &Identity) -> bool {
        matches!(&self.kind, Kind::Stored(log) if log.identity().file_id == identity.file_id)
    }
}
