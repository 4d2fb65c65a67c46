//! What a layer declares about itself, and the list of all layers.

use std::collections::BTreeMap;
use std::sync::Arc;

use fslab_vfs::FileSystem;

use crate::error::Result;
use crate::observe::null;

/// Every layer, in the order in which they are listed.
pub const LAYERS: &[LayerSpec] = &[null::SPEC];

/// A layer's declaration of itself.
#[derive(Clone, Copy, Debug)]
pub struct LayerSpec {
    /// Its name on command lines and in files.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Whether it changes what is stored.
    pub kind: LayerKind,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Puts it over a file system.
    pub build: BuildLayer,
}

/// Puts a layer over a file system. The options were checked against the layer's list before.
pub type BuildLayer = fn(Arc<dyn FileSystem>, &Options) -> Result<Arc<dyn FileSystem>>;

/// Whether a layer changes what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Watches or disturbs; operations it does not know are forwarded.
    Observer,
    /// Changes what is stored; operations it does not know are refused.
    Transformer,
}

impl LayerKind {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Transformer => "transformer",
        }
    }
}

/// One option of a layer.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// The key.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The value where none is given.
    pub default: &'static str,
    /// Which values it takes.
    pub value: ValueKind,
}

/// Which values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `on` or `off`.
    Switch,
}

impl ValueKind {
    /// What to say about a value that doesn't fit.
    #[must_use]
    pub fn expected(self) -> &'static str {
        match self {
            Self::Switch => "'on' or 'off'",
        }
    }

    pub(crate) fn accepts(self, value: &str) -> bool {
        match self {
            Self::Switch => matches!(value, "on" | "off"),
        }
    }
}

/// The options of one layer in a stack: every option the layer declares has a value that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options(pub(crate) BTreeMap<&'static str, String>);

impl Options {
    /// Whether a switch is on.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| value == "on")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_fits_its_option_and_names_are_unique() {
        let mut names: Vec<_> = LAYERS.iter().map(|layer| layer.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LAYERS.len());
        for option in LAYERS.iter().flat_map(|layer| layer.options) {
            assert!(option.value.accepts(option.default), "{}", option.name);
        }
    }
}
