//! Tests of whole comparisons: plans, runs in process and on images, leaks.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod applications;
mod harness_cost;
mod images;
mod in_process;
mod leaks;
mod metrics;
mod noise_floor;
mod plans;
mod probe;
mod random_io;
mod replay;
mod runner;
mod self_test;
mod support;
mod targets;
mod workloads;
