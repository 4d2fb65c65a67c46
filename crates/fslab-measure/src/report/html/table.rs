//! The table behind a chart: every figure of the model, sortable by each column.

use super::super::format::{bytes, percent, rate, seconds};
use super::super::model::{Group, Row};
use crate::sample::CacheState;

/// A table of figures.
pub(super) struct Table {
    pub headings: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
}

/// A figure as read, and as sorted.
pub(super) struct Cell {
    pub text: String,
    pub value: String,
}

impl Cell {
    fn word(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { value: text.clone(), text }
    }

    fn number(text: String, value: f64) -> Self {
        Self { text, value: value.to_string() }
    }

    fn absent() -> Self {
        Self { text: "\u{2013}".to_owned(), value: String::new() }
    }

    fn optional(value: Option<f64>, text: impl Fn(f64) -> String) -> Self {
        value.map_or_else(Self::absent, |value| Self::number(text(value), value))
    }
}

/// A column: its heading and its cell for a row.
type Column = (&'static str, fn(&Group, &Row) -> Cell);

const COLUMNS: &[Column] = &[
    ("target", |_, row| Cell::word(row.target.clone())),
    ("size", |group, _| {
        Cell::optional(group.size_bytes.map(|size| size as f64), |size| bytes(size as u64))
    }),
    ("runs", |_, row| Cell::number(row.seconds.count.to_string(), row.seconds.count as f64)),
    ("median", |_, row| time(row.seconds.median)),
    ("mean", |_, row| time(row.seconds.mean)),
    ("SD", |_, row| time(row.seconds.standard_deviation)),
    ("SD/mean", |_, row| Cell::number(percent(row.seconds.variation), row.seconds.variation)),
    ("least", |_, row| time(row.seconds.minimum)),
    ("most", |_, row| time(row.seconds.maximum)),
    ("ratio", |_, row| {
        Cell::optional(row.ratio.map(|ratio| ratio.ratio), |ratio| format!("{ratio:.3}"))
    }),
    ("from", |_, row| Cell::optional(row.ratio.map(|ratio| ratio.low), |low| format!("{low:.3}"))),
    ("to", |_, row| Cell::optional(row.ratio.map(|ratio| ratio.high), |high| format!("{high:.3}"))),
    ("each", |_, row| Cell::optional(row.seconds_per_operation(), seconds)),
    ("speed", |_, row| Cell::optional(row.bytes_per_second(), rate)),
    ("flushing", |_, row| time(row.means.flush_seconds)),
    ("user", |_, row| time(row.means.user_seconds)),
    ("system", |_, row| time(row.means.system_seconds)),
    ("daemon", |_, row| Cell::optional(row.means.daemon_seconds, seconds)),
    ("reads", |_, row| device(row, |device| device.reads, count)),
    ("read", |_, row| device(row, |device| device.bytes_read, size)),
    ("writes", |_, row| device(row, |device| device.writes, count)),
    ("written", |_, row| device(row, |device| device.bytes_written, size)),
    ("flushes", |_, row| device(row, |device| device.flushes, count)),
    ("cache", |group, row| Cell::word(cache(group, row))),
    ("disturbed", |_, row| Cell::number(row.contaminated.to_string(), row.contaminated as f64)),
];

/// The table of some groups: one phase, or the points of a sweep. Columns without a figure are
/// left out.
pub(super) fn of(groups: &[&Group]) -> Table {
    let rows = || groups.iter().flat_map(|group| group.rows.iter().map(move |row| (*group, row)));
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .filter(|(_, cell)| rows().any(|(group, row)| !cell(group, row).value.is_empty()))
        .collect();
    Table {
        headings: columns.iter().map(|(heading, _)| *heading).collect(),
        rows: rows()
            .map(|(group, row)| columns.iter().map(|(_, cell)| cell(group, row)).collect())
            .collect(),
    }
}

fn time(value: f64) -> Cell {
    Cell::number(seconds(value), value)
}

fn device(
    row: &Row,
    part: fn(&super::super::model::DeviceMeans) -> f64,
    text: fn(f64) -> String,
) -> Cell {
    Cell::optional(row.means.device.as_ref().map(part), text)
}

fn count(value: f64) -> String {
    format!("{value:.0}")
}

fn size(value: f64) -> String {
    bytes(value.round() as u64)
}

fn cache(group: &Group, row: &Row) -> String {
    let state = match group.cache {
        CacheState::NotAsked => return String::new(),
        CacheState::Cold => "cold",
        CacheState::Warm => "warm",
    };
    format!("{state}, proven {}/{}", row.proven, row.seconds.count)
}
