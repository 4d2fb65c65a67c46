//! Renders tables for a terminal in the style of benchstat: `~` means that no difference is shown.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};

use super::format::{bytes, percent};
use super::model::{Group, MetricRow, Report, Row};
use super::sample::TargetRecord;
use super::{Renderer, metrics, overview, words};
use fslab_stats::GeometricMean;

pub(super) const SPEC: Renderer = Renderer {
    name: "terminal",
    help: "tables for a terminal, in the style of benchstat",
    render: |report| Ok(render(report).into_bytes()),
};

/// Maximum number of rows. If there are more, only the overview is shown.
const ROWS_MOST: usize = 90;

/// Maximum length of a target's name in the overview's headings.
const HEADING_MOST: usize = 14;

/// Width of text in columns.
const COLUMNS: usize = 100;

/// A table style with a single line below the header.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('\u{2500}').junction('\u{2500}'));

pub(super) fn render(report: &Report) -> String {
    let mut lines = head(report);
    let rows: usize = report.phases().map(|group| group.rows.len()).sum();
    if rows > ROWS_MOST {
        for (index, baseline) in report.baselines.iter().enumerate() {
            lines.push(format!("\nratios to {baseline}\n{}", matrix(report, index)));
        }
        lines.push(format!(
            "{rows} rows are too many for a terminal; times, intervals and counters are on the \
             HTML page and in the output of --csv and --json."
        ));
    } else {
        lines.extend(workload_tables(report));
    }
    lines.extend(metric_table(report));
    lines.extend(overall(report));
    lines.extend(foot(report));
    without_trailing_blanks(&lines.join("\n"))
}

fn without_trailing_blanks(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn head(report: &Report) -> Vec<String> {
    let provenance = &report.provenance;
    let runs = match report.further_runs.len() {
        0 => String::new(),
        more => format!("{} runs together, ", more + 1),
    };
    let mut lines = vec![
        format!(
            "{}: {runs}{} samples, seed {}, baseline {}",
            provenance.plan_name,
            report.samples,
            provenance.seed,
            report.baselines.join(" and ")
        ),
        words::ending(report),
    ];
    lines.extend(report.notes.iter().map(|note| wrapped(&words::note_line(note))));
    lines
}

fn workload_tables(report: &Report) -> Vec<String> {
    let table_of = |workload: &String| {
        let groups: Vec<&Group> =
            report.phases().filter(|group| group.workload == *workload).collect();
        (!groups.is_empty()).then(|| format!("\n{workload}\n{}", table(&groups, report)))
    };
    report.workloads.iter().filter_map(table_of).collect()
}

/// Makes the table of requested metrics and of those that workloads measured themselves.
fn metric_table(report: &Report) -> Option<String> {
    let is_shown =
        |metric: &MetricRow| metric.is_own || report.shown_metrics.contains(&metric.metric);
    let first = ["workload and phase", "metric", "target", "n", "median", "\u{b1}"];
    let mut header = first.map(str::to_owned).to_vec();
    for name in &report.baselines {
        header.extend([format!("against {name}"), "p".to_owned(), "verdict".to_owned()]);
    }
    let mut table = plain_table(header);
    let mut last = [String::new(), String::new()];
    for group in report.phases() {
        for (row, metric) in metrics::by_name(group).filter(|(_, metric)| is_shown(metric)) {
            let mut cells = metric_cells(group, row, metric);
            for (cell, last) in cells.iter_mut().zip(&mut last) {
                if cell == last {
                    cell.clear();
                } else {
                    last.clone_from(cell);
                }
            }
            table.add_row(cells.into_iter().map(coloured));
        }
    }
    align_right(&mut table, 3..6);
    (!table.is_empty()).then(|| format!("\nmetrics\n{table}"))
}

fn metric_cells(group: &Group, row: &Row, metric: &MetricRow) -> Vec<String> {
    let mut cells = vec![
        format!("{}, {}", group.workload, group.name()),
        metric.metric.clone(),
        row.target.clone(),
        metric.summary.count.to_string(),
        words::metric_figure(metric),
        percent(metric.summary.variation),
    ];
    for against in &metric.against {
        cells.push(words::against(against));
        cells.push(words::p_value(against));
        cells.push(words::metric_verdict(metric, against));
    }
    cells
}

fn plain_table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    table
}

