//! Formats the reports of layers in Prometheus's text format, version 0.0.4.

use fslab_layers::{Latency, OperationReport, Report};

/// Upper bounds of latency buckets: powers of two from 2^10 ns (1 microsecond) to 2^34 ns (17
/// seconds). No bucket of a layer's report crosses one of these bounds.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=34;

/// A sample: the suffix of its metric name, additional labels, and the value.
type Sample = (&'static str, String, String);

/// A metric family: its name, kind and help, and a function that returns its samples for one
/// operation.
type Family = (&'static str, &'static str, &'static str, fn(&OperationReport) -> Vec<Sample>);

const FAMILIES: [Family; 5] = [
    ("fslab_operations_total", "counter", "Completed operations.", |each| one(each.count)),
    ("fslab_operations_in_flight", "gauge", "Operations in flight.", |each| one(each.in_flight)),
    ("fslab_operation_bytes_total", "counter", "Bytes read, written or copied.", |each| {
        one(each.bytes)
    }),
    ("fslab_operation_errors_total", "counter", "Operations that failed, by error.", errors),
    ("fslab_operation_duration_seconds", "histogram", "Durations of operations.", durations),
];

/// Formats all layers of a mount.
pub fn render(mount_point: &str, layers: &[Report]) -> String {
    let mut text = String::new();
    for (name, kind, help, samples) in FAMILIES {
        text.push_str(&head(name, kind, help));
        for layer in layers {
            let labels = labels(mount_point, layer);
            for operation in &layer.operations {
                let of = escaped(&operation.operation);
                for (rest, more, value) in samples(operation) {
                    text.push_str(&format!(
                        "{name}{rest}{{{labels},operation=\"{of}\"{more}}} {value}\n"
                    ));
                }
            }
        }
    }
    for layer in layers {
        for measure in &layer.measures {
            let (total, kind) = if measure.rising { ("_total", "counter") } else { ("", "gauge") };
            let name = format!("fslab_layer_{}{total}", metric_name(&measure.name));
            if !text.contains(&format!("# TYPE {name} ")) {
                text.push_str(&head(&name, kind, &measure.help));
            }
            let labels = labels(mount_point, layer);
            let own = measure
                .labels
                .iter()
                .map(|(label, value)| format!(",{}=\"{}\"", metric_name(label), escaped(value)));
            let own: String = own.collect();
            text.push_str(&format!("{name}{{{labels}{own}}} {}\n", measure.value));
        }
    }
    text
}

fn head(name: &str, kind: &str, help: &str) -> String {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}

/// Replaces characters that are not allowed in the name of a metric. The daemon may belong to
/// another user, and its names must not add lines to the output.
fn metric_name(name: &str) -> String {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    name.chars().map(|letter| if is_allowed(letter) { letter } else { '_' }).collect()
}

fn labels(mount_point: &str, layer: &Report) -> String {
    let (mount_point, name) = (escaped(mount_point), escaped(&layer.layer));
    format!("mount_point=\"{mount_point}\",layer=\"{name}\",position=\"{}\"", layer.position)
}

fn one(value: u64) -> Vec<Sample> {
    vec![("", String::new(), value.to_string())]
}

fn errors(operation: &OperationReport) -> Vec<Sample> {
    let label = |name: &str| format!(",errno=\"{}\"", escaped(name));
    operation.errors.iter().map(|(name, count)| ("", label(name), count.to_string())).collect()
}

fn durations(operation: &OperationReport) -> Vec<Sample> {
    let latency = &operation.latency;
    let bucket = |le: String, bound_ns: u64| {
        ("_bucket", format!(",le=\"{le}\""), below(latency, bound_ns).to_string())
    };
    let mut samples: Vec<_> = BOUNDS.map(|bound| bucket(seconds(1 << bound), 1 << bound)).collect();
    samples.push(bucket("+Inf".to_owned(), u64::MAX));
    samples.push(("_sum", String::new(), seconds(latency.sum_ns)));
    samples.push(("_count", String::new(), below(latency, u64::MAX).to_string()));
    samples
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

    #[test]
    fn forged_names_and_help_texts_add_no_line() {
        let forged = Measure::counter("x 1\nforged", "help\nforged 1\\", 7);
        let layer = Report { layer: "stats".into(), measures: vec![forged], ..Report::default() };
        let text = render("/a", &[layer]);
        assert!(text.lines().all(|line| !line.starts_with("forged")), "{text}");
        assert!(text.contains("fslab_layer_x_1_forged_total help\\nforged 1\\\\\n"), "{text}");
    }
}
