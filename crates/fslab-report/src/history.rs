//! The history of a plan over many runs: a series per row, and the points where its level changes.
//!
//! The series of a target consists of its ratios to the baseline of the same run. These ratios do
//! not depend on changes of the whole machine. The series of the baseline consists of its times, in
//! seconds.

use serde::Serialize;

use super::format::seconds;
use super::model::{Group, Report, Row};
use crate::error::Result;
use crate::provenance::Provenance;
use crate::sample::Record;
use fslab_stats::{CHANGE_FIGURES_LEAST, Change, changes};

/// The runs in chronological order, and the rows that occur in several of them.
#[derive(Clone, Debug, Serialize)]
pub struct History {
    /// The runs.
    pub runs: Vec<Run>,
    /// The rows.
    pub rows: Vec<Series>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Its identifier.
    pub run: String,
    /// Its start time.
    pub started: String,
    /// The fslab version.
    pub fslab: String,
    /// The kernel version.
    pub kernel: String,
}

/// The figures of one row over the runs.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The workload.
    pub workload: String,
    /// Its phase.
    pub phase: String,
    /// The target.
    pub target: String,
    /// The baseline; `None` for the baseline itself, whose figures are seconds.
    pub baseline: Option<String>,
    /// The figures, each with the index of its run in [`History::runs`].
    pub figures: Vec<(usize, f64)>,
    /// The changes of the level; `at` is an index into `figures`.
    pub changes: Vec<Change>,
}

impl History {
    /// Computes the history from the records of any number of runs.
    ///
    /// # Errors
    /// Returns the same errors as [`Report::against`].
    pub fn of(records: &[Record], baselines: &[String], seed: u64) -> Result<Self> {
        let mut history = Self { runs: Vec::new(), rows: Vec::new() };
        for provenance in runs(records) {
            let own: Vec<Record> =
                records.iter().filter(|record| is_of(record, &provenance.run)).cloned().collect();
            history.add(provenance, &Report::against(&own, baselines, None)?);
        }
        let count = history.rows.len();
        for series in &mut history.rows {
            let figures: Vec<f64> = series.figures.iter().map(|(_, figure)| *figure).collect();
            series.changes = changes(&figures, count, seed);
        }
        Ok(history)
    }

    fn add(&mut self, provenance: &Provenance, report: &Report) {
        let index = self.runs.len();
        let Provenance { run, started, fslab, kernel, .. } = provenance.clone();
        self.runs.push(Run { run, started, fslab, kernel });
        for group in report.groups.iter().filter(|group| group.size_bytes.is_none()) {
            for row in &group.rows {
                if let Some(figure) = figure(report, row) {
                    self.series(report, group, row).figures.push((index, figure));
                }
            }
        }
    }

    fn series(&mut self, report: &Report, group: &Group, row: &Row) -> &mut Series {
        let baseline = baseline(report, row);
        let known = self.rows.iter().position(|series| {
            (&series.workload, &series.phase, &series.target)
                == (&group.workload, &group.phase, &row.target)
                && series.baseline == baseline
        });
        let index = known.unwrap_or_else(|| {
            self.rows.push(Series {
                workload: group.workload.clone(),
                phase: group.phase.clone(),
                target: row.target.clone(),
                baseline,
                figures: Vec::new(),
                changes: Vec::new(),
            });
            self.rows.len() - 1
        });
        &mut self.rows[index]
    }
}

/// Returns the provenance of each run in chronological order.
fn runs(records: &[Record]) -> Vec<&Provenance> {
    let mut runs: Vec<&Provenance> = Vec::new();
    for record in records {
        if let Record::Provenance(found) = record
            && !runs.iter().any(|run| run.run == found.run)
        {
            runs.push(found);
        }
    }
    runs.sort_by(|one, other| one.started.cmp(&other.started));
    runs
}

fn is_of(record: &Record, run: &str) -> bool {
    match record {
        Record::Provenance(provenance) => provenance.run == run,
        Record::Sample(sample) => sample.run == run,
        Record::Block(block) => block.run == run,
        Record::Target(_) | Record::Note(_) | Record::End(_) => false,
    }
}

fn baseline(report: &Report, row: &Row) -> Option<String> {
    report.baselines.first().filter(|name| **name != row.target).cloned()
}

