//! Collects records from many threads and writes them in a separate thread.
//!
//! The queue is bounded and loses no record: a thread that finds the queue full waits. The writing
//! thread is woken only when the queue has become large, because a wake-up for each record would
//! cost more than recording it. Records that arrive slowly wait for the next save.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fslab_vfs::Clock;
use parking_lot::{Condvar, Mutex};

use crate::anonymise::Anonymiser;
use crate::error::{Error, Result};
use crate::record::Record;
use crate::writer::TraceWriter;

/// Size of a full queue in bytes. The size of a record includes the memory that it owns on the
/// heap.
const QUEUE_BYTES_MAX: usize = 16 << 20;

/// The writing thread is woken when the queue reaches this size in bytes.
const WAKE_BYTES: usize = 1 << 20;

/// Time before a failed write is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The behaviour if the trace can't be written, for example on a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Operations continue; their records are counted as lost.
    Lose,
    /// Operations wait until there is space again.
    Wait,
}

/// Options of a recorder.
pub struct RecorderOptions {
    /// Records are saved at least this often.
    pub save_every: Duration,
    /// The behaviour if the trace can't be written.
    pub when_full: WhenFull,
    /// Anonymises all names; `None` keeps them.
    pub anonymiser: Option<Anonymiser>,
}

/// Progress of a recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderState {
    /// Records received.
    pub taken: u64,
    /// Records on disk.
    pub saved: u64,
    /// Records lost.
    pub lost: u64,
    /// Segments begun.
    pub segments: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Number of operations that had to wait for the writing thread.
    pub waits: u64,
}

/// Collects records from many threads.
pub struct Recorder {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Result<()>>>>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Wakes the writing thread when the first record arrives, when many records have arrived, and
    /// when recording ends.
    came: Condvar,
    /// Signals that there is room in the queue again.
    room: Condvar,
    state: Mutex<RecorderState>,
}

#[derive(Default)]
struct Queue {
    records: VecDeque<Record>,
    bytes: usize,
    taken: u64,
    waits: u64,
    /// Whether the writing thread waits for the first record, without a time limit.
    idle: bool,
    ended: bool,
}

impl Recorder {
    /// Starts the writing thread.
    ///
    /// # Errors
    /// Fails if the system can't start a thread.
    pub fn start(
        writer: TraceWriter,
        options: RecorderOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            came: Condvar::new(),
            room: Condvar::new(),
            state: Mutex::default(),
        });
        let path = writer.path().to_owned();
        let shared_too = Arc::clone(&shared);
        let scribe = Scribe {
            shared: shared_too,
            writer,
            pushed: 0,
            options,
            clock,
            failing: false,
            reason: None,
        };
        scribe.tell();
        let thread = std::thread::Builder::new()
            .name("fslab-trace".to_owned())
            .spawn(move || scribe.work())
            .map_err(Error::file(&path))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Adds a record and sets its sequence number. Waits while the queue is full.
    pub fn record(&self, mut record: Record) {
        let weight = size_of::<Record>() + record.held_bytes();
        let mut queue = self.shared.queue.lock();
        if queue.bytes >= QUEUE_BYTES_MAX {
            queue.waits += 1;
            self.shared.room.wait_while(&mut queue, |queue| queue.bytes >= QUEUE_BYTES_MAX);
        }
        queue.taken += 1;
        record.sequence = queue.taken;
        let before = queue.bytes;
        queue.bytes += weight;
        queue.records.push_back(record);
        let much = before < WAKE_BYTES && queue.bytes >= WAKE_BYTES;
        // An idle writing thread is woken for the first record, even if the queue is far from full.
        let was_idle = std::mem::take(&mut queue.idle);
        if much || was_idle {
            self.shared.came.notify_one();
        }
    }

    /// Returns the progress.
    #[must_use]
    pub fn state(&self) -> RecorderState {
        let queue = self.shared.queue.lock();
        let (taken, waits) = (queue.taken, queue.waits);
        drop(queue);
        RecorderState { taken, waits, ..*self.shared.state.lock() }
    }

    /// Writes all remaining records and closes the trace. Later calls do nothing.
    ///
    /// # Errors
    /// Returns [`Error::Lost`] if records were lost. Also fails on I/O errors.
    pub fn finish(&self) -> Result<()> {
        let Some(thread) = self.thread.lock().take() else { return Ok(()) };
        self.shared.queue.lock().ended = true;
        self.shared.came.notify_one();
        // A panic of the writing thread is resumed in the calling thread, so that it is reported.
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!(%error, "can't close the trace");
        }
    }
}

