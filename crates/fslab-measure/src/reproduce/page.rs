//! The pages: a paper's, and the index of several. The templates escape every text.

use askama::Template;

use super::claims::Claim;
use super::findings::{Findings, Row};

/// The page of a paper.
#[derive(Template)]
#[template(path = "paper.html")]
pub(super) struct PaperPage<'a> {
    findings: &'a Findings,
    rows: Vec<(&'a Claim, &'a Row)>,
    summary: String,
}

impl<'a> PaperPage<'a> {
    pub fn new(findings: &'a Findings) -> Self {
        let rows = findings.paper.claims.iter().zip(&findings.rows).collect();
        Self { findings, rows, summary: findings.summary() }
    }
}

/// The page that leads to those of several papers.
#[derive(Template)]
#[template(path = "papers.html")]
pub(super) struct IndexPage<'a> {
    papers: Vec<(&'a Findings, String)>,
}

impl<'a> IndexPage<'a> {
    pub fn new(all: &'a [Findings]) -> Self {
        Self { papers: all.iter().map(|findings| (findings, findings.summary())).collect() }
    }
}
