//! Records all events of a run.

use super::Observer;
use crate::error::Result;
use fslab_report::sample::{Note, NoteKind, Record, Sample, Writer};

/// The samples file of a running comparison and the observer of its notes.
pub(super) struct Journal<'a> {
    pub run: String,
    pub writer: Writer,
    pub notes: Vec<Note>,
    pub observer: &'a mut dyn Observer,
}

impl Journal<'_> {
    /// Appends a record.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        Ok(self.writer.append(record)?)
    }

    /// Records a note, unless it was recorded before.
    pub fn note(
        &mut self,
        kind: NoteKind,
        target: Option<&str>,
        workload: Option<&str>,
        text: String,
    ) -> Result<()> {
        let (target, workload) = (target.map(str::to_owned), workload.map(str::to_owned));
        let note = Note { kind, target, workload, text };
        if self.notes.contains(&note) {
            return Ok(());
        }
        self.observer.note(&note);
        self.append(&Record::Note(note.clone()))?;
        self.notes.push(note);
        Ok(())
    }

    /// Appends the samples of a session with this run's id.
    pub fn samples(&mut self, samples: &mut [Sample]) -> Result<()> {
        for sample in samples {
            sample.run.clone_from(&self.run);
            self.append(&Record::Sample(sample.clone()))?;
        }
        Ok(())
    }
}
