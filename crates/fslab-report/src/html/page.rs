//! The data of the page's template, as text.

use askama::Template;

use super::super::format::bytes;
use super::super::model::{Group, Report, Row};
use super::super::{overview, words};
use super::chart::{self, Chart};
use super::matrix::{self, Matrix};
use super::table::{self, Table};
use crate::provenance::Provenance;
use crate::sample::{Note, NoteKind, TargetRecord};
use fslab_chart::colour;
use fslab_stats::CONFIDENCE;

/// Maximum number of workloads whose sections are shown unfolded. If there are more, all sections
/// are folded, and a search field is shown.
const UNFOLDED_MOST: usize = 6;

#[derive(Template)]
#[template(path = "report.html")]
pub(super) struct Page {
    title: String,
    nonce: String,
    lead: String,
    baselines: Vec<String>,
    confidence: u32,
    legend: String,
    notes: Vec<NoteLine>,
    matrices: Vec<Matrix>,
    folded: bool,
    sections: Vec<Section>,
    targets: Vec<TargetLine>,
    runs: Vec<RunView>,
    command: String,
    plan: String,
}

struct NoteLine {
    grave: bool,
    heading: String,
    text: String,
}

struct Section {
    id: usize,
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
    metrics: Option<Table>,
    latencies: Option<Table>,
}

struct LegendItem {
    class: String,
    name: String,
}

struct WhyLine {
    baseline: usize,
    target: String,
    text: String,
}

struct TargetLine {
    name: String,
    what: String,
    lines: Vec<String>,
}

struct RunView {
    title: String,
    lines: Vec<(&'static str, String)>,
}

impl Page {
    pub fn new(report: &Report) -> Self {
        let provenance = &report.provenance;
        let sections: Vec<Section> = report
            .workloads
            .iter()
            .enumerate()
            .filter_map(|(id, name)| section(report, id, name))
            .collect();
        Self {
            title: provenance.plan_name.clone(),
            // The content security policy permits only styles and scripts with this nonce. The
            // nonce must not contain a quote.
            nonce: provenance.run.chars().filter(char::is_ascii_alphanumeric).collect(),
            lead: lead(report),
            baselines: report.baselines.clone(),
            confidence: (CONFIDENCE * 100.0).round() as u32,
            legend: words::legend(report).join(" "),
            notes: notes(report),
            matrices: matrix::of(report, &overview::lines(report)),
            folded: sections.len() > UNFOLDED_MOST,
            sections,
            targets: report.targets.iter().map(target_line).collect(),
            runs: runs(report),
            command: provenance.command.clone(),
            plan: provenance.plan.clone(),
        }
    }
}

fn lead(report: &Report) -> String {
    let provenance = &report.provenance;
    let runs = match report.further_runs.len() {
        0 => String::new(),
        more => format!(" {} runs together;", more + 1),
    };
    format!(
        "{};{runs} {}, {} samples; {}, {} processors; seed {}.",
        provenance.started,
        words::ending(report),
        report.samples,
        provenance.kernel,
        provenance.processors,
        provenance.seed
    )
}

fn notes(report: &Report) -> Vec<NoteLine> {
    let mut lines: Vec<NoteLine> = report.notes.iter().map(note_line).collect();
    let plain = |text: String| NoteLine { grave: false, heading: String::new(), text };
    lines.extend(words::on_samples(report, words::Marked::InCharts).into_iter().map(plain));
    lines.extend(words::doubts(report).into_iter().map(plain));
    if report.contaminated * 10 > report.samples {
        lines.push(NoteLine {
            grave: true,
            heading: "Disturbed".to_owned(),
            text: "more than a tenth of the samples were disturbed by other work on the machine. \
                   Before you rely on the comparison, repeat it on an idle machine"
                .to_owned(),
        });
    }
    lines
}

fn note_line(note: &Note) -> NoteLine {
    let kind = match note.kind {
        NoteKind::LeftOut => "Left out: ",
        NoteKind::Failed => "Failed: ",
        NoteKind::Remark => "",
    };
    NoteLine {
        grave: note.kind != NoteKind::Remark || note.target.is_none(),
        heading: format!("{kind}{}", words::subject(note)),
        text: note.text.clone(),
    }
}

fn section(report: &Report, id: usize, workload: &str) -> Option<Section> {
    let groups: Vec<&Group> =
        report.groups.iter().filter(|group| group.workload == workload).collect();
    let phases: Vec<PhaseView> = groups
        .iter()
        .filter(|group| group.size_bytes.is_none())
        .map(|group| phase_view(group, &groups, report))
        .collect();
    let help = (report.workload_help)(workload);
    (!phases.is_empty()).then(|| Section { id, name: workload.to_owned(), help, phases })
}

fn phase_view(group: &Group, all: &[&Group], report: &Report) -> PhaseView {
    let points: Vec<&Group> = all
        .iter()
        .copied()
        .filter(|other| other.phase == group.phase && other.size_bytes.is_some())
        .collect();
    let several = report.machines.len() > 1;
    let machine = report.machines.first().filter(|_| several).map(String::as_str);
    let mut charts = vec![chart::times(group, machine)];
    for (index, name) in report.baselines.iter().enumerate() {
        charts.extend(chart::ratios(group, index, name));
    }
    let mut legend = Vec::new();
    if points.len() > 1 {
        charts.push(chart::sweep(&points));
        legend = legend_of(group);
    }
    let counts = thread_counts(group, all);
    if counts.len() > 1 {
        charts.push(chart::scaling(&counts));
        legend = legend_of(group);
    }
    if let Some(chart) = chart::along(group) {
        charts.push(chart);
        legend = legend_of(group);
    }
    let groups: Vec<&Group> = std::iter::once(group).chain(points).collect();
    PhaseView {
        name: group.name(),
        charts,
        legend,
        why: group.rows.iter().flat_map(why_lines).collect(),
        table: table::of(&groups, report),
        metrics: table::of_metrics(group, report),
        latencies: table::of_latencies(&groups, report),
    }
}

/// Returns the points of a sweep over threads if `group` is its first point. Otherwise returns
/// none, so that the chart of a sweep is shown only once.
fn thread_counts<'a>(group: &Group, all: &[&'a Group]) -> Vec<&'a Group> {
    let is_point =
        |other: &&Group| other.threads.is_some() && other.operation() == group.operation();
    let mut points: Vec<&Group> = all.iter().copied().filter(is_point).collect();
    points.sort_by_key(|point| point.threads);
    let is_first = points.first().is_some_and(|first| first.threads == group.threads);
    if is_first { points } else { Vec::new() }
}

