//! Tables for a terminal, after the manner of benchstat: `~` where no difference is shown.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::Renderer;
use super::format::{bytes, factor, percent, rate, seconds};
use super::model::{Group, Report, Row};
use crate::sample::{CacheState, EndReason, Note, NoteKind};

/// The registry's entry.
pub(super) const SPEC: Renderer = Renderer {
    name: "terminal",
    help: "tables for a terminal, after the manner of benchstat",
    render: |report| Ok(render(report)),
};

/// One rule, below the header.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('\u{2500}').junction('\u{2500}'));

const HEADER: [&str; 7] =
    ["phase", "target", "median", "\u{b1}", "each", "against baseline", "cache"];

fn render(report: &Report) -> String {
    let mut text = String::new();
    let provenance = &report.provenance;
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(format!(
        "{}: {} samples, seed {}, baseline {}",
        provenance.plan_name, report.samples, provenance.seed, provenance.baseline
    ));
    line(ending(report));
    for note in &report.notes {
        line(note_line(note));
    }
    for workload in &provenance.workloads {
        let groups: Vec<&Group> = report
            .groups
            .iter()
            .filter(|group| &group.workload == workload && group.size_bytes.is_none())
            .collect();
        if !groups.is_empty() {
            line(format!("\n{workload}\n{}", table(&groups)));
        }
    }
    line(legend(report));
    text
}

fn ending(report: &Report) -> String {
    let Some(end) = &report.end else {
        return "The run did not end: samples up to where it was cut.".to_owned();
    };
    let rounds = format!("{} of {} rounds", end.rounds, report.provenance.rounds);
    let how = match end.reason {
        EndReason::Finished => format!("all {} rounds", end.rounds),
        EndReason::TimeLimit => format!("{rounds}: the time limit was reached"),
        EndReason::Interrupted => format!("{rounds}: interrupted"),
    };
    format!("{how}, {} s", end.elapsed_seconds)
}

/// A note as one line.
fn note_line(note: &Note) -> String {
    let kind = match note.kind {
        NoteKind::LeftOut => "LEFT OUT",
        NoteKind::Failed => "FAILED",
        NoteKind::Remark => "note",
    };
    let about: Vec<&str> = note.target.iter().chain(&note.workload).map(String::as_str).collect();
    let about = if about.is_empty() { String::new() } else { format!(" {}", about.join(", ")) };
    format!("{kind}{about}: {}", note.text)
}

fn table(groups: &[&Group]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADER);
    for group in groups {
        for (index, row) in group.rows.iter().enumerate() {
            let phase = if index == 0 { phase_name(group) } else { String::new() };
            table.add_row(cells(group, row, phase));
        }
    }
    for column in 2..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn phase_name(group: &Group) -> String {
    if group.is_sum { format!("{} (all sizes)", group.phase) } else { group.phase.clone() }
}

fn cells(group: &Group, row: &Row, phase: String) -> Vec<Cell> {
    let each = match (row.bytes_per_second(), row.seconds_per_operation()) {
        (Some(speed), _) if row.bytes >> 16 > row.operations => rate(speed),
        (_, Some(each)) => seconds(each),
        _ => String::new(),
    };
    [
        phase,
        row.target.clone(),
        seconds(row.seconds.median),
        percent(row.seconds.variation),
        each,
        against(row),
        cache(group, row),
    ]
    .into_iter()
    .map(Cell::new)
    .collect()
}

fn against(row: &Row) -> String {
    if row.is_baseline {
        return "baseline".to_owned();
    }
    let Some(ratio) = row.ratio else { return "too few rounds".to_owned() };
    let mark = if ratio.shows_difference() { " " } else { "~" };
    let [middle, low, high] = [ratio.ratio, ratio.low, ratio.high].map(factor);
    format!("{mark} {middle} [{low}, {high}]")
}

/// What is proven of the cache.
fn cache(group: &Group, row: &Row) -> String {
    let state = match group.cache {
        CacheState::NotAsked => return String::new(),
        CacheState::Cold => "cold",
        CacheState::Warm => "warm",
    };
    let count = row.seconds.count;
    if row.proven == count {
        format!("{state} \u{2713}")
    } else {
        format!("{state}: {} of {count} proven", row.proven)
    }
}

fn legend(report: &Report) -> String {
    let mut text = String::from(
        "~ no difference shown: the 95 % interval of the ratio holds 1. \
         Ratios above 1 are slower. \u{b1} is SD/mean.",
    );
    if report.contaminated > 0 {
        text.push_str(&format!(
            "\n{} of {} samples were taken while the machine did other things; \
             they are kept and marked.",
            report.contaminated, report.samples
        ));
    }
    let sweeps = report.groups.iter().filter(|group| group.size_bytes.is_some()).count();
    if sweeps > 0 {
        text.push_str("\nSizes one by one are in the page and in --json.");
    }
    if report.targets.iter().any(|target| target.mkfs.is_some()) {
        let size = bytes(report.provenance.image_size);
        text.push_str(&format!(
            "\nFile systems were made anew for every run, on images of {size}."
        ));
    }
    text
}
