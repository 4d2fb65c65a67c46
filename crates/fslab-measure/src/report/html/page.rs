//! What the template shows, in its words.

use askama::Template;

use super::super::format::{bytes, seconds};
use super::super::model::{Group, Report, Row};
use super::chart::{self, Chart};
use super::colour;
use super::table::{self, Table};
use crate::sample::{EndReason, Note, NoteKind, TargetRecord};
use crate::stats::CONFIDENCE;
use crate::workload;

/// The page.
#[derive(Template)]
#[template(path = "report.html")]
pub(super) struct Page {
    title: String,
    nonce: String,
    lead: String,
    baseline: String,
    confidence: u32,
    notes: Vec<NoteLine>,
    target_names: Vec<String>,
    overview: Vec<OverviewLine>,
    sections: Vec<Section>,
    targets: Vec<TargetLine>,
    environment: Vec<(&'static str, String)>,
    command: String,
    plan: String,
}

struct NoteLine {
    grave: bool,
    heading: String,
    text: String,
}

/// A phase over all targets, or (without cells) the name of a workload.
struct OverviewLine {
    name: String,
    cells: Vec<OverviewCell>,
}

#[derive(Default)]
struct OverviewCell {
    class: &'static str,
    text: String,
    small: String,
}

struct Section {
    name: String,
    help: &'static str,
    phases: Vec<PhaseView>,
}

struct PhaseView {
    name: String,
    charts: Vec<Chart>,
    legend: Vec<LegendItem>,
    why: Vec<WhyLine>,
    table: Table,
}

struct LegendItem {
    class: String,
    name: String,
}

struct WhyLine {
    target: String,
    verdict: String,
    text: String,
}

struct TargetLine {
    name: String,
    what: String,
    lines: Vec<String>,
}

impl Page {
    pub fn new(report: &Report) -> Self {
        let provenance = &report.provenance;
        Self {
            title: provenance.plan_name.clone(),
            // The policy admits only what carries this word; it must not hold a quote.
            nonce: provenance.run.chars().filter(char::is_ascii_alphanumeric).collect(),
            lead: lead(report),
            baseline: provenance.baseline.clone(),
            confidence: (CONFIDENCE * 100.0).round() as u32,
            notes: notes(report),
            target_names: provenance.targets.clone(),
            overview: overview(report),
            sections: provenance
                .workloads
                .iter()
                .filter_map(|name| section(report, name))
                .collect(),
            targets: report.targets.iter().map(target_line).collect(),
            environment: environment(report),
            command: provenance.command.clone(),
            plan: provenance.plan.clone(),
        }
    }
}

fn lead(report: &Report) -> String {
    let provenance = &report.provenance;
    let how = match &report.end {
        None => "the run did not end".to_owned(),
        Some(end) => {
            let rounds = match end.reason {
                EndReason::Finished => format!("{} rounds", end.rounds),
                EndReason::TimeLimit => {
                    format!("{} of {} rounds, to the time limit", end.rounds, provenance.rounds)
                }
                EndReason::Interrupted => {
                    format!("interrupted after {} of {} rounds", end.rounds, provenance.rounds)
                }
            };
            format!("{rounds} in {} s", end.elapsed_seconds)
        }
    };
    format!(
        "{}, {how}, {} samples; {}, {} processors; seed {}.",
        provenance.started,
        report.samples,
        provenance.kernel,
        provenance.processors,
        provenance.seed
    )
}

fn notes(report: &Report) -> Vec<NoteLine> {
    let mut lines: Vec<NoteLine> = report.notes.iter().map(note_line).collect();
    if report.contaminated > 0 {
        lines.push(NoteLine {
            grave: report.contaminated * 10 > report.samples,
            heading: "Disturbed".to_owned(),
            text: format!(
                "{} of {} samples were taken while other programmes or machines used the \
                 processors. They are kept, and drawn as hollow dots.",
                report.contaminated, report.samples
            ),
        });
    }
    for group in report.unproven() {
        let rows = group.rows.iter().filter(|row| row.proven < row.seconds.count);
        let rows = rows.map(|row| format!("{} {}/{}", row.target, row.proven, row.seconds.count));
        let size = group.size_bytes.map(|size| format!(", {}", bytes(size))).unwrap_or_default();
        lines.push(NoteLine {
            grave: false,
            heading: format!("{}, {}{size}", group.workload, group.phase),
            text: format!(
                "the state of the cache is not proven for every run: {}",
                rows.collect::<Vec<_>>().join(", ")
            ),
        });
    }
    lines
}

fn note_line(note: &Note) -> NoteLine {
    let about: Vec<&str> = note.target.iter().chain(&note.workload).map(String::as_str).collect();
    let kind = match note.kind {
        NoteKind::LeftOut => "Left out: ",
        NoteKind::Failed => "Failed: ",
        NoteKind::Remark => "",
    };
    NoteLine {
        grave: note.kind != NoteKind::Remark || note.target.is_none(),
        heading: format!("{kind}{}", about.join(", ")),
        text: note.text.clone(),
    }
}

fn overview(report: &Report) -> Vec<OverviewLine> {
    let mut lines = Vec::new();
    for workload in &report.provenance.workloads {
        let groups = report.groups.iter().filter(|group| &group.workload == workload);
        let mut phases: Vec<OverviewLine> = groups
            .filter(|group| group.size_bytes.is_none())
            .map(|group| overview_line(group, &report.provenance.targets))
            .collect();
        if !phases.is_empty() {
            lines.push(OverviewLine { name: workload.clone(), cells: Vec::new() });
            lines.append(&mut phases);
        }
    }
    lines
}

fn overview_line(group: &Group, targets: &[String]) -> OverviewLine {
    let cell = |target: &String| {
        group.rows.iter().find(|row| &row.target == target).map(overview_cell).unwrap_or_default()
    };
    OverviewLine { name: phase_name(group), cells: targets.iter().map(cell).collect() }
}

fn overview_cell(row: &Row) -> OverviewCell {
    let median = seconds(row.seconds.median);
    let Some(ratio) = row.ratio else {
        return OverviewCell { class: "", text: median, small: String::new() };
    };
    let (class, text) = match (ratio.shows_difference(), ratio.ratio > 1.0) {
        (false, _) => ("", "~".to_owned()),
        (true, true) => ("slower", format!("\u{25b2} {:.2}\u{d7}", ratio.ratio)),
        (true, false) => ("faster", format!("\u{25bc} {:.2}\u{d7}", ratio.ratio)),
    };
    OverviewCell { class, text, small: format!("{:.2}\u{2013}{:.2}", ratio.low, ratio.high) }
}

fn section(report: &Report, workload: &str) -> Option<Section> {
    let groups: Vec<&Group> =
        report.groups.iter().filter(|group| group.workload == workload).collect();
    let phases: Vec<PhaseView> = groups
        .iter()
        .filter(|group| group.size_bytes.is_none())
        .map(|group| phase_view(group, &groups))
        .collect();
    let help = workload::find(workload).map_or("", |spec| spec.help);
    (!phases.is_empty()).then(|| Section { name: workload.to_owned(), help, phases })
}

fn phase_view(group: &Group, all: &[&Group]) -> PhaseView {
    let points: Vec<&Group> = all
        .iter()
        .copied()
        .filter(|other| other.phase == group.phase && other.size_bytes.is_some())
        .collect();
    let mut charts = vec![chart::times(group)];
    charts.extend(chart::ratios(group));
    let mut legend = Vec::new();
    if points.len() > 1 {
        charts.push(chart::sweep(&points));
        legend = legend_of(group);
    }
    let groups: Vec<&Group> = std::iter::once(group).chain(points).collect();
    PhaseView {
        name: phase_name(group),
        charts,
        legend,
        why: group.rows.iter().filter_map(why_line).collect(),
        table: table::of(&groups),
    }
}

fn legend_of(group: &Group) -> Vec<LegendItem> {
    let item = |row: &Row| LegendItem { class: colour(row.index), name: row.target.clone() };
    group.rows.iter().map(item).collect()
}

fn why_line(row: &Row) -> Option<WhyLine> {
    let ratio = row.ratio?;
    (!row.why.is_empty()).then(|| WhyLine {
        target: row.target.clone(),
        verdict: format!("takes {:.2}\u{d7} as long", ratio.ratio),
        text: row.why.join(", "),
    })
}

fn phase_name(group: &Group) -> String {
    if group.is_sum { format!("{}, all sizes", group.phase) } else { group.phase.clone() }
}

fn target_line(target: &TargetRecord) -> TargetLine {
    let device = target.loop_direct_io.map(|direct| {
        let how = if direct { "with direct I/O" } else { "through the page cache (no direct I/O)" };
        let ahead = target.read_ahead_kib.map(|kib| format!(", read-ahead {kib} KiB"));
        let scheduler = target.scheduler.as_ref().map(|name| format!(", scheduler {name}"));
        format!("loop device {how}{}{}", ahead.unwrap_or_default(), scheduler.unwrap_or_default())
    });
    let daemon = target
        .daemon_found
        .filter(|found| !found)
        .map(|_| "its daemon was not found: its processor time is not in the samples".to_owned());
    TargetLine {
        name: target.name.clone(),
        what: target.description.clone(),
        lines: [target.mkfs.clone(), target.mount.clone(), target.over.clone(), device, daemon]
            .into_iter()
            .flatten()
            .collect(),
    }
}

fn environment(report: &Report) -> Vec<(&'static str, String)> {
    let provenance = &report.provenance;
    let mut lines = vec![
        ("fslab", provenance.fslab.clone()),
        ("kernel", provenance.kernel.clone()),
        ("processor", format!("{} \u{d7} {}", provenance.processors, provenance.processor)),
        ("memory", bytes(provenance.memory_kib * 1024)),
        ("image size", bytes(provenance.image_size)),
        ("seed", provenance.seed.to_string()),
        ("run", provenance.run.clone()),
    ];
    let optional = [
        ("images lie on", &provenance.work_file_system),
        ("clock source", &provenance.clock_source),
        ("frequency governor", &provenance.frequency_governor),
    ];
    lines.extend(optional.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))));
    lines.extend(provenance.tools.values().map(|version| ("tool", version.clone())));
    lines
}
