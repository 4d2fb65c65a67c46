//! One layer in its command-line form: `NAME[:key=value,...]`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use fslab_vfs::FileSystem;

use crate::error::{Error, Result};
use crate::layer_spec::LayerSpec;
use crate::nearest::Nearest;
use crate::options::{OptionSpec, Options, ValueKind};
use crate::registry::LAYERS;
use crate::stack_context::StackContext;

/// A layer with its options, checked against the registry.
#[derive(Clone, Debug)]
pub struct LayerChoice {
    pub(crate) spec: &'static LayerSpec,
    pub(crate) options: Options,
}

impl LayerChoice {
    /// Finds a layer of this crate or of `foreign` by its name, and sets the given options. All
    /// other options keep their defaults.
    ///
    /// # Errors
    /// An unknown layer or option, with similar names, or a value that an option does not accept.
    pub fn of<'a>(
        foreign: &'static [LayerSpec],
        name: &str,
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let all = || LAYERS.iter().chain(foreign);
        let spec = all().find(|layer| layer.name == name).ok_or_else(|| Error::UnknownLayer {
            name: name.to_owned(),
            nearest: Nearest::to(name, all().map(|layer| layer.name)),
        })?;
        let mut options = Options::new(spec.name);
        for option in spec.options {
            set(&mut options, spec, option, option.default)?;
        }
        for (key, value) in given {
            set(&mut options, spec, find(spec, key)?, value)?;
        }
        Ok(Self { spec, options })
    }

    /// Puts the layer over a file system, with this machine's clock.
    ///
    /// # Errors
    /// Errors of the layer.
    pub fn build(&self, inner: Arc<dyn FileSystem>) -> Result<Arc<dyn FileSystem>> {
        self.build_in(inner, &StackContext::default())
    }

    /// Puts the layer over a file system.
    ///
    /// # Errors
    /// Errors of the layer.
    pub fn build_in(
        &self,
        inner: Arc<dyn FileSystem>,
        context: &StackContext,
    ) -> Result<Arc<dyn FileSystem>> {
        (self.spec.build)(inner, &self.options, context)
    }

    /// Returns the paths that the layer will write to, each with the name of its option.
    pub fn places(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let places = self.spec.options.iter().filter(|option| option.value == ValueKind::Place);
        places.filter_map(|option| Some((option.name, self.options.path(option.name)?)))
    }

    /// The layer's options, each with its value.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The layer's description.
    #[must_use]
    pub fn spec(&self) -> &'static LayerSpec {
        self.spec
    }
}

/// Finds an option. Underscores in old option names are still accepted.
fn find(spec: &'static LayerSpec, key: &str) -> Result<&'static OptionSpec> {
    let key_now = key.replace('_', "-");
    spec.options.iter().find(|option| option.name == key_now).ok_or_else(|| Error::UnknownOption {
        layer: spec.name,
        option: key.to_owned(),
        nearest: Nearest::to(key, spec.options.iter().map(|option| option.name)),
    })
}

fn set(
    options: &mut Options,
    spec: &'static LayerSpec,
    option: &'static OptionSpec,
    value: &str,
) -> Result<()> {
    if options.set(option, value) {
        return Ok(());
    }
    Err(Error::BadValue {
        layer: spec.name,
        option: option.name,
        value: value.to_owned(),
        expected: option.value.expected(),
    })
}

impl LayerChoice {
    /// Parses `NAME[:key=value,...]`; the layer is one of this crate or of `foreign`.
    ///
    /// # Errors
    /// An unknown layer or option, a value that an option does not accept, or a malformed option.
    pub fn parse(text: &str, foreign: &'static [LayerSpec]) -> Result<Self> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let bare = Self::of(foreign, name, [])?;
        let mut given = BTreeMap::new();
        for text in options.split(',').filter(|text| !text.is_empty()) {
            let bad = || Error::BadOption { layer: bare.spec.name, text: text.to_owned() };
            let (key, value) = text.split_once('=').ok_or_else(bad)?;
            if given.insert(key, value).is_some() {
                return Err(bad());
            }
        }
        Self::of(foreign, name, given)
    }
}

/// The layer in its command-line form, with the options that differ from their defaults.
impl fmt::Display for LayerChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.spec.name)?;
        let changed = self.spec.options.iter().filter_map(|option| {
            let value = self.options.text_given(option.name)?;
            (value != option.default).then_some((option.name, value))
        });
        for (index, (name, value)) in changed.enumerate() {
            let separator = if index == 0 { ':' } else { ',' };
            write!(formatter, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuses(text: &str, message: &str) {
        let error = LayerChoice::parse(text, &[]).unwrap_err();
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn a_layer_prints_as_it_was_given() {
        for text in ["null", "null:passthrough=off"] {
            assert_eq!(LayerChoice::parse(text, &[]).unwrap().to_string(), text);
        }
        assert_eq!(LayerChoice::parse("null:passthrough=on", &[]).unwrap().to_string(), "null");
    }

    #[test]
    fn unknown_layer_error_suggests_known_names() {
        let all: Vec<_> = LAYERS.iter().map(|layer| layer.name).collect();
        let message = format!("unknown layer 'qqq'; available: {}", all.join(", "));
        refuses("qqq", &message);
        refuses("nul", "unknown layer 'nul'; did you mean 'null'?");
        refuses(
            "null:passthru=off",
            "layer 'null' has no option 'passthru'; did you mean 'passthrough'?",
        );
        refuses(
            "null:passthrough=maybe",
            "layer 'null': option 'passthrough' is 'on' or 'off', not 'maybe'",
        );
        let choice = LayerChoice::parse("trace:to=/x,save_every=2s,when-full=wait", &[]).unwrap();
        assert_eq!(choice.to_string(), "trace:to=/x,when-full=wait,save-every=2s");
        refuses(
            "null:passthrough",
            "layer 'null': 'passthrough' must have the form key=value, with each key given once",
        );
        refuses(
            "null:passthrough=on,passthrough=off",
            "layer 'null': 'passthrough=off' must have the form key=value, with each key given \
             once",
        );
    }
}
