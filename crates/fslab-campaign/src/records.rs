//! The records for the report of a campaign. Each block contributes the records of one attempt.

use std::collections::HashSet;

use fslab_report::sample::{End, EndReason, Note, NoteKind, Record};

use crate::error::{Error, Result};
use crate::state::{CellState, State, is_failure_of};

impl State<'_> {
    /// Returns the records for the report, attempt by attempt. Each attempt gets a new end record,
    /// so that it appears as a separate run.
    ///
    /// # Errors
    /// Fails if no block is done yet.
    pub fn records(&self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for file in 0..self.attempts.len() {
            let counted = self.counted_of(file);
            if !counted.is_empty() {
                self.add(file, &counted, &mut records);
            }
        }
        if records.is_empty() {
            return Err(Error::NothingDone { path: self.campaign.directory().to_owned() });
        }
        records.extend(self.remark().map(Record::Note));
        Ok(records)
    }

    /// Returns the blocks for which a samples file is used: workload, round, and number of the
    /// attempt.
    fn counted_of(&self, file: usize) -> HashSet<(&str, u32, u32)> {
        let of_file = self.blocks.iter().filter_map(|state| {
            let counted = state.counted.filter(|counted| counted.file == file)?;
            Some((&*state.block.workload, state.block.round, counted.attempt))
        });
        of_file.collect()
    }

    fn add(&self, file: usize, counted: &HashSet<(&str, u32, u32)>, records: &mut Vec<Record>) {
        let attempt = &self.attempts[file];
        let mut seconds = 0.0;
        for record in &attempt.records {
            let counts = match record {
                Record::Provenance(_) | Record::Target(_) => true,
                Record::Sample(sample) => {
                    counted.contains(&(&*sample.workload, sample.round, sample.attempt))
                }
                Record::Block(block) => {
                    let counts = counted.contains(&(&*block.workload, block.round, block.attempt));
                    seconds +=
                        block.cells.iter().filter(|_| counts).map(|one| one.seconds).sum::<f64>();
                    counts
                }
                Record::Note(note) => note.kind == NoteKind::Remark || self.is_true(note, file),
                Record::End(_) => false,
            };
            records.extend(counts.then(|| record.clone()));
        }
        let reason = match self.blocks.iter().all(|state| state.counted.is_some()) {
            true => EndReason::Finished,
            false => EndReason::Interrupted,
        };
        let rounds = self.whole_rounds();
        records.push(Record::End(End { reason, rounds, elapsed_seconds: seconds.round() as u64 }));
    }

    /// Returns whether a failure note belongs to a cell that is recorded as failed.
    fn is_true(&self, note: &Note, file: usize) -> bool {
        let of_file = self
            .blocks
            .iter()
            .filter(|state| state.counted.is_some_and(|counted| counted.file == file));
        of_file.flat_map(|state| &state.cells).any(|cell| {
            cell.state == CellState::Failed && is_failure_of(note, &cell.target, &cell.workload)
        })
    }

    /// Counts the rounds whose blocks are all done.
    fn whole_rounds(&self) -> u32 {
        let is_whole = |round: &u32| {
            let of_round = self.blocks.iter().filter(|state| state.block.round == *round);
            of_round.into_iter().all(|state| state.counted.is_some())
        };
        (0..self.campaign.frozen().rounds).filter(is_whole).count() as u32
    }

    /// Returns the remark that a report of an incomplete campaign needs.
    fn remark(&self) -> Option<Note> {
        let summary = self.summary();
        let text = format!(
            "{} of {} cells are missing and {} failed; `fslab campaign status` lists them",
            summary.missing, summary.cells, summary.failed
        );
        let note = Note { kind: NoteKind::Remark, target: None, workload: None, text };
        (!summary.is_complete).then_some(note)
    }
}
