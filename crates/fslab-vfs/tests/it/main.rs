//! The leaves under the conformance suite and the model test.

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
