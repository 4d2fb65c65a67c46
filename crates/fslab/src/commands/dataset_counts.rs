//! The counts of a data set, for the commands that create and show data sets.

use std::time::Instant;

use fslab_dataset::Manifest;
use serde_json::json;

use crate::units::{bytes, counted, duration};

/// Prints the counts of a data set, and the time since `start`, when its creation began.
pub fn print(manifest: &Manifest, start: Instant, as_json: bool) {
    let (kind, rows, parts) = (&manifest.kind, manifest.rows, manifest.parts.len());
    if as_json {
        let bytes = bytes_of(manifest);
        say!("{:#}", json!({"kind": kind, "rows": rows, "parts": parts, "bytes": bytes}));
        return;
    }
    say!(
        "{} of a {kind} in {} ({}), {}",
        counted(rows, "row"),
        counted(parts as u64, "part"),
        bytes(bytes_of(manifest)),
        duration(start.elapsed().as_nanos() as u64),
    );
}

/// Returns the size of all parts in bytes.
pub fn bytes_of(manifest: &Manifest) -> u64 {
    manifest.parts.iter().map(|part| part.bytes).sum()
}