fn figure(report: &Report, row: &Row) -> Option<f64> {
    match baseline(report, row) {
        None => Some(row.seconds.median),
        Some(_) => row.against.first()?.ratio.map(|ratio| ratio.ratio),
    }
}

/// Formats the history as text: the changes, and the number of examined rows.
#[must_use]
pub fn text(history: &History) -> String {
    let rows = &history.rows;
    let each = |series: &Series| -> Vec<String> {
        series.changes.iter().map(|change| line(history, series, change)).collect()
    };
    let mut lines: Vec<String> = rows.iter().flat_map(each).collect();
    let changed = rows.iter().filter(|series| !series.changes.is_empty()).count();
    lines.push(format!(
        "{} runs, {} rows: in {changed} rows the level changed (by 2 % or more, with p of at most \
         0.05 after correction over all rows and positions)",
        history.runs.len(),
        rows.len()
    ));
    let short = rows.iter().filter(|series| series.figures.len() < CHANGE_FIGURES_LEAST).count();
    if short > 0 {
        lines.push(format!(
            "{short} rows have fewer than {CHANGE_FIGURES_LEAST} runs, which are too few to find a \
             change"
        ));
    }
    lines.join("\n") + "\n"
}

fn line(history: &History, series: &Series, change: &Change) -> String {
    let (index, figure) = series.figures[change.at];
    let run = &history.runs[index];
    let what = match &series.baseline {
        Some(baseline) => format!("its time relative to {baseline}"),
        None => format!("its time ({})", seconds(figure)),
    };
    format!(
        "{} / {} on {}: {what} changed by {:+.1} % (p {:.3}), beginning with the run of {} (fslab \
         {}, {})",
        series.workload,
        series.phase,
        series.target,
        (change.factor - 1.0) * 100.0,
        change.p_value,
        run.started,
        run.fslab,
        run.kernel
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    /// Makes a run in which `slow` takes `factor` times as long as `base`.
    fn run(number: usize, factor: f64) -> Vec<Record> {
        let run = format!("run-{number:02}");
        let provenance = Provenance {
            run: run.clone(),
            started: format!("2026-01-{number:02}T00:00:00Z"),
            fslab: "0.1.0".to_owned(),
            baseline: "base".to_owned(),
            targets: vec!["base".to_owned(), "slow".to_owned()],
            workloads: vec!["names".to_owned()],
            ..Provenance::default()
        };
        let sample = |target: &str, round: u32, ns: f64| {
            Record::Sample(Sample {
                run: run.clone(),
                target: target.to_owned(),
                workload: "names".to_owned(),
                phase: "create".to_owned(),
                round,
                elapsed_ns: ns as u64,
                ..Sample::default()
            })
        };
        // The machine gets slower from run to run; the noise depends on round and run.
        let noise = |round: u32| 1.0 + ((number * 7 + round as usize * 3) % 5) as f64 / 1000.0;
        let base = 1e6 * number as f64;
        let samples = (0..4).flat_map(|round| {
            [sample("base", round, base), sample("slow", round, base * factor * noise(round))]
        });
        [Record::Provenance(Box::new(provenance))].into_iter().chain(samples).collect()
    }

    #[test]
    fn a_target_that_becomes_slower_is_named_with_its_run() {
        // The runs are given in reverse order.
        let records: Vec<Record> = (1..=16)
            .rev()
            .flat_map(|number| run(number, if number > 9 { 1.3 } else { 1.1 }))
            .collect();
        let history = History::of(&records, &[], 1).unwrap();
        let text = text(&history);
        assert!(
            text.contains("names / create on slow: its time relative to base changed by +18."),
            "{text}"
        );
        assert!(text.contains("with the run of 2026-01-10T"), "{text}");
        assert!(text.contains("16 runs, 2 rows"), "{text}");
    }

    #[test]
    fn history_of_few_runs_reports_no_change() {
        let records: Vec<Record> = (1..=4).flat_map(|number| run(number, 1.0)).collect();
        let text = text(&History::of(&records, &[], 1).unwrap());
        assert!(text.contains("4 runs, 2 rows: in 0 rows the level changed"), "{text}");
        assert!(text.contains("2 rows have fewer than 10 runs"), "{text}");
    }
}
