//! What a layer declares about itself.

use std::sync::Arc;

use fslab_vfs::FileSystem;

use crate::error::Result;
use crate::options::{OptionSpec, Options};
use crate::stack_context::StackContext;

/// A layer's declaration of itself.
#[derive(Clone, Copy, Debug)]
pub struct LayerSpec {
    /// Its name on command lines and in files.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Whether it changes the stored bytes.
    pub kind: LayerKind,
    /// A warning for users who mount it.
    pub caution: Option<&'static str>,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Puts it over a file system.
    pub build: BuildLayer,
}

/// Puts a layer over a file system. The options were checked against the layer's list before.
pub type BuildLayer =
    fn(Arc<dyn FileSystem>, &Options, &StackContext) -> Result<Arc<dyn FileSystem>>;

/// Whether a layer changes the stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Watches or disturbs; operations it does not know are forwarded.
    Observer,
    /// Changes the stored bytes; operations it does not know are refused.
    Transformer,
    /// A transformer whose commands also work on the files of the leaf. The layer must see the
    /// same bytes as they do, so no transformer can be below it.
    Grounded,
}

impl LayerKind {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Transformer | Self::Grounded => "transformer",
        }
    }
}