/// The writing thread.
struct Scribe {
    shared: Arc<Shared>,
    writer: TraceWriter,
    /// Number of records given to the writer.
    pushed: u64,
    options: RecorderOptions,
    clock: Arc<dyn Clock>,
    /// Whether the last attempt to write the trace failed.
    failing: bool,
    /// The first error.
    reason: Option<String>,
}

impl Scribe {
    fn work(mut self) -> Result<()> {
        let mut saved_ns = self.clock.now_ns();
        loop {
            let (records, ended) = self.take();
            for record in records {
                self.add(record);
            }
            if ended {
                return self.close();
            }
            let due = saved_ns.saturating_add(self.options.save_every.as_nanos() as u64);
            if self.writer.unsaved() == 0 || self.clock.now_ns() >= due {
                self.save();
                saved_ns = self.clock.now_ns();
            }
            self.tell();
        }
    }

    /// Waits for records or for the time to save. Returns the records, and whether the recorder has
    /// ended.
    fn take(&self) -> (VecDeque<Record>, bool) {
        let mut queue = self.shared.queue.lock();
        if queue.bytes < WAKE_BYTES && !queue.ended {
            if self.writer.unsaved() == 0 && queue.records.is_empty() {
                queue.idle = true;
                self.shared.came.wait_while(&mut queue, |queue| queue.idle && !queue.ended);
                queue.idle = false;
            }
            let calm = |queue: &mut Queue| queue.bytes < WAKE_BYTES && !queue.ended;
            self.shared.came.wait_while_for(&mut queue, calm, self.options.save_every);
        }
        let records = std::mem::take(&mut queue.records);
        queue.bytes = 0;
        let ended = queue.ended;
        drop(queue);
        self.shared.room.notify_all();
        (records, ended)
    }

    fn add(&mut self, mut record: Record) {
        if let Some(anonymiser) = &self.options.anonymiser {
            anonymiser.apply(&mut record);
        }
        self.writer.push(&record);
        self.pushed += 1;
        while self.writer.is_full() {
            match self.writer.finish_segment() {
                Ok(()) => self.say_recovered(),
                Err(error) => self.can_not_finish(&error),
            }
        }
    }

    fn save(&mut self) {
        match self.writer.save() {
            Ok(()) => self.say_recovered(),
            Err(error) => self.say_failed(&error),
        }
    }

    /// Handles a failed write of a full segment: waits before the next attempt, or discards the
    /// unsaved records.
    fn can_not_finish(&mut self, error: &Error) {
        self.say_failed(error);
        if self.options.when_full == WhenFull::Wait && !self.is_ended() {
            self.tell();
            std::thread::sleep(RETRY);
            return;
        }
        self.writer.give_up();
        self.tell();
    }

    fn is_ended(&self) -> bool {
        self.shared.queue.lock().ended
    }

    fn say_failed(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.failing, true) {
            let consequence = match self.options.when_full {
                WhenFull::Lose => "operations continue, and their records are lost",
                WhenFull::Wait => "operations wait until the trace can be written",
            };
            tracing::error!(%error, "the trace can't be written: {consequence}");
        }
        self.reason.get_or_insert_with(|| error.to_string());
    }

    fn say_recovered(&mut self) {
        if std::mem::take(&mut self.failing) {
            let lost = self.writer.lost();
            tracing::warn!(lost, "the trace can be written again");
        }
    }

    fn close(mut self) -> Result<()> {
        let closed = self.writer.close();
        if let Err(error) = &closed {
            self.say_failed(error);
            self.writer.give_up();
        }
        self.tell();
        let lost = self.writer.lost();
        if lost == 0 {
            return closed;
        }
        let path = self.writer.path().to_owned();
        Err(Error::Lost { path, records: lost, reason: self.reason.unwrap_or_default() })
    }

    fn tell(&self) {
        let mut state = self.shared.state.lock();
        state.lost = self.writer.lost();
        state.segments = self.writer.segments();
        state.bytes = self.writer.bytes();
        state.saved = self.pushed - self.writer.unsaved() as u64 - state.lost;
    }
}
