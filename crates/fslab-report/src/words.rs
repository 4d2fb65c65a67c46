//! Sentences shared by several renderers.

use std::collections::BTreeMap;

use super::format::{bytes, factor, percent, rate, seconds, significant};
use super::model::{Against, Group, MetricRow, Report, Row, Unsteady, Verdict};
use super::names::distinct;
use crate::pooling::Pooling;
use crate::sample::{Better, CacheState, Doubt, EndReason, Note, NoteKind, Sample};
use fslab_stats::{RatioInterval, STEADY_WINDOW, Steadiness};

/// Describes how the comparison ended.
pub(super) fn ending(report: &Report) -> String {
    let Some(end) = &report.end else {
        return "the run did not finish; the report covers the samples that were recorded until \
                then"
            .to_owned();
    };
    let rounds = format!("{} of {} rounds", end.rounds, report.provenance.rounds);
    let how = match end.reason {
        EndReason::Finished if end.rounds == 1 => "its one round".to_owned(),
        EndReason::Finished => format!("all {} rounds", end.rounds),
        EndReason::Narrow => format!(
            "{} rounds, after which every interval was within \u{b1}{:.1} %",
            end.rounds,
            report.provenance.half_width * 100.0
        ),
        EndReason::TimeLimit => format!("{rounds}: the time limit was reached"),
        EndReason::Interrupted => format!("{rounds}: interrupted"),
    };
    format!("{how}, {} s", end.elapsed_seconds)
}

/// Returns the target and workload of a note.
pub(super) fn subject(note: &Note) -> String {
    let about: Vec<&str> = note.target.iter().chain(&note.workload).map(String::as_str).collect();
    about.join(", ")
}

pub(super) fn note_line(note: &Note) -> String {
    let kind = match note.kind {
        NoteKind::LeftOut => "LEFT OUT",
        NoteKind::Failed => "FAILED",
        NoteKind::Remark => "note",
    };
    let about = subject(note);
    let space = if about.is_empty() { "" } else { " " };
    format!("{kind}{space}{about}: {}", note.text)
}

/// Formats a target's comparison with a baseline, including the interval.
pub(super) fn against(against: &Against) -> String {
    let Some(ratio) = against.ratio else {
        let baseline = against.verdict == Verdict::Baseline;
        return if baseline { "baseline" } else { "too few rounds" }.to_owned();
    };
    let doubt = noise_mark(against);
    format!("{} {}{doubt}", against.verdict.mark(), with_interval(&ratio))
}

fn with_interval(ratio: &RatioInterval) -> String {
    let [middle, low, high] = [ratio.ratio, ratio.low, ratio.high].map(factor);
    format!("{middle} [{low}, {high}]")
}

/// Returns the mark after a difference that is no larger than the noise floor.
pub(super) fn noise_mark(against: &Against) -> &'static str {
    if against.is_doubted_by_noise() { " \u{2020}" } else { "" }
}

/// Formats the noise floor of a group; empty if there is none.
fn noise_floor(group: &Group) -> String {
    group.noise_floor.as_ref().map(|floor| with_interval(&floor.ratio)).unwrap_or_default()
}

pub(super) fn has_noise_floor(report: &Report) -> bool {
    report.groups.iter().any(|group| group.noise_floor.is_some())
}

/// Formats a target's comparison with a baseline in short form.
pub(super) fn short(against: &Against) -> String {
    match (against.verdict, against.ratio) {
        (Verdict::Baseline, _) => "1".to_owned(),
        (Verdict::NotShown, _) => "~".to_owned(),
        (_, None) => "\u{2013}".to_owned(),
        (verdict, Some(ratio)) => {
            let doubt = noise_mark(against);
            format!("{}{:.2}{doubt}", verdict.mark().trim(), ratio.ratio)
        }
    }
}

/// Formats the verdict on a target.
pub(super) fn verdict(against: &Against) -> String {
    let words = match (against.verdict, against.margin) {
        (Verdict::Equal | Verdict::AtMostSlower, Some(margin)) => return margin.words(),
        (Verdict::NotDecided, Some(margin)) => {
            return format!("not decided whether {}", margin.words());
        }
        (Verdict::Baseline, _) => "baseline",
        (Verdict::TooFew, _) => "too few rounds",
        (Verdict::NotShown, _) => "no difference shown",
        (Verdict::Alone, _) => "possibly by chance",
        (Verdict::Faster, _) => "faster",
        (Verdict::Slower, _) => "slower",
        (Verdict::Equal | Verdict::AtMostSlower | Verdict::NotDecided, None) => "",
    };
    words.to_owned()
}