/// Makes a cell; verdicts are coloured on terminals, unless `NO_COLOR` is set.
fn coloured(text: String) -> Cell {
    let is_any = |words: [&str; 2]| text.starts_with(words[0]) || text.contains(words[1]);
    let colour = if is_any(["faster", ": better"]) {
        Some(Color::Green)
    } else if is_any(["slower", ": worse"]) {
        Some(Color::Red)
    } else {
        None
    };
    let cell = Cell::new(text);
    match colour {
        Some(colour) => cell.fg(colour),
        None => cell,
    }
}

fn align_right(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn table(groups: &[&Group], report: &Report) -> Table {
    let first = ["phase", "target", "n", "median", "\u{b1}", "each"];
    let mut table = plain_table(words::header(report, first, true));
    for group in groups {
        for (index, line) in group.rows.iter().flat_map(words::lines).enumerate() {
            let mut cells = words::cells(report, group, line, true);
            if index > 0 {
                cells[0].clear();
            }
            table.add_row(cells.into_iter().map(coloured));
        }
    }
    align_right(&mut table, 2..6);
    table
}

/// Makes the table of ratios to a baseline: a line per phase, a column per target.
fn matrix(report: &Report, baseline: usize) -> Table {
    let cut = |name: &String| name.chars().take(HEADING_MOST).collect::<String>();
    let mut header = vec!["workload".to_owned(), "phase".to_owned()];
    header.extend(report.target_names.iter().map(cut));
    let mut table = plain_table(header);
    let mut last = "";
    for line in overview::lines(report) {
        let workload = if line.workload == last { "" } else { line.workload };
        last = line.workload;
        let mut cells = vec![workload.to_owned(), line.phase.clone()];
        cells.extend(line.short(baseline));
        table.add_row(cells);
    }
    align_right(&mut table, 2..2 + report.target_names.len());
    table
}

/// Formats the geometric means, for reports with more than one phase.
fn overall(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for (baseline, means) in report.baselines.iter().zip(&report.overall) {
        let found = report.target_names.iter().zip(means);
        let of = |(target, mean): (&String, &Option<GeometricMean>)| {
            Some(format!("  {target}: {}", geometric(mean.as_ref()?)))
        };
        let found: Vec<String> = found.filter_map(of).collect();
        if !found.is_empty() {
            lines.push(format!("\ngeometric mean of the ratios to {baseline}, over all phases"));
            lines.extend(found);
        }
    }
    lines
}

/// Formats a geometric mean with its spread.
pub(super) fn geometric(mean: &GeometricMean) -> String {
    format!(
        "{:.3} \u{d7}/\u{f7} {:.2}, from {:.3} to {:.3}, {} phases",
        mean.mean, mean.spread, mean.least, mean.most, mean.count
    )
}

fn foot(report: &Report) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.extend(words::legend(report));
    lines.push("\u{b1} is the standard deviation as a share of the mean.".to_owned());
    let remarks = words::on_samples(report, words::Marked::No);
    let remarks = remarks.into_iter().chain(words::doubts(report));
    lines.extend(remarks.map(|line| format!("{line}.")));
    if report.groups.iter().any(|group| group.size_bytes.is_some()) {
        lines.push(
            "The figures of each size are on the HTML page and in the output of --json.".to_owned(),
        );
    }
    lines.extend(copied(report));
    lines.extend(made_anew(report));
    lines.iter().map(|line| wrapped(line)).collect()
}

/// Describes where new file systems were made, if any were.
fn made_anew(report: &Report) -> Option<String> {
    let is_new = |target: &&TargetRecord| target.mkfs.is_some() && target.copied_bytes.is_none();
    let made = report.targets.iter().filter(is_new);
    let (images, devices): (Vec<_>, Vec<_>) =
        made.partition(|target| target.loop_direct_io.is_some());
    let size = bytes(report.provenance.image_size);
    let places = match (images.is_empty(), devices.is_empty()) {
        (true, true) => return None,
        (false, true) => format!("on images of {size}"),
        (true, false) => "on devices".to_owned(),
        (false, false) => format!("on images of {size} and on devices"),
    };
    let has_copies = report.targets.iter().any(|target| target.copied_bytes.is_some());
    let runs = if has_copies { "Each other run" } else { "Each run" };
    Some(format!("{runs} used a new file system, {places}."))
}

/// Describes the targets whose runs used copies of recorded images, if there are any.
fn copied(report: &Report) -> Vec<String> {
    let line = |target: &TargetRecord| {
        let size = bytes(target.copied_bytes?);
        Some(format!("Each run on {} used a new copy of its image of {size}.", target.name))
    };
    report.targets.iter().filter_map(line).collect()
}

/// Breaks a text between words into lines of at most [`COLUMNS`].
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(format!("  {word}"));
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}
