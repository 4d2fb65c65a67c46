//! Makes requests, either with one thread per request in flight or through io_uring.

use std::fs::OpenOptions;
use std::hint::spin_loop;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::turns::{Turn, Turns};
use crate::error::{Error, Result};
use crate::tree::Access;
use crate::workload::content::{Pool, expect, read_exactly};
use crate::workload::crew::Hand;
use fslab_stats::Directions;
use fslab_sys::io_ring::{AlignedBuffer, Direction, Ring};

/// The file that is read and written at random offsets.
pub(super) struct Place<'a> {
    pub path: &'a str,
    pub block: u64,
    /// Whether to use direct I/O.
    pub is_direct: bool,
    /// The bytes from which each written block takes a piece.
    pub contents: &'a Pool,
}

/// A sleep is shortened by this much, because the wake-up may be late. The rest of the wait is a
/// busy loop.
const SLEEP_ERROR: Duration = Duration::from_micros(150);

/// Interval at which a sleeping worker checks for an interrupt.
const SLEEP_MOST: Duration = Duration::from_millis(100);

/// Makes the requests of one thread, which has one request in flight at a time.
pub(super) fn by_thread(hand: Hand<'_>, place: &Place<'_>, turns: &Turns) -> Result<Directions> {
    let access = if place.is_direct { Access::Direct } else { Access::ReadWrite };
    let file = hand.tree.open(place.path, access)?;
    let mut buffer = AlignedBuffer::new(place.block as usize);
    let mut directions = Directions::start();
    while let Some(Turn { visit, due }) = turns.take() {
        hand.check()?;
        let offset = visit.block * place.block;
        let bytes = buffer.bytes();
        if visit.writes {
            bytes.copy_from_slice(place.contents.piece(visit.block, bytes.len()));
        }
        let begun = match due {
            None => turns.elapsed(),
            Some(due) => wait_until(due, turns, hand).map(|()| due)?,
        };
        if visit.writes {
            file.write_at(offset, bytes)?;
        } else {
            read_exactly(&*file, place.path, offset, bytes)?;
        }
        directions.record(visit.writes, turns.elapsed().saturating_sub(begun));
    }
    file.close()?;
    Ok(directions)
}

fn wait_until(due: Duration, turns: &Turns, hand: Hand<'_>) -> Result<()> {
    loop {
        let left = due.saturating_sub(turns.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        if left > SLEEP_ERROR {
            hand.check()?;
            sleep((left - SLEEP_ERROR).min(SLEEP_MOST));
        } else {
            spin_loop();
        }
    }
}

/// Makes all requests of one kind of workers from one thread, through io_uring, with at most
/// `depth` in flight.
pub(super) fn by_ring(
    hand: Hand<'_>,
    root: &Path,
    place: &Place<'_>,
    turns: &Turns,
    depth: u64,
) -> Result<Directions> {
    let flags = if place.is_direct { OFlags::DIRECT.bits() as i32 } else { 0 };
    let path = root.join(place.path);
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
    let file = file.map_err(Error::file(&path))?;
    let mut queue = Queue {
        ring: Ring::new(depth as u32, place.block as usize).map_err(no_ring)?,
        begun: vec![(false, Duration::ZERO); depth as usize],
        waiting: turns.take(),
        directions: Directions::start(),
    };
    while queue.waiting.is_some() || queue.ring.in_flight() > 0 {
        hand.check()?;
        queue.submit(&file, place, turns)?;
        queue.wait(turns, hand).map_err(failed("io_uring", place.path))?;
        queue.collect(place, turns)?;
    }
    Ok(queue.directions)
}

/// The in-flight requests of an io_uring, and the next request.
struct Queue {
    ring: Ring,
    /// For each slot: whether its request is a write, and the time from which its latency is
    /// measured.
    begun: Vec<(bool, Duration)>,
    /// The next request.
    waiting: Option<Turn>,
    directions: Directions,
}

impl Queue {
    /// Submits the requests that are due, while slots are free.
    fn submit(&mut self, file: impl AsFd, place: &Place<'_>, turns: &Turns) -> Result<()> {
        while let Some((Turn { visit, due }, slot)) = self.waiting.zip(self.ring.free_slot()) {
            if due.is_some_and(|due| due > turns.elapsed()) {
                return Ok(());
            }
            let direction = if visit.writes { Direction::Write } else { Direction::Read };
            if let Some(bytes) = self.ring.buffer(slot).filter(|_| visit.writes) {
                bytes.copy_from_slice(place.contents.piece(visit.block, bytes.len()));
            }
            self.begun[slot] = (visit.writes, due.unwrap_or_else(|| turns.elapsed()));
            self.ring
                .submit(slot, file.as_fd(), direction, visit.block * place.block)
                .map_err(failed("io_uring", place.path))?;
            self.waiting = turns.take();
        }
        Ok(())
    }

    /// Waits until a request completes or becomes due.
    fn wait(&mut self, turns: &Turns, hand: Hand<'_>) -> io::Result<()> {
        let due =
            self.waiting.and_then(|turn| turn.due).filter(|_| self.ring.free_slot().is_some());
        let left = due.map(|due| due.saturating_sub(turns.elapsed()));
        if self.ring.in_flight() > 0 {
            return self.ring.wait(Some(left.unwrap_or(SLEEP_MOST).min(SLEEP_MOST)));
        }
        // The error of an interrupt is ignored here, because the caller checks for an interrupt,
        // too.
        let until = due.unwrap_or_default().min(turns.elapsed() + SLEEP_MOST);
        wait_until(until, turns, hand).or(Ok(()))
    }

    fn collect(&mut self, place: &Place<'_>, turns: &Turns) -> Result<()> {
        while let Some(completion) = self.ring.take() {
            let (writes, begun) = self.begun[completion.slot];
            self.directions.record(writes, turns.elapsed().saturating_sub(begun));
            let operation = if writes { "write" } else { "read" };
            let length = completion.result.map_err(failed(operation, place.path))?;
            expect(
                format!("bytes of a {operation} of {}", place.path),
                place.block,
                length as u64,
            )?;
        }
        Ok(())
    }
}

fn failed(operation: &'static str, path: &str) -> impl Fn(io::Error) -> Error {
    move |error| {
        let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Error::Operation { operation, path: path.to_owned(), source }
    }
}

/// Returns the error of a failed io_uring setup: a missing requirement if the kernel lacks or
/// forbids io_uring, otherwise a failure.
fn no_ring(source: io::Error) -> Error {
    match Errno::from_io_error(&source) {
        Some(Errno::NOSYS | Errno::PERM) => Error::NoIoUring { source },
        _ => Error::Start { program: "io_uring".to_owned(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_io_uring_is_reported_as_a_missing_prerequisite() {
        for errno in [Errno::NOSYS, Errno::PERM] {
            let error = no_ring(errno.into());
            assert!(error.is_missing_prerequisite());
            let text = error.to_string();
            assert!(text.contains("kernel.io_uring_disabled") && !text.contains('\n'), "{text}");
        }
        assert!(!no_ring(Errno::NOMEM.into()).is_missing_prerequisite());
    }
}