/// Formats the median of a metric with its unit.
pub(super) fn metric_figure(metric: &MetricRow) -> String {
    in_unit(metric.summary.median, &metric.unit)
}

fn in_unit(value: f64, unit: &str) -> String {
    match unit {
        "s" => seconds(value),
        "bytes" => bytes(value.round() as u64),
        "bytes/s" => rate(value),
        "" => significant(value),
        unit => format!("{} {unit}", significant(value)),
    }
}

/// Formats the verdict on a metric, and whether it is better or worse.
pub(super) fn metric_verdict(metric: &MetricRow, against: &Against) -> String {
    let is_less = match against.verdict {
        Verdict::Faster => true,
        Verdict::Slower => false,
        Verdict::NotShown => return "not shown".to_owned(),
        Verdict::TooFew if against.ratios.len() > 1 => return "some figures are 0".to_owned(),
        _ => return verdict(against),
    };
    let amount = if is_less { "less" } else { "more" };
    let good = if is_less == (metric.better == Better::Less) { "better" } else { "worse" };
    format!("{amount}: {good}{}", noise_mark(against))
}

/// Formats the noise floor of a metric; empty if there is none.
pub(super) fn metric_floor(group: &Group, metric: &MetricRow) -> String {
    let floors = group.noise_floor.iter().flat_map(|floor| &floor.metrics);
    let own = floors.filter(|floor| floor.metric == metric.metric);
    own.map(|floor| with_interval(&floor.ratio)).next().unwrap_or_default()
}

/// Whether any comparison with a baseline is judged by a margin.
fn has_margins(report: &Report, baseline: usize) -> bool {
    let rows = report.groups.iter().flat_map(|group| &group.rows);
    rows.filter_map(|row| row.against.get(baseline)).any(|against| against.margin.is_some())
}

/// Formats the time per operation or, for phases of large requests, the throughput.
fn each(row: &Row) -> String {
    match (row.bytes_per_second(), row.seconds_per_operation()) {
        (Some(speed), _) if row.bytes >> 16 > row.operations => rate(speed),
        (_, Some(each)) => seconds(each),
        _ => String::new(),
    }
}

pub(super) fn p_value(against: &Against) -> String {
    match against.p_adjusted {
        None => String::new(),
        Some(p) if p < 0.001 => "<0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
    }
}

/// Returns the name of a row: the target, or the machine for a row of one of several machines.
fn target(report: &Report, row: &Row, of_machine: bool) -> String {
    match report.machines.get(row.machine).filter(|_| of_machine) {
        Some(machine) => format!("  on {machine}"),
        None => row.target.clone(),
    }
}

/// Formats the ratio on one machine, which has no verdict of its own.
fn on_machine(against: &Against) -> String {
    against.ratio.as_ref().map(with_interval).unwrap_or_default()
}

/// Returns a row, followed by the rows of its machines if it has several.
pub(super) fn lines(row: &Row) -> impl Iterator<Item = (&Row, bool)> {
    std::iter::once((row, false)).chain(row.machines.iter().map(|row| (row, true)))
}

/// Returns the column headings: `first`, then those of each baseline, the noise floor and the
/// cache.
pub(super) fn header(report: &Report, first: [&str; 6], with_p: bool) -> Vec<String> {
    let mut header: Vec<String> = first.map(str::to_owned).into();
    for (index, baseline) in report.baselines.iter().enumerate() {
        header.push(format!("against {baseline}"));
        header.extend(with_p.then(|| "p".to_owned()));
        header.extend(has_margins(report, index).then(|| "verdict".to_owned()));
    }
    header.extend(has_noise_floor(report).then(|| "noise floor".to_owned()));
    header.push("cache".to_owned());
    header
}

