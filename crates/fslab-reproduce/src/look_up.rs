//! Looks up the figures of claims in the reports of their plans.

use std::collections::{BTreeMap, BTreeSet};

use super::answer::Answers;
use super::claims::{Basis, EachOf, Extreme, Paper, Place, Query, Statistic};
use super::figure::{At, AtUnit, Figure, Outcome};
use super::quantity::Quantity;
use fslab_compare::plan::Form;
use fslab_report::sample::{NoteKind, Record};
use fslab_report::{Group, Report, Row};
use fslab_stats::paired_ratio;

/// The result of running a plan.
#[derive(Clone, Debug)]
pub enum Ran {
    /// The form of the plan, and all samples.
    Records(Form, Vec<Record>),
    /// The form of the plan, the samples taken before an error ended the run, and the error.
    Broken(Form, Vec<Record>, String),
    /// There are no samples, for this reason.
    Not(String),
}

impl Ran {
    /// Returns the form of the plan; `None` if it was not run.
    #[must_use]
    pub fn form(&self) -> Option<Form> {
        match self {
            Self::Records(form, _) | Self::Broken(form, ..) => Some(*form),
            Self::Not(_) => None,
        }
    }
}

/// The results of plans and commands.
#[derive(Debug, Default)]
pub struct Runs {
    /// The reports of each plan, or the reason why there are none.
    plans: BTreeMap<String, Result<Measured, String>>,
    answers: Answers,
}

/// The reports of the samples of a plan, one for each quantity.
#[derive(Debug)]
pub(super) struct Measured {
    form: Form,
    reports: BTreeMap<Quantity, Report>,
    /// The error that ended the run.
    pub broken: Option<String>,
}

impl Runs {
    /// Calculates the reports that the claims of papers need.
    #[must_use]
    pub fn new(papers: &[Paper], ran: BTreeMap<String, Ran>, answers: Answers) -> Self {
        let reports = |(plan, ran): (String, Ran)| {
            let (form, records, broken) = match ran {
                Ran::Not(reason) => return (plan, Err(reason)),
                Ran::Records(form, records) => (form, records, None),
                Ran::Broken(form, records, reason) => (form, records, Some(reason)),
            };
            let queries = papers.iter().flat_map(Paper::queries);
            let asked: BTreeSet<Quantity> =
                queries.filter(|query| query.plan == plan).map(|q| q.quantity).collect();
            let report =
                |quantity: Quantity| (quantity, Report::new(&quantity.in_place_of_time(&records)));
            let reports = asked.into_iter().map(report).collect();
            (plan, Ok(Measured { form, reports, broken }))
        };
        Self { plans: ran.into_iter().map(reports).collect(), answers }
    }

    /// Returns the figures of a source, or the reason why there are none.
    #[must_use]
    pub fn outcome(&self, basis: &Basis) -> Outcome {
        match basis {
            Basis::Missing(reason) => Outcome::Missing(reason.clone()),
            Basis::NotReproduced(reason) => Outcome::NotReproduced(reason.clone()),
            Basis::Command(reading) => reading.outcome(&self.answers),
            Basis::Plan(query) => self.queried(query),
        }
    }

    /// Returns the results of the plan of a query, and the report of the query's quantity.
    pub(super) fn measured(&self, query: &Query) -> Option<(&Measured, &Report)> {
        let measured = self.plans.get(&query.plan)?.as_ref().ok()?;
        Some((measured, measured.reports.get(&query.quantity)?))
    }

