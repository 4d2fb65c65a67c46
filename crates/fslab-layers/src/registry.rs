//! What a layer declares about itself, and the list of all layers.

use std::sync::Arc;

use fslab_vfs::FileSystem;

use crate::error::Result;
use crate::observe::{fault, null, stats, trace};
use crate::options::{OptionSpec, Options};
use crate::stack_context::Surroundings;

/// The layers of this crate, in the order in which they are listed.
pub const LAYERS: &[LayerSpec] = &[null::SPEC, stats::SPEC, trace::SPEC, fault::SPEC];

/// A layer's declaration of itself.
#[derive(Clone, Copy, Debug)]
pub struct LayerSpec {
    /// Its name on command lines and in files.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Whether it changes what is stored.
    pub kind: LayerKind,
    /// What whoever mounts it is warned of, while that is so.
    pub caution: Option<&'static str>,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Puts it over a file system.
    pub build: BuildLayer,
}

/// Puts a layer over a file system. The options were checked against the layer's list before.
pub type BuildLayer =
    fn(Arc<dyn FileSystem>, &Options, &Surroundings) -> Result<Arc<dyn FileSystem>>;

/// Whether a layer changes what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Watches or disturbs; operations it does not know are forwarded.
    Observer,
    /// Changes what is stored; operations it does not know are refused.
    Transformer,
    /// A transformer whose commands work on the files of the leaf, too: what these hold must be
    /// what the layer sees, so that no transformer can be below it.
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

#[cfg(test)]
mod tests {
    use fslab_vfs::MemFs;

    use super::*;
    use crate::{LayerChoice, ValueKind};

    #[test]
    fn every_default_fits_its_option_and_names_are_unique() {
        let mut names: Vec<_> = LAYERS.iter().map(|layer| layer.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LAYERS.len());
        for option in LAYERS.iter().flat_map(|layer| layer.options) {
            assert!(option.value.parse(option.default).is_some(), "{}", option.name);
        }
    }

    /// Finds layers that ask for an option which they did not declare.
    #[test]
    fn every_layer_can_be_built_with_its_defaults() {
        for layer in LAYERS {
            let scratch = tempfile::tempdir().unwrap();
            let place = scratch.path().join("place");
            let places = layer.options.iter().filter(|option| option.value == ValueKind::Place);
            let given = places.map(|option| (option.name, place.to_str().unwrap()));
            let choice = LayerChoice::new(layer.name, given).unwrap();
            choice.build(Arc::new(MemFs::default())).unwrap();
        }
    }
}
