//! Gates: conditions under which a comparison fails, because a target is shown to be worse than
//! permitted.
//!
//! A gate consists of a metric and a limit: `create.elapsed slower 5 %`. It fails for a target
//! whose ratio to the baseline is shown to be beyond the limit. The ratios of the rounds are tested
//! against the limit by their interval and by a t-test. Holm's correction covers all rows that the
//! gates judge. A row whose interval contains the limit is not decided.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::format::factor;
use super::model::{Against, Group, Report, Row};
use super::names::nearest;
use crate::error::{Error, Result};
use crate::sample::Better;
use fslab_stats::{CONFIDENCE, RatioInterval, holm};

/// A condition on rows of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// The text of the gate as given.
    text: String,
    /// `METRIC`, `PHASE.METRIC` or `WORKLOAD.PHASE.METRIC`.
    rows: String,
    /// The only target that is judged; `None` for all.
    target: Option<String>,
    way: Way,
    /// The permitted distance of the ratio from 1: 0.05 for 5 %.
    share: f64,
}

/// The direction in which a ratio is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    More,
    Less,
    /// Limits an increase if less is better, and a decrease if more is better.
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
                "{text:?} is not a gate; write METRIC, PHASE.METRIC or WORKLOAD.PHASE.METRIC, \
                 optionally \"on TARGET\", then slower, faster, more, less or worse, and a share, \
                 such as \"create.elapsed slower 5%\""
            )
        };
        let trimmed = text.trim();
        let rest = trimmed.strip_suffix('%').ok_or_else(wrong)?.trim_end();
        let (rest, number) = rest.rsplit_once(char::is_whitespace).ok_or_else(wrong)?;
        let percent: f64 = number.parse().ok().ok_or_else(wrong)?;
        if !(0.0..=1000.0).contains(&percent) {
            return Err(format!("{text:?}: the share must be from 0 % to 1000 %"));
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
    /// Checks that reports of these phases and targets can contain the gate's rows. Metrics are not
    /// checked, because they are not known before a run.
    ///
    /// # Errors
    /// Fails for a phase or target that does not exist.
    pub fn check(&self, phases: &[(&str, &str)], targets: &[&str]) -> Result<()> {
        if let Some(name) = self.target.as_deref().filter(|name| !targets.contains(name)) {
            return Err(Error::unknown("target", name, targets.iter().copied()));
        }
        // The name of a metric contains a dot only in its percentile, such as `-p99.9`.
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

/// The outcome of a gate for a row.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The whole interval is within the limit.
    Passed,
    /// The row is shown to be beyond the limit.
    Failed,
    /// The interval contains the limit, or is beyond it with a corrected p-value of 5 % or more.
    NotDecided,
    /// There are too few rounds, or figures are 0.
    NotMeasured,
}

/// The judgement of a gate on a row.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The gate as given.
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
    /// The limit of the ratio.
    pub limit: f64,
    /// The ratio.
    pub ratio: Option<RatioInterval>,
    /// The outcome.
    pub outcome: Outcome,
}

impl Judgement {
    /// Returns the name of the row.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { workload, phase, metric, target, .. } = self;
        format!("{workload}, {phase} on {target}: {metric}")
    }

    /// Describes the row, its ratio and its limit in one line.
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
        format!("{}: {found}, allowed at {side} {}", self.name(), factor(*limit))
    }
}

/// A row that a gate matches, with its ratio relative to the limit.
struct Candidate {
    judgement: Judgement,
    /// Whether the limit is an upper bound.
    is_upper: bool,
    to_limit: Option<RatioInterval>,
}

impl Report {
    /// Judges the rows that the gates match, against the first baseline.
    ///
    /// # Errors
    /// Fails for a gate that matches no row.
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

    /// Returns a row's ratio relative to a limit. Its interval shows on which side of the limit the
    /// ratio is.
    fn to_limit(&self, row: &Row, against: &Against, limit: f64) -> Option<RatioInterval> {
        against.ratio?;
        let of_machine = |machine: usize| -> Vec<(f64, f64)> {
            let rounds = row.points.iter().zip(&against.ratios);
            let own = rounds.filter(|(point, _)| point.machine == machine);
            own.filter_map(|(_, ratio)| Some(((*ratio)?, limit))).collect()
        };
        self.pooling.ratio(&self.kernels, of_machine, self.provenance.seed)
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

/// Returns the names by which a gate may refer to a metric of a group.
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
