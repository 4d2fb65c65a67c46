//! End-to-end tests of campaigns: create, run in shares, kill, resume and report.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cuts;
mod failures;
mod pooling;
mod shares;
mod support;
