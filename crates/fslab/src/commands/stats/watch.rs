//! `fslab stats --watch`: shows the counts of a mount's layers in each interval.

use std::time::Duration;

use fslab_layers::{Bucket, Latency, Measure, OperationReport, Report};

/// Returns the difference between two reports of the same layers. Gauges, such as bytes in memory,
/// are taken from the later report.
pub fn between(before: &[Report], after: &[Report]) -> Vec<Report> {
    after.iter().map(|later| since(before, later)).collect()
}

/// Returns the heading for the tables of an interval.
pub fn heading(interval: Duration) -> String {
    let now = jiff::Zoned::now().strftime("%H:%M:%S").to_string();
    format!("{now}, the last {:.1} s", interval.as_secs_f64())
}

fn since(before: &[Report], later: &Report) -> Report {
    let is_same = |one: &&Report| one.position == later.position && one.layer == later.layer;
    let Some(earlier) = before.iter().find(is_same) else { return later.clone() };
    let operations = later.operations.iter().filter_map(|operation| {
        let name = &operation.operation;
        let first = earlier.operations.iter().find(|one| one.operation == *name);
        // With `-o keep`, the counters restart at zero when the daemon is replaced.
        let first = first.filter(|first| first.count <= operation.count);
        let counted = first.map_or_else(|| operation.clone(), |first| of_both(first, operation));
        (counted.count > 0 || counted.in_flight > 0).then_some(counted)
    });
    let measures = later.measures.iter().map(|measure| {
        let first = earlier
            .measures
            .iter()
            .find(|one| (&one.name, &one.labels) == (&measure.name, &measure.labels));
        let first = first.filter(|first| first.value <= measure.value);
        let counted = first.filter(|_| measure.rising).map_or(0, |first| first.value);
        Measure { value: measure.value.saturating_sub(counted), ..measure.clone() }
    });
    Report { operations: operations.collect(), measures: measures.collect(), ..later.clone() }
}

fn of_both(first: &OperationReport, last: &OperationReport) -> OperationReport {
    let errors = last.errors.iter().filter_map(|(name, count)| {
        let more = count.saturating_sub(first.errors.get(name).copied().unwrap_or(0));
        (more > 0).then(|| (name.clone(), more))
    });
    OperationReport {
        operation: last.operation.clone(),
        count: last.count.saturating_sub(first.count),
        in_flight: last.in_flight,
        bytes: last.bytes.saturating_sub(first.bytes),
        errors: errors.collect(),
        latency: latency_between(&first.latency, &last.latency),
    }
}

/// Returns the latencies during an interval. The maximum is an estimate: the upper bound of the
/// highest bucket.
fn latency_between(first: &Latency, last: &Latency) -> Latency {
    let counted_before = |upper_ns: u64| {
        let same = first.buckets.iter().find(|bucket| bucket.upper_ns == upper_ns);
        same.map_or(0, |bucket| bucket.count)
    };
    let more = last.buckets.iter().map(|bucket| Bucket {
        count: bucket.count.saturating_sub(counted_before(bucket.upper_ns)),
        ..*bucket
    });
    let buckets: Vec<Bucket> = more.filter(|bucket| bucket.count > 0).collect();
    let longest_ns = buckets.iter().map(|bucket| bucket.upper_ns).max().unwrap_or(0);
    let max_ns = longest_ns.min(last.max_ns);
    let at_most = |of_thousand| percentile(&buckets, of_thousand).min(max_ns);
    Latency {
        sum_ns: last.sum_ns.saturating_sub(first.sum_ns),
        max_ns,
        p50_ns: at_most(500),
        p90_ns: at_most(900),
        p99_ns: at_most(990),
        p999_ns: at_most(999),
        buckets,
    }
}

/// Returns a latency that `of_thousand` of 1000 operations did not exceed: the upper bound of a
/// bucket. The buckets must be sorted.
fn percentile(buckets: &[Bucket], of_thousand: u64) -> u64 {
    let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let wanted = (all * of_thousand).div_ceil(1000).max(1);
    let mut passed = 0;
    let reached = buckets.iter().find(|bucket| {
        passed += bucket.count;
        passed >= wanted
    });
    reached.map_or(0, |bucket| bucket.upper_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(count: u64, buckets: &[(u64, u64)], value: u64) -> Report {
        let buckets =
            buckets.iter().map(|(upper_ns, count)| Bucket { upper_ns: *upper_ns, count: *count });
        let latency = Latency {
            sum_ns: count * 100,
            max_ns: 900,
            buckets: buckets.collect(),
            ..Latency::default()
        };
        let operation = OperationReport {
            operation: "read".to_owned(),
            count,
            bytes: count * 10,
            errors: [("EIO".to_owned(), count / 2)].into(),
            latency,
            ..OperationReport::default()
        };
        let held = Measure { rising: false, ..Measure::counter("held_bytes", "", value) };
        Report {
            position: 1,
            operations: vec![operation],
            measures: vec![Measure::counter("records", "", value), held],
            ..Report::default()
        }
    }

    #[test]
    fn interval_report_contains_only_its_own_operations() {
        let before = report(100, &[(10, 90), (1000, 10)], 7);
        let after = report(104, &[(10, 91), (20, 3), (1000, 10)], 9);
        let found = &between(std::slice::from_ref(&before), &[after])[0];
        let read = &found.operations[0];
        assert_eq!((read.count, read.bytes, read.errors["EIO"]), (4, 40, 2));
        let Latency { sum_ns, max_ns, p50_ns, p99_ns, .. } = read.latency;
        assert_eq!((sum_ns, max_ns, p50_ns, p99_ns), (400, 20, 20, 20));
        assert_eq!(found.measures.iter().map(|one| one.value).collect::<Vec<_>>(), [2, 9]);
        let quiet = &between(std::slice::from_ref(&before), std::slice::from_ref(&before))[0];
        assert!(quiet.operations.is_empty(), "{quiet:?}");
    }
}
