//! Serves one mount: reads requests, performs them, and replies.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fslab_vfs::{Cancellation, Creation, Credentials, Deferral, Errno, Error, FileSystem, Request};
use parking_lot::Mutex;

use crate::busy_poll::{NextRequest, Reader};
use crate::decode::Incoming;
use crate::deferred::Deferred;
use crate::failed_writes::FailedWrites;
use crate::job::{Answer, Job, Route};
use crate::kept::{Kept, Record, Stage};
use crate::monitor::Monitor;
use crate::negotiate::Granted;
use crate::options::MountOptions;
use crate::passthrough::BackingFiles;
use crate::protocol::opcode::Opcode;
use crate::protocol::request::{InHeader, InterruptIn};
use crate::reply::{self, guarded};
use crate::reply_buffer::ReplyBuffer;
use crate::request_timeout;
use crate::thread_pool::{QueueHistory, ReadRequest, ThreadPool};
use crate::transport::Transport;
use crate::uring::Queues;
use crate::workers::{Worker, Workers};

/// Maximum size of a request without the data of a write.
const HEADERS_MAX: usize = 4096;

/// Time after which another thread reads in place of a busy reader.
const BUSY_MAX: Duration = Duration::from_millis(1);

/// Pause after a FORGET request, if io_uring is used. With io_uring, most requests that arrive
/// through /dev/fuse are FORGET requests, for which no caller waits. After the pause, they arrive
/// in one batch instead of waking the thread for each.
const FORGET_PAUSE: Duration = Duration::from_millis(2);

/// One mount being served.
pub(crate) struct Server {
    pub file_system: Arc<dyn FileSystem>,
    pub options: MountOptions,
    pub granted: Granted,
    pub backing: Arc<BackingFiles>,
    /// Failed writes, if the kernel caches writes.
    pub failed_writes: Option<FailedWrites>,
    /// Whether a request arrived since the last call of [`Self::take_activity`].
    activity: AtomicBool,
    /// Whether the last attempt to start a thread failed.
    pub is_short_of_threads: AtomicBool,
    pub transport: Arc<dyn Transport>,
    pool: ThreadPool,
    /// The threads of the pool.
    workers: Arc<Workers>,
    /// The queues, if requests arrive through io_uring.
    queues: Option<Arc<Queues>>,
    /// State for the next daemon, on a kept mount.
    pub kept: Option<Kept>,
    pub monitor: Monitor,
    /// Requests that wait without a thread, if the file system defers requests.
    pub deferred: Option<Arc<Deferred>>,
    /// Readers of threads that have exited; new threads reuse them. Deferred requests may still
    /// need the descriptors of these readers.
    spare_readers: Mutex<Vec<Reader>>,
    /// Time after which a request is cancelled. Only set if the kernel has a time limit for
    /// requests, after which it would abort the mount.
    cancel_after: Option<Duration>,
    /// Whether all requests are refused, because [`Self::cut_off`] was called.
    refuses: AtomicBool,
    /// The error that broke the connection, if any.
    failure: Mutex<Option<Errno>>,
}

impl Server {
    pub fn new(
        file_system: Arc<dyn FileSystem>,
        options: MountOptions,
        granted: Granted,
        transport: Arc<dyn Transport>,
        queues: Option<Queues>,
        kept: Option<Kept>,
    ) -> Self {
        let workers = Arc::<Workers>::default();
        let cancel_after = granted.request_time_max.map(request_timeout::cancel_after);
        // Asks the file system itself, because `can_defer` is not forwarded by the implementation
        // of `FileSystem` for pointers.
        let defers = (*file_system).can_defer();
        Self {
            file_system,
            backing: Arc::new(BackingFiles::new(Arc::clone(&transport))),
            failed_writes: granted.writeback().then(|| FailedWrites::new(Arc::clone(&transport))),
            activity: AtomicBool::default(),
            is_short_of_threads: AtomicBool::default(),
            transport,
            pool: ThreadPool::new(options.thread_count(), Arc::clone(&workers)),
            workers,
            queues: queues.map(Arc::new),
            kept,
            cancel_after,
            deferred: defers.then(|| Arc::new(Deferred::new(cancel_after))),
            spare_readers: Mutex::default(),
            monitor: Monitor::default(),
            refuses: AtomicBool::default(),
            failure: Mutex::default(),
            options,
            granted,
        }
    }

