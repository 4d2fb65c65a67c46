//! Merges the records of one or several samples files into the samples that a report uses.
//!
//! If a block was repeated, only its last attempt is used. Duplicate samples are used once.
//! Differences between the runs are reported as remarks.

use std::collections::{HashMap, HashSet};

use crate::pooling::{self, Pooling};
use crate::provenance::Provenance;
use crate::sample::{End, EndReason, Note, NoteKind, Record, Sample, TargetRecord};

/// The merged records.
#[derive(Debug, Default)]
pub(super) struct Merged<'a> {
    /// The provenance of the first run.
    pub provenance: Provenance,
    /// The provenances of all other runs.
    pub further: Vec<Provenance>,
    /// Names of the targets: those of the first plan in order, then additional ones.
    pub target_names: Vec<String>,
    /// Labels of the workloads, in the same order.
    pub workloads: Vec<String>,
    pub targets: Vec<TargetRecord>,
    pub notes: Vec<Note>,
    pub end: Option<End>,
    pub samples: Vec<&'a Sample>,
    pub superseded: usize,
    /// The name of the second copy of the baseline, for each run that has one.
    second_copies: HashMap<String, String>,
    /// Names of the machines, in the order of their runs.
    pub machines: Vec<String>,
    /// The groups of machines that are pooled as one machine, because they have the same kernel.
    pub kernels: Vec<Vec<usize>>,
    /// The index of each run's machine.
    machine_of: HashMap<String, usize>,
    /// The index of each run's campaign.
    campaigns: HashMap<String, usize>,
    /// The way to combine the ratios of machines.
    pub pooling: Pooling,
}

impl<'a> Merged<'a> {
    pub fn of(records: &'a [Record], pooling: Pooling) -> Self {
        let mut merged = Self { pooling, ..Self::default() };
        let mut sessions: Vec<&Provenance> = Vec::new();
        let mut samples: Vec<&Sample> = Vec::new();
        for record in records {
            match record {
                Record::Provenance(found) => sessions.push(found),
                Record::Target(target) => merged.add_target(target),
                Record::Sample(sample) => samples.push(sample),
                Record::Note(note) => add(&mut merged.notes, note),
                Record::Block(_) | Record::End(_) => {}
            }
        }
        merged.add_sessions(&sessions);
        merged.end = end(records);
        let once = without_twins(&samples);
        let twins = samples.len() - once.len();
        if twins > 0 {
            merged.remark(format!("{twins} samples were given twice; each is used once"));
        }
        let samples = last_attempts(&once);
        merged.superseded = once.len() - samples.len();
        for sample in &samples {
            if !merged.is_second_copy(sample) {
                add(&mut merged.target_names, &sample.target);
            }
            add(&mut merged.workloads, &sample.workload);
        }
        merged.samples = samples;
        merged.notes.sort_by_key(|note| note.kind as u8);
        merged
    }

    /// Returns the index of a sample's machine.
    pub fn machine(&self, sample: &Sample) -> usize {
        self.machine_of.get(&sample.run).copied().unwrap_or(0)
    }

    /// Whether a sample belongs to the hidden second copy of its run's baseline.
    pub fn is_second_copy(&self, sample: &Sample) -> bool {
        self.second_copies.get(&sample.run) == Some(&sample.target)
    }

    /// Returns the campaign of a run: runs of one plan and seed on one machine since its last boot.
    pub fn campaign(&self, run: &str) -> Option<usize> {
        self.campaigns.get(run).copied()
    }

    fn add_sessions(&mut self, sessions: &[&Provenance]) {
        let Some((first, rest)) = sessions.split_first() else { return };
        self.provenance = (*first).clone();
        for session in rest {
            let known = session.run == first.run
                || self.further.iter().any(|other| other.run == session.run);
            if !known {
                self.further.push((*session).clone());
            }
            // A campaign has many sessions, so only the differences between its machines are
            // described, below.
            if self.pooling == Pooling::Strata {
                self.remark_on_differences(session);
            }
        }
        for session in sessions {
            session.targets.iter().for_each(|name| add(&mut self.target_names, name));
            session.workloads.iter().for_each(|label| add(&mut self.workloads, label));
            let campaign = sessions.iter().position(|other| session.is_one_campaign_with(other));
            self.campaigns.insert(session.run.clone(), campaign.unwrap_or(0));
            self.add_machine(session, sessions);
            if let Some(name) = &session.second_copy {
                self.second_copies.insert(session.run.clone(), name.clone());
            }
        }
        self.kernels = self.pooling.groups(self.machines.len(), self.boots(sessions));
        if self.pooling == Pooling::Clusters {
            let machine = |session: &Provenance| {
                let index = self.machine_of.get(&session.run).copied().unwrap_or(0);
                self.machines.get(index).map_or("", String::as_str)
            };
            let named: Vec<_> = sessions.iter().map(|one| (machine(one), *one)).collect();
            for text in pooling::differences(&named) {
                self.remark(text);
            }
        }
    }

