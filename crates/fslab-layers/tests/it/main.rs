//! Every layer of the registry, over every leaf, in process, under the conformance suite.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod fault;

use std::sync::Arc;

use fslab_layers::{LAYERS, Stack, ValueKind};
use fslab_vfs::FileSystem;
use fslab_vfs::testing::conformance::run_all;
use tempfile::TempDir;

/// Every layer with each value of its switches, as written on a command line.
fn every_layer() -> Vec<String> {
    let mut layers = Vec::new();
    for layer in LAYERS {
        layers.push(layer.name.to_owned());
        let switches = layer.options.iter().filter(|option| option.value == ValueKind::Switch);
        for option in switches {
            for value in ["on", "off"] {
                layers.push(format!("{}:{}={value}", layer.name, option.name));
            }
        }
    }
    layers
}

#[track_caller]
fn conforms(stack: &str) {
    let stack: Stack = stack.parse().unwrap();
    let built = stack.build().unwrap();
    let make = || Box::new(Arc::clone(&built)) as Box<dyn FileSystem>;
    let report = run_all(&make, &[]);
    assert!(report.is_success(), "{stack}:\n{report}");
}

#[test]
fn every_layer_conforms_over_memory() {
    for layer in every_layer() {
        conforms(&format!("{layer} / mem:"));
    }
}

#[test]
fn every_layer_conforms_over_a_host_directory() {
    for layer in every_layer() {
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        conforms(&format!("{layer} / {}", directory.path().display()));
    }
}

#[test]
fn a_high_stack_conforms() {
    conforms("null / null:passthrough=off / null / mem:");
}
