//! Runs the conformance suite over every layer of the registry and every leaf, in process, and
//! tests further guarantees of each observer.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod fault;
mod stats;
mod trace;

use fslab_layers::testing::{conforms, with_each_option};
use fslab_layers::{Foreign, LAYERS, Stack};
use fslab_vfs_testing::scratch;
use tempfile::TempDir;

fn read(text: &str) -> fslab_layers::Result<Stack> {
    Stack::parse(text, Foreign::default())
}

fn stack(text: &str) -> Stack {
    read(text).unwrap()
}

#[test]
fn every_observer_conforms_over_memory() {
    let scratch = TempDir::new().unwrap();
    for layer in with_each_option(LAYERS, |_, _| true, scratch.path()) {
        conforms(&stack(&format!("{layer} / mem:")), &[]);
    }
}

#[test]
fn every_observer_conforms_over_a_host_directory() {
    let scratch = TempDir::new().unwrap();
    for layer in with_each_option(LAYERS, |_, _| true, scratch.path()) {
        let directory = TempDir::new_in(scratch::folder(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        conforms(&stack(&format!("{layer} / {}", directory.path().display())), &[]);
    }
}

/// Runs the suite on a single stack, for example FSLAB_TEST_STACK='null / mem:'.
#[test]
fn stack_named_in_the_environment_conforms() {
    if let Ok(text) = std::env::var("FSLAB_TEST_STACK") {
        conforms(&stack(&text), &[]);
    }
}

#[test]
fn stack_of_many_layers_conforms() {
    let scratch = TempDir::new().unwrap();
    let trace = scratch.path().join("trace");
    let trace = trace.display();
    let text = format!("null / stats / trace:to={trace} / null:passthrough=off / stats / mem:");
    conforms(&stack(&text), &[]);
}
