//! The progress of a campaign, computed only from its samples files.
//!
//! Exactly one attempt at each block is used, even if the block was run several times. It is the
//! attempt with the fewest failed cells. Ties are resolved by the fewest disturbed cells, then by
//! the earliest time. If one samples file contains several attempts at a block, only the last is
//! considered. The measured values do not influence the choice. A killed attempt at a block is
//! never used.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fslab_report::Share;
use fslab_report::sample::{self, Note, NoteKind, Record};
use serde::Serialize;

use crate::attempt::{self, Attempt};
use crate::campaign::Campaign;
use crate::error::Result;
use crate::format::Block;
use crate::shares;

/// The progress of a campaign.
#[derive(Debug)]
pub struct State<'a> {
    /// The campaign.
    pub campaign: &'a Campaign,
    /// All attempts at shares, in the order in which they began.
    pub attempts: Vec<Attempt>,
    /// All blocks, in the order of the plan.
    pub blocks: Vec<BlockState>,
}

/// The progress of a block.
#[derive(Debug)]
pub struct BlockState {
    /// The block.
    pub block: Block,
    /// The attempt that is used, if the block is done.
    pub(crate) counted: Option<Counted>,
    /// The cells, in the order of the targets.
    pub cells: Vec<Cell>,
}

/// The attempt that is used for a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// The index of the samples file among the attempts.
    pub file: usize,
    /// The number of the attempt at the block, counted within the file.
    pub attempt: u32,
    /// The duration of the attempt.
    seconds: f64,
}

/// The cell of one target in one block.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The label of the workload.
    pub workload: String,
    /// The round, counted from 0.
    pub round: u32,
    /// The name of the target.
    pub target: String,
    /// The state of the cell.
    pub state: CellState,
    /// The host of the attempt that is used. For a missing cell, the last host that began it.
    pub host: Option<String>,
    /// The reason for the failure, or the interference.
    pub reason: Option<String>,
}

/// The state of a cell.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum CellState {
    /// Measured.
    Done,
    /// Measured, with interference.
    Disturbed,
    /// The cell could not be measured.
    Failed,
    /// Not measured, or not completely.
    Missing,
}

/// The work of one host.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostState {
    /// The name of the host.
    pub host: String,
    /// The kernel version, as recorded in the last attempt.
    pub kernel: String,
    /// The number of cells that are used.
    pub cells: usize,
    /// The number of attempts at shares.
    pub attempts: usize,
    /// The number of attempts without an end record: they are running, or were killed.
    pub unended: usize,
}

/// A summary of a campaign's progress.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The title of the plan.
    pub name: String,
    /// Whether every cell is measured.
    pub is_complete: bool,
    /// The number of cells.
    pub cells: usize,
    /// Number of cells that were measured without interference.
    pub done: usize,
    /// Number of cells that were measured with interference.
    pub disturbed: usize,
    /// Number of cells that failed.
    pub failed: usize,
    /// Number of cells that have no complete measurement.
    pub missing: usize,
    /// The estimated time in which one host would run the unfinished blocks; `None` while no block
    /// is finished.
    pub time_left_seconds: Option<f64>,
    /// The work of each host.
    pub hosts: Vec<HostState>,
    /// The cells that are missing, failed or disturbed.
    pub open: Vec<Cell>,
}

/// All complete attempts at each block, by workload and round.
type Candidates<'a> = HashMap<(&'a str, u32), Vec<(Counted, Vec<Cell>)>>;

impl<'a> State<'a> {
    /// Reads the state of a campaign.
    ///
    /// # Errors
    /// Fails if a samples file can't be read or belongs to another campaign.
    pub fn of(campaign: &'a Campaign) -> Result<Self> {
        let attempts = attempt::all(campaign)?;
        let mut candidates = Candidates::new();
        for (file, attempt) in attempts.iter().enumerate() {
            for block in last_blocks(attempt) {
                let found = candidate(campaign, file, attempt, block);
                candidates.entry((&block.workload, block.round)).or_default().push(found);
            }
        }
        let state = |block: &Block| {
            let found = candidates.get(&(&*block.workload, block.round));
            let best = found.into_iter().flatten().min_by_key(|(counted, cells)| {
                let count = |state| cells.iter().filter(|cell| cell.state == state).count();
                (count(CellState::Failed), count(CellState::Disturbed), counted.file)
            });
            let (counted, cells) = match best {
                Some((counted, cells)) => (Some(*counted), cells.clone()),
                None => (None, missing(campaign, &attempts, block)),
            };
            BlockState { block: block.clone(), counted, cells }
        };
        let blocks = campaign.frozen().blocks.iter().map(state).collect();
        drop(candidates);
        Ok(Self { campaign, attempts, blocks })
    }

    /// Returns the blocks of a share that must still be run: for each workload, the rounds. These
    /// are the blocks without a result and, with `retry`, those with failed or disturbed cells.
    #[must_use]
    pub fn left(&self, share: Share, retry: bool) -> BTreeMap<String, BTreeSet<u32>> {
        let workloads = self.campaign.plan().workloads.len();
        let is_left = |state: &BlockState| {
            let is_whole = state.cells.iter().all(|cell| cell.state == CellState::Done);
            state.counted.is_none() || (retry && !is_whole)
        };
        let mut left = BTreeMap::<_, BTreeSet<u32>>::new();
        for (number, state) in self.blocks.iter().enumerate() {
            if shares::holds(share, number, workloads) && is_left(state) {
                left.entry(state.block.workload.clone()).or_default().insert(state.block.round);
            }
        }
        left
    }

