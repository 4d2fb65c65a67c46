//! Tests of whole comparisons: plans, runs in process and on images, leaks, reports.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod images;
mod in_process;
mod leaks;
mod plans;
mod replay;
mod reports;
mod support;
