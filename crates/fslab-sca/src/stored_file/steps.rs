//! Steps of an operation on a file in use, each under the file's lock (see `commit`).

use fslab_vfs::{Errno, Request, Result};
use parking_lot::MutexGuard;

use super::{Kind, State, StoredFile};
use crate::commit::{Stepped, Steps, Stop};
use crate::context::Io;
use crate::log::Log;

/// A stored file whose lock is taken for one step at a time.
pub struct InSteps<'a> {
    pub file: &'a StoredFile,
    pub request: &'a Request,
    /// Identifies the stored file; between steps the file may be emptied and rewritten.
    pub file_id: u64,
}

impl InSteps<'_> {
    fn log<'s>(&self, state: &'s State) -> std::result::Result<&'s Log, Stop> {
        match &state.kind {
            Kind::Stored(log) if log.identity().file_id == self.file_id && !state.is_closed => {
                Ok(log)
            }
            _ => Err(Stop::Gone),
        }
    }
}

impl Steps for InSteps<'_> {
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.file.maintenance.lock()
    }

    fn look<T>(&self, work: impl FnOnce(Io<'_>, &Log) -> Result<T>) -> Stepped<T> {
        let state = self.file.state.read();
        let log = self.log(&state)?;
        Ok(work(state.io(self.request, &self.file.settings), log)?)
    }

    fn step<T>(&self, work: impl FnOnce(Io<'_>, &mut Log) -> Result<T>) -> Stepped<T> {
        let mut state = self.file.state.write();
        self.log(&state)?;
        let lower = state.lower.clone();
        let (io, log) = state.begin_change(self.request, &self.file.settings)?;
        Ok(lower.keeping_all(self.request, || work(io, log))?)
    }

    fn look_and_note<T>(&self, work: impl FnOnce(Io<'_>, &mut Log) -> Result<T>) -> Stepped<T> {
        let mut state = self.file.state.write();
        self.log(&state)?;
        let lower = state.lower.clone();
        match &mut state.kind {
            Kind::Stored(log) => Ok(work(Io::new(&lower, self.request, &self.file.settings), log)?),
            _ => Err(Stop::Gone),
        }
    }

    fn sync_below(&self, data_only: bool) -> Stepped<()> {
        let state = self.file.state.read();
        if self.log(&state)?.commits.sync_has_failed() {
            return Err(Stop::Failed(Errno::IO.into()));
        }
        let lower = state.lower.clone();
        drop(state);
        let Err(error) = lower.sync(self.request, data_only) else { return Ok(()) };
        if let Kind::Stored(log) = &mut self.file.state.write().kind
            && log.identity().file_id == self.file_id
        {
            log.commits.note_failed_sync();
        }
        Err(error.into())
    }
}
