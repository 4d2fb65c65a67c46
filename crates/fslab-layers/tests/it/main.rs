//! Every layer of the registry, over every leaf, in process, under the conformance suite.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod fault;

use std::sync::Arc;

use fslab_layers::{LAYERS, Stack, ValueKind};
use fslab_vfs::FileSystem;
use fslab_vfs::testing::conformance::run_all;
use tempfile::TempDir;

/// Every layer as it is, and with each of its switches turned, as written on a command line.
fn every_layer() -> Vec<String> {
    let mut layers = Vec::new();
    for layer in LAYERS {
        layers.push(layer.name.to_owned());
        for option in layer.options.iter().filter(|option| option.value == ValueKind::Switch) {
            let turned = if option.default == "on" { "off" } else { "on" };
            layers.push(format!("{}:{}={turned}", layer.name, option.name));
        }
    }
    layers
}

/// Stored files with the smallest and the largest chunk.
const CHUNKS: [&str; 3] = ["copy:chunk=4KiB", "gzip:chunk=4KiB,level=1", "zstd:chunk=1MiB"];

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
    let chunks = CHUNKS.map(str::to_owned);
    for layer in every_layer().into_iter().chain(chunks) {
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

/// For a quick look at one stack: FSLAB_TEST_STACK='copy / mem:'.
#[test]
fn a_stack_of_choice_conforms() {
    if let Ok(stack) = std::env::var("FSLAB_TEST_STACK") {
        conforms(&stack);
    }
}

#[test]
fn a_high_stack_conforms() {
    conforms("null / null:passthrough=off / null / mem:");
}
