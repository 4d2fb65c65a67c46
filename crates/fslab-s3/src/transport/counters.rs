//! Counts requests and bytes, for all stores that this program uses.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Requests that read objects.
    Get,
    /// Requests that write objects, or parts of them.
    Put,
    /// Requests that list objects.
    List,
    /// Requests that delete objects.
    Delete,
    /// Requests that were retried.
    Retries,
    /// Requests whose body arrived damaged at the store.
    Damaged,
    /// Bytes of sent bodies.
    SentBytes,
    /// Bytes of received bodies.
    ReceivedBytes,
}

/// The name and meaning of each counter, in the order of [`Counter`].
const COUNTERS: [(&str, &str); 8] = [
    ("s3_get_requests", "read requests for objects in S3 stores"),
    ("s3_put_requests", "write requests for objects, or parts of objects, in S3 stores"),
    ("s3_list_requests", "list requests for objects in S3 stores"),
    ("s3_delete_requests", "delete requests for objects in S3 stores"),
    ("s3_retries", "requests to S3 stores that were sent again after a failure"),
    ("s3_damaged_requests", "requests whose body arrived damaged at an S3 store"),
    ("s3_sent_bytes", "bytes sent to S3 stores"),
    ("s3_received_bytes", "bytes received from S3 stores"),
];

static COUNTS: [AtomicU64; COUNTERS.len()] = [const { AtomicU64::new(0) }; COUNTERS.len()];

impl Counter {
    /// Increases the counter.
    pub fn add(self, count: usize) {
        COUNTS[self as usize].fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Returns the name, meaning and value of each counter. The list is empty until the first request.
#[must_use]
pub fn counters() -> Vec<(&'static str, &'static str, u64)> {
    let values: Vec<u64> = COUNTS.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    if values.iter().all(|value| *value == 0) {
        return Vec::new();
    }
    COUNTERS.iter().zip(values).map(|((name, help), value)| (*name, *help, value)).collect()
}
