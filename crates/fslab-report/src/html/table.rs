//! The table behind a chart: every figure of the model, sortable by each column.

use super::super::format::{bytes, percent, rate, seconds};
use super::super::model::{Against, DeviceMeans, Group, MetricRow, Report, Row};
use super::super::{metrics, words};
use fslab_stats::RatioInterval;

pub(super) struct Table {
    pub headings: Vec<Heading>,
    pub rows: Vec<Vec<Cell>>,
}

/// The name of a column, and the baseline to which it belongs, if any.
#[derive(Clone)]
pub(super) struct Heading {
    pub text: String,
    pub baseline: Option<usize>,
}

/// A figure: the text that is shown, and the value for sorting.
pub(super) struct Cell {
    pub text: String,
    pub value: String,
    pub baseline: Option<usize>,
}

impl Cell {
    fn word(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { value: text.clone(), text, baseline: None }
    }

    fn number(text: String, value: f64) -> Self {
        Self { text, value: value.to_string(), baseline: None }
    }

    fn absent() -> Self {
        Self { text: "\u{2013}".to_owned(), value: String::new(), baseline: None }
    }

    fn optional(value: Option<f64>, text: impl Fn(f64) -> String) -> Self {
        value.map_or_else(Self::absent, |value| Self::number(text(value), value))
    }
}

/// Makes a column's cell for a row.
type MakeCell = dyn Fn(&Group, &Row) -> Cell;

struct Column {
    heading: Heading,
    cell: Box<MakeCell>,
}

fn column(heading: &str, cell: impl Fn(&Group, &Row) -> Cell + 'static) -> Column {
    Column { heading: Heading { text: heading.to_owned(), baseline: None }, cell: Box::new(cell) }
}

/// Makes the table of some groups: one phase, or the points of a sweep. Columns without a figure
/// are left out.
pub(super) fn of(groups: &[&Group], report: &Report) -> Table {
    let rows = || groups.iter().flat_map(|group| lines(group).map(move |row| (*group, row)));
    let columns: Vec<Column> = columns(report)
        .into_iter()
        .filter(|column| rows().any(|(group, row)| !(column.cell)(group, row).value.is_empty()))
        .collect();
    Table {
        headings: columns.iter().map(|column| column.heading.clone()).collect(),
        rows: rows()
            .map(|(group, row)| {
                let cell = |column: &Column| Cell {
                    baseline: column.heading.baseline,
                    ..(column.cell)(group, row)
                };
                columns.iter().map(cell).collect()
            })
            .collect(),
    }
}

/// Returns the rows of a group. A row that combines several machines is followed by one row for
/// each machine.
fn lines(group: &Group) -> impl Iterator<Item = &Row> {
    group.rows.iter().flat_map(|row| words::lines(row).map(|(row, _)| row))
}

/// Makes the table of latencies; `None` if they were not measured.
pub(super) fn of_latencies(groups: &[&Group], report: &Report) -> Option<Table> {
    let heading = |text: &&str| Heading { text: (*text).to_owned(), baseline: None };
    let headings =
        ["target", "size", "operation", "count", "p50", "p90", "p99", "p99.9", "longest"];
    let mut rows = Vec::new();
    for group in groups {
        let size = group.size_bytes.map(|size| size as f64);
        for row in lines(group).filter(|row| !row.is_pooled()) {
            for latency in &row.latencies {
                let of_several = |name: &&String| report.machines.len() > 1 && !name.is_empty();
                let machine = report.machines.get(row.machine).filter(of_several);
                let on = machine.map(|name| format!(" on {name}")).unwrap_or_default();
                rows.push(vec![
                    Cell::word(row.target.clone() + &on),
                    Cell::optional(size, |size| bytes(size as u64)),
                    Cell::word(latency.operation.clone()),
                    Cell::number(latency.count.to_string(), latency.count as f64),
                    time(latency.p50_seconds),
                    time(latency.p90_seconds),
                    time(latency.p99_seconds),
                    time(latency.p999_seconds),
                    time(latency.max_seconds),
                ]);
            }
        }
    }
    (!rows.is_empty()).then(|| Table { headings: headings.iter().map(heading).collect(), rows })
}

