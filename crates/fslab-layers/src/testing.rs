//! Runs the layers of a registry under the conformance suite, for the tests of their crates.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::path::Path;
use std::sync::Arc;

use fslab_vfs::FileSystem;
use fslab_vfs_testing::conformance::{Allowed, run_all};

use crate::{LayerSpec, OptionSpec, Stack, ValueKind};

/// Returns command-line forms of layers: each layer with its default options, and again with every
/// other value of each switch or choice that `is_tried` selects. Output paths of the layers are
/// below `scratch`.
///
/// # Panics
/// If no directory can be created in `scratch`.
pub fn with_each_option(
    layers: &[LayerSpec],
    is_tried: impl Fn(&LayerSpec, &OptionSpec) -> bool,
    scratch: &Path,
) -> Vec<String> {
    let mut written_so_far = Vec::new();
    for layer in layers {
        let place = |number: usize| scratch.join(number.to_string());
        written_so_far.push(written(layer, None, &place(written_so_far.len())));
        for option in layer.options.iter().filter(|option| is_tried(layer, option)) {
            let values: &[&str] = match option.value {
                ValueKind::Switch => &["on", "off"],
                ValueKind::Choice(words) => words,
                _ => &[],
            };
            for value in values.iter().filter(|value| **value != option.default) {
                let given = Some((option.name, *value));
                written_so_far.push(written(layer, given, &place(written_so_far.len())));
            }
        }
    }
    written_so_far
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

/// Runs the conformance suite on a stack.
///
/// # Panics
/// If a case fails that is not in `allowed`.
#[track_caller]
pub fn conforms(stack: &Stack, allowed: &[Allowed<'_>]) {
    let built = stack.build().unwrap();
    let make = || Box::new(Arc::clone(&built)) as Box<dyn FileSystem>;
    let report = run_all(&make, allowed);
    assert!(report.is_success(), "{stack}:\n{report}");
    built.shutdown().unwrap();
}
