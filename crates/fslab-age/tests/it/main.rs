//! Tests workload files, replays, simulations and scores.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod datasets;
mod formats;
mod geriatrix;
mod hostile;
mod images;
mod p9traces;
mod replays;
mod simulations;
mod snapshots;
mod support;
