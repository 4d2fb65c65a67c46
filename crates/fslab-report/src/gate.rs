//! Gates: conditions that fail a run where a target is shown to be worse than it may be.
//!
//! A gate names a metric and a limit: `create.elapsed slower 5 %`. It fails for a target whose
//! ratio to the baseline is shown to lie beyond the limit, by the t-test and the interval of the
//! rounds' ratios against the limit, after Holm's correction over all rows that the gates judge.
//! A row whose interval holds the limit is not decided.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::format::factor;
use super::model::{Against, Group, Report, Row};
use super::names::nearest;
use crate::error::{Error, Result};
use crate::sample::Better;
use fslab_stats::{CONFIDENCE, RatioInterval, holm, stratified_ratio};

/// A condition on the rows of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// As it was given.
    text: String,
    /// `METRIC`, `PHASE.METRIC` or `WORKLOAD.PHASE.METRIC`.
    rows: String,
    /// The target alone that is judged.
    target: Option<String>,
    way: Way,
    /// How far a ratio may be from 1: 0.05 for 5 %.
    share: f64,
}

/// In which direction a ratio may not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    More,
    Less,
    /// More where less is better, and the other way round.
    Worse,
}

const WAYS: [(&str, Way); 5] = [
    ("slower", Way::More),
    ("faster", Way::Less),
    ("more", Way::More),
    ("less", Way::Less),
    ("worse", Way::Worse),
];

/// The metric that every row has.
const ELAPSED: &str = "elapsed";

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let wrong = || {
            format!(
                "{text:?} is no gate: write METRIC, PHASE.METRIC or WORKLOAD.PHASE.METRIC, \
                 perhaps \"on TARGET\", then slower, more, less or worse, and a share, such as \
                 \"create.elapsed slower 5%\""
            )
        };
        let trimmed = text.trim();
        let rest = trimmed.strip_suffix('%').ok_or_else(wrong)?.trim_end();
        let (rest, number) = rest.rsplit_once(char::is_whitespace).ok_or_else(wrong)?;
        let percent: f64 = number.parse().ok().ok_or_else(wrong)?;
        if !(0.0..=1000.0).contains(&percent) {
            return Err(format!("{text:?}: the share is from 0 % to 1000 %"));
        }
        let (rows, word) = rest.trim_end().rsplit_once(char::is_whitespace).ok_or_else(wrong)?;
        let way = WAYS.iter().find(|(name, _)| *name == word).ok_or_else(wrong)?.1;
        let (rows, target) = match rows.trim().rsplit_once(" on ") {
            Some((rows, target)) => (rows.trim(), Some(target.trim().to_owned())),
            None => (rows.trim(), None),
        };
        let (text, rows) = (trimmed.to_owned(), rows.to_owned());
        Ok(Self { text, rows, target, way, share: percent / 100.0 })
    }
}

impl Gate {
    /// Refuses it where no report of these workloads' phases and targets can have its rows. Which
    /// metrics there will be is not known before.
    ///
    /// # Errors
    /// For a phase or a target that there is not.
    pub fn check(&self, phases: &[(&str, &str)], targets: &[&str]) -> Result<()> {
        if let Some(name) = self.target.as_deref().filter(|name| !targets.contains(name)) {
            return Err(Error::unknown("target", name, targets.iter().copied()));
        }
        // A metric's own name has a point at most in its percentile.
        let rows = self.rows.strip_suffix("-p99.9").unwrap_or(&self.rows);
        let is_of = |(workload, phase): &(&str, &str)| {
            let rest = rows.strip_prefix(workload).and_then(|rest| rest.strip_prefix('.'));
            let begins =
                |rows: &str| rows.strip_prefix(phase).is_some_and(|rest| rest.starts_with('.'));
            begins(rows) || rest.is_some_and(begins)
        };
        if !rows.contains('.') || phases.iter().any(is_of) {
            return Ok(());
        }
        let known = phases.iter().map(|(workload, phase)| format!("{workload}.{phase}.{ELAPSED}"));
        let known: Vec<String> = known.collect();
        let near = nearest(&self.rows, known.iter().map(String::as_str));
        Err(Error::NoSuchRow { gate: self.text.clone(), near })
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// What a gate says of a row.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The whole interval is within the limit.
    Passed,
    /// The row is shown to be beyond the limit.
    Failed,
    /// The interval holds the limit, or is beyond it by chance, perhaps.
    NotDecided,
    /// There are too few rounds, or figures of 0.
    NotMeasured,
}

/// A row as a gate judges it.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The gate, as it was given.
    pub gate: String,
    /// The workload's label.
    pub workload: String,
    /// The phase.
    pub phase: String,
    /// The metric.
    pub metric: String,
    /// The target.
    pub target: String,
    /// The baseline.
    pub baseline: String,
    /// The ratio that it may not pass.
    pub limit: f64,
    /// Its ratio.
    pub ratio: Option<RatioInterval>,
    /// What the gate says.
    pub outcome: Outcome,
}

impl Judgement {
    /// The row's name.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { workload, phase, metric, target, .. } = self;
        format!("{workload}, {phase} on {target}: {metric}")
    }

    /// The row, its ratio and its limit, in one line.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { baseline, limit, .. } = self;
        let found = match self.ratio {
            None => "no ratio".to_owned(),
            Some(RatioInterval { ratio, low, high, .. }) => {
                let [ratio, low, high] = [ratio, low, high].map(factor);
                format!("{ratio} [{low}, {high}] times {baseline}")
            }
        };
        let side = if *limit >= 1.0 { "most" } else { "least" };
        format!("{} {found}, at {side} {}", self.name(), factor(*limit))
    }
}