    /// Returns the machine and the boot ID of each session that has a boot ID.
    fn boots<'b>(&self, sessions: &[&'b Provenance]) -> Vec<(usize, &'b str)> {
        let of = |session: &&'b Provenance| {
            Some((*self.machine_of.get(&session.run)?, session.boot.as_deref()?))
        };
        sessions.iter().filter_map(of).collect()
    }

    /// Adds a session's machine. Sessions with equal machine names, processors and memory sizes are
    /// assigned to one machine.
    fn add_machine(&mut self, session: &Provenance, sessions: &[&Provenance]) {
        let is_same = |other: &&&Provenance| session.machine_key() == other.machine_key();
        let first = sessions.iter().find(is_same).map_or(session, |first| first);
        if let Some(known) = self.machine_of.get(&first.run) {
            self.machine_of.insert(session.run.clone(), *known);
            return;
        }
        let count = self.machines.len();
        let name = match &*session.machine {
            "" => format!("machine {}", count + 1),
            name if self.machines.iter().any(|known| known == name) => {
                format!("{name} ({})", count + 1)
            }
            name => name.to_owned(),
        };
        self.machines.push(name);
        self.machine_of.insert(session.run.clone(), count);
    }

    fn remark_on_differences(&mut self, session: &Provenance) {
        let what = if session.run == self.provenance.run {
            "in a later session"
        } else {
            "in another run"
        };
        for (name, own, others) in self.provenance.differences(session) {
            self.remark(format!(
                "the {name} is {own:?} in the first session, but {others:?} {what}, which started \
                 at {}",
                session.started
            ));
        }
    }

    fn add_target(&mut self, target: &TargetRecord) {
        let known = self.targets.iter().find(|known| known.name == target.name);
        let Some(known) = known else {
            self.targets.push(target.clone());
            return;
        };
        let device = |record: &TargetRecord| {
            (record.loop_direct_io, record.read_ahead_kib, record.scheduler.clone())
        };
        if device(known) != device(target) {
            let note = Note {
                kind: NoteKind::Remark,
                target: Some(target.name.clone()),
                workload: None,
                text: "the settings of its device differ between runs (direct I/O, read-ahead or \
                       scheduler)"
                    .to_owned(),
            };
            add(&mut self.notes, &note);
        }
    }

    fn remark(&mut self, text: String) {
        add(&mut self.notes, &Note { kind: NoteKind::Remark, target: None, workload: None, text });
    }
}

fn add<T: Clone + PartialEq>(list: &mut Vec<T>, item: &T) {
    if !list.contains(item) {
        list.push(item.clone());
    }
}

fn without_twins<'a>(samples: &[&'a Sample]) -> Vec<&'a Sample> {
    let mut seen = HashSet::new();
    let key = |sample: &'a Sample| {
        let place = (sample.round, sample.attempt, sample.size_bytes);
        (&*sample.run, &*sample.target, &*sample.workload, &*sample.phase, place)
    };
    samples.iter().copied().filter(|sample| seen.insert(key(sample))).collect()
}

fn last_attempts<'a>(samples: &[&'a Sample]) -> Vec<&'a Sample> {
    let block = |sample: &'a Sample| (&*sample.run, &*sample.workload, sample.round);
    let mut last = HashMap::new();
    for sample in samples {
        let attempt = last.entry(block(sample)).or_insert(sample.attempt);
        *attempt = sample.attempt.max(*attempt);
    }
    let counts = |sample: &&&'a Sample| last.get(&block(sample)) == Some(&sample.attempt);
    samples.iter().filter(counts).copied().collect()
}

/// Returns the end record of the comparison; `None` if the last session of a run has none. With
/// several runs, the least complete end is used.
fn end(records: &[Record]) -> Option<End> {
    let mut ends: Vec<(&str, Option<&End>)> = Vec::new();
    let mut current = None;
    for record in records {
        match record {
            Record::Provenance(found) => {
                current = ends.iter().position(|(run, _)| *run == found.run).or_else(|| {
                    ends.push((&found.run, None));
                    Some(ends.len() - 1)
                });
                if let Some(end) = current.and_then(|current| ends.get_mut(current)) {
                    end.1 = None;
                }
            }
            Record::End(end) => {
                if let Some(place) = current.and_then(|current| ends.get_mut(current)) {
                    place.1 = Some(end);
                }
            }
            _ => {}
        }
    }
    let ends: Vec<&End> = ends.into_iter().map(|(_, end)| end).collect::<Option<_>>()?;
    let least = ends.iter().max_by_key(|end| incompleteness(end.reason))?;
    Some(End {
        reason: least.reason,
        rounds: ends.iter().map(|end| end.rounds).max().unwrap_or(0),
        elapsed_seconds: ends.iter().map(|end| end.elapsed_seconds).sum(),
    })
}

fn incompleteness(reason: EndReason) -> u8 {
    match reason {
        EndReason::Narrow => 0,
        EndReason::Finished => 1,
        EndReason::TimeLimit => 2,
        EndReason::Interrupted => 3,
    }
}