    /// Starts the threads that serve the mount.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        let server = Arc::clone(self);
        let watch =
            move || server.monitor.run(|| server.workers.is_over(), || server.replace_busy());
        std::thread::Builder::new().name("fslab-monitor".to_owned()).spawn(watch)?;
        self.start_resuming()?;
        self.add_thread()?;
        self.queues.as_ref().map_or(Ok(()), |queues| self.start_queues(queues))
    }

    /// The threads of all transports.
    fn all_workers(&self) -> impl Iterator<Item = &Workers> {
        std::iter::once(&*self.workers).chain(self.queues.iter().map(|queues| &*queues.workers))
    }

    /// Refuses requests from now on, and cancels those in flight.
    pub fn cut_off(&self) {
        // Set before checking for busy threads, so that requests that begin later see the flag.
        self.refuses.store(true, Ordering::SeqCst);
        self.all_workers().for_each(Workers::cut_off);
        self.deferred.iter().for_each(|deferred| deferred.cut_off());
    }

    /// Whether [`Self::cut_off`] was called.
    pub fn is_cut_off(&self) -> bool {
        self.refuses.load(Ordering::SeqCst)
    }

    /// Waits until the file system is unmounted and all threads have exited. After
    /// [`Self::cut_off`], waits only until no request is in flight.
    pub fn wait(&self) -> Result<(), Errno> {
        self.all_workers().for_each(Workers::wait);
        self.deferred.iter().for_each(|deferred| deferred.wait());
        self.monitor.wake();
        self.failure.lock().map_or(Ok(()), Err)
    }

    /// Returns whether a request arrived since the last call.
    pub fn take_activity(&self) -> bool {
        self.activity.swap(false, Ordering::Relaxed)
    }

    /// Does the periodic work of the monitor, above all replacing readers that have been busy for
    /// long. Returns whether any thread serves a request.
    fn replace_busy(self: &Arc<Self>) -> bool {
        for _ in 0..self.pool.replace_busy(BUSY_MAX) {
            self.add_thread_or_say();
        }
        if let Some(cancel_after) = self.cancel_after {
            self.all_workers().for_each(|workers| workers.cancel_overdue(cancel_after));
        }
        if let Some(queues) = &self.queues {
            queues.wake_grown();
        }
        self.resume_stuck();
        let resumes = self.deferred.as_ref().is_some_and(|deferred| deferred.is_busy());
        resumes || self.all_workers().any(Workers::is_busy)
    }

    fn add_thread_or_say(self: &Arc<Self>) {
        let started = self.add_thread();
        let has_failed_before = self.is_short_of_threads.swap(started.is_err(), Ordering::Relaxed);
        if let Err(error) = started
            && !has_failed_before
        {
            tracing::warn!(%error, "can't start another thread; requests wait until this succeeds");
        }
    }

    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        let Some(worker) = self.pool.add_thread() else { return Ok(()) };
        // Surplus threads share a descriptor, because there may be many of these threads.
        let reader = if worker.is_surplus {
            Reader::sharing(&self.transport)
        } else {
            // With io_uring, few urgent requests arrive through /dev/fuse, so polling has no use.
            let poll = if self.queues.is_some() { Duration::ZERO } else { self.options.poll };
            let spare = self.spare_readers.lock().pop();
            spare.unwrap_or_else(|| Reader::new(&self.transport, poll))
        };
        let (server, own) = (Arc::clone(self), Arc::clone(&worker));
        let started = std::thread::Builder::new()
            .name("fslab-fuse".to_owned())
            .spawn(move || server.work(&own, reader));
        if started.is_err() {
            self.pool.remove_thread(&worker);
        }
        started.map(|_detached| ())
    }

    fn work(self: Arc<Self>, worker: &Arc<Worker>, mut reader: Reader) {
        self.serve_while_needed(worker, &mut reader);
        // A later thread reuses the reader. Otherwise, each thread would open new descriptors, and
        // deferred requests could keep the descriptors of many exited threads open.
        if self.deferred.is_some() && !worker.is_surplus {
            self.spare_readers.lock().push(reader);
        }
        self.pool.remove_thread(worker);
        if self.pool.is_at_rest() {
            fslab_sys::malloc_trim::give_back();
        }
    }

    fn serve_while_needed(self: &Arc<Self>, worker: &Worker, reader: &mut Reader) {
        let mut buffer = vec![0; self.granted.write_bytes_max as usize + HEADERS_MAX];
        if self.kept.is_some() {
            // Allocates the buffer's pages now. While the kernel copies a request, the daemon may
            // be killed. Then missing pages can't be allocated, and the kernel would fail the
            // request.
            buffer.fill(1);
        }
        let mut output = ReplyBuffer::default();
        let mut history = QueueHistory::default();
        loop {
            if !worker.reads.load(Ordering::SeqCst) {
                history.forget_last();
            }
            if !self.pool.may_read(worker) {
                break;
            }
            let Some(next) = self.next(reader, &mut buffer) else { break };
            match Incoming::parse(&buffer[..next.read.length]) {
                Ok(incoming) => {
                    self.serve(worker, &next, incoming, &mut output, &mut history);
                }
                Err(error) => {
                    tracing::error!(%error, next.read.length, "ignored an invalid request")
                }
            }
        }
    }

    /// Reads the next request. At the end of the mount, notifies all threads and returns `None`.
    fn next<'a>(&self, reader: &'a mut Reader, buffer: &mut [u8]) -> Option<NextRequest<'a>> {
        let next = reader.next(buffer);
        if let Err(errno) = next {
            *self.failure.lock() = Some(errno);
        }
        let next = next.ok().flatten();
        if next.is_none() {
            self.pool.end();
            self.deferred.iter().for_each(|deferred| deferred.end());
        }
        next
    }

    fn serve(
        self: &Arc<Self>,
        worker: &Worker,
        &NextRequest { transport, read: read @ ReadRequest { arrived, .. } }: &NextRequest<'_>,
        incoming: Incoming<'_>,
        output: &mut ReplyBuffer,
        history: &mut QueueHistory,
    ) {
        let header = incoming.header;
        let Some(opcode) = Opcode::from_number(header.opcode) else {
            history.forget_last();
            reply::send(&**transport, header.unique, Err(Errno::NOSYS));
            return;
        };
        self.activity.store(true, Ordering::Relaxed);
        if opcode == Opcode::Interrupt {
            history.forget_last();
            return self.interrupt(incoming);
        }
        let cancelled = worker.begin(header.unique, arrived, &self.workers);
        self.monitor.wake_if_asleep();
        if self.pool.note_read(worker, read, history) {
            self.add_thread_or_say();
        }
        if opcode.is_slow() && self.pool.hand_off(worker) {
            self.add_thread_or_say();
        }
        let cancellation = Cancellation::new(cancelled, header.unique);
        let record = self.kept.as_ref().and_then(|kept| kept.begin(opcode, header.unique));
        let offer = self.offer(opcode, header.unique, record.as_ref());
        let done = self.known_answer(&header, record.as_ref(), output).unwrap_or_else(|| {
            let (record, deferral) = (record.as_ref(), offer.as_ref());
            let route = Route { later: Some(transport), record, deferral };
            let busy_for = || self.workers.busy_for(worker);
            let cancellation = cancellation.clone();
            self.respond_or_explain(opcode, incoming, cancellation, route, output, busy_for)
        });
        if let Some(kept) = &self.kept {
            kept.log_resent(opcode, header.unique, record.as_ref());
        }
        if matches!(done, Ok(Answer::Deferred)) {
            // A deferred request has had no effect yet. A later daemon can treat it as new.
            record.into_iter().for_each(Record::end);
            self.park(incoming, transport, arrived, || cancellation.is_cancelled());
        } else {
            if let (Some(deferred), Some(_)) = (&self.deferred, &offer) {
                deferred.forget(header.unique);
            }
            self.complete_and_send(&header, record, transport, done, output);
        }
        worker.finish();
        let is_forget = matches!(opcode, Opcode::Forget | Opcode::BatchForget);
        if is_forget && self.queues.is_some() {
            std::thread::sleep(FORGET_PAUSE);
        }
    }

    /// Completes the record of a request, sends its reply, and ends the record.
    pub fn complete_and_send(
        &self,
        header: &InHeader,
        record: Option<Record<'_>>,
        transport: &Arc<dyn Transport>,
        done: Result<Answer, Errno>,
        output: &mut ReplyBuffer,
    ) {
        if let Some(record) = &record {
            match &done {
                Ok(Answer::Now) => record.complete(Ok(output.payload())),
                // Only idempotent requests are answered later, and these need no recorded reply.
                Ok(Answer::Later | Answer::Deferred) => {}
                Err(errno) => record.complete(Err(*errno)),
            }
        }
        if !Opcode::from_number(header.opcode).is_some_and(Opcode::has_no_reply) {
            self.send_reply(header, transport, done, output);
        }
        if let Some(record) = record {
            record.end();
        }
    }

    /// Returns the reply that an earlier daemon recorded for a request, or an error for a request
    /// that is given up.
    fn known_answer(
        &self,
        header: &InHeader,
        record: Option<&Record<'_>>,
        output: &mut ReplyBuffer,
    ) -> Option<Result<Answer, Errno>> {
        match &record?.stage {
            Stage::New | Stage::Begun(_) => None,
            Stage::Done(answer) => Some(answer.as_ref().map_err(|errno| *errno).map(|payload| {
                output.clear();
                output.put_bytes(payload);
                Answer::Now
            })),
            Stage::GivenUp => {
                tracing::error!(
                    ?header,
                    "a request fails with EIO, because several daemons died while performing it"
                );
                Some(Err(Errno::IO))
            }
        }
    }

    /// Performs a request from io_uring and puts the payload of its reply into the output. The
    /// caller sends the reply and then calls the worker's `finish`.
    pub fn serve_from_ring(
        &self,
        worker: &Worker,
        workers: &Workers,
        arrived: Instant,
        incoming: Incoming<'_>,
        output: &mut ReplyBuffer,
    ) -> Result<(), Errno> {
        let header = incoming.header;
        output.clear();
        let opcode = Opcode::from_number(header.opcode).ok_or(Errno::NOSYS)?;
        self.activity.store(true, Ordering::Relaxed);
        let cancelled = worker.begin(header.unique, arrived, workers);
        self.monitor.wake_if_asleep();
        let cancellation = Cancellation::new(cancelled, header.unique);
        let busy_for = || workers.busy_for(worker);
        let route = Route::default();
        self.respond_or_explain(opcode, incoming, cancellation, route, output, busy_for).map(drop)
    }

    /// Performs a request, or refuses it after [`Self::cut_off`]. A panic fails only this request.
    pub fn respond_or_explain(
        &self,
        opcode: Opcode,
        incoming: Incoming<'_>,
        cancellation: Cancellation,
        route: Route<'_>,
        output: &mut ReplyBuffer,
        busy_for: impl Fn() -> Duration,
    ) -> Result<Answer, Errno> {
        let respond = || match self.is_cut_off() {
            // Requests fail with the same error as after the death of a daemon.
            true => Err(Errno::NOTCONN.into()),
            false => self.respond(opcode, incoming, cancellation, route, output),
        };
        let done = guarded(opcode, incoming.header, respond);
        done.map_err(|errno| self.explain(busy_for, incoming.header, errno))
    }

    /// Serves one request on the calling thread.
    #[cfg(test)]
    pub fn serve_alone(
        self: &Arc<Self>,
        transport: &Arc<dyn Transport>,
        incoming: Incoming<'_>,
        output: &mut ReplyBuffer,
    ) {
        let worker = self.pool.add_thread().unwrap();
        let history = &mut QueueHistory::default();
        self.serve(&worker, &NextRequest::arriving(transport), incoming, output, history);
        self.pool.remove_thread(&worker);
    }

    /// Performs a request and puts the payload of its reply into the output.
    pub fn respond(
        &self,
        opcode: Opcode,
        incoming: Incoming<'_>,
        cancellation: Cancellation,
        Route { later, record, deferral }: Route<'_>,
        output: &mut ReplyBuffer,
    ) -> fslab_vfs::Result<Answer> {
        output.clear();
        let mut request = to_request(&incoming.header, cancellation);
        request.deferral = deferral.cloned().unwrap_or_default();
        let mut job = Job { incoming, request, output, later, record };
        job.note_time();
        match self.perform(opcode, &mut job) {
            Err(Error::Deferred) if deferral.is_some() => Ok(Answer::Deferred),
            done => done,
        }
    }

    /// Sends the reply. If the kernel does not receive it, releases the references that it would
    /// have given to the kernel.
    fn send_reply(
        &self,
        header: &InHeader,
        transport: &Arc<dyn Transport>,
        done: Result<Answer, Errno>,
        output: &mut ReplyBuffer,
    ) {
        let arrived = match done {
            Ok(Answer::Later | Answer::Deferred) => true,
            Ok(Answer::Now) => reply::send(&**transport, header.unique, Ok(output.payload())),
            Err(errno) => {
                reply::send(&**transport, header.unique, Err(errno));
                false
            }
        };
        if !arrived {
            let request = to_request(header, Cancellation::default());
            if catch_unwind(AssertUnwindSafe(|| self.take_back(&request, output))).is_err() {
                tracing::error!(
                    ?header,
                    "the file system panicked while releasing the inodes and handles of an \
                     undelivered reply"
                );
            }
        }
    }

    /// Replaces EINTR by ETIMEDOUT if a request was cancelled because of the kernel's time limit,
    /// not because of a signal.
    fn explain(&self, busy_for: impl Fn() -> Duration, header: InHeader, errno: Errno) -> Errno {
        let is_too_long = |cancel_after| busy_for() >= cancel_after;
        if errno != Errno::INTR || !self.cancel_after.is_some_and(is_too_long) {
            return errno;
        }
        tracing::warn!(
            ?header,
            "request cancelled, because the kernel's time limit for FUSE requests \
             (/proc/sys/fs/fuse) is near"
        );
        Errno::TIMEDOUT
    }

    /// Cancels the request of a signalled caller. The kernel expects no reply to the interrupt. A
    /// reply could make the kernel resend the interrupt, but only through the descriptor of the
    /// interrupted request. The kernel would then deliver the interrupt before all other requests,
    /// again and again, even if the interrupted request waits for one of them.
    pub fn interrupt(&self, mut incoming: Incoming<'_>) {
        if let Ok(interrupt) = incoming.body.take::<InterruptIn>() {
            self.interrupt_by_number(interrupt.unique);
        }
    }

    /// Cancels a request that is being served, is deferred, or has not begun.
    pub fn interrupt_by_number(&self, unique: u64) {
        if !self.cancel_deferred(unique) {
            self.all_workers().for_each(|workers| workers.cancel(unique));
            // The request may have been deferred after the first attempt.
            self.cancel_deferred(unique);
        }
    }
}

fn to_request(header: &InHeader, cancellation: Cancellation) -> Request {
    Request {
        credentials: Credentials { uid: header.uid, gid: header.gid },
        pid: header.pid,
        creation: Creation::default(),
        umask: 0,
        now: std::time::SystemTime::now().into(),
        cancellation,
        deferral: Deferral::default(),
    }
}