    fn queried(&self, query: &Query) -> Outcome {
        let Measured { form, reports, .. } = match self.plans.get(&query.plan) {
            None => return Outcome::Missing(format!("plan {} was not run", query.plan)),
            Some(Err(reason)) => return Outcome::Missing(reason.clone()),
            Some(Ok(measured)) => measured,
        };
        let form = *form;
        let Some(report) = reports.get(&query.quantity) else {
            return Outcome::Missing("this quantity was not computed".to_owned());
        };
        let mut figures: Vec<Figure> = match query.each {
            None if !query.files.is_empty() => of_files(report, query),
            None => figure(report, query, instead(report, query, form)).into_iter().collect(),
            Some(EachOf::Size) => {
                let sizes = sizes(report, &query.of).into_iter();
                let sizes = sizes.filter(|size| *size >= query.from_size);
                sizes.filter_map(|size| figure(report, query, size)).collect()
            }
            Some(EachOf::Tenth) => along(report, &query.of),
        };
        if let Some(end) = query.take {
            figures = extreme(&figures, end).into_iter().collect();
        }
        if figures.is_empty() {
            return Outcome::Missing(why_not(report, query, form));
        }
        Outcome::Figures(figures)
    }
}

/// Selects the smallest or the largest figure of a sweep.
fn extreme(figures: &[Figure], end: Extreme) -> Option<Figure> {
    let by_value = |one: &&Figure, other: &&Figure| one.value.total_cmp(&other.value);
    let figures = figures.iter();
    match end {
        Extreme::Least => figures.min_by(by_value),
        Extreme::Most => figures.max_by(by_value),
    }
    .copied()
}

/// Returns a figure for each number of files that has samples.
fn of_files(report: &Report, query: &Query) -> Vec<Figure> {
    let of = |(count, query): (u64, Query)| {
        let at = Some(At { value: count as f64, unit: AtUnit::Files });
        Some(Figure { at, ..figure(report, &query, None)? })
    };
    query.at_files().into_iter().filter_map(of).collect()
}

/// Returns the sizes of a sweep.
fn sizes(report: &Report, place: &Place) -> Vec<Option<u64>> {
    let phase = place.phases.first();
    let of_phase = |group: &&Group| group.workload == place.workload && Some(&group.phase) == phase;
    let sizes = report.groups.iter().filter(of_phase).filter_map(|group| group.size_bytes);
    sizes.map(Some).collect()
}

/// Returns the largest size of a sweep if the quick form of the plan does not include the size of
/// the claim. The largest size then replaces it, and is shown with the figure.
fn instead(report: &Report, query: &Query, form: Form) -> Option<u64> {
    let wanted = query.of.size_bytes.filter(|_| form == Form::Quick)?;
    let is_of_both = query.against.as_ref().is_none_or(|other| other.size_bytes == Some(wanted));
    let sizes: Vec<u64> = sizes(report, &query.of).into_iter().flatten().collect();
    let largest = sizes.iter().copied().max().filter(|largest| *largest < wanted);
    largest.filter(|_| is_of_both && !sizes.contains(&wanted))
}

/// Calculates one figure. Returns `None` if one side of the comparison has no samples, or if in
/// every round at least one side is 0. `size`, if given, is the size of both sides.
fn figure(report: &Report, query: &Query, size: Option<u64>) -> Option<Figure> {
    let (pairs, zeros): (Vec<_>, Vec<_>) = pairs(report, query, size)?
        .into_iter()
        .partition(|(own, other)| *own > 0.0 && *other > 0.0);
    let at = size.map(|size| At { value: size as f64, unit: AtUnit::Bytes });
    let measured = |value, interval, rounds| {
        Some(Figure { at, value, interval, rounds, zero_rounds: zeros.len() })
    };
    if let Some(found) = paired_ratio(&pairs, report.provenance.seed) {
        let is_of_blocks = query.quantity == Quantity::Stored && query.against.is_some();
        let ends = (found.low, found.high);
        let ends = if is_of_blocks { widened_by_blocks(ends, &pairs) } else { ends };
        return measured(found.ratio, Some(ends), found.rounds);
    }
    match pairs.as_slice() {
        [(own, other)] => measured(own / other, None, 1),
        _ => None,
    }
}

/// Size of a block. Files occupy whole blocks.
const BLOCK_BYTES: f64 = 4096.0;

