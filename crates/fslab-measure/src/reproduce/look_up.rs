//! The figures of claims, looked up in the reports of the plans they name.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::claims::{Basis, Claim, Paper, Place, Query, Statistic};
use super::probing::{Probed, Probes};
use super::quantity::Quantity;
use crate::plan::Form;
use crate::report::{Group, Report, Row};
use crate::sample::{NoteKind, Record};
use crate::stats::paired_ratio;

/// A figure of this project's own, in the base of its unit.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct Figure {
    /// The size it belongs to, where each size is a figure.
    pub size_bytes: Option<u64>,
    /// Geometric mean over the rounds.
    pub value: f64,
    /// Its 95 % interval; `None` for one round, and for what is counted.
    pub interval: Option<(f64, f64)>,
    /// Rounds it is made of; 0 for what is counted.
    pub rounds: usize,
}

/// What was found for a claim.
#[derive(Clone, Debug, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Figures: one, or one for each size.
    Figures(Vec<Figure>),
    /// What is no number.
    Words(String),
    /// Nothing, because it could not be measured: why.
    Missing(String),
    /// Nothing, by intention: why.
    NotReproduced(String),
}

/// What came of running a plan.
#[derive(Clone, Debug)]
pub enum Ran {
    /// Samples, in this form of the plan.
    Records(Form, Vec<Record>),
    /// None, and why.
    Not(String),
}

/// What came of running plans and of probing.
#[derive(Debug, Default)]
pub struct Runs {
    plans: BTreeMap<String, Reports>,
    probes: Probes,
}

/// The reports of one plan's samples, a quantity each.
#[derive(Debug)]
enum Reports {
    Of(Form, BTreeMap<Quantity, Report>),
    Not(String),
}

impl Runs {
    /// Computes the reports that the claims of papers ask for.
    #[must_use]
    pub fn new(papers: &[Paper], ran: BTreeMap<String, Ran>, probes: Probes) -> Self {
        let reports = |(plan, ran): (String, Ran)| {
            let reports = match ran {
                Ran::Not(reason) => Reports::Not(reason),
                Ran::Records(form, records) => {
                    let queries = papers.iter().flat_map(Paper::queries);
                    let asked: BTreeSet<Quantity> =
                        queries.filter(|query| query.plan == plan).map(|q| q.quantity).collect();
                    let report = |quantity: Quantity| {
                        (quantity, Report::new(&quantity.in_place_of_time(&records)))
                    };
                    Reports::Of(form, asked.into_iter().map(report).collect())
                }
            };
            (plan, reports)
        };
        Self { plans: ran.into_iter().map(reports).collect(), probes }
    }

    /// What was found for a claim.
    #[must_use]
    pub fn outcome(&self, claim: &Claim) -> Outcome {
        match &claim.basis {
            Basis::Missing(reason) => Outcome::Missing(reason.clone()),
            Basis::NotReproduced(reason) => Outcome::NotReproduced(reason.clone()),
            Basis::Probe { cell, attribute } => self.probed(cell, attribute),
            Basis::Plan(query) => self.queried(query),
        }
    }

    fn probed(&self, cell: &str, attribute: &str) -> Outcome {
        let answers = match self.probes.get(cell) {
            None => return Outcome::Missing("the prober was not run".to_owned()),
            Some(Err(reason)) => return Outcome::Missing(reason.clone()),
            Some(Ok(answers)) => answers,
        };
        match answers.get(attribute) {
            Some(Probed::Number(number)) => Outcome::Figures(vec![Figure {
                size_bytes: None,
                value: *number as f64,
                interval: None,
                rounds: 0,
            }]),
            Some(Probed::Words(words)) => Outcome::Words(words.clone()),
            Some(Probed::Nothing(reason)) => Outcome::Missing(reason.clone()),
            None => Outcome::Missing(format!("the prober says nothing of {attribute}")),
        }
    }

    fn queried(&self, query: &Query) -> Outcome {
        let (form, reports) = match self.plans.get(&query.plan) {
            None => return Outcome::Missing(format!("plan {} was not run", query.plan)),
            Some(Reports::Not(reason)) => return Outcome::Missing(reason.clone()),
            Some(Reports::Of(form, reports)) => (*form, reports),
        };
        let Some(report) = reports.get(&query.quantity) else {
            return Outcome::Missing("no such quantity was computed".to_owned());
        };
        let sizes = if query.each_size { sizes(report, &query.of) } else { vec![None] };
        let figures = sizes.into_iter().map(|size| figure(report, query, size));
        let figures: Vec<Figure> = figures.flatten().collect();
        if figures.is_empty() {
            return Outcome::Missing(why_not(report, query, form));
        }
        Outcome::Figures(figures)
    }
}

