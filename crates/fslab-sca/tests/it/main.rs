//! Runs the conformance suite over every layer of stored files and every leaf, in process, and
//! tests other guarantees of stored files.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod claims;
mod power_cuts;
mod sca;

use std::path::Path;

use fslab_layers::testing::{conforms, with_each_option};
use fslab_layers::{Foreign, LayerChoice, LayerSpec, OptionSpec, Stack};
use fslab_sca::LAYERS;
use fslab_vfs::FileSystem;
use fslab_vfs_testing::conformance::Allowed;
use fslab_vfs_testing::model::{ModelConfig, check_against_model};
use fslab_vfs_testing::scratch;
use tempfile::TempDir;

/// Parses a layer as on a command line. Packing is off unless the text enables it. A test may mount
/// a directory again without shutting down the first mount, to simulate a kill. The packing thread
/// of the first mount would then still run.
fn layer(text: &str) -> LayerChoice {
    let is_ours = LAYERS.iter().any(|spec| text.split(':').next() == Some(spec.name));
    let given = match is_ours && !text.contains("pack") {
        false => text.to_owned(),
        true if text.contains(':') => format!("{text},pack=off"),
        true => format!("{text}:pack=off"),
    };
    LayerChoice::parse(&given, LAYERS).unwrap()
}

/// Parses a stack from one line.
fn stack(text: &str) -> Stack {
    Stack::parse(text, Foreign { layers: LAYERS, ..Foreign::default() }).unwrap()
}

/// All codecs share the code for packing, and packing takes seconds, so only one codec is tested.
fn is_tried(layer: &LayerSpec, option: &OptionSpec) -> bool {
    option.name != "pack" || layer.name == "zstd"
}

fn every_layer(scratch: &Path) -> Vec<String> {
    with_each_option(LAYERS, is_tried, scratch)
}

/// Stored files with the smallest chunk size.
const CHUNKS: [&str; 2] = ["copy:chunk=4KiB", "gzip:chunk=4KiB,level=1"];

/// Cases about holes that fail because a chunk is larger than the holes of these cases.
const LARGE_CHUNKS: [Allowed<'_>; 3] = [
    ("holes/data_is_found_behind_a_hole", IN_A_CHUNK),
    ("holes/hole_is_found_behind_data", IN_A_CHUNK),
    ("holes/punched_range_is_a_hole", IN_A_CHUNK),
];
const IN_A_CHUNK: &str = "zeros between the data of one chunk are data";

#[test]
fn every_layer_conforms_over_memory() {
    let scratch = TempDir::new().unwrap();
    let chunks = CHUNKS.map(str::to_owned);
    for layer in every_layer(scratch.path()).into_iter().chain(chunks) {
        conforms(&stack(&format!("{layer} / mem:")), &[]);
    }
}

#[test]
fn every_layer_conforms_over_a_host_directory() {
    let scratch = TempDir::new().unwrap();
    for layer in every_layer(scratch.path()) {
        let directory = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        conforms(&stack(&format!("{layer} / {}", directory.path().display())), &[]);
    }
}

#[test]
fn large_chunks_conform_except_for_holes_within_a_chunk() {
    conforms(&stack("zstd:chunk=1MiB / mem:"), &LARGE_CHUNKS);
}

/// Random operations have the same results on a layer over memory as on memory.
#[test]
fn sca_layers_agree_with_memory() {
    for text in ["copy:chunk=4KiB / mem:", "zstd / mem:", "gzip:chunk=4KiB,tails=off / mem:"] {
        let stack = stack(text);
        let make = || Box::new(stack.build().unwrap()) as Box<dyn FileSystem>;
        let answer = check_against_model(&make, &ModelConfig::from_environment(60));
        assert!(answer.is_ok(), "{stack}: {}", answer.unwrap_err());
    }
}

/// Runs the suite on a single stack, for example FSLAB_TEST_STACK='copy / mem:'.
#[test]
fn stack_named_in_the_environment_conforms() {
    if let Ok(text) = std::env::var("FSLAB_TEST_STACK") {
        conforms(&stack(&text), &[]);
    }
}

/// Detects layers that ask for an option they did not declare.
#[test]
fn every_layer_can_be_built_with_its_defaults() {
    for spec in LAYERS {
        layer(spec.name).build(std::sync::Arc::new(fslab_vfs::MemFs::default())).unwrap();
    }
}
