//! A time limit for each call of an archive. A server that hangs, or a disk that does not answer,
//! makes its archive unavailable: whoever asked gets `NotConnected`, and other archives are asked.
//!
//! A call can't be taken back: a thread of its own makes it and may stay in it for ever. While one
//! is late, no other call is begun, so an archive that hangs holds as many threads as it had calls
//! then. Once all late calls have returned the archive is available again.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use fslab_vfs::Clock;

use super::call_threads::CallThreads;
use super::unavailable::unavailable_error;
use super::{Archive, Container, ContainerKind, Upload};
use crate::id::Id;

/// How often a waiting caller looks at the clock, which is not the one that the system waits by.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// An archive that moves bytes more slowly than this is late: they are added to the limit.
const CALL_BYTES_A_SECOND: u64 = 1 << 20;

/// The same of the end of a container, which waits until all of it is durable.
const FINISH_BYTES_A_SECOND: u64 = 4 << 20;

/// Bytes of a container that go out in one call: a thread takes some time to wake up, and small
/// containers come in small pieces.
const TOGETHER_BYTES: usize = 128 << 10;

/// Containers that a listing may be ahead of its caller.
const LISTED_AHEAD: usize = 1024;

/// Called once an archive that was late answers again.
pub(crate) type Returned = Box<dyn Fn() + Send + Sync>;

/// An archive whose calls have a time limit.
pub(crate) struct TimeoutArchive {
    archive: Arc<dyn Archive>,
    calls: Arc<Calls>,
}

/// What the threads that make calls share.
struct Calls {
    label: String,
    clock: Arc<dyn Clock>,
    limit: Duration,
    workers: CallThreads,
    /// Calls that have not returned.
    under_way: AtomicUsize,
    /// Calls that have passed their limit and not returned.
    late: AtomicUsize,
    came_back: AtomicBool,
    returned: Returned,
}

/// A call under way, as its caller has it.
struct Call<T> {
    outcome: Receiver<io::Result<T>>,
    /// It has returned, or was given up: what comes second does not count.
    is_decided: Arc<AtomicBool>,
    begun_ns: Cell<u64>,
    limit: Duration,
}

impl TimeoutArchive {
    pub(crate) fn new(
        archive: Arc<dyn Archive>,
        (clock, limit): (Arc<dyn Clock>, Duration),
        returned: Returned,
    ) -> Self {
        let (label, workers) = (archive.label().to_owned(), CallThreads::default());
        let (late, came_back) = (AtomicUsize::new(0), AtomicBool::new(false));
        let under_way = AtomicUsize::new(0);
        let calls = Calls { label, clock, limit, workers, under_way, late, came_back, returned };
        Self { archive, calls: Arc::new(calls) }
    }

    /// The limit of a call; none where the archive ends its calls itself.
    fn limit_of(&self, bytes: u64, bytes_a_second: u64) -> Duration {
        match self.archive.limits_its_calls() {
            true => Duration::MAX,
            false => self.calls.limit_of(bytes, bytes_a_second),
        }
    }

    fn call<T: Send + 'static>(
        &self,
        bytes: usize,
        ask: impl FnOnce(&dyn Archive) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let limit = self.limit_of(bytes as u64, CALL_BYTES_A_SECOND);
        let archive = Arc::clone(&self.archive);
        let call = self.calls.begin(limit, move || ask(&*archive))?;
        self.calls.wait(&call)
    }
}

impl Calls {
    fn limit_of(&self, bytes: u64, bytes_a_second: u64) -> Duration {
        self.limit.saturating_add(Duration::from_secs(bytes / bytes_a_second))
    }

    fn why_late(&self) -> Option<String> {
        let late = self.late.load(Ordering::SeqCst);
        let limit = self.limit.as_secs();
        (late > 0).then(|| format!("it has not answered within {limit} seconds"))
    }

    fn check(&self) -> io::Result<()> {
        self.why_late().map_or(Ok(()), |why| Err(unavailable_error(&why)))
    }