fn legend_of(group: &Group) -> Vec<LegendItem> {
    let item = |row: &Row| LegendItem { class: colour(row.index), name: row.target.clone() };
    group.rows.iter().map(item).collect()
}

fn why_lines(row: &Row) -> Vec<WhyLine> {
    let line = |(baseline, against): (usize, &super::super::Against)| {
        let ratio = against.ratio?;
        let cause = against.cause.as_ref().map(|cause| format!(", {cause}")).unwrap_or_default();
        let counters = Some(against.why.join(", ")).filter(|counters| !counters.is_empty());
        let counters = counters.map(|counters| format!(", with {counters}")).unwrap_or_default();
        (!cause.is_empty() || !counters.is_empty()).then(|| WhyLine {
            baseline,
            target: row.target.clone(),
            text: format!("takes {:.2}\u{d7} as long{cause}{counters}", ratio.ratio),
        })
    };
    row.against.iter().enumerate().filter_map(line).collect()
}

fn target_line(target: &TargetRecord) -> TargetLine {
    let device = target.loop_direct_io.map(|direct| {
        let how = if direct { "with direct I/O" } else { "through the page cache (no direct I/O)" };
        let ahead = target.read_ahead_kib.map(|kib| format!(", read-ahead {kib} KiB"));
        let scheduler = target.scheduler.as_ref().map(|name| format!(", scheduler {name}"));
        format!("loop device {how}{}{}", ahead.unwrap_or_default(), scheduler.unwrap_or_default())
    });
    let daemon = target.daemon_found.filter(|found| !found).map(|_| {
        "its daemon was not found, so the samples lack the daemon's processor time".to_owned()
    });
    let requests = target
        .requests_counted
        .filter(|counted| !counted)
        .map(|_| "its FUSE requests could not be counted".to_owned());
    let commands = [target.mkfs.clone(), target.mount.clone(), target.over.clone()];
    TargetLine {
        name: target.name.clone(),
        what: target.description.clone(),
        lines: commands.into_iter().chain([device, daemon, requests]).flatten().collect(),
    }
}

fn runs(report: &Report) -> Vec<RunView> {
    let all = std::iter::once(&report.provenance).chain(&report.further_runs);
    let several = !report.further_runs.is_empty();
    all.map(|run| RunView {
        title: if several { format!("run {}, {}", run.run, run.started) } else { String::new() },
        lines: environment(run),
    })
    .collect()
}

fn environment(run: &Provenance) -> Vec<(&'static str, String)> {
    let kept: Vec<String> = run.kept_to_processors.iter().map(usize::to_string).collect();
    let touched = Some(run.touched_bytes).filter(|amount| *amount > 0);
    let mut lines = vec![
        ("fslab", run.fslab.clone()),
        ("machine", run.machine.clone()),
        ("kernel", run.kernel.clone()),
        ("processor", format!("{} \u{d7} {}", run.processors, run.processor)),
        ("limited to processors", kept.join(", ")),
        ("memory", bytes(run.memory_kib * 1024)),
        ("image size", bytes(run.image_size)),
        (
            "touched before each run",
            touched.map(|amount| format!("{} of memory", bytes(amount))).unwrap_or_default(),
        ),
        ("seed", run.seed.to_string()),
        ("run", run.run.clone()),
    ];
    let optional = [
        ("images are on", &run.work_file_system),
        ("clock source", &run.clock_source),
        ("frequency governor", &run.frequency_governor),
        ("dirty ratios", &run.dirty_ratios),
    ];
    lines.extend(optional.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))));
    lines.extend(run.tools.values().map(|version| ("tool", version.clone())));
    lines.retain(|(_, text)| !text.is_empty());
    lines
}
