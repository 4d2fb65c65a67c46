//! Writes to a stored file: directly, or staged (see `staging`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fslab_vfs::{Error, Request, Result, WriteOptions};

use super::super::commit::{Steps, clear_end, unless_gone};
use super::super::context::is_full;
use super::super::encoder::looks_random;
use super::super::format::SIZE_MAX;
use super::super::frame::Encoding;
use super::super::pre_encode::PreEncoded;
use super::{Kind, Place, State, StoredFile};

/// Maximum number of bytes that one write accepts. Its chunks are encoded in parallel.
const WRITE_BYTES_MAX: usize = 8 << 20;

/// Preparation of a write before its turn.
enum Prepared {
    /// The first bytes, up to this number, are written directly, and the rest is staged.
    Staged(usize),
    Direct(PreEncoded),
}

impl StoredFile {
    /// Writes as much of `data` as possible, at least one byte.
    pub fn write(
        &self,
        request: &Request,
        place: Place,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        let data = &data[..data.len().min(WRITE_BYTES_MAX)];
        self.look_into(request)?;
        let (_turn, prepared) = self.turns.in_order(|| {
            // The lock is released before `pre_encode` takes it again.
            let start = self.staging_start(&self.state.read(), place, data);
            match start {
                Some(start) => Ok(Prepared::Staged(start)),
                None => self.pre_encode(place, data).map(Prepared::Direct),
            }
        });
        match prepared? {
            Prepared::Staged(start) => self.write_and_stage(request, place, data, start, options),
            Prepared::Direct(mut encoded) => {
                self.write_directly(request, place, data, &mut encoded, options)
            }
        }
    }

    /// Writes the first `start` bytes directly, and stages the others. Those that can't be staged
    /// are also written directly.
    fn write_and_stage(
        &self,
        request: &Request,
        place: Place,
        data: &[u8],
        start: usize,
        options: WriteOptions,
    ) -> Result<usize> {
        let direct = |done: usize, until: usize| {
            let (place, data) = (place.after(done), &data[done..until]);
            self.write_directly(request, place, data, &mut PreEncoded::default(), options)
        };
        let mut done = if start > 0 { direct(0, start)? } else { 0 };
        if done == start {
            let staged = self.stage(request, place.after(done), &data[done..], options);
            // The direct write meets the same error, or repairs its cause.
            done += staged.unwrap_or_else(|error| not_staged(&error));
        }
        if done == data.len() {
            return Ok(done);
        }
        match direct(done, data.len()) {
            Ok(count) => Ok(done + count),
            // The caller writes the rest again, and gets the error then.
            Err(error) if done > 0 => Ok(done + not_staged(&error)),
            Err(error) => Err(error),
        }
    }

    fn write_directly(
        &self,
        request: &Request,
        place: Place,
        data: &[u8],
        encoded: &mut PreEncoded,
        options: WriteOptions,
    ) -> Result<usize> {
        let mut write = || {
            self.change(request, |state| {
                state.write(request, &self.settings, (place, data), encoded, options)
            })
        };
        match write() {
            Err(error) if is_full(&error) && self.make_room(request)? => write(),
            answer => answer,
        }
    }

    /// Returns the number of bytes of a write that are written directly before the others are
    /// staged; `None` if the write can't be staged.
    fn staging_start(&self, state: &State, place: Place, data: &[u8]) -> Option<usize> {
        let Kind::Stored(log) = &state.kind else { return None };
        let start = log.staging_start(&self.settings, place.offset(log.size()), data.len())?;
        // Encoding would not make random data smaller. Pieces of a chunk are not examined, because
        // staging them is faster than storing them as a tail.
        let is_chunk = data.len() as u64 == log.map.chunk_bytes();
        (!is_chunk || !looks_random(data)).then_some(start)
    }

    /// Stages appended data, so that other threads encode it. Returns the number of bytes staged.
    /// The rest must be written directly.
    fn stage(
        &self,
        request: &Request,
        place: Place,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<usize> {
        // Nothing is staged while another thread holds this lock. That thread may append frames
        // that do not belong to staged chunks.
        let Some(_turn) = self.maintenance.try_lock() else { return Ok(0) };
        let mut state = self.state.write();
        self.access_is_due.store(true, Ordering::Relaxed);
        // The file may have changed before the lock was taken.
        let Kind::Stored(log) = &state.kind else { return Ok(0) };
        if log.staging_start(&self.settings, place.offset(log.size()), data.len()) != Some(0) {
            return Ok(0);
        }
        let (io, log) = state.begin_change(request, &self.settings)?;
        let was_staging = log.journal.is_staging();
        let staged = log.stage(io, data, options);
        if !was_staging && log.journal.is_staging() {
            self.began_staging.store(true, Ordering::Relaxed);
        }
        let staged = staged?;
        for job in staged.jobs {
            let settings = Arc::clone(&self.settings);
            self.settings.workers.spawn(move || {
                if let Err(error) = job.run(&settings) {
                    // The next user of the job tries again and returns the error.
                    tracing::debug!(%error, "can't encode a staged chunk");
                }
            });
        }
        Ok(staged.bytes)
    }

    /// Encodes the complete chunks in a write, with the file's current encoding.
    pub(super) fn pre_encode(&self, place: Place, data: &[u8]) -> Result<PreEncoded> {
        let (encoding, size) = match &self.state.read().kind {
            Kind::Foreign | Kind::Unread(_) => return Ok(PreEncoded::default()),
            Kind::Empty => (self.settings.encoding(), 0),
            Kind::Stored(log) => (Encoding::from(log.identity()), log.size()),
        };
        let offset = place.offset(size);
        let length = SIZE_MAX.saturating_sub(offset).min(data.len() as u64);
        if length < encoding.chunk_bytes {
            return Ok(PreEncoded::default());
        }
        PreEncoded::new(&self.settings, encoding, offset, &data[..length as usize])
    }

    /// Whether staging has begun since the last call.
    pub fn take_began_staging(&self) -> bool {
        // A swap for each write would take the cache line from other writers.
        self.began_staging.load(Ordering::Relaxed)
            && self.began_staging.swap(false, Ordering::Relaxed)
    }

    /// Appends the staged chunks, if the file is open for writing. Returns whether it had a staging
    /// area.
    pub fn end_staging(&self, request: &Request) -> Result<bool> {
        let is_staging = |state: &State| match &state.kind {
            Kind::Stored(log) => state.is_writable && log.journal.is_staging(),
            _ => false,
        };
        if !is_staging(&self.state.read()) {
            return Ok(false);
        }
        self.healing(request, || {
            let Some(file) = self.in_steps(request) else { return Ok(false) };
            let _turn = file.turn();
            unless_gone(clear_end(&file)).map(|cleared| cleared.is_some())
        })
    }
}

/// Logs an error of staging or writing a part of a write; returns 0, the number of bytes written.
fn not_staged(error: &Error) -> usize {
    tracing::debug!(%error, "a part of a write is tried again");
    0
}