/// The sizes of a sweep.
fn sizes(report: &Report, place: &Place) -> Vec<Option<u64>> {
    let phase = place.phases.first();
    let of_phase = |group: &&Group| group.workload == place.workload && Some(&group.phase) == phase;
    let sizes = report.groups.iter().filter(of_phase).filter_map(|group| group.size_bytes);
    sizes.map(Some).collect()
}

/// One figure; `None` where either side has no samples. Where `size` is given it is the size of
/// both sides.
fn figure(report: &Report, query: &Query, size: Option<u64>) -> Option<Figure> {
    let of = rounds(report, &query.of, size)?;
    let against = match &query.against {
        Some(place) => Some(rounds(report, place, size)?),
        None => None,
    };
    let pair = |(round, own): (&u32, &Round)| {
        let other = match &against {
            Some(rounds) => rounds.get(round)?.seconds,
            None => 1.0,
        };
        Some(match query.statistic {
            Statistic::Ratio => (own.seconds, other),
            Statistic::Speedup => (other, own.seconds),
            Statistic::Value => (own.seconds * query.quantity.scale(), 1.0),
            Statistic::Rate => (own.bytes as f64, own.seconds),
        })
    };
    let pairs: Vec<(f64, f64)> = of.iter().filter_map(pair).collect();
    let size_bytes = size.filter(|_| query.each_size);
    if let Some(found) = paired_ratio(&pairs, report.provenance.seed) {
        let interval = Some((found.low, found.high));
        return Some(Figure { size_bytes, value: found.ratio, interval, rounds: found.rounds });
    }
    match pairs.as_slice() {
        [(own, other)] if *own > 0.0 && *other > 0.0 => {
            Some(Figure { size_bytes, value: own / other, interval: None, rounds: 1 })
        }
        _ => None,
    }
}

/// What a place took in a round.
struct Round {
    seconds: f64,
    bytes: u64,
}

/// The rounds in which every phase of a place was measured, each with their sum.
fn rounds(report: &Report, place: &Place, size: Option<u64>) -> Option<BTreeMap<u32, Round>> {
    let mut sums: BTreeMap<u32, (usize, Round)> = BTreeMap::new();
    for phase in &place.phases {
        let row = row(report, place, phase, size.or(place.size_bytes))?;
        for point in &row.points {
            let sum = sums.entry(point.round).or_insert((0, Round { seconds: 0.0, bytes: 0 }));
            sum.0 += 1;
            sum.1.seconds += point.seconds;
            sum.1.bytes += row.bytes;
        }
    }
    let whole = sums.into_iter().filter(|(_, (phases, _))| *phases == place.phases.len());
    Some(whole.map(|(round, (_, sum))| (round, sum)).collect())
}

fn row<'a>(report: &'a Report, place: &Place, phase: &str, size: Option<u64>) -> Option<&'a Row> {
    let group = report.groups.iter().find(|group| {
        group.workload == place.workload && group.phase == phase && group.size_bytes == size
    })?;
    group.rows.iter().find(|row| row.target == place.target)
}

/// Why a place of a report has no figure.
fn why_not(report: &Report, query: &Query, form: Form) -> String {
    let lacking = query.places().find(|place| {
        place.phases.iter().any(|phase| row(report, place, phase, place.size_bytes).is_none())
    });
    let Some(place) = lacking else {
        return "the two sides were never measured in the same round".to_owned();
    };
    let note = report.notes.iter().find(|note| {
        note.kind != NoteKind::Remark
            && note.target.as_ref().is_some_and(|target| *target == place.target)
            && note.workload.as_ref().is_none_or(|workload| *workload == place.workload)
    });
    if let Some(note) = note {
        return format!("{}: {}", place.target, note.text);
    }
    let what = format!("{}, {} on {}", place.workload, place.phases.join(" + "), place.target);
    match form {
        Form::Quick => format!("the quick form of the plan leaves it out: {what}"),
        Form::Full => format!("no samples of {what}"),
    }
}
