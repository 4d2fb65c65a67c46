//! What an earlier session of the same run has done, read from its samples file.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::provenance::Provenance;
use crate::sample::{Note, NoteKind, Record, Sample};

/// What need not be done again. Nothing, for a new run.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The run's id, for one that is resumed.
    pub run: Option<String>,
    /// What was noted.
    pub notes: Vec<Note>,
    /// Pairs of target and workload that failed.
    pub given_up: HashSet<(String, String)>,
    /// Blocks that are whole, by workload and round.
    done: HashSet<(String, u32)>,
    /// How often each block was begun.
    begun: HashMap<(String, u32), u32>,
    /// The samples of each block's last attempt.
    pub samples: BTreeMap<(String, u32), Vec<Sample>>,
}

impl Past {
    pub fn of(records: &[Record]) -> Self {
        let mut past =
            Self { run: first(records).map(|first| first.run.clone()), ..Self::default() };
        for record in records {
            match record {
                Record::Note(note) => past.note(note),
                Record::Sample(sample) => past.sample(sample),
                Record::Block(block) => {
                    past.done.insert((block.workload.clone(), block.round));
                }
                Record::Provenance(_) | Record::Target(_) | Record::End(_) => {}
            }
        }
        past
    }

    /// Whether a block need not be run again.
    pub fn is_done(&self, workload: &str, round: u32) -> bool {
        self.done.contains(&(workload.to_owned(), round))
    }

    /// The number of a block's next attempt.
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
        }
        samples.push(sample.clone());
    }
}

/// The first provenance of the records.
pub(super) fn first(records: &[Record]) -> Option<&Provenance> {
    records.iter().find_map(|record| match record {
        Record::Provenance(found) => Some(&**found),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::Past;
    use crate::sample::{Block, Record, Sample};

    fn sample(round: u32, attempt: u32) -> Record {
        let workload = "w".to_owned();
        Record::Sample(Sample { workload, round, attempt, ..Sample::default() })
    }

    /// A block without its record was cut short: it is begun again, as a later attempt.
    #[test]
    fn blocks_without_a_record_are_begun_again() {
        let block = Block { workload: "w".to_owned(), round: 0, ..Block::default() };
        let records = [sample(0, 0), Record::Block(block), sample(1, 0), sample(1, 1)];
        let past = Past::of(&records);
        assert!(past.is_done("w", 0) && !past.is_done("w", 1) && !past.is_done("w", 2));
        assert_eq!([0, 1, 2].map(|round| past.next_attempt("w", round)), [1, 2, 0]);
        assert_eq!(past.samples[&("w".to_owned(), 1)].len(), 1, "only the last attempt");
    }
}
