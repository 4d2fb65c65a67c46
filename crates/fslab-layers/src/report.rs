//! What layers have to tell while they work: counters, and latencies of operations.
//!
//! Layers know no mount and no socket. They publish a [`Reporter`]; whoever built the stack asks it
//! and passes the [`Report`]s on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Tells what a layer has counted.
pub trait Reporter: Send + Sync {
    /// The present state. Its place in the stack is filled in by who asks.
    fn report(&self) -> Report;
}

/// What one layer tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its place in the stack; 1 is the top.
    pub position: usize,
    /// The layer as it was given.
    pub layer: String,
    /// What it counted for each operation that occurred.
    pub operations: Vec<OperationReport>,
    /// Single figures.
    pub measures: Vec<Measure>,
    /// What must be known to read the figures.
    pub notes: Vec<String>,
}

/// What was counted for one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationReport {
    /// The operation's name.
    pub operation: String,
    /// How often it ended, well or not.
    pub count: u64,
    /// How often it is being done now.
    pub in_flight: u64,
    /// Bytes read, written or copied.
    pub bytes: u64,
    /// How often it failed, by name of the error.
    pub errors: BTreeMap<String, u64>,
    /// How long it took.
    pub latency: Latency,
}

/// A distribution of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// All together.
    pub sum_ns: u64,
    /// The longest, exact.
    pub max_ns: u64,
    /// Half took no longer; as all percentiles, at most 1/16 above the exact value.
    pub p50_ns: u64,
    /// 90 of 100 took no longer.
    pub p90_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer.
    pub p999_ns: u64,
    /// How many took how long; those that none did are left out.
    pub buckets: Vec<Bucket>,
}

/// A part of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The longest latency in it.
    pub upper_ns: u64,
    /// How many.
    pub count: u64,
}

/// A single figure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// Its name, in lower case with underscores, unit last.
    pub name: String,
    /// One line: what it counts.
    pub help: String,
    /// Whether it only ever rises.
    pub rising: bool,
    /// Its value.
    pub value: u64,
}

impl Measure {
    /// A figure that only ever rises.
    #[must_use]
    pub fn counter(name: &str, help: &str, value: u64) -> Self {
        Self { name: name.to_owned(), help: help.to_owned(), rising: true, value }
    }

    /// A figure that tells how things stand now.
    #[must_use]
    pub fn gauge(name: &str, help: &str, value: u64) -> Self {
        Self { rising: false, ..Self::counter(name, help, value) }
    }
}
