//! The overview: a line per phase, a column per target.

use super::model::{Group, Report, Row};
use super::words;
use fslab_stats::RatioInterval;

/// The line of one phase, with the rows of all targets.
pub(super) struct Line<'a> {
    pub workload: &'a str,
    pub phase: String,
    /// A cell for each target; `None` if it has no samples.
    pub cells: Vec<Option<&'a Row>>,
    /// The difference between two copies of the baseline, if it was measured.
    pub noise_floor: Option<RatioInterval>,
}

impl Line<'_> {
    /// Returns each target's comparison with a baseline in short form.
    pub fn short(&self, baseline: usize) -> impl Iterator<Item = String> {
        let short = move |row: &Row| row.against.get(baseline).map(words::short);
        self.cells.iter().map(move |row| row.and_then(short).unwrap_or_default())
    }
}

/// Returns the lines of all phases, workload by workload.
pub(super) fn lines<'a>(report: &'a Report) -> Vec<Line<'a>> {
    let line = |group: &'a Group| {
        let cell = |index| group.rows.iter().find(|row| row.index == index);
        Line {
            workload: &group.workload,
            phase: group.name(),
            cells: (0..report.target_names.len()).map(cell).collect(),
            noise_floor: group.noise_floor.as_ref().map(|floor| floor.ratio),
        }
    };
    report.phases().map(line).collect()
}
