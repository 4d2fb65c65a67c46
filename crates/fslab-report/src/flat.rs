//! Flattens samples to rows of a table, for CSV and Parquet.
//!
//! The columns are those of the JSON records, derived from a sample with every field filled in. A
//! new field of the record therefore becomes a column without further changes. Names of nested
//! fields are joined by `_`; lists are stored as JSON text.

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::sample::{Cache, Device, Doubt, Machine, RequestCount, Sample, ThreadTimes};

/// The first columns; the others follow, sorted by name.
const FIRST: [&str; 8] =
    ["run", "target", "workload", "phase", "size_bytes", "round", "attempt", "elapsed_ns"];

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub name: String,
    pub kind: Kind,
}

/// The type of a column. Any of its cells may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Unsigned,
    Signed,
    Boolean,
}

/// Returns all columns of a sample.
pub(super) fn columns() -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = flatten(&full_sample())?
        .into_iter()
        .map(|(name, value)| Column { name, kind: kind(&value) })
        .collect();
    let place = |column: &Column| FIRST.iter().position(|first| *first == column.name);
    columns.sort_by_key(|column| (place(column).unwrap_or(FIRST.len()), column.name.clone()));
    Ok(columns)
}

/// Returns the cells of a sample by column name.
pub(super) fn flatten(sample: &Sample) -> Result<Map<String, Value>> {
    let mut flat = Map::new();
    if let Value::Object(parts) = serde_json::to_value(sample).map_err(Error::Encode)? {
        flatten_into("", parts, &mut flat);
    }
    Ok(flat)
}

fn flatten_into(prefix: &str, parts: Map<String, Value>, flat: &mut Map<String, Value>) {
    for (key, value) in parts {
        let name = format!("{prefix}{key}");
        match value {
            Value::Object(parts) => flatten_into(&format!("{name}_"), parts, flat),
            Value::Array(list) => {
                flat.insert(name, Value::String(Value::Array(list).to_string()));
            }
            other => {
                flat.insert(name, other);
            }
        }
    }
}

fn kind(value: &Value) -> Kind {
    match value {
        Value::Bool(_) => Kind::Boolean,
        Value::Number(number) if number.is_u64() => Kind::Unsigned,
        Value::Number(_) => Kind::Signed,
        _ => Kind::Text,
    }
}

/// Returns a sample with a value in every field, so that every column and its type is found.
fn full_sample() -> Sample {
    Sample {
        size_bytes: Some(0),
        threads: Some(0),
        daemon_cpu_ns: Some(0),
        machine: Machine { page_cache_bytes: -1, throttled: Some(0), ..Machine::default() },
        device: Some(Device::default()),
        backing: Some(Device::default()),
        used_bytes: Some(0),
        fuse_requests: Some(0),
        requests: vec![RequestCount::default()],
        thread_times: vec![ThreadTimes::default()],
        cache: Cache {
            resident_pages: Some(0),
            device_pages: Some(0),
            doubt: Some(Doubt::NoDevice),
            evicted: true,
            ..Cache::default()
        },
        workers: Some(0),
        data: Some(String::new()),
        stored_bytes: Some(0),
        contaminated: Some(String::new()),
        ..Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{Kind, columns, flatten, full_sample};
    use crate::sample::Sample;

    /// Every field of the record must also be in `full_sample`. Otherwise its column would be
    /// missing or have the wrong type.
    #[test]
    fn every_sample_field_has_a_column() {
        let full = flatten(&full_sample()).unwrap();
        let empty: Vec<_> = full.iter().filter(|(_, value)| **value == Value::Null).collect();
        assert!(empty.is_empty(), "{empty:?}");
        let known: Vec<_> = columns().unwrap().into_iter().map(|column| column.name).collect();
        let of_default = flatten(&Sample::default()).unwrap();
        let parts = ["device", "backing"];
        let missing =
            of_default.keys().find(|key| !known.contains(key) && !parts.contains(&&***key));
        assert_eq!(missing, None);
    }

    #[test]
    fn columns_have_types_and_a_fixed_order() {
        let columns = columns().unwrap();
        assert_eq!(columns[0].name, "run");
        let kind = |name: &str| columns.iter().find(|column| column.name == name).unwrap().kind;
        assert_eq!(kind("elapsed_ns"), Kind::Unsigned);
        assert_eq!(kind("machine_page_cache_bytes"), Kind::Signed);
        assert_eq!(kind("cache_proven"), Kind::Boolean);
        assert_eq!(kind("device_sectors_read"), Kind::Unsigned);
        assert_eq!(kind("contaminated"), Kind::Text);
    }
}
