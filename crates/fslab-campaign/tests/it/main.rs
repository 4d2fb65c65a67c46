//! Campaigns end to end: made, run in shares, killed, resumed, and reported.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cuts;
mod failures;
mod pooling;
mod shares;
mod support;
