//! Performs a workload's operations on any [`FileSystem`]: a directory of the host, an engine or a
//! stack.
//!
//! The resulting tree does not depend on the number of threads. The operations on the files of one
//! directory are performed by one thread, in order. An operation that changes directories waits
//! until all earlier operations are done.
//!
//! At intervals, the target is synced and a checkpoint is written. A killed replay resumes from its
//! checkpoint. Operations after the checkpoint may already have been performed. Therefore, for
//! operations that the killed replay may have reached, existing or missing files are not errors.
//! This is safe because numbers and names of a workload are never reused. To start from the
//! beginning, delete the tree; the checkpoint file may be kept.

mod batch;
mod checkpoint;
mod perform;
mod room;
mod settings;

use std::path::Path;

use fslab_vfs::FileSystem;

pub use checkpoint::Checkpoint;
pub use settings::{Data, Replayed, Settings, WhenFull};

use crate::error::{Error, Result};
use crate::profile::DAY_NS;
use crate::score::count_entries;
use crate::workload::{Operation, OperationKind, Population};
use batch::Batch;
use perform::Performer;

/// An observer of a replay.
pub trait Observer {
    /// Called after each batch. If it returns `false`, the replay writes a checkpoint and ends.
    ///
    /// # Errors
    /// An error from this method ends the replay.
    fn progress(&mut self, _replayed: &Replayed, _time_ns: u64) -> Result<bool> {
        Ok(true)
    }

    /// Called every [`Settings::observe_every_days`] days and at the end of the workload, after the
    /// target was synced.
    ///
    /// # Errors
    /// An error from this method ends the replay.
    fn day(&mut self, _day: u64) -> Result<()> {
        Ok(())
    }
}

/// An observer that does nothing.
impl Observer for () {}

/// Performs a workload's operations.
pub struct Replayer<'a> {
    target: &'a dyn FileSystem,
    settings: Settings,
    performer: Performer<'a>,
    population: Population,
    replayed: Replayed,
    /// Operations with a lower index than this may already have been performed by a killed replay.
    redo_until: u64,
    /// Whether [`recount`](Self::recount) must be called after the last operation that the killed
    /// replay may already have performed.
    recounts: bool,
    next_checkpoint: u64,
    next_sync_ns: u64,
    next_day: u64,
}

impl<'a> Replayer<'a> {
    /// Makes a replayer. The target's root must be empty or contain the tree of a killed replay.
    #[must_use]
    pub fn new(target: &'a dyn FileSystem, settings: Settings) -> Self {
        let every = u64::from(settings.observe_every_days);
        Self {
            target,
            performer: Performer::new(target, &settings),
            population: Population::default(),
            replayed: Replayed::default(),
            redo_until: 0,
            recounts: false,
            next_checkpoint: settings.checkpoint_every,
            next_sync_ns: settings.sync_every_ns,
            next_day: every,
            settings,
        }
    }

    /// Performs all operations. If there is a checkpoint of this workload, starts after it. Returns
    /// whether it reached the end of the workload.
    ///
    /// # Errors
    /// Fails if the target or the observer returns an error, or if the operations are inconsistent.
    pub fn run(
        &mut self,
        operations: impl Iterator<Item = Result<Operation>>,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let mut operations = operations;
        self.resume(&mut operations)?;
        let mut batch = Batch::default();
        for operation in operations {
            let operation = operation?;
            if batch.is_due_before(&operation) || self.passes_a_mark(&operation) {
                self.do_batch(&mut batch)?;
                if !self.between_batches(operation.time_ns, observer)? {
                    self.save()?;
                    return Ok(false);
                }
                if self.moves_directory(&operation) {
                    self.save()?;
                }
            }
            batch.add(operation);
        }
        self.do_batch(&mut batch)?;
        self.recount()?;
        self.performer.sync()?;
        self.save()?;
        let last_ns = self.population.last_ns();
        if self.settings.observe_every_days > 0 {
            // The last day is reported even if the workload ends in the middle of it.
            observer.day(last_ns / DAY_NS + 1)?;
        }
        observer.progress(&self.replayed, last_ns)?;
        Ok(true)
    }

