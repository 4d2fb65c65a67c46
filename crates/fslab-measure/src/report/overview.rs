//! The overview: a line for each phase, a column for each target.

use super::model::{Report, Row};

/// A phase over all targets.
pub(super) struct Line<'a> {
    pub workload: &'a str,
    pub phase: String,
    /// A cell for each target; empty where it has no samples.
    pub cells: Vec<Option<&'a Row>>,
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
        }
    };
    report.phases().map(line).collect()
}
