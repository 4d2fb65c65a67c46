//! A paper's findings as Markdown.

use super::findings::Findings;
use crate::report::markdown_plain as plain;

pub(super) fn render(findings: &Findings) -> String {
    let paper = &findings.paper;
    let mut text = format!(
        "# {}\n\n{}. {}.\n\n{}\n\n{}\n",
        plain(&paper.title),
        plain(&paper.source()),
        findings.summary(),
        plain(&paper.about),
        plain(&findings.form)
    );
    for planned in &findings.plans {
        let what = match (&planned.page, &planned.reason) {
            (Some(page), _) => format!("[report]({page})"),
            (None, reason) => format!("not run: {}", plain(reason.as_deref().unwrap_or_default())),
        };
        text.push_str(&format!("\n- plan {}: {what}", planned.name));
    }
    for command in &paper.commands {
        let run = format!("fslab {}", command.run.join(" "));
        text.push_str(&format!("\n- command {}: `{run}`", command.name));
    }
    for drawn in findings.charts.iter().filter(|drawn| !drawn.is_empty()) {
        let (title, file) =
            (plain(&drawn.chart.title), format!("{}-{}", paper.name, drawn.chart.id));
        text.push_str(&format!("\n\n![{title}](figures/{file}.svg)"));
    }
    text.push_str(
        "\n\n| claim | where | published | found here | kind | how they stand |\n\
         |---|---|---|---|---|---|\n",
    );
    for (claim, row) in paper.claims.iter().zip(&findings.rows) {
        let cells = [
            format!("{} ({})", plain(&claim.says), claim.id),
            plain(&claim.place),
            plain(&row.published),
            plain(&row.measured),
            claim.kind.name().to_owned(),
            plain(&format!("{} {}", row.sentence, claim.note.as_deref().unwrap_or_default())),
        ];
        text.push_str(&format!("| {} |\n", cells.map(|cell| cell.trim().to_owned()).join(" | ")));
    }
    text.push_str("\n## Conditions\n\n| what | in the paper | here |\n|---|---|---|\n");
    for setting in &paper.settings {
        let cells = [&setting.what, &setting.paper, &setting.here].map(|cell| plain(cell));
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}
