//! The results of earlier sessions of a resumed run, read from its samples file.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::plan::TargetPlan;
use fslab_report::sample::{self, Note, NoteKind, Record, Sample};

/// Work that need not be repeated; empty for a new run.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The run's id, if it is resumed.
    pub run: Option<String>,
    /// The name of the second copy of the baseline, if that run has one.
    pub second_copy: Option<String>,
    /// The recorded notes.
    pub notes: Vec<Note>,
    /// Pairs of target and workload that failed.
    pub given_up: HashSet<(String, String)>,
    /// The targets on which the last complete attempt of each block ran, by workload and round.
    done: HashMap<(String, u32), HashSet<String>>,
    /// The number of attempts of each block.
    begun: HashMap<(String, u32), u32>,
    /// The samples of each block's last attempt.
    pub samples: BTreeMap<(String, u32), Vec<Sample>>,
}

impl Past {
    pub fn of(records: &[Record]) -> Self {
        let first = sample::sessions(records).next();
        let mut past = Self {
            run: first.map(|first| first.run.clone()),
            second_copy: first.and_then(|first| first.second_copy.clone()),
            ..Self::default()
        };
        for record in records {
            match record {
                Record::Note(note) => past.note(note),
                Record::Sample(sample) => past.sample(sample),
                Record::Block(block) => {
                    let targets = block.cells.iter().map(|cell| cell.target.clone()).collect();
                    past.done.insert((block.workload.clone(), block.round), targets);
                }
                Record::Provenance(_) | Record::Target(_) | Record::End(_) => {}
            }
        }
        past
    }

    /// Whether a block ran on all of these targets, so that it need not be repeated. Otherwise it
    /// is repeated on all targets, because only runs that directly follow each other are compared.
    pub fn is_done(&self, workload: &str, round: u32, targets: &[TargetPlan]) -> bool {
        let done = self.done.get(&(workload.to_owned(), round));
        done.is_some_and(|done| targets.iter().all(|target| done.contains(&target.name)))
    }

    /// Returns the number of a block's next attempt.
    pub fn next_attempt(&self, workload: &str, round: u32) -> u32 {
        self.begun.get(&(workload.to_owned(), round)).copied().unwrap_or(0)
    }

    fn note(&mut self, note: &Note) {
        if let (NoteKind::Failed, Some(target), Some(workload)) =
            (note.kind, &note.target, &note.workload)
        {
            self.given_up.insert((target.clone(), workload.clone()));
        }
        self.notes.push(note.clone());
    }

    fn sample(&mut self, sample: &Sample) {
        let block = (sample.workload.clone(), sample.round);
        let begun = self.begun.entry(block.clone()).or_default();
        let samples = self.samples.entry(block).or_default();
        if sample.attempt + 1 > *begun {
            *begun = sample.attempt + 1;
            samples.clear();
            // Only the last attempt is used, and the attempt of this sample is not complete yet.
            self.done.remove(&(sample.workload.clone(), sample.round));
        }
        samples.push(sample.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::Past;
    use crate::plan::{Form, Plan, TargetPlan};
    use fslab_report::sample::{Block, CellTime, Record, Sample};

    fn sample(round: u32, attempt: u32) -> Record {
        let workload = "w".to_owned();
        Record::Sample(Sample { workload, round, attempt, ..Sample::default() })
    }

    fn block(round: u32, targets: &[&str]) -> Record {
        let cell = |name: &&str| CellTime { target: (*name).to_owned(), ..CellTime::default() };
        let cells = targets.iter().map(cell).collect();
        Record::Block(Block { workload: "w".to_owned(), round, cells, ..Block::default() })
    }

    fn targets() -> Vec<TargetPlan> {
        let text = "name = \"t\"\n[[target]]\nname = \"a\"\nin_process = \"mem:\"\n\
                    [[target]]\nname = \"b\"\nin_process = \"mem:\"\n\
                    [[workload]]\nname = \"stream\"\nlabel = \"w\"\n";
        Plan::parse("t", text, Form::Full).unwrap().targets
    }

    /// A block without its record was interrupted. It is repeated as a later attempt.
    #[test]
    fn blocks_without_a_record_are_run_again() {
        let both = ["b", "a"];
        let records = [
            sample(0, 0),
            block(0, &both),
            sample(1, 0),
            sample(1, 1),
            sample(2, 0),
            block(2, &both),
            sample(2, 1),
        ];
        let (past, targets) = (Past::of(&records), targets());
        let done = |round| past.is_done("w", round, &targets);
        assert!(done(0) && !done(1) && !done(3));
        assert!(!done(2), "complete at first, cut short when it was run again");
        let next = [0, 1, 2, 3].map(|round| past.next_attempt("w", round));
        assert_eq!(next, [1, 2, 2, 0]);
        assert_eq!(past.samples[&("w".to_owned(), 1)].len(), 1, "only the last attempt");
    }

    #[test]
    fn block_is_done_only_for_targets_that_it_ran_on() {
        let past = Past::of(&[sample(0, 0), block(0, &["a"])]);
        let targets = targets();
        assert!(past.is_done("w", 0, &targets[..1]), "a has it");
        assert!(!past.is_done("w", 0, &targets), "b lacks it");
        assert_eq!(past.next_attempt("w", 0), 1);
    }
}
