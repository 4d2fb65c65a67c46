//! Remarks on figures that need caution. Either the target failed in the workload, for example
//! because it returned wrong data, or the run was aborted.

use super::claims::{Basis, Place, Query};
use super::figure::Outcome;
use super::look_up::Runs;
use fslab_report::sample::NoteKind;
use fslab_report::{Report, distinct};

/// Returns the remarks on an outcome, each once. Each is a sentence without its full stop.
pub(super) fn marks(runs: &Runs, basis: &Basis, outcome: &Outcome) -> Vec<String> {
    let (Basis::Plan(query), Outcome::Figures(_)) = (basis, outcome) else { return Vec::new() };
    let Some((measured, report)) = runs.measured(query) else { return Vec::new() };
    let broken = measured.broken.iter();
    let broken =
        broken.map(|reason| format!("the run of plan {} was aborted: {reason}", query.plan));
    distinct(failures(report, query).into_iter().chain(broken))
}

/// Returns the failures at the places that a query reads. Samples taken before a failure are used.
fn failures(report: &Report, query: &Query) -> Vec<String> {
    let of_place = |place: Place| -> Vec<String> {
        let failed = report.notes.iter().filter(|note| {
            note.kind == NoteKind::Failed
                && note.target.as_ref().is_none_or(|target| *target == place.target)
                && note.workload.as_ref().is_none_or(|workload| *workload == place.workload)
        });
        let what = format!("{} failed at {}", place.target, place.workload);
        failed.map(|note| format!("{what} {}", note.text)).collect()
    };
    query.places().flat_map(of_place).collect()
}