/// Makes the table of a phase's metrics; `None` if it has none.
pub(super) fn of_metrics(group: &Group, report: &Report) -> Option<Table> {
    let heading = |text: &str, baseline| Heading { text: text.to_owned(), baseline };
    let mut headings: Vec<Heading> =
        ["metric", "target", "median", "SD/mean"].map(|text| heading(text, None)).into();
    for (index, name) in report.baselines.iter().enumerate() {
        let texts = [&*format!("ratio to {name}"), "from", "to", "p", "verdict"];
        headings.extend(texts.map(|text| heading(text, Some(index))));
    }
    headings.push(heading("noise floor", None));
    let cells = |(row, metric): (&Row, &MetricRow)| metric_cells(group, row, metric);
    let rows: Vec<Vec<Cell>> = metrics::by_name(group).map(cells).collect();
    (!rows.is_empty()).then_some(Table { headings, rows })
}

fn metric_cells(group: &Group, row: &Row, metric: &MetricRow) -> Vec<Cell> {
    let mut cells = vec![
        Cell::word(metric.metric.clone()),
        Cell::word(row.target.clone()),
        Cell::number(words::metric_figure(metric), metric.summary.median),
        Cell::number(percent(metric.summary.variation), metric.summary.variation),
    ];
    for (index, against) in metric.against.iter().enumerate() {
        let ratio = |part: fn(&RatioInterval) -> f64| {
            Cell::optional(against.ratio.as_ref().map(part), |value| format!("{value:.3}"))
        };
        let of_baseline = [
            ratio(|ratio| ratio.ratio),
            ratio(|ratio| ratio.low),
            ratio(|ratio| ratio.high),
            Cell::optional(against.p_adjusted, |_| words::p_value(against)),
            Cell::word(words::metric_verdict(metric, against)),
        ];
        cells.extend(of_baseline.map(|cell| Cell { baseline: Some(index), ..cell }));
    }
    cells.push(Cell::word(words::metric_floor(group, metric)));
    cells
}

fn columns(report: &Report) -> Vec<Column> {
    let mut columns = names(report);
    columns.extend(times().into_iter().map(of_one_machine));
    for (index, name) in report.baselines.iter().enumerate() {
        columns.extend(against(index, name));
    }
    columns.extend(noise_floor());
    columns.extend(counters().into_iter().map(of_one_machine));
    columns
}

fn names(report: &Report) -> Vec<Column> {
    let machines = report.machines.clone();
    let machine = move |_: &Group, row: &Row| match machines.get(row.machine) {
        _ if machines.len() < 2 => Cell::absent(),
        _ if row.is_pooled() => Cell::word("all"),
        name => Cell::word(name.cloned().unwrap_or_default()),
    };
    vec![
        column("target", |_, row| Cell::word(row.target.clone())),
        column("machine", machine),
        column("size", |group, _| {
            Cell::optional(group.size_bytes.map(|size| size as f64), |size| bytes(size as u64))
        }),
        column("runs", |_, row| Cell::number(row.count().to_string(), row.count() as f64)),
    ]
}

/// Leaves the column empty in rows that combine several machines, because times and counters are
/// not combined.
fn of_one_machine(column: Column) -> Column {
    let cell = move |group: &Group, row: &Row| {
        if row.is_pooled() { Cell::absent() } else { (column.cell)(group, row) }
    };
    Column { heading: column.heading, cell: Box::new(cell) }
}

fn times() -> Vec<Column> {
    vec![
        column("median", |_, row| time(row.seconds.median)),
        column("mean", |_, row| time(row.seconds.mean)),
        column("SD", |_, row| time(row.seconds.standard_deviation)),
        column("SD/mean", |_, row| {
            Cell::number(percent(row.seconds.variation), row.seconds.variation)
        }),
        column("least", |_, row| time(row.seconds.minimum)),
        column("most", |_, row| time(row.seconds.maximum)),
    ]
}

