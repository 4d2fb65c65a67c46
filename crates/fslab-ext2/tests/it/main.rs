//! Tests the ext2 engine with the project's test suites, e2fsck and the kernel.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod bad_index;
mod beside;
mod checker;
mod clustering;
mod conformance;
mod damage;
mod directories;
mod exchange;
mod failures;
mod faults;
mod features;
mod fsync;
mod full;
mod golden;
mod hashes;
mod images;
mod inode_flags;
mod journals;
mod kernel;
mod lost;
mod memory;
mod model;
mod mounted;
mod numbers;
mod order;
mod power;
mod repair;
mod same_name;
mod script;
mod seeking;
mod speed;
mod support;
mod takeover;
mod tools;
mod verdicts;
