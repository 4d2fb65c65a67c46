//! Checks values that several tables of a plan may contain.

use fslab_stats::Margin;
use fslab_vfs::Size;
use toml::Spanned;

use super::source::{PlanError, Source};

pub(super) type Result<T> = std::result::Result<T, PlanError>;

/// Reads the margin of a plan, a target or a workload.
pub(super) fn margin(source: &Source<'_>, raw: Option<&Spanned<String>>) -> Result<Option<Margin>> {
    let read = |raw: &Spanned<String>| {
        let margin = raw.get_ref().parse();
        margin.map_err(|wrong| source.error(raw.span(), format!("`margin`: {wrong}")))
    };
    raw.map(read).transpose()
}

/// Returns the plan's number after checking it, or the default if the plan has none.
pub(super) fn checked<T: Copy>(
    source: &Source<'_>,
    raw: Option<&Spanned<T>>,
    default: T,
    is_right: impl FnOnce(T) -> bool,
    wrong: impl Into<String>,
) -> Result<T> {
    match raw {
        Some(number) if !is_right(*number.get_ref()) => Err(source.error(number.span(), wrong)),
        number => Ok(number.map_or(default, |number| *number.get_ref())),
    }
}

/// Reads a size in bytes that must be at least `least`.
pub(super) fn size(
    source: &Source<'_>,
    key: &str,
    raw: &Spanned<String>,
    least: u64,
) -> Result<u64> {
    let wrong = |wrong: String| source.error(raw.span(), format!("`{key}`: {wrong}"));
    let text = raw.get_ref();
    let size: Size = text.parse().map_err(|error| wrong(format!("{text:?}: {error}")))?;
    if size.bytes() < least {
        return Err(wrong(format!("must be at least {}", Size::of(least))));
    }
    Ok(size.bytes())
}