    /// Returns a summary of the progress.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let cells = || self.blocks.iter().flat_map(|block| &block.cells);
        let count = |state| cells().filter(|cell| cell.state == state).count();
        let (done, disturbed) = (count(CellState::Done), count(CellState::Disturbed));
        Summary {
            name: self.campaign.frozen().name.clone(),
            is_complete: done + disturbed == cells().count(),
            cells: cells().count(),
            done,
            disturbed,
            failed: count(CellState::Failed),
            missing: count(CellState::Missing),
            time_left_seconds: self.time_left_seconds(),
            hosts: self.hosts(),
            open: cells().filter(|cell| cell.state != CellState::Done).cloned().collect(),
        }
    }

    /// Estimates how long one host would take to run the unfinished blocks. The estimate for a
    /// block is the mean of its workload's finished blocks, or of all finished blocks if the
    /// workload has none.
    fn time_left_seconds(&self) -> Option<f64> {
        let mean = |workload: Option<&str>| {
            let of = |state: &&BlockState| workload.is_none_or(|name| name == state.block.workload);
            let times = self.blocks.iter().filter(of).filter_map(|state| state.counted);
            let times: Vec<f64> = times.map(|counted| counted.seconds).collect();
            (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
        };
        let missing = self.blocks.iter().filter(|state| state.counted.is_none());
        missing.map(|state| mean(Some(&state.block.workload)).or_else(|| mean(None))).sum()
    }

    fn hosts(&self) -> Vec<HostState> {
        let mut hosts: BTreeMap<&str, HostState> = BTreeMap::new();
        for attempt in &self.attempts {
            let host = hosts.entry(&attempt.provenance.machine).or_default();
            host.host.clone_from(&attempt.provenance.machine);
            host.kernel.clone_from(&attempt.provenance.kernel);
            host.attempts += 1;
            host.unended += usize::from(!attempt.is_ended);
        }
        for state in &self.blocks {
            let attempt = state.counted.and_then(|counted| self.attempts.get(counted.file));
            let Some(attempt) = attempt else { continue };
            let measured = |cell: &&Cell| cell.state < CellState::Failed;
            if let Some(host) = hosts.get_mut(&*attempt.provenance.machine) {
                host.cells += state.cells.iter().filter(measured).count();
            }
        }
        hosts.into_values().collect()
    }
}

/// Returns the last complete attempt at each block in a file. A block that was repeated within the
/// file has several attempts.
fn last_blocks(attempt: &Attempt) -> impl Iterator<Item = &sample::Block> {
    let mut last: BTreeMap<(&str, u32), &sample::Block> = BTreeMap::new();
    for record in &attempt.records {
        if let Record::Block(block) = record {
            last.insert((&block.workload, block.round), block);
        }
    }
    last.into_values()
}

/// Returns an attempt at a block with its cells.
fn candidate(
    campaign: &Campaign,
    file: usize,
    attempt: &Attempt,
    block: &sample::Block,
) -> (Counted, Vec<Cell>) {
    let disturbances = attempt.records.iter().filter_map(|record| match record {
        Record::Sample(sample)
            if (&sample.workload, sample.round, sample.attempt)
                == (&block.workload, block.round, block.attempt) =>
        {
            Some((&*sample.target, sample.contaminated.as_ref()?))
        }
        _ => None,
    });
    let mut disturbed: HashMap<&str, &String> = HashMap::new();
    for (target, what) in disturbances {
        disturbed.entry(target).or_insert(what);
    }
    let cell = |target: &String| {
        let is_done = block.cells.iter().any(|cell| cell.target == *target && cell.done);
        let (state, reason) = match (is_done, disturbed.get(&**target)) {
            (true, None) => (CellState::Done, None),
            (true, Some(what)) => (CellState::Disturbed, Some((*what).clone())),
            (false, _) => (CellState::Failed, failure(campaign, attempt, target, &block.workload)),
        };
        Cell {
            workload: block.workload.clone(),
            round: block.round,
            target: target.clone(),
            state,
            host: Some(attempt.provenance.machine.clone()),
            reason,
        }
    };
    let cells = campaign.frozen().targets.iter().map(cell).collect();
    let seconds = block.cells.iter().map(|cell| cell.seconds).sum();
    (Counted { file, attempt: block.attempt, seconds }, cells)
}

/// Returns the last note that explains why a target was left out or failed in a workload.
fn failure(campaign: &Campaign, attempt: &Attempt, target: &str, workload: &str) -> Option<String> {
    let copy = campaign.plan().second_copy().is_some_and(|copy| copy.name == target);
    // The second copy has no notes of its own, because it is run only together with the baseline.
    let target = if copy { &campaign.plan().baseline } else { target };
    attempt.records.iter().rev().find_map(|record| match record {
        Record::Note(note) if is_failure_of(note, target, workload) => Some(note.text.clone()),
        _ => None,
    })
}

/// Returns whether a note explains why a target has no samples of a workload.
pub(crate) fn is_failure_of(note: &Note, target: &str, workload: &str) -> bool {
    note.kind != NoteKind::Remark
        && note.target.as_deref() == Some(target)
        && note.workload.as_deref().is_none_or(|of| of == workload)
}

/// Returns the cells of a block that has no complete attempt, with the last host that began the
/// block.
fn missing(campaign: &Campaign, attempts: &[Attempt], block: &Block) -> Vec<Cell> {
    let has_begun = |attempt: &&Attempt| {
        attempt.records.iter().any(|record| {
            matches!(record, Record::Sample(sample)
                if (&sample.workload, sample.round) == (&block.workload, block.round))
        })
    };
    let host = attempts.iter().rev().find(has_begun).map(|one| one.provenance.machine.clone());
    let cell = |target: &String| Cell {
        workload: block.workload.clone(),
        round: block.round,
        target: target.clone(),
        state: CellState::Missing,
        host: host.clone(),
        reason: None,
    };
    campaign.frozen().targets.iter().map(cell).collect()
}
