//! Formats the reports of layers as readable tables.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use fslab_layers::{OperationReport, Report};

use crate::units::{bytes, duration};

/// Formats one table of operations for each layer, followed by the layer's other counters and
/// gauges.
pub fn render(layers: &[Report]) -> String {
    let mut text = String::new();
    for (index, layer) in layers.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        // Writing to a string does not fail.
        let _ok = write_layer(&mut text, layer);
    }
    text
}

fn write_layer(text: &mut String, layer: &Report) -> std::fmt::Result {
    writeln!(text, "layer {}: {}", layer.position, plain(&layer.layer))?;
    if !layer.operations.is_empty() {
        // Each line of a table is padded with blanks to the width of the table.
        let table = table(&layer.operations).to_string();
        table.lines().try_for_each(|line| writeln!(text, "{}", line.trim_end()))?;
    } else if layer.measures.is_empty() {
        writeln!(text, "  nothing yet")?;
    }
    let longest = layer.measures.iter().map(|measure| measure.name.chars().count()).max();
    let width = longest.unwrap_or_default().max(16);
    for measure in &layer.measures {
        let (name, help) = (plain(&measure.name), plain(&measure.help));
        let labels = measure.labels.iter().map(|(_, value)| format!(" {}", plain(value)));
        let labels: String = labels.collect();
        writeln!(text, "  {name:width$} {:>16}  {help}{labels}", measure.value)?;
    }
    for note in &layer.notes {
        writeln!(text, "  note: {}", plain(note))?;
    }
    Ok(())
}

fn table(operations: &[OperationReport]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "operation",
        "count",
        "in flight",
        "bytes",
        "mean",
        "p50",
        "p99",
        "max",
        "errors",
    ]);
    for operation in operations {
        table.add_row(row(operation));
    }
    for column in table.column_iter_mut().skip(1).take(7) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(operation: &OperationReport) -> [String; 9] {
    let latency = &operation.latency;
    let mean_ns = latency.sum_ns.checked_div(operation.count).unwrap_or_default();
    let errors = operation.errors.iter().map(|(name, count)| format!("{}: {count}", plain(name)));
    let or_nothing = |count: u64, text: String| if count == 0 { String::new() } else { text };
    [
        plain(&operation.operation),
        operation.count.to_string(),
        or_nothing(operation.in_flight, operation.in_flight.to_string()),
        or_nothing(operation.bytes, bytes(operation.bytes)),
        duration(mean_ns),
        duration(latency.p50_ns),
        duration(latency.p99_ns),
        duration(latency.max_ns),
        errors.collect::<Vec<_>>().join(", "),
    ]
}

/// Replaces characters that could control a terminal, because the daemon may belong to another
/// user.
fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use fslab_layers::{Latency, Measure};

    use super::*;

    #[test]
    fn layer_is_printed_as_a_table_with_measures_and_notes() {
        let lookup = OperationReport {
            operation: "lookup".into(),
            count: 4,
            errors: [("ENOENT".to_owned(), 3)].into(),
            latency: Latency { sum_ns: 8000, max_ns: 5_000_000, ..Latency::default() },
            ..OperationReport::default()
        };
        let layer = Report {
            position: 1,
            layer: "stats\u{1b}[2J".into(),
            operations: vec![lookup],
            measures: vec![
                Measure::counter("records", "operations recorded", 7),
                Measure::counter("records_that_were_lost", "not recorded", 0),
            ],
            notes: vec!["reads are not counted".into()],
        };
        let text = render(&[layer]);
        assert!(text.starts_with("layer 1: stats?[2J\n"), "{text}");
        for part in ["lookup", "2.0us", "5.0ms", "ENOENT: 3", "operations recorded", "note: reads"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(render(&[Report::default()]).contains("nothing yet"));
    }

    #[test]
    fn measures_are_aligned_despite_long_names() {
        let names = ["records", "repacked_bundles_of_files"];
        let measures = names.map(|name| Measure::counter(name, "help", 7)).to_vec();
        let text = render(&[Report { measures, ..Report::default() }]);
        let places: Vec<_> = text.lines().filter_map(|line| line.find("7  help")).collect();
        assert!(places.len() == 2 && places[0] == places[1], "{text}");
    }
}