    /// Has a thread make a call.
    fn begin<T: Send + 'static>(
        self: &Arc<Self>,
        limit: Duration,
        ask: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<Call<T>> {
        self.check()?;
        let (sender, outcome) = sync_channel(1);
        let (calls, is_decided) = (Arc::downgrade(self), Arc::new(AtomicBool::new(false)));
        let begun_ns = Cell::new(self.clock.now_ns());
        let call = Call { outcome, is_decided: Arc::clone(&is_decided), begun_ns, limit };
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let started = self.workers.run(Box::new(move || {
            // What the call held of the archive is dropped before its caller goes on.
            let outcome = catch_unwind(AssertUnwindSafe(ask));
            let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("the archive panicked")));
            let calls = calls.upgrade();
            calls.iter().for_each(|calls| calls.has_returned());
            if !is_decided.swap(true, Ordering::SeqCst) {
                // Who goes without waiting needs no answer.
                return sender.send(outcome).unwrap_or_default();
            }
            drop(outcome);
            calls.iter().for_each(|calls| calls.one_returned());
        }));
        started.inspect_err(|_| self.has_returned())?;
        Ok(call)
    }

    /// Waits for a call until its limit has passed.
    fn wait<T>(&self, call: &Call<T>) -> io::Result<T> {
        loop {
            match call.outcome.recv_timeout(LOOK_EVERY) {
                Ok(outcome) => return outcome,
                Err(_) => self.check_limit(call)?,
            }
        }
    }

    /// Gives a call up whose limit has passed.
    fn check_limit<T>(&self, call: &Call<T>) -> io::Result<()> {
        let took_ns = self.clock.now_ns().saturating_sub(call.begun_ns.get());
        let is_late = Duration::from_nanos(took_ns) >= call.limit;
        if is_late && !call.is_decided.swap(true, Ordering::SeqCst) {
            return Err(self.one_is_late());
        }
        Ok(())
    }

    fn one_is_late(&self) -> io::Error {
        self.late.fetch_add(1, Ordering::SeqCst);
        let why = self.why_late().unwrap_or_default();
        tracing::warn!("the archive {} is unavailable for now: {why}", self.label);
        unavailable_error(&why)
    }

    fn has_returned(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    fn one_returned(&self) {
        if self.late.fetch_sub(1, Ordering::SeqCst) == 1 {
            tracing::warn!("the archive {} answers again", self.label);
            self.came_back.store(true, Ordering::SeqCst);
            (self.returned)();
        }
    }
}

impl Archive for TimeoutArchive {
    fn id(&self) -> Id {
        self.archive.id()
    }

    fn label(&self) -> &str {
        &self.calls.label
    }

    fn refusal(&self) -> Option<String> {
        self.archive.refusal()
    }

    fn is_authentic(&self) -> bool {
        self.archive.is_authentic()
    }

    fn why_unavailable(&self) -> Option<String> {
        self.calls.why_late().or_else(|| self.archive.why_unavailable())
    }

    fn limits_its_calls(&self) -> bool {
        self.archive.limits_its_calls()
    }

    fn is_busy(&self) -> bool {
        self.calls.under_way.load(Ordering::SeqCst) > 0
    }

    fn check(&self) -> io::Result<()> {
        self.call(0, |archive| archive.check())
    }

