//! Reports of layers: counters, and latencies of operations.
//!
//! Layers have no access to the mount or its socket. They publish a [`Reporter`]; the code that
//! built the stack calls it and passes the [`Report`]s on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Reports the counters of a layer.
pub trait Reporter: Send + Sync {
    /// Returns the current report. The caller fills in the position in the stack.
    fn report(&self) -> Report;
}

/// The report of one layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Position of the layer in the stack; 1 is the top.
    pub position: usize,
    /// The layer in its command-line form.
    pub layer: String,
    /// Counts for each operation that occurred.
    pub operations: Vec<OperationReport>,
    /// Single values.
    pub measures: Vec<Measure>,
    /// Notes for interpreting the values.
    pub notes: Vec<String>,
}

/// Counts for one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationReport {
    /// The operation's name.
    pub operation: String,
    /// Number of calls that ended, including failed ones.
    pub count: u64,
    /// Number of calls in flight.
    pub in_flight: u64,
    /// Bytes read, written or copied.
    pub bytes: u64,
    /// Number of failed calls, by name of the error.
    pub errors: BTreeMap<String, u64>,
    /// Latency of the calls.
    pub latency: Latency,
}

/// A distribution of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Sum of all latencies.
    pub sum_ns: u64,
    /// Maximum latency, exact.
    pub max_ns: u64,
    /// Median latency. Like all percentiles, it is at most 1/16 above the exact value.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Non-empty buckets of the distribution.
    pub buckets: Vec<Bucket>,
}

/// A bucket of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The largest latency in it.
    pub upper_ns: u64,
    /// Number of latencies in it.
    pub count: u64,
}

/// A single value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// Name of the value, in lower case with underscores, unit last.
    pub name: String,
    /// A description in one line.
    pub help: String,
    /// Whether the value never decreases.
    pub rising: bool,
    /// The value itself.
    pub value: u64,
    /// Names and values of labels, which distinguish values with the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<(String, String)>,
}

impl Measure {
    /// A value that never decreases.
    #[must_use]
    pub fn counter(name: &str, help: &str, value: u64) -> Self {
        let (name, help) = (name.to_owned(), help.to_owned());
        Self { name, help, rising: true, value, labels: Vec::new() }
    }

    /// A current value, which may decrease.
    #[must_use]
    pub fn gauge(name: &str, help: &str, value: u64) -> Self {
        Self { rising: false, ..Self::counter(name, help, value) }
    }

    /// Returns the value with these labels.
    #[must_use]
    pub fn with_labels<const N: usize>(self, labels: [(&str, String); N]) -> Self {
        let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { labels, ..self }
    }
}
