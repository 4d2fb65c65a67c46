//! Tests the leaves: with the conformance suite, with the model test, and with tests of their own.

#![expect(clippy::unwrap_used, reason = "a set-up that fails is a failed test")]

mod block_device;
mod conformance;
mod crash;
mod host;
mod labels;
mod lower_tree;
mod memory;
mod model;
mod numbers;