    fn look(&self) -> bool {
        let came_back = self.calls.came_back.swap(false, Ordering::SeqCst);
        self.archive.look() || came_back
    }

    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>> {
        let upload = self.call(0, move |archive| archive.begin(container))?;
        let (calls, pending) = (Arc::clone(&self.calls), Vec::new());
        let is_limited = !self.archive.limits_its_calls();
        Ok(Box::new(TimedUpload { upload: Some(upload), calls, is_limited, pending, bytes: 0 }))
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len();
        let (count, bytes) = self.call(length, move |archive| {
            let mut bytes = vec![0; length];
            Ok((archive.read(container, offset, &mut bytes)?, bytes))
        })?;
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn length(&self, container: Container) -> io::Result<u64> {
        self.call(0, move |archive| archive.length(container))
    }

    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()> {
        let (listed, found) = sync_channel(LISTED_AHEAD);
        let (archive, limit) = (Arc::clone(&self.archive), self.limit_of(0, 1));
        let call = self.calls.begin(limit, move || {
            // Nobody listens any more where it was late.
            archive.list(kind, &mut |id, length| listed.send((id, length)).unwrap_or_default())
        })?;
        loop {
            match found.recv_timeout(LOOK_EVERY) {
                Ok((id, length)) => {
                    visit(id, length);
                    // It goes on: its limit begins anew.
                    call.begun_ns.set(self.calls.clock.now_ns());
                }
                Err(RecvTimeoutError::Timeout) => self.calls.check_limit(&call)?,
                Err(RecvTimeoutError::Disconnected) => return self.calls.wait(&call),
            }
        }
    }

    fn forget(&self, container: Container) {
        let forgotten = self.call(0, move |archive| {
            archive.forget(container);
            Ok(())
        });
        if let Err(error) = forgotten {
            tracing::debug!(%error, "an archive that does not answer remembers a container");
        }
    }

    fn delete(&self, container: Container) -> io::Result<()> {
        self.call(0, move |archive| archive.delete(container))
    }

    fn free_bytes(&self) -> Option<u64> {
        self.call(0, |archive| Ok(archive.free_bytes())).ok().flatten()
    }

    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        self.archive.position(container, offset)
    }
}

/// A container that is being written. A call that is late keeps it, and it ends there.
struct TimedUpload {
    upload: Option<Box<dyn Upload>>,
    calls: Arc<Calls>,
    is_limited: bool,
    /// What no call has taken yet.
    pending: Vec<u8>,
    bytes: u64,
}

impl TimedUpload {
    fn take(&mut self) -> io::Result<(Box<dyn Upload>, Vec<u8>)> {
        self.calls.check()?;
        let ended = || unavailable_error("an earlier call for the container failed or is late");
        Ok((self.upload.take().ok_or_else(ended)?, std::mem::take(&mut self.pending)))
    }

    fn limit_of(&self, bytes: u64, bytes_a_second: u64) -> Duration {
        match self.is_limited {
            true => self.calls.limit_of(bytes, bytes_a_second),
            false => Duration::MAX,
        }
    }

    fn call<T: Send + 'static>(
        &self,
        limit: Duration,
        ask: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let call = self.calls.begin(limit, ask)?;
        self.calls.wait(&call)
    }
}

impl Upload for TimedUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.calls.check()?;
        self.pending.extend(bytes);
        self.bytes += bytes.len() as u64;
        if self.pending.len() < TOGETHER_BYTES {
            return Ok(());
        }
        let (mut upload, bytes) = self.take()?;
        let limit = self.limit_of(bytes.len() as u64, CALL_BYTES_A_SECOND);
        let upload = self.call(limit, move || {
            upload.write(&bytes)?;
            Ok(upload)
        })?;
        self.upload = Some(upload);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        let (mut upload, bytes) = self.take()?;
        let limit = self.limit_of(self.bytes, FINISH_BYTES_A_SECOND);
        self.call(limit, move || {
            upload.write(&bytes)?;
            upload.finish()
        })
    }
}

impl Drop for TimedUpload {
    /// What was written is removed, which may take as long as any other call.
    fn drop(&mut self) {
        let Some(upload) = self.upload.take() else { return };
        if self.calls.why_late().is_some() {
            let removing = self.calls.workers.run(Box::new(move || drop(upload)));
            if let Err(error) = removing {
                tracing::debug!(%error, "an unfinished container is removed at once");
            }
            return;
        }
        let dropped = self.call(self.limit_of(0, 1), move || {
            drop(upload);
            Ok(())
        });
        if let Err(error) = dropped {
            tracing::debug!(%error, "an unfinished container is left to its archive");
        }
    }
}