    /// Skips the operations that, according to the checkpoint, have been performed.
    fn resume(&mut self, operations: &mut dyn Iterator<Item = Result<Operation>>) -> Result<()> {
        let Some(path) = self.settings.checkpoint.clone() else { return Ok(()) };
        let Some(checkpoint) = Checkpoint::read(&path)? else {
            // With this checkpoint, a replay that is killed before its first regular checkpoint can
            // be resumed.
            return self.save();
        };
        checkpoint.check(&path, &self.settings)?;
        if count_entries(self.target)? == 0 {
            // The user or the workload deleted everything. In both cases, start from the beginning.
            return self.save();
        }
        self.replayed = checkpoint.replayed;
        let done = checkpoint.replayed.operations;
        for _ in 0..done {
            let longer = || {
                Error::unfit(&path, "it belongs to a workload with more operations than this one")
            };
            let operation = operations.next().ok_or_else(longer)??;
            self.population.apply(&operation)?;
        }
        self.performer.skip_missing(checkpoint.missing);
        self.redo_until = done + checkpoint.every;
        self.recounts = true;
        self.next_checkpoint = done + self.settings.checkpoint_every;
        let last_ns = self.population.last_ns();
        let sync = self.settings.sync_every_ns.max(1);
        self.next_sync_ns = (last_ns / sync + 1) * sync;
        let days = u64::from(self.settings.observe_every_days.max(1));
        self.next_day = (last_ns / DAY_NS / days + 1) * days;
        Ok(())
    }

    /// Whether a sync or a call of the observer is due before an operation. If so, the current
    /// batch is performed first.
    fn passes_a_mark(&self, operation: &Operation) -> bool {
        operation.time_ns >= self.next_sync_ns || self.passes_a_day(operation.time_ns)
    }

    /// Whether an operation moves a directory. A checkpoint is always written before such an
    /// operation. Otherwise a resumed replay could create the directory again under its old path,
    /// in addition to the moved one.
    fn moves_directory(&self, operation: &Operation) -> bool {
        let member = self.population.get(operation.file);
        operation.kind == OperationKind::Rename
            && member.is_some_and(|member| member.kind == OperationKind::MakeDirectory)
    }

    fn passes_a_day(&self, time_ns: u64) -> bool {
        self.settings.observe_every_days > 0 && time_ns / DAY_NS >= self.next_day
    }

    fn do_batch(&mut self, batch: &mut Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let first = self.replayed.operations;
        let redo = first < self.redo_until;
        let steps = batch.take_steps(&mut self.population, first)?;
        let done = self.performer.perform(steps, &self.population, self.settings.threads, redo)?;
        self.replayed.add(&done);
        if self.replayed.operations >= self.redo_until { self.recount() } else { Ok(()) }
    }

    /// After a resume, checks that the target has as many entries as the workload. The killed
    /// replay may already have performed later removals, so this check runs only after the last
    /// operation that may be a repetition.
    fn recount(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.recounts) {
            return Ok(());
        }
        let found = count_entries(self.target)?;
        let expected = (self.population.len() - self.performer.missing().len()) as u64;
        if found == expected {
            return Ok(());
        }
        let what = format!(
            "the target has {found} files and directories instead of {expected}, because another \
             program changed it; to start from the beginning, delete all of them"
        );
        Err(Error::unfit(self.settings.checkpoint.as_deref().unwrap_or(Path::new("")), what))
    }

    fn between_batches(&mut self, time_ns: u64, observer: &mut dyn Observer) -> Result<bool> {
        if time_ns >= self.next_sync_ns {
            self.performer.sync()?;
            let sync = self.settings.sync_every_ns.max(1);
            self.next_sync_ns = (time_ns / sync + 1).saturating_mul(sync);
        }
        while self.passes_a_day(time_ns) {
            self.performer.sync()?;
            observer.day(self.next_day)?;
            self.next_day += u64::from(self.settings.observe_every_days);
        }
        if self.replayed.operations >= self.next_checkpoint {
            self.save()?;
        }
        observer.progress(&self.replayed, time_ns)
    }

    /// Syncs the target and writes the checkpoint.
    fn save(&mut self) -> Result<()> {
        let Some(path) = &self.settings.checkpoint else { return Ok(()) };
        self.performer.sync()?;
        let missing = self.performer.missing();
        Checkpoint::new(&self.settings, self.replayed, missing).write(path)?;
        self.next_checkpoint = self.replayed.operations + self.settings.checkpoint_every;
        Ok(())
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn replayed(&self) -> &Replayed {
        &self.replayed
    }

    /// Returns the files and directories that exist in the workload at this point.
    #[must_use]
    pub fn population(&self) -> &Population {
        &self.population
    }
}
