//! Renders the samples as CSV (RFC 4180), one per line, for spreadsheets and statistics programs.

use serde_json::Value;

use super::flat::{columns, flatten};
use super::{Renderer, Report};
use crate::error::Result;

pub(super) const SPEC: Renderer = Renderer {
    name: "csv",
    help: "the samples, one per line, for spreadsheets",
    render: |report| Ok(render(report)?.into_bytes()),
};

fn render(report: &Report) -> Result<String> {
    let columns = columns()?;
    let names: Vec<String> = columns.iter().map(|column| field(&column.name)).collect();
    let mut text = names.join(",") + "\r\n";
    for sample in &report.raw {
        let row = flatten(sample)?;
        let cells: Vec<String> = columns.iter().map(|column| cell(row.get(&column.name))).collect();
        text.push_str(&cells.join(","));
        text.push_str("\r\n");
    }
    Ok(text)
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => field(text),
        Some(other) => field(&other.to_string()),
    }
}

/// Formats a field, in quotes if necessary.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn csv_fields_are_quoted_only_if_needed() {
        assert_eq!(field("plain text"), "plain text");
        assert_eq!(field("a,b"), "\"a,b\"");
        assert_eq!(field("say \"a\"\n"), "\"say \"\"a\"\"\n\"");
    }
}