/// A row that a gate names, and its ratio to the limit.
struct Candidate {
    judgement: Judgement,
    /// Whether a ratio above the limit is beyond it.
    is_upper: bool,
    to_limit: Option<RatioInterval>,
}

impl Report {
    /// Judges the rows that the gates name, against the first baseline.
    ///
    /// # Errors
    /// For a gate that names no row.
    pub fn judge(&self, gates: &[Gate]) -> Result<Vec<Judgement>> {
        let mut candidates = Vec::new();
        for gate in gates {
            let found = self.candidates(gate);
            if found.is_empty() {
                return Err(self.unknown_rows(gate));
            }
            candidates.extend(found);
        }
        let p_values: Vec<f64> =
            candidates.iter().filter_map(|one| Some(one.to_limit?.p_value)).collect();
        let mut adjusted = holm(&p_values).into_iter();
        let judged = |one: Candidate| {
            let p = one.to_limit.and_then(|_| adjusted.next());
            Judgement { outcome: outcome(one.to_limit.zip(p), one.is_upper), ..one.judgement }
        };
        Ok(candidates.into_iter().map(judged).collect())
    }

    fn candidates(&self, gate: &Gate) -> Vec<Candidate> {
        let mut found = Vec::new();
        for group in self.phases() {
            for row in &group.rows {
                let is_judged = gate.target.as_ref().is_none_or(|name| *name == row.target);
                let is_baseline = self.baselines.first() == Some(&row.target);
                if !is_judged || is_baseline {
                    continue;
                }
                let elapsed = (ELAPSED, Better::Less, row.against.first());
                let metrics =
                    row.metrics.iter().map(|one| (&*one.metric, one.better, one.against.first()));
                let all = std::iter::once(elapsed).chain(metrics);
                let named = all.filter(|(metric, ..)| names(group, metric).contains(&gate.rows));
                found.extend(named.filter_map(|(metric, better, against)| {
                    Some(self.candidate(gate, (group, row), metric, better, against?))
                }));
            }
        }
        found
    }

    fn candidate(
        &self,
        gate: &Gate,
        (group, row): (&Group, &Row),
        metric: &str,
        better: Better,
        against: &Against,
    ) -> Candidate {
        let is_upper = match gate.way {
            Way::More => true,
            Way::Less => false,
            Way::Worse => better == Better::Less,
        };
        let most = 1.0 + gate.share;
        let limit = if is_upper { most } else { most.recip() };
        let judgement = Judgement {
            gate: gate.text.clone(),
            workload: group.workload.clone(),
            phase: group.name(),
            metric: metric.to_owned(),
            target: row.target.clone(),
            baseline: self.baselines.first().cloned().unwrap_or_default(),
            limit,
            ratio: against.ratio,
            outcome: Outcome::NotMeasured,
        };
        Candidate { judgement, is_upper, to_limit: self.to_limit(row, against, limit) }
    }

    /// The ratios of a row to a limit: its interval says on which side of the limit they are.
    fn to_limit(&self, row: &Row, against: &Against, limit: f64) -> Option<RatioInterval> {
        against.ratio?;
        let of_machine = |machine: usize| -> Vec<(f64, f64)> {
            let rounds = row.points.iter().zip(&against.ratios);
            let own = rounds.filter(|(point, _)| point.machine == machine);
            own.filter_map(|(_, ratio)| Some(((*ratio)?, limit))).collect()
        };
        let strata: Vec<_> = (0..self.machines.len()).map(of_machine).collect();
        stratified_ratio(&strata, self.provenance.seed)
    }

    fn unknown_rows(&self, gate: &Gate) -> Error {
        let mut known = Vec::new();
        for group in self.phases() {
            for row in &group.rows {
                let metrics = row.metrics.iter().map(|one| &*one.metric);
                for metric in std::iter::once(ELAPSED).chain(metrics) {
                    known.extend(names(group, metric));
                }
            }
        }
        known.sort_unstable();
        known.dedup();
        match &gate.target {
            Some(target) if !self.target_names.contains(target) => {
                Error::unknown("target", target, self.target_names.iter().map(String::as_str))
            }
            _ => Error::NoSuchRow {
                gate: gate.text.clone(),
                near: nearest(&gate.rows, known.iter().map(String::as_str)),
            },
        }
    }
}

/// What a metric of a group may be called in a gate.
fn names(group: &Group, metric: &str) -> [String; 3] {
    let Group { workload, phase, .. } = group;
    [metric.to_owned(), format!("{phase}.{metric}"), format!("{workload}.{phase}.{metric}")]
}

fn outcome(to_limit: Option<(RatioInterval, f64)>, is_upper: bool) -> Outcome {
    let Some((to_limit, p_adjusted)) = to_limit else { return Outcome::NotMeasured };
    let (is_beyond, is_within) = if is_upper {
        (to_limit.low > 1.0, to_limit.high <= 1.0)
    } else {
        (to_limit.high < 1.0, to_limit.low >= 1.0)
    };
    match () {
        () if is_beyond && p_adjusted < 1.0 - CONFIDENCE => Outcome::Failed,
        () if is_within => Outcome::Passed,
        () => Outcome::NotDecided,
    }
}
