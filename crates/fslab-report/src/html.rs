//! The HTML page: one file that loads nothing from the network. A table with the numbers of each
//! chart can be unfolded.
//!
//! The template escapes every text. Only charts are inserted unescaped; they are made here from
//! numbers and escaped names. The content security policy permits only this page's own style and
//! script.

mod chart;
mod matrix;
mod page;
mod table;

use askama::Template;

use super::{Renderer, Report};
use crate::error::{Error, Result};

pub(super) const SPEC: Renderer = Renderer {
    name: "html",
    help: "one page with charts, which works offline",
    render: |report| Ok(render(report)?.into_bytes()),
};

pub(super) fn render(report: &Report) -> Result<String> {
    page::Page::new(report).render().map_err(Error::Page)
}
