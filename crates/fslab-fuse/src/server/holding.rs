//! What the last thread that reads does not serve, because it might wait for ever.
//!
//! It looks whether a read must wait by having it done as if its caller were gone already: what
//! would wait gives up then, and nothing has happened. Changes of files are held without a look.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fslab_vfs::{Cancellation, Errno};

use super::Server;
use crate::answer::{answer, guarded};
use crate::crew::{Experience, Worker};
use crate::held::Held;
use crate::incoming::Incoming;
use crate::operations::Answer;
use crate::output::Output;
use crate::protocol::opcode::Opcode;
use crate::protocol::request::{InHeader, SetattrIn};
use crate::reader::Next;

/// In `valid` of [`SetattrIn`]: the size is changed.
const FATTR_SIZE: u32 = 1 << 3;

/// Looks of the monitor of which one is at what is held.
const LOOK_EVERY: usize = 20;

/// At how many it looks then.
const LOOKS_MAX: usize = 64;

/// Whether a request may wait for bytes that are far away.
fn may_wait(incoming: &Incoming<'_>) -> bool {
    match Opcode::from_number(incoming.header.opcode) {
        Some(Opcode::Read | Opcode::Write | Opcode::Fallocate) => true,
        Some(Opcode::CopyFileRange | Opcode::CopyFileRange64) => true,
        Some(Opcode::Setattr) => {
            let mut body = incoming.body;
            body.take::<SetattrIn>().is_ok_and(|wanted| wanted.valid & FATTR_SIZE != 0)
        }
        _ => false,
    }
}

impl Server {
    /// Whether a thread must not serve a request because nobody would be left to read.
    pub(super) fn must_hold(&self, worker: &Worker, incoming: &Incoming<'_>) -> bool {
        may_wait(incoming) && !self.crew.may_wait(worker)
    }

    /// Serves a request if that needs no waiting, and holds it otherwise.
    pub(super) fn serve_or_hold(&self, held: Held, output: &mut Output) {
        self.activity.store(true, Ordering::Relaxed);
        match self.try_without_waiting(&held, output) {
            None | Some((_, Err(Errno::INTR))) => self.hold(held),
            Some((header, done)) => self.conclude(&header, &held.channel, done, output),
        }
    }

    /// What a read answers, `EINTR` where it would wait; nothing for other requests.
    fn try_without_waiting(
        &self,
        held: &Held,
        output: &mut Output,
    ) -> Option<(InHeader, Result<Answer, Errno>)> {
        let incoming = held.parse().ok()?;
        let (header, opcode) = (incoming.header, Opcode::Read);
        if Opcode::from_number(header.opcode) != Some(opcode) {
            return None;
        }
        let gone = Cancellation::new(Arc::new(AtomicU64::new(header.unique)), header.unique);
        let respond = || self.respond(opcode, incoming, gone, &held.channel, output);
        Some((header, guarded(opcode, header, respond)))
    }

    /// Holds a request until a thread can wait with it.
    fn hold(&self, held: Held) {
        let Ok(Incoming { header, .. }) = held.parse() else { return };
        if let Err(held) = self.held.push(held) {
            answer(&*held.channel, header.unique, Err(Errno::AGAIN));
        } else if self.crew.was_cancelled_early(header.unique) {
            // Before it was there to be found.
            self.cancel_held(header.unique);
        }
    }

    /// The caller of a request was signalled, which may be held.
    pub(super) fn cancel_held(&self, unique: u64) {
        if let Some(held) = self.held.take(unique) {
            answer(&*held.channel, unique, Err(Errno::INTR));
        }
    }

    /// Serves one that is held, where the thread may wait with it.
    pub(super) fn serve_held(
        self: &Arc<Self>,
        worker: &Worker,
        output: &mut Output,
        experience: &mut Experience,
    ) -> bool {
        if self.held.count() == 0 || !self.crew.may_wait(worker) {
            return false;
        }
        let Some(held) = self.held.next().filter(|_| !self.crew.is_over()) else {
            worker.waits_no_more();
            return false;
        };
        if let Ok(incoming) = held.parse() {
            let (channel, arrived) = (&held.channel, held.arrived);
            let next = Next { length: 0, channel, arrived, waited: arrived.elapsed() };
            self.serve(worker, &next, incoming, output, experience);
        }
        true
    }

    /// Serves what need not wait any more while all who could wait with it wait for something else.
    /// Called by the monitor each time that it looks.
    pub(super) fn look_at_held(&self) {
        if self.held.count() == 0 {
            return;
        }
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        if !looks.is_multiple_of(LOOK_EVERY) {
            return;
        }
        let mut output = Output::default();
        for held in self.held.some(looks / LOOK_EVERY * LOOKS_MAX, LOOKS_MAX) {
            self.serve_if_ready(&held, &mut output);
        }
    }

    fn serve_if_ready(&self, held: &Held, output: &mut Output) {
        let Some((header, done)) = self.try_without_waiting(held, output) else { return };
        // Whoever took it meanwhile answers it.
        if !matches!(done, Err(Errno::INTR)) && self.held.take(header.unique).is_some() {
            self.conclude(&header, &held.channel, done, output);
        }
    }

    /// Gives up what has been held for too long.
    pub(super) fn give_up_held(&self, too_long: Duration) {
        while let Some(held) = self.held.older_than(too_long) {
            if let Ok(Incoming { header, .. }) = held.parse() {
                answer(&*held.channel, header.unique, Err(Errno::TIMEDOUT));
            }
        }
    }
}
