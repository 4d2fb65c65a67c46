//! The pages: a paper's, and the index of several. The templates escape every text.

use askama::Template;

use std::collections::BTreeSet;

use super::agreement::Agreement;
use super::claims::Claim;
use super::findings::{Findings, Row};
use fslab_chart::escape;
use fslab_report::{Error, Result};

/// The page of a paper.
#[derive(Template)]
#[template(path = "paper.html")]
struct PaperPage<'a> {
    findings: &'a Findings,
    rows: Vec<(&'a Claim, &'a Row)>,
}

impl PaperPage<'_> {
    /// How many claims there are, and how many are marked.
    fn counted(&self) -> String {
        let marked = self.rows.iter().filter(|(_, row)| !row.marks.is_empty()).count();
        let marked = if marked > 0 { format!(", {marked} marked") } else { String::new() };
        format!("{} claims{marked}", self.rows.len())
    }

    /// How claims of this paper stand: the columns of the table of counts.
    fn standings(&self) -> BTreeSet<Agreement> {
        self.findings.counts.values().flat_map(|counts| counts.keys().copied()).collect()
    }

    /// A line for each kind: its name, how many there are, and how many of each standing.
    fn counts(&self) -> Vec<(&'static str, usize, Vec<Option<usize>>)> {
        let standings = self.standings();
        let line = |(kind, counts): (&super::Kind, &std::collections::BTreeMap<_, usize>)| {
            let each = standings.iter().map(|standing| counts.get(standing).copied()).collect();
            (kind.name(), counts.values().sum(), each)
        };
        self.findings.counts.iter().map(line).collect()
    }
}

/// Text for a page, what stands between backticks as code.
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

/// The page that leads to those of several papers.
#[derive(Template)]
#[template(path = "papers.html")]
struct IndexPage<'a> {
    papers: Vec<(&'a Findings, String)>,
}

impl Findings {
    /// One page that works offline.
    ///
    /// # Errors
    /// Those of the template.
    pub fn html(&self) -> Result<String> {
        let rows = self.paper.claims.iter().zip(&self.rows).collect();
        PaperPage { findings: self, rows }.render().map_err(Error::Page)
    }

    /// A page that leads to those of several papers.
    ///
    /// # Errors
    /// Those of the template.
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