/// Returns the cells of a row below a [`header`]. With `of_machine`, the row belongs to one of
/// several machines, so it has no verdicts and no noise floor. A row that combines several machines
/// has ratios and verdicts, but no times.
pub(super) fn cells(
    report: &Report,
    group: &Group,
    (row, of_machine): (&Row, bool),
    with_p: bool,
) -> Vec<String> {
    let figure = |text: String| if row.is_pooled() { String::new() } else { text };
    let judged = |text: String| if of_machine { String::new() } else { text };
    let mut cells = vec![
        group.name(),
        target(report, row, of_machine),
        row.count().to_string(),
        figure(seconds(row.seconds.median)),
        figure(percent(row.seconds.variation)),
        figure(each(row)),
    ];
    for (index, one) in row.against.iter().enumerate() {
        cells.push(if of_machine { on_machine(one) } else { against(one) });
        cells.extend(with_p.then(|| p_value(one)));
        cells.extend(has_margins(report, index).then(|| judged(verdict(one))));
    }
    cells.extend(has_noise_floor(report).then(|| judged(noise_floor(group))));
    cells.push(cache(group, row));
    cells
}

/// Describes the proven state of the cache; empty if no state was requested.
pub(super) fn cache(group: &Group, row: &Row) -> String {
    let state = match group.cache {
        CacheState::NotAsked => return String::new(),
        CacheState::Cold => "cold",
        CacheState::Warm => "warm",
    };
    let count = row.count();
    if row.proven == count {
        format!("{state} \u{2713}")
    } else {
        format!("{state}: {} of {count} proven", row.proven)
    }
}

/// Maximum number of cells that a remark lists; further cells are only counted.
const PLACES_MOST: usize = 6;

/// Describes the unproven cache states: a sentence for each reason.
pub(super) fn doubts(report: &Report) -> Vec<String> {
    // The second copy of the baseline has no row that would show a cache state.
    let shown = report.raw.iter().filter(|sample| report.target_names.contains(&sample.target));
    let mut doubted: BTreeMap<Doubt, Vec<&Sample>> = BTreeMap::new();
    for sample in shown {
        if let Some(doubt) = sample.cache.doubt {
            doubted.entry(doubt).or_default().push(sample);
        }
    }
    let sentence = |(doubt, samples): (&Doubt, &Vec<&Sample>)| {
        format!(
            "the state of the cache is not proven for {} of {} samples, because {}: {}",
            samples.len(),
            report.samples,
            doubt.text(),
            places(samples)
        )
    };
    doubted.iter().map(sentence).collect()
}

/// Lists the cells of samples (workload, phase, size and target), each once.
fn places(samples: &[&Sample]) -> String {
    let place = |sample: &&Sample| {
        let size = sample.size_bytes.map(|size| format!(" {}", bytes(size))).unwrap_or_default();
        format!("{} {}{size} on {}", sample.workload, sample.phase, sample.target)
    };
    let mut places = distinct(samples.iter().map(place));
    places.sort();
    let more = places.len().saturating_sub(PLACES_MOST);
    places.truncate(PLACES_MOST);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", places.join("; "))
}

/// Whether the charts of an output mark disturbed samples and outliers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marked {
    No,
    InCharts,
}

/// Returns the remarks on the samples themselves.
pub(super) fn on_samples(report: &Report, marked: Marked) -> Vec<String> {
    let all = report.samples;
    let [hollow, ringed] = match marked {
        Marked::No => [""; 2],
        Marked::InCharts => {
            [", and are hollow dots in the charts", ", and are ringed in the charts"]
        }
    };
    let contaminated = format!(
        "{} of {all} samples were disturbed by other work on the machine; they are used{hollow}",
        report.contaminated
    );
    let outliers = format!(
        "{} of {all} samples are outliers among the samples of the same row (modified z-score \
         above {}, Iglewicz and Hoaglin 1993); they are used{ringed}",
        report.outliers,
        fslab_stats::MODIFIED_Z_MOST
    );
    let superseded = format!(
        "{} of the samples in the file are not used, because their runs were disturbed or \
         interrupted, and were repeated",
        report.superseded
    );
    let unsteady = report.least_steady.as_ref();
    let lines = [
        (report.contaminated, contaminated),
        (report.outliers, outliers),
        (report.superseded, superseded),
        (
            unsteady.map_or(0, |unsteady| unsteady.rows),
            unsteady.map(on_steadiness).unwrap_or_default(),
        ),
    ];
    lines.into_iter().filter(|(count, _)| *count > 0).map(|(_, line)| line).collect()
}

