//! The threads that perform deferred requests again.
//!
//! Before a thread performs a request, it ensures that another thread waits for the next request. A
//! thread is stuck if it performs one request for over a second. There are at most eight threads
//! that are not stuck. If all threads are busy and some get stuck, the monitor starts others. So
//! blocking requests do not delay the rest.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fslab_vfs::{Deferral, Errno};
use zerocopy::IntoBytes;

use super::{Deferred, Parked, Resumed};
use crate::decode::Incoming;
use crate::job::{Answer, Route};
use crate::kept::{Record, Stage};
use crate::protocol::opcode::Opcode;
use crate::reply;
use crate::reply_buffer::ReplyBuffer;
use crate::server::Server;
use crate::transport::Transport;

/// Whether a request may be deferred: performing it a second time from its beginning must have the
/// same effect as continuing it.
fn may_wait(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Read
            | Opcode::Write
            | Opcode::Setattr
            | Opcode::Fallocate
            | Opcode::CopyFileRange
            | Opcode::CopyFileRange64
    )
}

impl Server {
    /// Returns an offer to the file system to defer a request. Returns `None` for a request that an
    /// earlier daemon has begun, because its record must remain until the reply.
    pub fn offer(
        &self,
        opcode: Opcode,
        unique: u64,
        record: Option<&Record<'_>>,
    ) -> Option<Deferral> {
        let deferred = self.deferred.as_ref().filter(|_| may_wait(opcode))?;
        let is_new = record.is_none_or(|record| record.stage == Stage::New);
        is_new.then(|| deferred.offer(unique))
    }

    /// Stores a request that the file system has deferred, until it is performed again.
    pub fn park(
        &self,
        incoming: Incoming<'_>,
        transport: &Arc<dyn Transport>,
        arrived: Instant,
        is_cancelled: impl Fn() -> bool,
    ) {
        let header = incoming.header;
        let bytes = [header.as_bytes(), incoming.body.rest(), incoming.extensions].concat();
        let transport = Arc::clone(transport);
        let parked = Parked { bytes: bytes.into(), transport: Arc::clone(&transport), arrived };
        let is_kept =
            self.deferred.as_ref().is_some_and(|deferred| deferred.park(header.unique, parked));
        if !is_kept {
            tracing::error!(
                ?header,
                "a request fails with EAGAIN, because requests of its kind can't be deferred"
            );
            reply::send(&*transport, header.unique, Err(Errno::AGAIN));
            return;
        }
        // If the request was interrupted before it was stored, only this thread knows that, so the
        // table is updated here. A later interrupt finds the request in the table.
        if is_cancelled() {
            self.cancel_deferred(header.unique);
        }
    }

    /// Cancels a request if it is deferred; returns whether it is deferred.
    pub fn cancel_deferred(&self, unique: u64) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| deferred.cancel(unique))
    }

    /// Starts the first thread that performs requests again.
    pub fn start_resuming(self: &Arc<Self>) -> io::Result<()> {
        match &self.deferred {
            Some(deferred) if deferred.take_thread(false) => self.add_resuming_thread(deferred),
            _ => Ok(()),
        }
    }

    /// Starts a thread if a request is ready and no thread is free for it, because threads are
    /// stuck or could not be started before.
    pub fn resume_stuck(self: &Arc<Self>) {
        let Some(deferred) = &self.deferred else { return };
        if deferred.is_busy() && deferred.take_thread(true) {
            self.add_resuming_thread_or_say(deferred);
        }
    }

    fn add_resuming_thread_or_say(self: &Arc<Self>, deferred: &Arc<Deferred>) {
        let started = self.add_resuming_thread(deferred);
        let has_failed_before = self.is_short_of_threads.swap(started.is_err(), Ordering::Relaxed);
        if let Err(error) = started
            && !has_failed_before
        {
            tracing::warn!(
                %error,
                "can't start a thread that resumes deferred requests; they wait until one starts"
            );
        }
    }

    fn add_resuming_thread(self: &Arc<Self>, deferred: &Arc<Deferred>) -> io::Result<()> {
        let (server, own) = (Arc::clone(self), Arc::clone(deferred));
        let started =
            std::thread::Builder::new().name("fslab-resume".to_owned()).spawn(move || {
                let ends = EndsThread(&own);
                server.resume_while_needed(&own);
                drop(ends);
            });
        if started.is_err() {
            deferred.end_thread();
        }
        started.map(|_detached| ())
    }

    fn resume_while_needed(self: &Arc<Self>, deferred: &Arc<Deferred>) {
        let mut output = ReplyBuffer::default();
        while let Some(resumed) = deferred.next() {
            if deferred.take_thread(false) {
                self.add_resuming_thread_or_say(deferred);
            }
            self.resume(deferred, &resumed, &mut output);
        }
    }

    /// Performs a request again.
    fn resume(&self, deferred: &Deferred, resumed: &Resumed, output: &mut ReplyBuffer) {
        self.monitor.wake_if_asleep();
        let Parked { bytes, transport, arrived } = &*resumed.parked;
        let parsed = Incoming::parse(bytes);
        let parts = parsed
            .ok()
            .and_then(|incoming| Some((incoming, Opcode::from_number(incoming.header.opcode)?)));
        // Parsing can't fail, because the same bytes were parsed before.
        let Some((incoming, opcode)) = parts else { return deferred.finish(resumed) };
        let unique = resumed.unique;
        let record = self.kept.as_ref().and_then(|kept| kept.begin(opcode, unique));
        let route = Route {
            later: Some(transport),
            record: record.as_ref(),
            deferral: Some(&resumed.deferral),
        };
        let cancellation = resumed.cancellation.clone();
        let busy_for = || arrived.elapsed();
        let done = self.respond_or_explain(opcode, incoming, cancellation, route, output, busy_for);
        if matches!(done, Ok(Answer::Deferred)) {
            record.into_iter().for_each(Record::end);
            return deferred.park_again(resumed);
        }
        self.complete_and_send(&incoming.header, record, transport, done, output);
        deferred.finish(resumed);
    }
}

/// Subtracts its thread from the count when dropped, even after a panic.
struct EndsThread<'a>(&'a Deferred);

impl Drop for EndsThread<'_> {
    fn drop(&mut self) {
        self.0.end_thread();
    }
}
