//! Reports of layers in the text format of Prometheus, version 0.0.4.

use fslab_layers::{Latency, OperationReport, Report};

/// Bounds of latency buckets: powers of two from 2^10 ns (1 microsecond) to 2^34 ns (17 seconds),
/// which no bucket of a report straddles.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=34;

/// All layers of a mount.
pub fn render(mount_point: &str, layers: &[Report]) -> String {
    let mut page = Page { text: String::new(), mount_point, layers };
    type Figure = fn(&OperationReport) -> u64;
    let figures: [(_, _, _, Figure); 3] = [
        ("fslab_operations_total", "counter", "Operations that ended.", |each| each.count),
        ("fslab_operations_in_flight", "gauge", "Operations being done now.", |each| {
            each.in_flight
        }),
        ("fslab_operation_bytes_total", "counter", "Bytes read, written or copied.", |e| e.bytes),
    ];
    for (name, kind, help, figure) in figures {
        page.operations(name, kind, help, |each| vec![(String::new(), figure(each))]);
    }
    let help = "Operations that failed, by error.";
    page.operations("fslab_operation_errors_total", "counter", help, |each| {
        let of = |(name, count): (&String, &u64)| (format!(",errno=\"{}\"", escaped(name)), *count);
        each.errors.iter().map(of).collect()
    });
    page.latencies();
    page.measures();
    page.text
}

struct Page<'a> {
    text: String,
    mount_point: &'a str,
    layers: &'a [Report],
}

impl<'a> Page<'a> {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A family with samples for each operation: further labels, and the value.
    fn operations(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Fn(&OperationReport) -> Vec<(String, u64)>,
    ) {
        self.head(name, kind, help);
        for (labels, operation) in self.all() {
            for (more, value) in samples(operation) {
                self.text.push_str(&format!("{name}{{{labels}{more}}} {value}\n"));
            }
        }
    }

    fn latencies(&mut self) {
        const NAME: &str = "fslab_operation_duration_seconds";
        self.head(NAME, "histogram", "How long operations took.");
        for (labels, operation) in self.all() {
            for bound in BOUNDS {
                let (le, below) = (seconds(1 << bound), below(&operation.latency, 1 << bound));
                self.text.push_str(&format!("{NAME}_bucket{{{labels},le=\"{le}\"}} {below}\n"));
            }
            let all = below(&operation.latency, u64::MAX);
            let sum = seconds(operation.latency.sum_ns);
            self.text.push_str(&format!(
                "{NAME}_bucket{{{labels},le=\"+Inf\"}} {all}\n\
                 {NAME}_sum{{{labels}}} {sum}\n{NAME}_count{{{labels}}} {all}\n"
            ));
        }
    }

    fn measures(&mut self) {
        for layer in self.layers {
            for measure in &layer.measures {
                let total = if measure.rising { "_total" } else { "" };
                let kind = if measure.rising { "counter" } else { "gauge" };
                let name = format!("fslab_layer_{}{total}", measure.name);
                if !self.text.contains(&format!("# TYPE {name} ")) {
                    self.head(&name, kind, &measure.help);
                }
                let labels = self.labels(layer);
                self.text.push_str(&format!("{name}{{{labels}}} {}\n", measure.value));
            }
        }
    }

    /// Every operation of every layer, with its labels.
    fn all(&self) -> Vec<(String, &'a OperationReport)> {
        let mut all = Vec::new();
        for layer in self.layers {
            let labels = self.labels(layer);
            all.extend(layer.operations.iter().map(|operation| {
                let name = escaped(&operation.operation);
                (format!("{labels},operation=\"{name}\""), operation)
            }));
        }
        all
    }

    fn labels(&self, layer: &Report) -> String {
        format!(
            "mount_point=\"{}\",layer=\"{}\",position=\"{}\"",
            escaped(self.mount_point),
            escaped(&layer.layer),
            layer.position
        )
    }
}

fn below(latency: &Latency, bound_ns: u64) -> u64 {
    let fits = latency.buckets.iter().filter(|bucket| bucket.upper_ns < bound_ns);
    fits.map(|bucket| bucket.count).sum()
}

fn seconds(ns: u64) -> String {
    format!("{}", ns as f64 / 1e9)
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use fslab_layers::{Bucket, Measure};

    use super::*;

    #[test]
    fn buckets_are_cumulative_and_labels_escaped() {
        let buckets =
            vec![Bucket { upper_ns: 1023, count: 2 }, Bucket { upper_ns: 2047, count: 3 }];
        let operation = OperationReport {
            operation: "read".into(),
            count: 5,
            errors: [("EIO".to_owned(), 1)].into(),
            latency: Latency { sum_ns: 1_500_000_000, buckets, ..Latency::default() },
            ..OperationReport::default()
        };
        let layer = Report {
            position: 1,
            layer: "stats".into(),
            operations: vec![operation],
            measures: vec![Measure::counter("records", "operations recorded", 7)],
            ..Report::default()
        };
        let text = render("/a\"b", &[layer]);
        let labels = "mount_point=\"/a\\\"b\",layer=\"stats\",position=\"1\"";
        let of = |rest: &str| format!("{{{labels},operation=\"read\"{rest}}}");
        for line in [
            format!("fslab_operations_total{} 5", of("")),
            format!("fslab_operation_errors_total{} 1", of(",errno=\"EIO\"")),
            format!("fslab_operation_duration_seconds_bucket{} 2", of(",le=\"0.000001024\"")),
            format!("fslab_operation_duration_seconds_bucket{} 5", of(",le=\"0.000002048\"")),
            format!("fslab_operation_duration_seconds_bucket{} 5", of(",le=\"+Inf\"")),
            format!("fslab_operation_duration_seconds_sum{} 1.5", of("")),
            format!("fslab_layer_records_total{{{labels}}} 7"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
