//! A time limit for each call of an archive. A hanging server or disk makes its archive
//! unavailable. The caller then gets `NotConnected`, and other archives are tried.
//!
//! A call can't be cancelled, so it runs in a thread of its own, where it may hang forever. A call
//! past its time limit is *late*. While any call is late, new calls fail at once, so a hanging
//! archive blocks no further threads. The archive is available again once all late calls have
//! returned.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use fslab_vfs::Clock;
use parking_lot::Mutex;

use super::call_threads::CallThreads;
use super::unavailable::unavailable_error;
use super::{
    Archive, Container, ContainerKind, Deletion, Direction, Meter, Proof, Retained, Staged,
    Traffic, Upload,
};
use crate::id::Id;

/// Interval at which a waiting caller reads the clock. Tests use a simulated clock, so a timed wait
/// alone is not enough.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The lowest expected transfer rate. The time limit of a call includes the time to transfer its
/// bytes at this rate.
const CALL_BYTES_A_SECOND: u64 = 1 << 20;

/// The lowest expected rate at which bytes become durable. It determines the time limit for
/// finishing a container.
const FINISH_BYTES_A_SECOND: u64 = 4 << 20;

/// Number of bytes that are buffered and then written to a container by one call. A call for each
/// small write would spend too much time waking up threads.
const TOGETHER_BYTES: usize = 128 << 10;

/// Maximum number of containers that the listing thread buffers for the caller.
const LISTED_AHEAD: usize = 1024;

/// A function that is called once a late archive responds again.
pub(crate) type Returned = Box<dyn Fn() + Send + Sync>;

/// An archive whose calls have a time limit.
pub(crate) struct TimeoutArchive {
    archive: Arc<dyn Archive>,
    calls: Arc<Calls>,
}

/// The state shared by the threads that make calls.
struct Calls {
    label: String,
    clock: Arc<dyn Clock>,
    limit: Duration,
    workers: CallThreads,
    /// Number of calls that have not returned yet.
    under_way: AtomicUsize,
    /// Number of calls that passed their limit and have not returned yet. Locked while a call is
    /// given up, so that the counter is never decremented before it is incremented.
    late: Mutex<usize>,
    came_back: AtomicBool,
    returned: Returned,
}

/// The caller's view of a call in progress.
struct Call<T> {
    outcome: Receiver<io::Result<T>>,
    /// Set by the first of two events: the call returns, or the caller gives up. The later event
    /// has no effect.
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
        let (late, came_back) = (Mutex::new(0), AtomicBool::new(false));
        let under_way = AtomicUsize::new(0);
        let calls = Calls { label, clock, limit, workers, under_way, late, came_back, returned };
        Self { archive, calls: Arc::new(calls) }
    }

    /// Returns the time limit of a call that transfers `bytes` bytes. It is infinite if the archive
    /// limits its calls itself.
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
        (*self.late.lock() > 0).then(|| self.lateness())
    }

    fn lateness(&self) -> String {
        format!("it has not answered within {} seconds", self.limit.as_secs())
    }

    fn check(&self) -> io::Result<()> {
        self.why_late().map_or(Ok(()), |why| Err(unavailable_error(&why)))
    }

    /// Makes a call in another thread.
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
            // The call consumes `ask`, so its reference to the archive is dropped before the caller
            // continues.
            let outcome = catch_unwind(AssertUnwindSafe(ask));
            let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("the archive panicked")));
            let calls = calls.upgrade();
            calls.iter().for_each(|calls| calls.has_returned());
            if !is_decided.swap(true, Ordering::SeqCst) {
                // The send fails only if the caller no longer needs the result.
                return sender.send(outcome).unwrap_or_default();
            }
            drop(outcome);
            calls.iter().for_each(|calls| calls.one_returned());
        }));
        started.inspect_err(|_| self.has_returned())?;
        Ok(call)
    }

    /// Waits for the result of a call, but no longer than the call's time limit.
    fn wait<T>(&self, call: &Call<T>) -> io::Result<T> {
        loop {
            match call.outcome.recv_timeout(LOOK_EVERY) {
                Ok(outcome) => return outcome,
                Err(_) => self.check_limit(call)?,
            }
        }
    }

    /// Gives up a call and returns an error, if the call's limit has passed.
    fn check_limit<T>(&self, call: &Call<T>) -> io::Result<()> {
        let took_ns = self.clock.now_ns().saturating_sub(call.begun_ns.get());
        let is_late = Duration::from_nanos(took_ns) >= call.limit;
        if !is_late || !self.give_up(&call.is_decided) {
            return Ok(());
        }
        let why = self.lateness();
        tracing::warn!("the archive {} is unavailable for now: {why}", self.label);
        Err(unavailable_error(&why))
    }

    /// Counts a call as late, unless it has returned.
    fn give_up(&self, is_decided: &AtomicBool) -> bool {
        let mut late = self.late.lock();
        let is_given_up = !is_decided.swap(true, Ordering::SeqCst);
        *late += usize::from(is_given_up);
        is_given_up
    }

    fn has_returned(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    fn one_returned(&self) {
        let left = {
            let mut late = self.late.lock();
            *late -= 1;
            *late
        };
        if left == 0 {
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

    fn stage(&self, container: Container) -> io::Result<Staged> {
        self.call(0, move |archive| archive.stage(container))
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
        let (is_limited, meter) = (!self.archive.limits_its_calls(), self.archive.meter());
        let upload = Some(upload);
        Ok(Box::new(TimedUpload { upload, calls, meter, is_limited, pending, bytes: 0 }))
    }

    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len();
        let _timed = Timed::begin(self.archive.meter(), Direction::Receiving, &self.calls.clock);
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
            // The send fails only after a timeout, when no receiver waits for the list any longer.
            archive.list(kind, &mut |id, length| listed.send((id, length)).unwrap_or_default())
        })?;
        loop {
            match found.recv_timeout(LOOK_EVERY) {
                Ok((id, length)) => {
                    visit(id, length);
                    // The listing makes progress, so its time limit starts again.
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
            tracing::debug!(%error, "can't drop the cached data of a container");
        }
    }

    fn delete(&self, container: Container) -> io::Result<Deletion> {
        self.call(0, move |archive| archive.delete(container))
    }

    fn retained(&self) -> Option<Retained> {
        self.archive.retained()
    }

    fn retry_deletions(&self) -> io::Result<()> {
        self.call(0, |archive| archive.retry_deletions())
    }

    fn proof(&self) -> Proof {
        self.archive.proof()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.call(0, |archive| Ok(archive.free_bytes())).ok().flatten()
    }

    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        self.archive.position(container, offset)
    }

    fn meter(&self) -> Option<Arc<Meter>> {
        self.archive.meter()
    }

    fn is_located(&self, container: Container) -> bool {
        self.archive.is_located(container)
    }

    fn traffic_of_writing(&self, bytes: u64) -> Traffic {
        self.archive.traffic_of_writing(bytes)
    }

    fn traffic_of_reading(&self, range: Range<u64>, length: u64, is_located: bool) -> Traffic {
        self.archive.traffic_of_reading(range, length, is_located)
    }
}