/// Widens the interval of a ratio of stored bytes. A block is counted in full even if it contains
/// only 1 byte. So two files of one block each may have contents of very different sizes.
fn widened_by_blocks((low, high): (f64, f64), pairs: &[(f64, f64)]) -> (f64, f64) {
    let least = |side: fn(&(f64, f64)) -> f64| {
        pairs.iter().map(side).fold(f64::INFINITY, f64::min) * Quantity::Stored.scale()
    };
    let (own, other) = (least(|pair| pair.0), least(|pair| pair.1));
    let filled = |bytes: f64| (bytes - (BLOCK_BYTES - 1.0)).max(1.0);
    (low * filled(own) / own, high * other / filled(other))
}

/// Returns the values of both sides for each round in which both were measured.
fn pairs(report: &Report, query: &Query, size: Option<u64>) -> Option<Vec<(f64, f64)>> {
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
    Some(of.iter().filter_map(pair).collect())
}

/// Returns the time from the start until each tenth of a phase's operations was done.
fn along(report: &Report, place: &Place) -> Vec<Figure> {
    let phase = place.phases.first().map_or("", String::as_str);
    let Some(row) = row(report, place, phase, place.size_bytes) else { return Vec::new() };
    let (mut before, mut seconds) = (0, 0.0);
    let mut reached = Vec::new();
    for progress in &row.along {
        seconds += (progress.operations - before) as f64 * progress.seconds_each;
        before = progress.operations;
        reached.push((before, seconds));
    }
    let tenth = |share: u64| {
        let (operations, value) =
            *reached.iter().find(|(operations, _)| *operations >= (before * share).div_ceil(10))?;
        let at = Some(At { value: operations as f64, unit: AtUnit::Files });
        Some(Figure { at, rounds: row.points.len(), ..Figure::counted(value) })
    };
    (1..=10).filter_map(tenth).collect()
}

/// Time and bytes of a place in one round.
struct Round {
    seconds: f64,
    bytes: u64,
}

/// Returns the rounds in which every phase of a place was measured, with the sums over the phases.
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

/// Returns the reason why a place in a report has no figure.
fn why_not(report: &Report, query: &Query, form: Form) -> String {
    let lacking = query.places().find(|place: &Place| {
        let lacks = |phase: &String| row(report, place, phase, place.size_bytes).is_none();
        place.phases.iter().any(lacks)
    });
    let Some(place) = lacking else {
        return without_pairs(report, query);
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
        Form::Quick => format!("the quick form of the plan skips {what}"),
        Form::Full => format!("no samples of {what}"),
    }
}

/// Returns the reason why there is no figure although every place has samples.
fn without_pairs(report: &Report, query: &Query) -> String {
    let rounds = pairs(report, query, None).map_or(0, |pairs| pairs.len());
    match (&query.against, rounds) {
        (_, 0) => "the two sides were never measured in the same round".to_owned(),
        (Some(_), _) => format!("one side is 0 in each of {rounds} rounds, so there is no ratio"),
        (None, _) => {
            format!("the figure is 0 in each of {rounds} rounds, so there is no geometric mean")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_of_few_blocks_have_wide_intervals() {
        let ends = |own: f64, other: f64| {
            let scale = Quantity::Stored.scale();
            widened_by_blocks((own / other, own / other), &[(own / scale, other / scale)])
        };
        let (low, high) = ends(4096.0, 4096.0);
        assert!(low < 0.001 && high > 4000.0, "{low} {high}");
        let (low, high) = ends(40_960.0, 40_960.0);
        assert!((low - 0.9).abs() < 0.001 && (high - 1.111).abs() < 0.001, "{low} {high}");
        let (low, high) = ends(2e9, 1e9);
        assert!((low - 2.0).abs() < 1e-4 && (high - 2.0).abs() < 1e-4, "{low} {high}");
    }
}
