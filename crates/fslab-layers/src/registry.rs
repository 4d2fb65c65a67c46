//! The list of all layers.

use crate::layer_spec::LayerSpec;
use crate::observe::{fault, null, stats, trace};

/// The layers of this crate, in the order in which they are listed.
pub const LAYERS: &[LayerSpec] = &[null::SPEC, stats::SPEC, trace::SPEC, fault::SPEC];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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

    /// Detects layers that ask for an option they did not declare.
    #[test]
    fn every_layer_can_be_built_with_its_defaults() {
        for layer in LAYERS {
            let scratch = tempfile::tempdir().unwrap();
            let place = scratch.path().join("place");
            let places = layer.options.iter().filter(|option| option.value == ValueKind::Place);
            let given = places.map(|option| (option.name, place.to_str().unwrap()));
            let choice = LayerChoice::of(&[], layer.name, given).unwrap();
            choice.build(Arc::new(MemFs::default())).unwrap();
        }
    }
}
