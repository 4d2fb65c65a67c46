//! Renders the computed model as JSON, for programs.

use super::{Renderer, Report};
use crate::error::{Error, Result};

pub(super) const SPEC: Renderer = Renderer {
    name: "json",
    help: "the computed figures, for programs",
    render: |report| Ok(render(report)?.into_bytes()),
};

pub(super) fn render(report: &Report) -> Result<String> {
    serde_json::to_string_pretty(report).map_err(Error::Encode)
}