/// Returns the columns with the ratios to a baseline.
fn against(index: usize, name: &str) -> Vec<Column> {
    let of = move |part: fn(&Against) -> Option<f64>| {
        move |_: &Group, row: &Row| {
            let value = row.against.get(index).and_then(part);
            Cell::optional(value, |value| format!("{value:.3}"))
        }
    };
    let mut columns = vec![
        column(&format!("ratio to {name}"), of(|against| Some(against.ratio?.ratio))),
        column("from", of(|against| Some(against.ratio?.low))),
        column("to", of(|against| Some(against.ratio?.high))),
        column("p", move |_, row| {
            let against = row.against.get(index);
            let value = against.and_then(|against| against.p_adjusted);
            Cell::optional(value, |_| against.map(words::p_value).unwrap_or_default())
        }),
    ];
    columns.push(column("verdict", move |_, row| {
        let words = |against: &Against| words::verdict(against) + words::noise_mark(against);
        Cell::word(row.against.get(index).map(words).unwrap_or_default())
    }));
    for column in &mut columns {
        column.heading.baseline = Some(index);
    }
    columns
}

/// Returns the columns of the noise floor: a hidden second copy of the baseline against the
/// baseline.
fn noise_floor() -> Vec<Column> {
    let of = |part: fn(&RatioInterval) -> f64| {
        move |group: &Group, _: &Row| {
            let ratio = group.noise_floor.as_ref().map(|floor| part(&floor.ratio));
            Cell::optional(ratio, |value| format!("{value:.3}"))
        }
    };
    vec![
        column("noise floor", of(|ratio| ratio.ratio)),
        column("from", of(|ratio| ratio.low)),
        column("to", of(|ratio| ratio.high)),
    ]
}

fn counters() -> Vec<Column> {
    vec![
        column("each", |_, row| Cell::optional(row.seconds_per_operation(), seconds)),
        column("speed", |_, row| Cell::optional(row.bytes_per_second(), rate)),
        column("flushing", |_, row| time(row.means.flush_seconds)),
        column("user", |_, row| time(row.means.user_seconds)),
        column("system", |_, row| time(row.means.system_seconds)),
        column("daemon", |_, row| Cell::optional(row.means.daemon_seconds, seconds)),
        column("FUSE requests", |_, row| Cell::optional(row.means.fuse_requests, count)),
        column("reads", |_, row| device(row, |device| device.reads, count)),
        column("read", |_, row| device(row, |device| device.bytes_read, size)),
        column("writes", |_, row| device(row, |device| device.writes, count)),
        column("written", |_, row| device(row, |device| device.bytes_written, size)),
        column("merged", |_, row| device(row, |device| device.merged, count)),
        column("flushes", |_, row| device(row, |device| device.flushes, count)),
        column("stored", |_, row| Cell::optional(row.means.stored_bytes, size)),
        column("in use", |_, row| Cell::optional(row.means.used_bytes, size)),
        column("cache", |group, row| Cell::word(words::cache(group, row))),
        column("disturbed", |_, row| {
            Cell::number(row.contaminated.to_string(), row.contaminated as f64)
        }),
        column("outliers", |_, row| {
            let found = row.points.iter().filter(|point| point.outlier).count();
            Cell::number(found.to_string(), found as f64)
        }),
    ]
}

fn time(value: f64) -> Cell {
    Cell::number(seconds(value), value)
}

fn device(row: &Row, part: fn(&DeviceMeans) -> f64, text: fn(f64) -> String) -> Cell {
    Cell::optional(row.means.device.as_ref().map(part), text)
}

fn count(value: f64) -> String {
    format!("{value:.0}")
}

fn size(value: f64) -> String {
    bytes(value.round() as u64)
}
