//! Renders a paper's findings as Markdown.

use super::claims::Claim;
use super::findings::{Findings, Row};
use fslab_report::markdown_plain as plain;

impl Findings {
    /// Returns the findings as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let paper = &self.paper;
        let mut text = format!(
            "# {}\n\n{}. {}.\n\n{}\n\n{}\n",
            plain(&paper.title),
            plain(&paper.source()),
            self.summary(),
            plain(&paper.about),
            plain(&self.form)
        );
        for planned in &self.plans {
            let page = planned.page.iter().map(|page| format!("[report]({page})"));
            let trouble = planned.trouble().map(|trouble| plain(&trouble));
            let what: Vec<String> = page.chain(trouble).collect();
            text.push_str(&format!("\n- plan {}: {}", planned.name, what.join("; ")));
        }
        for command in &paper.commands {
            let run = format!("fslab {}", command.run.join(" "));
            text.push_str(&format!("\n- command {}: `{run}`", command.name));
        }
        for drawn in self.charts.iter().filter(|drawn| !drawn.is_empty()) {
            let (title, file) =
                (plain(&drawn.chart.title), format!("{}-{}", paper.name, drawn.chart.id));
            text.push_str(&format!("\n\n![{title}](figures/{file}.svg)"));
        }
        text.push_str(
            "\n\n| claim | where | published | found here | kind | result |\n\
         |---|---|---|---|---|---|\n",
        );
        for (claim, row) in paper.claims.iter().zip(&self.rows) {
            let cells = [
                format!("{} ({})", plain(&claim.says), claim.id),
                plain(&claim.place),
                plain(&row.published),
                plain(&row.measured),
                claim.kind.name().to_owned(),
                plain(&said(claim, row)),
            ];
            text.push_str(&format!(
                "| {} |\n",
                cells.map(|cell| cell.trim().to_owned()).join(" | ")
            ));
        }
        text.push_str("\n## Conditions\n\n| what | in the paper | here |\n|---|---|---|\n");
        for setting in &paper.settings {
            let cells = [&setting.what, &setting.paper, &setting.here].map(|cell| plain(cell));
            text.push_str(&format!("| {} |\n", cells.join(" | ")));
        }
        text
    }
}

/// Returns the judgement of a claim, its remarks and its note.
fn said(claim: &Claim, row: &Row) -> String {
    let marked = row.marked();
    let parts = [Some(&*row.sentence), Some(&*marked), claim.note.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}
