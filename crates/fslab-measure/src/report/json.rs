//! The computed model as JSON, for programmes.

use super::Renderer;
use crate::error::Error;

/// The registry's entry.
pub(super) const SPEC: Renderer = Renderer {
    name: "json",
    help: "the computed model, for programmes",
    render: |report| serde_json::to_string_pretty(report).map_err(Error::Encode),
};
