//! Every layer of the registry, over every leaf, in process, under the conformance suite; and what
//! each observer promises besides.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod claims;
mod fault;
mod power_cuts;
mod sca;
mod stats;
mod trace;

use fslab_vfs::testing::scratch;
use std::path::Path;
use std::sync::Arc;

use fslab_layers::{LAYERS, LayerSpec, OptionSpec, Stack, ValueKind};
use fslab_vfs::FileSystem;
use fslab_vfs::testing::conformance::{Allowed, run_all};
use fslab_vfs::testing::model::{ModelConfig, check_against_model};
use tempfile::TempDir;

/// Every layer, with its defaults and then with each other value of each switch and choice, as
/// written on a command line. Places that a layer writes to are new ones below `scratch`.
fn every_layer(scratch: &Path) -> Vec<String> {
    let mut layers = Vec::new();
    for layer in LAYERS {
        layers.push(written(layer, None, &scratch.join(layers.len().to_string())));
        for option in layer.options.iter().filter(|option| is_tried(layer, option)) {
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

/// Packing is the same for every codec, and a run takes seconds: it is tried with one.
fn is_tried(layer: &LayerSpec, option: &OptionSpec) -> bool {
    option.name != "pack" || layer.name == "zstd"
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

/// Stored files with the smallest chunk.
const CHUNKS: [&str; 2] = ["copy:chunk=4KiB", "gzip:chunk=4KiB,level=1"];

/// What does not hold where chunks are larger than the units of the cases about holes.
const LARGE_CHUNKS: [Allowed<'_>; 3] = [
    ("holes/data_is_found_behind_a_hole", IN_A_CHUNK),
    ("holes/hole_is_found_behind_data", IN_A_CHUNK),
    ("holes/punched_range_is_a_hole", IN_A_CHUNK),
];
const IN_A_CHUNK: &str = "zeros between the data of one chunk are data";

#[track_caller]
fn conforms(stack: &str) {
    conforms_but_for(stack, &[]);
}

#[track_caller]
fn conforms_but_for(stack: &str, allowed: &[Allowed<'_>]) {
    let stack: Stack = stack.parse().unwrap();
    let built = stack.build().unwrap();
    let make = || Box::new(Arc::clone(&built)) as Box<dyn FileSystem>;
    let report = run_all(&make, allowed);
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
        let directory = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        conforms(&format!("{layer} / {}", directory.path().display()));
    }
}

#[test]
fn large_chunks_conform_but_for_holes_within_them() {
    conforms_but_for("zstd:chunk=1MiB / mem:", &LARGE_CHUNKS);
}

/// Random operations do to a layer over memory what they do to memory.
#[test]
fn sca_layers_agree_with_memory() {
    for stack in ["copy:chunk=4KiB / mem:", "zstd / mem:", "gzip:chunk=4KiB,tails=off / mem:"] {
        let stack: Stack = stack.parse().unwrap();
        let make = || Box::new(stack.build().unwrap()) as Box<dyn FileSystem>;
        let answer = check_against_model(&make, &ModelConfig::from_environment(60));
        assert!(answer.is_ok(), "{stack}: {}", answer.unwrap_err());
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
