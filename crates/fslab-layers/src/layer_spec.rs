//! The types that describe a layer to the registry.

use std::sync::Arc;

use fslab_vfs::FileSystem;

use crate::error::Result;
use crate::options::{OptionSpec, Options};
use crate::stability::Stability;
use crate::stack_context::StackContext;

/// The description of a layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerSpec {
    /// Name of the layer on command lines and in files.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Whether the layer changes the stored bytes.
    pub kind: LayerKind,
    /// Stability level of the layer.
    pub stability: Stability,
    /// Options of the layer.
    pub options: &'static [OptionSpec],
    /// Puts the layer over a file system.
    pub build: BuildLayer,
}

/// Puts a layer over a file system. The options have already been checked against the layer's list.
pub type BuildLayer =
    fn(Arc<dyn FileSystem>, &Options, &StackContext) -> Result<Arc<dyn FileSystem>>;

/// Whether a layer changes the stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Watches or disturbs operations; unknown operations are forwarded.
    Observer,
    /// Changes the stored bytes; unknown operations are refused.
    Transformer,
    /// A transformer with commands that work directly on the files of the leaf. The layer must see
    /// the same bytes as the commands, so no transformer can be below it.
    Grounded,
}

impl LayerKind {
    /// The name of the kind, as shown to users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Transformer | Self::Grounded => "transformer",
        }
    }
}
