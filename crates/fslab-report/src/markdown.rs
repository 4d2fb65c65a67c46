//! Renders Markdown, for issues, pull requests and notes: an overview and detailed tables.

use std::fmt::Write;

use super::format::bytes;
use super::model::{Group, Report};
use super::terminal::geometric;
use super::{Renderer, overview, words};

pub(super) const SPEC: Renderer = Renderer {
    name: "markdown",
    help: "tables in Markdown, for issues and notes",
    render: |report| Ok(render(report).into_bytes()),
};

fn render(report: &Report) -> String {
    let mut parts = vec![head(report)];
    for (index, baseline) in report.baselines.iter().enumerate() {
        parts.push(format!("## Ratios to {}\n\n{}", plain(baseline), matrix(report, index)));
        parts.extend(overall(report, index));
    }
    parts.push(words::legend(report).join(" "));
    for workload in &report.workloads {
        let groups: Vec<&Group> =
            report.phases().filter(|group| group.workload == *workload).collect();
        if !groups.is_empty() {
            parts.push(format!("## {}\n\n{}", plain(workload), table(&groups, report)));
        }
    }
    parts.push(environment(report));
    parts.join("\n\n") + "\n"
}

fn head(report: &Report) -> String {
    let provenance = &report.provenance;
    let mut text = format!(
        "# {}\n\n{}, {}, {} samples, seed {}.\n",
        plain(&provenance.plan_name),
        provenance.started,
        words::ending(report),
        report.samples,
        provenance.seed
    );
    let notes = report.notes.iter().map(words::note_line);
    let remarks = words::on_samples(report, words::Marked::No);
    for line in notes.chain(remarks).chain(words::doubts(report)) {
        text.push_str(&format!("\n- {}", plain(&line)));
    }
    text
}

fn matrix(report: &Report, baseline: usize) -> String {
    let names: Vec<String> = report.target_names.iter().map(|name| plain(name)).collect();
    let mut text = row_of(&[vec!["workload".to_owned(), "phase".to_owned()], names].concat());
    text.push_str(&format!("\n|---|---|{}", "--:|".repeat(report.target_names.len())));
    for line in overview::lines(report) {
        let mut cells = vec![plain(line.workload), plain(&line.phase)];
        cells.extend(line.short(baseline));
        text.push('\n');
        text.push_str(&row_of(&cells));
    }
    text
}

fn overall(report: &Report, baseline: usize) -> Option<String> {
    let means = report.overall.get(baseline)?;
    let lines: Vec<String> = report
        .target_names
        .iter()
        .zip(means)
        .filter_map(|(name, mean)| {
            Some(format!("- {}: {}", plain(name), geometric(mean.as_ref()?)))
        })
        .collect();
    let head = "Geometric means over all phases:\n";
    (!lines.is_empty()).then(|| format!("{head}\n{}", lines.join("\n")))
}

fn table(groups: &[&Group], report: &Report) -> String {
    let first = ["phase", "target", "n", "median", "SD/mean", "each"];
    let header: Vec<String> =
        words::header(report, first, false).iter().map(|name| plain(name)).collect();
    let rule = "|---|---|--:|--:|--:|--:|".to_owned() + &"---|".repeat(header.len() - first.len());
    let mut text = format!("{}\n{rule}", row_of(&header));
    for group in groups {
        for line in group.rows.iter().flat_map(words::lines) {
            let mut cells = words::cells(report, group, line, false);
            for (index, cell) in cells.iter_mut().enumerate() {
                let trimmed = cell.trim();
                *cell = if index < 2 { plain(trimmed) } else { trimmed.to_owned() };
            }
            text.push('\n');
            text.push_str(&row_of(&cells));
        }
    }
    text
}

fn environment(report: &Report) -> String {
    let provenance = &report.provenance;
    let mut text = "## Environment\n".to_owned();
    let lines = [
        ("fslab", provenance.fslab.clone()),
        ("kernel", provenance.kernel.clone()),
        ("processor", format!("{} \u{d7} {}", provenance.processors, provenance.processor)),
        ("memory", bytes(provenance.memory_kib * 1024)),
        ("image size", bytes(provenance.image_size)),
    ];
    for (name, value) in lines {
        text.push_str(&format!("\n- {name}: {}", plain(&value)));
    }
    let written = write!(text, "\n\n```sh\n{}\n```", provenance.command.replace("```", ""));
    debug_assert!(written.is_ok(), "writing to a string can't fail");
    text
}

fn row_of(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// Escapes a text so that Markdown shows it literally. Names come from plans, which are untrusted.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' => plain.push(' '),
            '<' => plain.push_str("&lt;"),
            '&' => plain.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '~' => plain.extend(['\\', character]),
            other => plain.push(other),
        }
    }
    plain
}
