//! A paper with the outcome of each claim. The reports are made from it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::agreement::{Agreement, Standing};
use super::claims::{Basis, Claim, Kind, Paper};
use super::drawn::Drawn;
use super::figure::{Figure, Outcome};
use super::look_up::Runs;
use super::marks;
use super::published::Unit;
use fslab_report::{Error, Result, significant};

/// A paper and the outcome of each claim.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// The paper.
    pub paper: Paper,
    /// A text that states whether its plans were run in their full or quick form.
    pub form: String,
    /// Plans that were run for it.
    pub plans: Vec<Planned>,
    /// Its claims, in order.
    pub rows: Vec<Row>,
    /// Number of claims of each kind with each judgement.
    pub counts: Counts,
    /// Its charts, redrawn.
    pub charts: Vec<Drawn>,
}

/// A plan that was run for a paper.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    /// Name of the plan.
    pub name: String,
    /// Path of its own report, relative to the page; `None` if there is no report.
    pub page: Option<String>,
    /// The reason why it was not run or not completed.
    pub reason: Option<String>,
    /// Whether it has samples.
    pub ran: bool,
}

impl Planned {
    /// Returns text on why the plan was not run or not completed; `None` if it was completed.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let reason = self.reason.as_ref()?;
        Some(format!("{}: {reason}", if self.ran { "aborted" } else { "not run" }))
    }
}

/// A claim and its outcome.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Id of the claim.
    pub id: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The result of comparing the claim with the outcome.
    pub agreement: Agreement,
    /// The judgement of each figure, in their order; empty if nothing is judged.
    pub points: Vec<Agreement>,
    /// The judgement as a sentence.
    pub sentence: String,
    /// The published figure, in words.
    pub published: String,
    /// The figure found here, in words and in the same unit.
    pub measured: String,
    /// The source of the figure.
    pub from: String,
    /// Remarks on figures that need caution, because the target failed in the workload, or the run
    /// of the plan was aborted.
    pub marks: Vec<String>,
}

impl Row {
    /// Returns the remarks as a sentence; empty if there are none.
    #[must_use]
    pub fn marked(&self) -> String {
        if self.marks.is_empty() {
            return String::new();
        }
        format!("Marked: {}.", self.marks.join("; "))
    }
}

/// Number of claims of each kind with each judgement, in the order of [`Kind`] and [`Agreement`].
pub type Counts = BTreeMap<Kind, BTreeMap<Agreement, usize>>;

impl Findings {
    /// Finds the outcome of every claim of a paper.
    #[must_use]
    pub fn new(mut paper: Paper, runs: &Runs, form: &str, plans: Vec<Planned>) -> Self {
        let charts = std::mem::take(&mut paper.charts);
        let charts = charts.into_iter().map(|chart| Drawn::new(chart, runs)).collect();
        let rows: Vec<Row> = paper.claims.iter().map(|claim| row(claim, runs)).collect();
        let mut counts = Counts::new();
        for (claim, row) in paper.claims.iter().zip(&rows) {
            *counts.entry(claim.kind).or_default().entry(row.agreement).or_default() += 1;
        }
        Self { paper, form: form.to_owned(), plans, rows, counts, charts }
    }

    /// Returns the counts as text.
    #[must_use]
    pub fn summary(&self) -> String {
        let of_kind = |(kind, counts): (&Kind, &BTreeMap<Agreement, usize>)| {
            let each = counts.iter();
            let each: Vec<String> =
                each.map(|(agreement, count)| format!("{} {count}", agreement.name())).collect();
            format!("{} {} ({})", counts.values().sum::<usize>(), kind.name(), each.join(", "))
        };
        let parts: Vec<String> = self.counts.iter().map(of_kind).collect();
        let marked = self.rows.iter().filter(|row| !row.marks.is_empty()).count();
        let marked = if marked > 0 { format!("; {marked} marked") } else { String::new() };
        format!("{} claims: {}{marked}", self.rows.len(), parts.join(", "))
    }

    /// Returns the findings as JSON.
    ///
    /// # Errors
    /// Returns errors of the encoder.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(Error::Encode)
    }
}

fn row(claim: &Claim, runs: &Runs) -> Row {
    let outcome = runs.outcome(&claim.basis);
    let marks = marks::marks(runs, &claim.basis, &outcome);
    let marked = if marks.is_empty() { "" } else { " (marked)" };
    let published = claim.published.as_ref();
    let standing = Standing::of(claim.kind, published, &outcome);
    Row {
        id: claim.id.clone(),
        agreement: standing.agreement,
        points: standing.points,
        sentence: standing.sentence,
        published: published.map(super::Published::words).unwrap_or_default(),
        measured: measured(published.map(|published| published.unit), &outcome) + marked,
        from: from(&claim.basis),
        marks,
        outcome,
    }
}

/// Returns the outcome as text, in the unit of the published figure.
fn measured(unit: Option<&Unit>, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Missing(_) | Outcome::NotReproduced(_) => String::new(),
        Outcome::Words(words) => words.clone(),
        Outcome::Figures(figures) => {
            let lines: Vec<String> = figures.iter().map(|figure| one(unit, figure)).collect();
            let name = unit.map_or("times", |unit| unit.name);
            let is_single = figures.iter().any(|figure| figure.rounds == 1);
            let remark = if is_single { " (one round, no interval)" } else { "" };
            let zeros: usize = figures.iter().map(|figure| figure.zero_rounds).sum();
            let left_out = match zeros {
                0 => String::new(),
                1 => " (1 round left out because a value is 0)".to_owned(),
                _ => format!(" ({zeros} rounds left out because a value is 0)"),
            };
            format!("{} {name}{remark}{left_out}", lines.join("; "))
        }
    }
}

fn one(unit: Option<&Unit>, figure: &Figure) -> String {
    let number = |value: f64| match unit {
        Some(unit) => unit.number(value),
        None => significant(value),
    };
    let at = figure.at.map(|at| format!("{at}: ")).unwrap_or_default();
    let spread = |(low, high)| format!(" [{}, {}]", number(low), number(high));
    let spread = figure.interval.map(spread).unwrap_or_default();
    format!("{at}{}{spread}", number(figure.value))
}

fn from(basis: &Basis) -> String {
    match basis {
        Basis::Missing(_) | Basis::NotReproduced(_) => String::new(),
        Basis::Command(reading) => format!("{}: {}", reading.from, reading.at),
        Basis::Plan(query) => query.to_string(),
    }
}