/// A container that is being written. Each call takes the upload and returns it on success. After a
/// late or failed call there is no upload, and all later calls fail.
struct TimedUpload {
    upload: Option<Box<dyn Upload>>,
    calls: Arc<Calls>,
    meter: Option<Arc<Meter>>,
    is_limited: bool,
    /// Buffered bytes that no call has written yet.
    pending: Vec<u8>,
    bytes: u64,
}

impl TimedUpload {
    fn take(&mut self) -> io::Result<(Box<dyn Upload>, Vec<u8>)> {
        self.calls.check()?;
        let ended = || unavailable_error("an earlier call for the container failed or timed out");
        Ok((self.upload.take().ok_or_else(ended)?, std::mem::take(&mut self.pending)))
    }

    fn timed(&self) -> Timed {
        Timed::begin(self.meter.clone(), Direction::Sending, &self.calls.clock)
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

/// A transfer that is timed until this is dropped.
struct Timed {
    meter: Option<Arc<Meter>>,
    direction: Direction,
    clock: Arc<dyn Clock>,
}

impl Timed {
    fn begin(meter: Option<Arc<Meter>>, direction: Direction, clock: &Arc<dyn Clock>) -> Self {
        meter.iter().for_each(|meter| meter.begin(direction, clock.now_ns()));
        Self { meter, direction, clock: Arc::clone(clock) }
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.meter.iter().for_each(|meter| meter.end(self.direction, self.clock.now_ns()));
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
        let _timed = self.timed();
        let upload = self.call(limit, move || {
            upload.write(&bytes)?;
            Ok(upload)
        })?;
        self.upload = Some(upload);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<Proof> {
        let (mut upload, bytes) = self.take()?;
        let limit = self.limit_of(self.bytes, FINISH_BYTES_A_SECOND);
        let _timed = self.timed();
        self.call(limit, move || {
            upload.write(&bytes)?;
            upload.finish()
        })
    }
}

impl Drop for TimedUpload {
    /// Removes an unfinished container. This may take up to the time limit of a call.
    fn drop(&mut self) {
        let Some(upload) = self.upload.take() else { return };
        if self.calls.why_late().is_some() {
            let removing = self.calls.workers.run(Box::new(move || drop(upload)));
            if let Err(error) = removing {
                tracing::debug!(
                    %error,
                    "can't remove an unfinished container in the background, so it is removed in \
                     this thread"
                );
            }
            return;
        }
        let dropped = self.call(self.limit_of(0, 1), move || {
            drop(upload);
            Ok(())
        });
        if let Err(error) = dropped {
            tracing::debug!(%error, "can't remove an unfinished container from its archive");
        }
    }
}
