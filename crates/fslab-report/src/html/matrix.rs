//! The overview of the page: a line per phase and a column per target, for each baseline.

use super::super::format::{factor, seconds};
use super::super::model::{Report, Row, Verdict};
use super::super::overview::Line;
use super::super::words;
use fslab_stats::GeometricMean;

/// The ratios to one baseline.
pub(super) struct Matrix {
    pub baseline: String,
    pub targets: Vec<String>,
    pub lines: Vec<MatrixLine>,
    /// Whether each line ends with the noise floor, which is shown only for the plan's baseline.
    pub has_noise_floor: bool,
    /// Number of columns of the table.
    pub columns: usize,
    /// The geometric means of the targets' ratios; empty if there is only one phase.
    pub overall: Vec<MatrixCell>,
}

/// A line of the overview: a phase with a cell for each target. A line without cells is the heading
/// of a workload.
pub(super) struct MatrixLine {
    pub name: String,
    pub cells: Vec<MatrixCell>,
}

#[derive(Default)]
pub(super) struct MatrixCell {
    pub class: &'static str,
    pub text: String,
    pub small: String,
    /// The text that is shown when the pointer hovers over the cell.
    pub more: String,
}

pub(super) fn of(report: &Report, lines: &[Line<'_>]) -> Vec<Matrix> {
    let matrix = |(index, baseline): (usize, &String)| {
        let has_noise_floor =
            *baseline == report.provenance.baseline && words::has_noise_floor(report);
        Matrix {
            baseline: baseline.clone(),
            targets: report.target_names.clone(),
            lines: matrix_lines(lines, index, has_noise_floor),
            has_noise_floor,
            columns: 1 + report.target_names.len() + usize::from(has_noise_floor),
            overall: overall(report.overall.get(index).map_or(&[], Vec::as_slice)),
        }
    };
    report.baselines.iter().enumerate().map(matrix).collect()
}

fn matrix_lines(lines: &[Line<'_>], baseline: usize, has_noise_floor: bool) -> Vec<MatrixLine> {
    let mut found = Vec::new();
    let mut last = None;
    for line in lines {
        if last != Some(line.workload) {
            found.push(MatrixLine { name: line.workload.to_owned(), cells: Vec::new() });
            last = Some(line.workload);
        }
        let cell = |row: &Option<&Row>| row.map(|row| cell(row, baseline)).unwrap_or_default();
        let cells = line.cells.iter().map(cell);
        let cells = cells.chain(has_noise_floor.then(|| noise_floor(line))).collect();
        found.push(MatrixLine { name: line.phase.clone(), cells });
    }
    found
}

fn cell(row: &Row, baseline: usize) -> MatrixCell {
    let median =
        if row.is_pooled() { "by machine".to_owned() } else { seconds(row.seconds.median) };
    let Some((against, ratio)) =
        row.against.get(baseline).and_then(|against| Some((against, against.ratio?)))
    else {
        return MatrixCell { text: median, ..MatrixCell::default() };
    };
    let shown = format!("{:.2}\u{d7}", ratio.ratio);
    let (class, text) = match against.verdict {
        Verdict::Slower => ("slower", format!("\u{25b2} {shown}")),
        Verdict::Faster => ("faster", format!("\u{25bc} {shown}")),
        Verdict::Alone | Verdict::NotDecided => ("soft", format!("? {shown}")),
        Verdict::Equal | Verdict::AtMostSlower => {
            ("", format!("{} {shown}", against.verdict.mark()))
        }
        Verdict::NotShown | Verdict::Baseline | Verdict::TooFew => ("", "~".to_owned()),
    };
    MatrixCell {
        class,
        text,
        small: format!("{:.2}\u{2013}{:.2}{}", ratio.low, ratio.high, words::noise_mark(against)),
        more: format!(
            "{}; median {median}, ratio {}, p {}, {} rounds",
            words::verdict(against),
            factor(ratio.ratio),
            words::p_value(against),
            ratio.rounds
        ),
    }
}

fn noise_floor(line: &Line<'_>) -> MatrixCell {
    let Some(floor) = line.noise_floor else { return MatrixCell::default() };
    MatrixCell {
        small: format!("{:.2}\u{2013}{:.2}", floor.low, floor.high),
        more: format!("second copy of the baseline, ratio {}", factor(floor.ratio)),
        ..MatrixCell::default()
    }
}

fn overall(means: &[Option<GeometricMean>]) -> Vec<MatrixCell> {
    if means.iter().all(Option::is_none) {
        return Vec::new();
    }
    let cell = |mean: &Option<GeometricMean>| match mean {
        None => MatrixCell { text: "1".to_owned(), ..MatrixCell::default() },
        Some(mean) => MatrixCell {
            class: "",
            text: format!("{:.2}\u{d7}", mean.mean),
            small: format!("\u{d7}/\u{f7} {:.2}", mean.spread),
            more: format!("from {:.2} to {:.2}, {} phases", mean.least, mean.most, mean.count),
        },
    };
    means.iter().map(cell).collect()
}
