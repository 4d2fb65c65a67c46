//! Layers, the registry that lists them, and the stack that joins them over a leaf.
//!
//! A new layer is one file with a [`LayerSpec`] and one line in [`LAYERS`]; command-line help,
//! `fslab list` and the conformance tests follow from the list.
//!
//! Layers read no clock and no global source of random numbers: both come with requests and
//! options.

mod choice;
mod error;
mod leaf;
mod observe;
mod options;
mod registry;
mod stack;

pub use choice::LayerChoice;
pub use error::{Error, Nearest, Result};
pub use leaf::{LEAVES, Leaf, LeafSpec};
pub use options::{OptionSpec, Options, ValueKind};
pub use registry::{BuildLayer, LAYERS, LayerKind, LayerSpec};
pub use stack::Stack;
