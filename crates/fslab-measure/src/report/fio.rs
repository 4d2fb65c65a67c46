//! The shape of fio's JSON output, for programmes that read that: a job for each phase (or size)
//! on each target, over all its rounds.
//!
//! fio knows no phases. A phase that asks for a state of the cache is a read, every other one a
//! write, which is what phases of workloads are. What fslab does not measure (submission
//! latencies, context switches) is 0 there, as fio writes what it did not measure.

use serde_json::{Value, json};

use super::model::{Group, Report, Row};
use super::{Renderer, format};
use crate::error::{Error, Result};
use crate::sample::CacheState;
use crate::stats::Summary;

/// The registry's entry.
pub(super) const SPEC: Renderer = Renderer {
    name: "fio",
    help: "the shape of fio's JSON output, for programmes that read that",
    render: |report| Ok(render(report)?.into_bytes()),
};

fn render(report: &Report) -> Result<String> {
    let leaves = report.groups.iter().filter(|group| !group.is_sum);
    let jobs: Vec<Value> =
        leaves.flat_map(|group| group.rows.iter().map(move |row| job(group, row))).collect();
    let output = json!({
        "fio version": "fio-3.33",
        "made by": format!("fslab {}", report.provenance.fslab),
        "time": report.provenance.started,
        "global options": { "seed": report.provenance.seed.to_string() },
        "jobs": jobs,
    });
    serde_json::to_string_pretty(&output).map_err(Error::Encode)
}

fn job(group: &Group, row: &Row) -> Value {
    let size = group.size_bytes.map(|size| format!(" {}", format::bytes(size)));
    let reads = group.cache != CacheState::NotAsked;
    let (used, idle) = (direction(row), direction_without_work());
    let (read, write) = if reads { (&used, &idle) } else { (&idle, &used) };
    let wall = row.seconds.mean.max(1e-9);
    json!({
        "jobname": format!(
            "{}: {} {}{}", row.target, group.workload, group.phase, size.unwrap_or_default()
        ),
        "groupid": 0,
        "error": 0,
        "elapsed": total(row).ceil() as u64,
        "job options": { "name": group.workload, "filename": row.target },
        "read": read,
        "write": write,
        "trim": &idle,
        "sync": { "total_ios": 0 },
        "job_runtime": (total(row) * 1e3) as u64,
        "usr_cpu": row.means.user_seconds / wall * 100.0,
        "sys_cpu": row.means.system_seconds / wall * 100.0,
        "ctx": 0,
        "majf": 0,
        "minf": 0,
    })
}

fn total(row: &Row) -> f64 {
    row.seconds.mean * row.seconds.count as f64
}

/// Bandwidths are in KiB a second, as fio's are.
fn direction(row: &Row) -> Value {
    let runs = row.seconds.count as u64;
    let (bytes, operations) = (row.bytes * runs, row.operations * runs);
    let each = |amount: u64| -> Vec<f64> {
        row.points.iter().map(|point| amount as f64 / point.seconds.max(1e-9)).collect()
    };
    let bandwidth = described(&each(row.bytes), 1024.0);
    let rate = described(&each(row.operations), 1.0);
    let latency: Vec<f64> =
        row.points.iter().map(|point| point.seconds * 1e9 / row.operations.max(1) as f64).collect();
    let latency = described(&latency, 1.0);
    let seconds = total(row).max(1e-9);
    json!({
        "io_bytes": bytes,
        "io_kbytes": bytes / 1024,
        "bw_bytes": (bytes as f64 / seconds) as u64,
        "bw": (bytes as f64 / seconds / 1024.0) as u64,
        "iops": operations as f64 / seconds,
        "runtime": (total(row) * 1e3) as u64,
        "total_ios": operations,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": nothing(),
        "clat_ns": nothing(),
        "lat_ns": {
            "min": latency.minimum as u64, "max": latency.maximum as u64, "mean": latency.mean,
            "stddev": latency.standard_deviation, "N": operations,
        },
        "bw_min": bandwidth.minimum as u64,
        "bw_max": bandwidth.maximum as u64,
        "bw_agg": 100.0,
        "bw_mean": bandwidth.mean,
        "bw_dev": bandwidth.standard_deviation,
        "bw_samples": runs,
        "iops_min": rate.minimum as u64,
        "iops_max": rate.maximum as u64,
        "iops_mean": rate.mean,
        "iops_stddev": rate.standard_deviation,
        "iops_samples": runs,
    })
}

fn nothing() -> Value {
    json!({ "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 })
}

fn direction_without_work() -> Value {
    json!({
        "io_bytes": 0, "io_kbytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0, "runtime": 0,
        "total_ios": 0, "short_ios": 0, "drop_ios": 0,
        "slat_ns": nothing(), "clat_ns": nothing(), "lat_ns": nothing(),
        "bw_min": 0, "bw_max": 0, "bw_agg": 0.0, "bw_mean": 0.0, "bw_dev": 0.0, "bw_samples": 0,
        "iops_min": 0, "iops_max": 0, "iops_mean": 0.0, "iops_stddev": 0.0, "iops_samples": 0,
    })
}

/// Values divided by a unit, described; a row has at least one.
fn described(values: &[f64], unit: f64) -> Summary {
    let scaled: Vec<f64> = values.iter().map(|value| value / unit).collect();
    Summary::of(&scaled).unwrap_or_default()
}
