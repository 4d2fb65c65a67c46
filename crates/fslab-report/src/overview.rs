//! The overview: a line for each phase, a column for each target.

use super::model::{Report, Row};
use fslab_stats::RatioInterval;

/// A phase over all targets.
pub(super) struct Line<'a> {
    pub workload: &'a str,
    pub phase: String,
    /// A cell for each target; empty where it has no samples.
    pub cells: Vec<Option<&'a Row>>,
    /// What two copies of the baseline differ by, where that was measured.
    pub noise_floor: Option<RatioInterval>,
}

/// All phases, workload by workload.
pub(super) fn lines(report: &Report) -> Vec<Line<'_>> {
    let line = |group| {
        let group: &super::Group = group;
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