fn on_steadiness(unsteady: &Unsteady) -> String {
    let Steadiness { range, drift } = unsteady.steadiness;
    format!(
        "{} rows wrote to a device that was not steady over their last {STEADY_WINDOW} rounds. \
         SNIA's test specification allows a range of 20 % and a drift of 10 % of the mean. The \
         worst row, {}, has a range of {:.0} % and a drift of {:+.0} %",
        unsteady.rows,
        unsteady.worst,
        range * 100.0,
        drift * 100.0
    )
}

/// Returns the explanations of the marks, one after the other.
pub(super) fn legend(report: &Report) -> Vec<String> {
    let all = || report.groups.iter().flat_map(|group| &group.rows).flat_map(|row| &row.against);
    let judged = |against: &&Against| against.ratio.is_some();
    let with = all().filter(judged).any(|against| against.margin.is_some());
    let without = all().filter(judged).any(|against| against.margin.is_none());
    let too_few = all().any(|against| against.verdict == Verdict::TooFew);
    let mut items =
        vec!["A ratio above 1 is slower.".to_owned(), "No mark: a difference is shown.".to_owned()];
    items.extend(LEGEND_PLAIN.iter().filter(|_| without).map(|item| (*item).to_owned()));
    items.extend(LEGEND_MARGIN.iter().filter(|_| with).map(|item| (*item).to_owned()));
    items.extend(too_few.then(|| LEGEND_TOO_FEW.to_owned()));
    items.extend(has_noise_floor(report).then(|| on_noise_floor(report)));
    items.extend((report.machines.len() > 1).then(|| on_machines(report)));
    items
}

fn on_machines(report: &Report) -> String {
    let rows = report.phases().flat_map(|group| &group.rows).flat_map(|row| &row.machines);
    let lacks = |row: &&Row| {
        row.against
            .iter()
            .any(|against| against.verdict == Verdict::TooFew && against.ratio.is_none())
    };
    let short = rows.filter(lacks).count();
    let left_out = match (short, report.pooling) {
        (0, _) => String::new(),
        (short, Pooling::Strata) => {
            format!(
                " In {short} rows a machine is left out, because it has fewer than two rounds of \
                 both targets."
            )
        }
        (short, Pooling::Clusters) => {
            format!(" In {short} rows, some machines ran too few rounds for separate intervals.")
        }
    };
    let pooled = match report.pooling {
        Pooling::Strata => "",
        Pooling::Clusters => {
            " The interval over all machines is a bootstrap over whole machines. It is valid for \
             machines like these. It is wide if the machines' ratios differ, or if there are few \
             machines."
        }
    };
    format!(
        "The samples come from {} machines ({}). Ratios are computed within each machine. Each \
         machine has the same weight, whatever its number of rounds. Times and counters of \
         different machines are not combined.{pooled}{left_out}",
        report.machines.len(),
        report.machines.join(", ")
    )
}

fn on_noise_floor(report: &Report) -> String {
    let floors: Vec<_> = report.phases().filter_map(|group| group.noise_floor.as_ref()).collect();
    let apart = floors.iter().filter(|floor| floor.ratio.shows_difference()).count();
    format!(
        "\u{2020} the difference is no larger than the noise floor. The noise floor is the ratio \
         of a hidden second copy of {} to the original, with its 95 % interval. By chance, about \
         one in twenty of these intervals excludes 1. Here {apart} of {} exclude 1.",
        report.provenance.baseline,
        floors.len()
    )
}

const LEGEND_PLAIN: [&str; 2] = [
    "~ no difference shown: the 95 % interval of the ratio contains 1; this result does not \
     show that both are equal.",
    "? possibly by chance: the interval excludes 1, but among this many comparisons, some \
     intervals exclude 1 by chance (p after Holm's correction is 0.05 or more).",
];

const LEGEND_TOO_FEW: &str = "too few rounds: no ratio is shown, because a ratio needs at least \
     two rounds of both targets.";

const LEGEND_MARGIN: [&str; 4] = [
    "= equal: the whole 95 % interval of the ratio is within the margin.",
    "\u{2264} slower by at most the margin: the whole interval is below the margin.",
    "? not decided: the interval is not within the margin, and no difference is shown after \
     Holm's correction. More rounds may decide it.",
    "Each verdict is wrong with a probability of at most 5 %. So is the joint verdict that all \
     rows are within their margins. The verdicts = and \u{2264} are not corrected for the number \
     of rows; slower and faster are.",
];
