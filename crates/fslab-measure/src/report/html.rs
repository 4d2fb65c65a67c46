//! The page: one file that asks nothing of any network.

use super::{Renderer, Report};

/// The registry's entry.
pub(super) const SPEC: Renderer = Renderer {
    name: "html",
    help: "one page with charts, offline",
    render: |r: &Report| Ok(r.provenance.plan_name.clone()),
};
