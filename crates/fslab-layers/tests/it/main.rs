//! Every layer of the registry, over every leaf, in process, under the conformance suite; and what
//! each observer promises besides.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod fault;
mod stats;
mod trace;

use std::path::Path;
use std::sync::Arc;

use fslab_layers::{LAYERS, LayerSpec, Stack, ValueKind};
use fslab_vfs::FileSystem;
use fslab_vfs::testing::conformance::run_all;
use tempfile::TempDir;

/// Every layer, with its defaults and then with each other value of each switch and choice, as
/// written on a command line. Places that a layer writes to are new ones below `scratch`.
fn every_layer(scratch: &Path) -> Vec<String> {
    let mut layers = Vec::new();
    for layer in LAYERS {
        layers.push(written(layer, None, &scratch.join(layers.len().to_string())));
        for option in layer.options {
            let values: &[&str] = match option.value {
                ValueKind::Switch => &["on", "off"],
                ValueKind::Choice(words) => words,
                _ => &[],
            };
            for value in values.iter().filter(|value| **value != option.default) {
                let place = scratch.join(layers.len().to_string());
                layers.push(written(layer, Some((option.name, value)), &place));
            }
        }
    }
    layers
}

fn written(layer: &LayerSpec, given: Option<(&str, &str)>, place: &Path) -> String {
    let places = layer.options.iter().filter(|option| option.value == ValueKind::Place);
    let options: Vec<_> = places
        .map(|option| format!("{}={}", option.name, place.join(option.name).display()))
        .chain(given.map(|(key, value)| format!("{key}={value}")))
        .collect();
    if options.is_empty() {
        return layer.name.to_owned();
    }
    std::fs::create_dir(place).unwrap();
    format!("{}:{}", layer.name, options.join(","))
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
    built.shutdown().unwrap();
}

#[test]
fn every_layer_conforms_over_memory() {
    let scratch = TempDir::new().unwrap();
    let chunks = CHUNKS.map(str::to_owned);
    for layer in every_layer(scratch.path()).into_iter().chain(chunks) {
        conforms(&format!("{layer} / mem:"));
    }
}

#[test]
fn every_layer_conforms_over_a_host_directory() {
    let scratch = TempDir::new().unwrap();
    for layer in every_layer(scratch.path()) {
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
    let scratch = TempDir::new().unwrap();
    let trace = scratch.path().join("trace");
    let trace = trace.display();
    conforms(&format!("null / stats / trace:to={trace} / null:passthrough=off / stats / mem:"));
}
