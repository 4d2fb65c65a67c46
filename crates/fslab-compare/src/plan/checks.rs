//! What the parts of a plan are checked by.

use std::collections::HashSet;

use fslab_stats::Margin;
use toml::Spanned;

use super::source::{PlanError, Source};

pub(super) type Result<T> = std::result::Result<T, PlanError>;

/// A margin, of the plan or a target.
pub(super) fn margin(source: &Source<'_>, raw: Option<&Spanned<String>>) -> Result<Option<Margin>> {
    let read = |raw: &Spanned<String>| {
        let margin = raw.get_ref().parse();
        margin.map_err(|wrong| source.error(raw.span(), format!("`margin`: {wrong}")))
    };
    raw.map(read).transpose()
}

/// Refuses a name that occurs twice.
pub(super) fn unique<'a>(
    source: &Source<'_>,
    names: impl Iterator<Item = (&'a str, std::ops::Range<usize>)>,
) -> Result<()> {
    let mut seen = HashSet::new();
    for (name, span) in names {
        if !seen.insert(name) {
            return Err(source.error(
                span,
                format!("`name`: `{name}` is used twice (a workload may be given a `label`)"),
            ));
        }
    }
    Ok(())
}
