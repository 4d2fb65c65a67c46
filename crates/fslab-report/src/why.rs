//! Finds why-lines: the counters that differ, too, if a difference in time is shown. The module
//! `time_parts` finds a proven cause.
//!
//! A counter is listed if it differs from the baseline's by a relevant factor, in the same
//! direction as the time. A listed counter is not necessarily the cause of the difference.

use super::format::significant;
use super::model::{DeviceMeans, Row};

/// Minimum factor by which a counter must differ.
const FACTOR: f64 = 1.2;

/// The name of a counter, the counter, and the minimum value at which it is listed.
type Counter = (&'static str, fn(&Row) -> Option<f64>, f64);

const COUNTERS: [Counter; 10] = [
    ("the bytes written to the device", |row| device(row, |one| one.bytes_written), 65_536.0),
    ("the device writes", |row| device(row, |one| one.writes), 16.0),
    ("the bytes read from the device", |row| device(row, |one| one.bytes_read), 65_536.0),
    ("the device reads", |row| device(row, |one| one.reads), 16.0),
    ("the cache flushes of the device", |row| device(row, |one| one.flushes), 4.0),
    ("the time in which the device was busy", |row| device(row, |one| one.busy_seconds), 0.01),
    ("the FUSE requests", |row| row.means.fuse_requests, 16.0),
    ("the time in fsync and syncfs", |row| Some(row.means.flush_seconds), 0.002),
    ("the system time", |row| Some(row.means.system_seconds), 0.002),
    ("the processor time", |row| Some(processor_seconds(row)), 0.002),
];

/// Fills in the why-lines of a group's rows for each baseline.
pub(super) fn explain(rows: &mut [Row], baselines: &[String]) {
    for (index, name) in baselines.iter().enumerate() {
        let Some(baseline) = rows.iter().find(|row| row.target == *name).cloned() else { continue };
        for row in rows.iter_mut() {
            let alike = row.machine == baseline.machine;
            let lines = if alike { lines(row, &baseline, index) } else { Vec::new() };
            if let Some(against) = row.against.get_mut(index) {
                against.cause = against.cause.take().filter(|_| against.verdict.shows_difference());
                against.why = lines;
            }
        }
    }
}

fn lines(row: &Row, baseline: &Row, index: usize) -> Vec<String> {
    let Some(against) = row.against.get(index) else { return Vec::new() };
    let Some(ratio) = against.ratio.filter(|_| against.verdict.shows_difference()) else {
        return Vec::new();
    };
    let slower = ratio.ratio > 1.0;
    let mut lines: Vec<String> =
        COUNTERS.iter().filter_map(|counter| line(counter, row, baseline, slower)).collect();
    lines.extend(daemon_line(row).filter(|_| slower));
    lines.extend(requests_line(row, baseline).filter(|_| slower));
    lines
}

fn device(row: &Row, part: fn(&DeviceMeans) -> f64) -> Option<f64> {
    row.means.device.as_ref().map(part)
}

fn processor_seconds(row: &Row) -> f64 {
    row.means.user_seconds + row.means.system_seconds + row.means.daemon_seconds.unwrap_or(0.0)
}

fn line(counter: &Counter, row: &Row, baseline: &Row, slower: bool) -> Option<String> {
    let (name, of, least) = counter;
    let (own, base) = (of(row)?, of(baseline)?);
    if own.max(base) < *least {
        return None;
    }
    let factor = own / base.max(least / 100.0);
    let same_direction = if slower { factor >= FACTOR } else { factor <= 1.0 / FACTOR };
    let shown = if factor > 99.0 { "over 99".to_owned() } else { significant(factor) };
    same_direction.then(|| format!("{shown}\u{d7} {name}"))
}

/// Reports requests to a daemon if the baseline has no such counter.
fn requests_line(row: &Row, baseline: &Row) -> Option<String> {
    let requests = row.means.fuse_requests.filter(|_| baseline.means.fuse_requests.is_none())?;
    let each = requests / row.operations.max(1) as f64;
    (requests >= 16.0)
        .then(|| format!("{} requests to its daemon per operation", significant(each)))
}

/// Reports a daemon's share of the elapsed time if it is large.
fn daemon_line(row: &Row) -> Option<String> {
    let daemon = row.means.daemon_seconds?;
    let share = daemon / row.seconds.mean;
    (share > 0.1).then(|| format!("its daemon was busy for {:.0} % of the time", share * 100.0))
}
