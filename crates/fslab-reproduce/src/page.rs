//! The HTML page of a paper, and the index page of several papers. The templates escape all text.

use askama::Template;

use std::collections::BTreeSet;

use super::agreement::Agreement;
use super::claims::Claim;
use super::findings::{Findings, Row};
use fslab_chart::escape;
use fslab_report::{Error, Result};

#[derive(Template)]
#[template(path = "paper.html")]
struct PaperPage<'a> {
    findings: &'a Findings,
    rows: Vec<(&'a Claim, &'a Row)>,
}

impl PaperPage<'_> {
    /// Returns the number of claims and the number of claims with remarks.
    fn counted(&self) -> String {
        let marked = self.rows.iter().filter(|(_, row)| !row.marks.is_empty()).count();
        let marked = if marked > 0 { format!(", {marked} marked") } else { String::new() };
        format!("{} claims{marked}", self.rows.len())
    }

    /// Returns the judgements that occur in this paper. They are the columns of the table of
    /// counts.
    fn standings(&self) -> BTreeSet<Agreement> {
        self.findings.counts.values().flat_map(|counts| counts.keys().copied()).collect()
    }

    /// Returns a row for each kind: its name, its number of claims, and the number of claims with
    /// each judgement.
    fn counts(&self) -> Vec<(&'static str, usize, Vec<Option<usize>>)> {
        let standings = self.standings();
        let line = |(kind, counts): (&super::Kind, &std::collections::BTreeMap<_, usize>)| {
            let each = standings.iter().map(|standing| counts.get(standing).copied()).collect();
            (kind.name(), counts.values().sum(), each)
        };
        self.findings.counts.iter().map(line).collect()
    }
}

/// Escapes text for a page. Text between backticks is shown as code.
fn coded(text: &str) -> String {
    let mut parts = text.split('`').map(escape);
    let mut coded = parts.next().unwrap_or_default();
    let mut inside = false;
    for part in parts {
        inside = !inside;
        coded += if inside { "<code>" } else { "</code>" };
        coded += &part;
    }
    if inside { coded + "</code>" } else { coded }
}

/// The index page, with links to the pages of several papers.
#[derive(Template)]
#[template(path = "papers.html")]
struct IndexPage<'a> {
    papers: Vec<(&'a Findings, String)>,
}

impl Findings {
    /// Returns the page of the paper, which works offline.
    ///
    /// # Errors
    /// Returns errors of the template.
    pub fn html(&self) -> Result<String> {
        let rows = self.paper.claims.iter().zip(&self.rows).collect();
        PaperPage { findings: self, rows }.render().map_err(Error::Page)
    }

    /// Returns the index page of several papers.
    ///
    /// # Errors
    /// Returns errors of the template.
    pub fn index(all: &[Self]) -> Result<String> {
        let papers = all.iter().map(|findings| (findings, findings.summary())).collect();
        IndexPage { papers }.render().map_err(Error::Page)
    }
}

#[cfg(test)]
mod tests {
    use super::coded;

    #[test]
    fn backticks_become_code_and_all_else_is_escaped() {
        assert_eq!(coded("a `<b>` & c"), "a <code>&lt;b&gt;</code> &amp; c");
        assert_eq!(coded("a `b"), "a <code>b</code>");
    }
}
