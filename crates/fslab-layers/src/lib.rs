//! Layers, the registry that lists them, and the stack that joins them over a leaf.
//!
//! A new layer needs one file with a [`LayerSpec`] and one line in [`LAYERS`]. Command-line help,
//! `fslab list` and the conformance tests use this list.
//!
//! Layers read no clock and no global source of random numbers themselves. They get times with
//! requests, seeds as options, and a clock and random numbers from [`StackContext`]. They have no
//! access to the mount either, so they publish their reports in the context.
//!
//! Start with these types: [`LayerSpec`], [`LayerChoice`], [`Stack`].
//!
//! ```
//! use fslab_layers::{Foreign, Stack};
//! use fslab_vfs::{Ino, Request};
//!
//! let fs = Stack::parse("stats / null / mem:", Foreign::default())?.build()?;
//! assert!(fs.getattr(&Request::default(), Ino::ROOT, None).is_ok());
//! # Ok::<(), fslab_layers::Error>(())
//! ```

mod error;
mod layer_choice;
mod layer_spec;
mod leaf;
mod nearest;
pub mod observe;
mod options;
mod registry;
mod report;
mod stability;
mod stack;
mod stack_context;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use error::{Error, ForeignError, Result};
pub use layer_choice::LayerChoice;
pub use layer_spec::{BuildLayer, LayerKind, LayerSpec};
pub use leaf::{ForeignLeaf, LEAVES, Leaf, LeafOptions, LeafSpec, OpenLeaf};
pub use nearest::Nearest;
pub use options::{OptionSpec, Options, ValueKind};
pub use registry::LAYERS;
pub use report::{Bucket, Latency, Measure, OperationReport, Report, Reporter};
pub use stability::Stability;
pub use stack::{Foreign, Stack};
pub use stack_context::{CountingNumbers, RandomSource, Service, StackContext};
