//! The page: one file that asks nothing of any network, with a table behind every chart.
//!
//! The template escapes every text; what is inserted unescaped are charts, which are made here
//! of numbers and escaped names. The content security policy admits only this page's own style
//! and script.

mod chart;
pub(crate) mod drawing;
mod matrix;
mod page;
pub(crate) mod scale;
mod standalone;
mod table;

use askama::Template;

pub(crate) use standalone::standalone;

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

/// A text within markup.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The class that gives a target, or a series, its colour.
pub(crate) fn colour(index: usize) -> String {
    format!("t{}", index % 8)
}
