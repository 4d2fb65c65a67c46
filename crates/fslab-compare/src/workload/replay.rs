//! `replay`: repeats the operations of a trace.
//!
//! Files that existed when the trace was recorded are made first, outside the timed region. The
//! operations run one after another, as fast as the target allows, in the order in which they ended
//! in the recording. On a mounted target they are system calls on its directory, so the kernel's
//! caches serve them as they serve any other program.

use std::path::PathBuf;

use fslab_trace::{Inventory, Reader, Record, Replayed, Replayer, Settings};
use fslab_vfs::{Credentials, FileSystem};

use super::{Parameter, Preparation, Spec, Workload, content};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session, Timed};

const TRACE: Parameter = Parameter::text(
    "trace",
    "the trace to replay: a directory that the trace layer wrote, or one of its files",
    "",
);

const DIVERGING: Parameter = Parameter::choice(
    "diverging",
    "whether the workload fails if the result of an operation differs from the recorded one",
    &["fail", "allow"],
);

/// Maximum memory for the trace in bytes. The whole trace is read before the clock starts.
const MEMORY_BYTES_MAX: usize = 1 << 30;

/// Number of operations between checks for an interrupt.
const STEPS: usize = 256;

pub(super) const SPEC: Spec = Spec {
    name: "replay",
    help: "repeat the operations of a recorded trace",
    parameters: &[TRACE, DIVERGING, content::DATA],
    phases: &["replay"],
    construct: |parameters, seed| {
        Box::new(Replay {
            trace: parameters.text(&TRACE).map(PathBuf::from),
            diverging: parameters.word(&DIVERGING) == "allow",
            data: parameters.word(&content::DATA),
            seed,
            records: Vec::new(),
            inventory: Inventory::default(),
        })
    },
};

struct Replay {
    trace: Option<PathBuf>,
    diverging: bool,
    data: &'static str,
    seed: u64,
    records: Vec<Record>,
    inventory: Inventory,
}

impl Workload for Replay {
    fn prepare(&mut self, _: &Preparation<'_>) -> Result<()> {
        let trace = self.trace.as_ref().ok_or(Error::NoTrace)?;
        let mut held = 0;
        for record in Reader::open(trace)? {
            let record = record?;
            held += size_of::<Record>() + record.held_bytes();
            if held > MEMORY_BYTES_MAX {
                return Err(Error::Failed(format!(
                    "{}: the trace needs more than {MEMORY_BYTES_MAX} bytes of memory; replay one \
                     of its segments",
                    trace.display()
                )));
            }
            self.inventory.learn(&record);
            self.records.push(record);
        }
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        let tree = session.tree()?;
        tree.with_file_system(&mut |file_system| {
            let mut fill = |record: &Record, buffer: &mut [u8]| self.fill(record, buffer);
            self.inventory.make(file_system, Credentials::own_unless_root(), &mut fill)?;
            Ok(())
        })?;
        tree.sync_all()?;
        session.measure(Phase::new("replay"), |timed| self.replay(timed))
    }
}

impl Replay {
    fn replay(&self, timed: &mut Timed<'_>) -> Result<()> {
        let tree = timed.tree();
        let mut replayed = Replayed::default();
        tree.with_file_system(&mut |file_system| {
            replayed = self.replay_on(file_system, timed)?;
            Ok(())
        })?;
        timed.count(replayed.operations, replayed.bytes_written + replayed.bytes_read);
        timed.flush()?;
        match replayed.divergences.first() {
            Some(first) if !self.diverging => Err(Error::Failed(format!(
                "{} operations had results that differ from the recorded ones; the first: {first}",
                replayed.diverged
            ))),
            _ => Ok(()),
        }
    }

    fn replay_on(&self, target: &dyn FileSystem, timed: &Timed<'_>) -> Result<Replayed> {
        let mut fill = |record: &Record, buffer: &mut [u8]| self.fill(record, buffer);
        let mut replayer = Replayer::new(
            target,
            Settings { owner: Credentials::own_unless_root(), fill: &mut fill },
        );
        for records in self.records.chunks(STEPS) {
            timed.check()?;
            records.iter().for_each(|record| replayer.step(record));
        }
        Ok(replayer.finish())
    }

    fn fill(&self, record: &Record, buffer: &mut [u8]) {
        buffer.copy_from_slice(&content::make(
            self.data,
            self.seed ^ record.sequence,
            buffer.len(),
        ));
    }
}
