//! The page: one file that asks nothing of any network, with a table behind every chart.
//!
//! The template escapes every text; what is inserted unescaped are charts, which are made here
//! of numbers and escaped names. The content security policy admits only this page's own style
//! and script.

mod chart;
mod matrix;
mod page;
mod table;

use askama::Template;

use super::{Renderer, Report};
use crate::error::{Error, Result};

/// The registry's entry.
pub(super) const SPEC: Renderer = Renderer {
    name: "html",
    help: "one page with charts, which works offline",
    render: |report| Ok(render(report)?.into_bytes()),
};

pub(super) fn render(report: &Report) -> Result<String> {
    page::Page::new(report).render().map_err(Error::Page)
}
