//! Renders a JSON list of names, values and units, for the benchmark dashboards of code hosts.
//! github-action-benchmark accepts this list for its tools `customSmallerIsBetter` and
//! `customBiggerIsBetter`.

use serde::Serialize;

use super::model::{Group, MetricRow, Report, Row};
use super::{Renderer, words};
use crate::error::{Error, Result};
use crate::sample::Better;
use fslab_stats::Summary;

pub(super) const SMALLER: Renderer = Renderer {
    name: "smaller-is-better",
    help: "times and other figures for which less is better, for benchmark dashboards",
    render: |report| render(report, Better::Less),
};

pub(super) const BIGGER: Renderer = Renderer {
    name: "bigger-is-better",
    help: "rates that workloads measured themselves, for benchmark dashboards",
    render: |report| render(report, Better::More),
};

/// One figure, as dashboards read it.
#[derive(Serialize)]
struct Entry {
    name: String,
    value: f64,
    unit: String,
    /// The standard deviation of the samples.
    range: String,
    /// The ratio to the baseline.
    #[serde(skip_serializing_if = "String::is_empty")]
    extra: String,
}

fn render(report: &Report, better: Better) -> Result<Vec<u8>> {
    let mut entries = Vec::new();
    for group in report.phases() {
        for row in &group.rows {
            entries.extend((better == Better::Less).then(|| elapsed(group, row)));
            let metrics = row.metrics.iter().filter(|metric| metric.better == better);
            entries.extend(metrics.map(|metric| of_metric(group, row, metric)));
        }
    }
    serde_json::to_vec_pretty(&entries).map_err(Error::Encode)
}

fn elapsed(group: &Group, row: &Row) -> Entry {
    let extra = row.against.first().map(words::against).unwrap_or_default();
    entry(group, row, ("elapsed", "s"), &row.seconds, extra)
}

fn of_metric(group: &Group, row: &Row, metric: &MetricRow) -> Entry {
    let extra = metric.against.first().map(words::against).unwrap_or_default();
    entry(group, row, (&metric.metric, &metric.unit), &metric.summary, extra)
}

fn entry(
    group: &Group,
    row: &Row,
    (metric, unit): (&str, &str),
    summary: &Summary,
    extra: String,
) -> Entry {
    Entry {
        name: format!("{}, {} on {}: {metric}", group.workload, group.name(), row.target),
        value: summary.median,
        unit: unit.to_owned(),
        range: format!("\u{b1} {}", summary.standard_deviation),
        extra: extra.trim().to_owned(),
    }
}
