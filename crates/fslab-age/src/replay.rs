//! Performs a workload's operations on any [`FileSystem`]: a directory of the host, an engine, a
//! stack.
//!
//! A workload always has the same effect, also with several threads. Operations on the files of a
//! directory are performed in order by one thread; operations that change directories wait for all
//! threads.
//!
//! At intervals everything is made durable and a checkpoint is written. A killed replay is resumed
//! from its checkpoint. Operations after the checkpoint may have been done already. Therefore, as
//! far as the killed replay can have come, existing or missing files are no error. This is safe
//! because numbers and names of a workload are never reused. To start again, delete the tree and
//! give the same checkpoint.

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

/// Observes a replay.
pub trait Observer {
    /// Called after each batch. If it returns `false`, the replay ends after a checkpoint.
    ///
    /// # Errors
    /// An error ends the replay.
    fn progress(&mut self, _replayed: &Replayed, _time_ns: u64) -> Result<bool> {
        Ok(true)
    }

    /// Called at the end of a day and of the workload, after everything was written back.
    ///
    /// # Errors
    /// An error ends the replay.
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
    /// Operations before this one may have been done by a killed replay.
    redo_until: u64,
    /// Whether to count the tree as soon as no operation can have been done already.
    recounts: bool,
    next_checkpoint: u64,
    next_sync_ns: u64,
    next_day: u64,
}

impl<'a> Replayer<'a> {
    /// Makes a replay on a target whose root is empty, or contains the tree of a killed replay.
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

    /// Performs all operations, from the checkpoint on if there is one of this workload. Returns
    /// whether it reached the end.
    ///
    /// # Errors
    /// Errors of the target and of the observer, and a workload that contradicts itself.
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
            // The last day ends with the workload.
            observer.day(last_ns / DAY_NS + 1)?;
        }
        observer.progress(&self.replayed, last_ns)?;
        Ok(true)
    }

    /// Skips the operations that are done according to the checkpoint.
    fn resume(&mut self, operations: &mut dyn Iterator<Item = Result<Operation>>) -> Result<()> {
        let Some(path) = self.settings.checkpoint.clone() else { return Ok(()) };
        let Some(checkpoint) = Checkpoint::read(&path)? else {
            // A replay killed before its first checkpoint must be recognisable too.
            return self.save();
        };
        checkpoint.check(&path, &self.settings)?;
        if count_entries(self.target)? == 0 {
            // The user or the workload deleted everything; in either case it starts from the
            // beginning.
            return self.save();
        }
        self.replayed = checkpoint.replayed;
        let done = checkpoint.replayed.operations;
        for _ in 0..done {
            let longer = || Error::unfit(&path, "it is of a longer workload");
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

    /// Whether a mark lies before an operation, which must then wait for the batch.
    fn passes_a_mark(&self, operation: &Operation) -> bool {
        operation.time_ns >= self.next_sync_ns || self.passes_a_day(operation.time_ns)
    }

    /// Whether an operation moves a directory. A checkpoint is always written before. Otherwise a
    /// resumed replay could make the directory again at its old path, in addition to the moved one.
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

    /// After resuming, checks that nothing was removed by somebody else. While operations may be
    /// repeated, this cannot be distinguished from removals by the killed replay.
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
            "the target holds {found} files and directories, and should hold {expected}: somebody \
             else changed it; delete all of them to begin anew"
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

    /// Makes everything durable and writes the checkpoint.
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

    /// Returns the files and directories that the workload has made so far.
    #[must_use]
    pub fn population(&self) -> &Population {
        &self.population
    }
}
