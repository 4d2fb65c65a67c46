//! Reports: a model computed from samples alone, and one renderer a file.
//!
//! A new renderer is one file with a `SPEC` and a line in [`RENDERERS`].

mod format;
mod html;
mod json;
mod model;
mod terminal;
mod why;

use crate::error::Result;

pub use model::{Group, Point, Report, Row};

/// Every renderer.
pub const RENDERERS: &[&Renderer] = &[&terminal::SPEC, &html::SPEC, &json::SPEC];

/// A renderer as the registry knows it.
#[derive(Debug)]
pub struct Renderer {
    /// Its name.
    pub name: &'static str,
    /// One line: what it makes.
    pub help: &'static str,
    /// Makes it.
    pub render: fn(&Report) -> Result<String>,
}

/// The terminal's tables.
///
/// # Errors
/// None at present; the signature is every renderer's.
pub fn terminal(report: &Report) -> Result<String> {
    (terminal::SPEC.render)(report)
}

/// The page.
///
/// # Errors
/// Those of the template.
pub fn html(report: &Report) -> Result<String> {
    (html::SPEC.render)(report)
}

/// The model as JSON.
///
/// # Errors
/// Those of the encoder.
pub fn json(report: &Report) -> Result<String> {
    (json::SPEC.render)(report)
}
