//! A stack: layers over one leaf, in one process, top first.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use fslab_vfs::{FileSystem, ReadOnly};
use serde::Deserialize;
use toml::Spanned;

use crate::error::{Error, Result};
use crate::layer_choice::LayerChoice;
use crate::layer_spec::{LayerKind, LayerSpec};
use crate::leaf::{ForeignLeaf, Leaf};
use crate::observe::fault;
use crate::stack_context::StackContext;

/// Separator of the parts of a stack written in one line.
const SEPARATOR: &str = " / ";

/// The description of a stack.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The layers, top first.
    pub layers: Vec<LayerChoice>,
    /// The leaf below them.
    pub leaf: Leaf,
}

/// Leaves and layers of other crates, passed in by the program that links the crates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Foreign {
    /// Leaves.
    pub leaves: &'static [ForeignLeaf],
    /// Layers.
    pub layers: &'static [LayerSpec],
}

/// The layers of a stack as a TOML file: `[[layer]]` tables, top first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayersFile {
    layer: Vec<Spanned<LayerTable>>,
}

#[derive(Debug, Deserialize)]
struct LayerTable {
    name: String,
    #[serde(flatten)]
    options: BTreeMap<String, toml::Value>,
}

impl Stack {
    /// Opens the leaf and puts the layers over it, with this machine's clock.
    ///
    /// # Errors
    /// Errors of the leaf or a layer.
    pub fn build(&self) -> Result<Arc<dyn FileSystem>> {
        self.build_in(&StackContext::default())
    }

    /// Opens the leaf and puts the layers over it. Afterwards `context` contains the layers'
    /// reporters.
    ///
    /// # Errors
    /// Errors of the leaf or a layer.
    pub fn build_in(&self, context: &StackContext) -> Result<Arc<dyn FileSystem>> {
        self.build_over(self.leaf.open(context.leaf_options())?, context)
    }

    /// Puts the layers over an open leaf.
    ///
    /// # Errors
    /// Errors of a layer.
    pub fn build_over(
        &self,
        leaf: Arc<dyn FileSystem>,
        context: &StackContext,
    ) -> Result<Arc<dyn FileSystem>> {
        self.check()?;
        let mut top = match context.leaf_options().read_only {
            true => Arc::new(ReadOnly::new(leaf)),
            false => leaf,
        };
        for (index, layer) in self.layers.iter().enumerate().rev() {
            let context = context.of_layer(index + 1, layer.to_string());
            top = layer.build_in(top, &context)?;
        }
        Ok(top)
    }

    /// Checks the order of the layers.
    ///
    /// # Errors
    /// If a layer changes bytes that a layer above it needs unchanged.
    pub fn check(&self) -> Result<()> {
        let mut specs = self.layers.iter().map(LayerChoice::spec);
        let Some(layer) = specs.find(|spec| spec.kind == LayerKind::Grounded) else {
            return Ok(());
        };
        let unfit = |what| Err(Error::Unfit { layer: layer.name, what });
        match specs.find(|spec| spec.kind != LayerKind::Observer) {
            Some(below) if below.name == layer.name => {
                unfit("can be in a stack only once".to_owned())
            }
            Some(below) => unfit(format!(
                "needs the original files of the lower directory, but the lower layer '{}' changes \
                 them; use the other order: -l {} -l {}",
                below.name, below.name, layer.name
            )),
            None => Ok(()),
        }
    }

    /// Whether the files change only through the stack, without a declaration by the user. This is
    /// so for a leaf that only one process can open, if no layer is over it.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.leaf.is_exclusive() && self.layers.is_empty()
    }

    /// Whether a layer may make an operation fail after it has taken effect.
    #[must_use]
    pub fn injects_faults(&self) -> bool {
        self.layers.iter().any(|layer| layer.spec().name == fault::NAME)
    }

    /// Whether the kernel may read and write the files of the lower directory itself.
    #[must_use]
    pub fn passes_data(&self) -> bool {
        let passes = |layer: &LayerChoice| {
            let has_option = layer.spec().options.iter().any(|option| option.name == "passthrough");
            has_option && layer.options().is_on("passthrough")
        };
        self.leaf.directory().is_some() && self.layers.iter().all(passes)
    }

    /// Whether a layer has commands that change the files of the leaf.
    #[must_use]
    pub fn is_grounded(&self) -> bool {
        self.layers.iter().any(|layer| layer.spec().kind == LayerKind::Grounded)
    }

    /// Whether the top layer is a codec, that is, a [`LayerKind::Transformer`].
    #[must_use]
    pub fn is_encoded(&self) -> bool {
        self.layers.first().is_some_and(|layer| layer.spec().kind == LayerKind::Transformer)
    }

    /// Parses `LAYER / LAYER / LEAF`. Layers and leaf are those of this crate or of `foreign`.
    ///
    /// # Errors
    /// The unknown layer or option, or the value that is not accepted.
    pub fn parse(text: &str, foreign: Foreign) -> Result<Self> {
        let mut parts: Vec<_> = text.split(SEPARATOR).map(str::trim).collect();
        let leaf = Leaf::parse(parts.pop().unwrap_or_default(), foreign.leaves);
        let layer = |text: &str| LayerChoice::parse(text, foreign.layers);
        let layers = parts.into_iter().map(layer).collect::<Result<_>>()?;
        Ok(Self { layers, leaf })
    }

    /// Reads the layers of a stack from a TOML file, top first. They are layers of this crate or of
    /// `foreign`.
    ///
    /// # Errors
    /// If the file can't be read or is invalid; the message contains file, line and key.
    pub fn read_layers(path: &Path, foreign: &'static [LayerSpec]) -> Result<Vec<LayerChoice>> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::UnreadableFile { path: path.to_owned(), source })?;
        let path = path.to_owned();
        match toml::from_str::<LayersFile>(&text) {
            Ok(file) => {
                let choose = |table| choose_at(table, foreign, &path, &text);
                file.layer.iter().map(choose).collect()
            }
            Err(reason) => {
                let line = line_of(&text, reason.span().map_or(0, |span| span.start));
                let origin = path.display().to_string();
                Err(Error::Line { origin, line, source: reason.message().to_owned().into() })
            }
        }
    }
}

fn choose_at(
    table: &Spanned<LayerTable>,
    foreign: &'static [LayerSpec],
    path: &Path,
    text: &str,
) -> Result<LayerChoice> {
    let start = table.span().start;
    table.get_ref().choose(foreign).map_err(|error| Error::Line {
        origin: path.display().to_string(),
        line: table
            .get_ref()
            .wrong_option(foreign)
            .and_then(|key| line_of_key(text, start, key))
            .unwrap_or_else(|| line_of(text, start)),
        source: Box::new(error),
    })
}

/// Returns the number of the line with `key` in the table that begins at byte `start`.
fn line_of_key(text: &str, start: usize, key: &str) -> Option<usize> {
    let is_its = |line: &str| {
        line.split_once('=').is_some_and(|(name, _)| name.trim().trim_matches('"') == key)
    };
    let at = text.get(start..)?.lines().skip(1).position(is_its)?;
    Some(line_of(text, start) + 1 + at)
}

/// Returns the number of the line that contains a byte, counted from 1.
fn line_of(text: &str, position: usize) -> usize {
    1 + text.bytes().take(position).filter(|byte| *byte == b'\n').count()
}

impl LayerTable {
    fn choose(&self, foreign: &'static [LayerSpec]) -> Result<LayerChoice> {
        let texts: BTreeMap<_, _> =
            self.options.iter().map(|(key, value)| (key.as_str(), to_text(value))).collect();
        let given = texts.iter().map(|(key, value)| (*key, value.as_str()));
        LayerChoice::of(foreign, &self.name, given)
    }

    /// Returns the first option that the layer does not accept, if the layer exists.
    fn wrong_option(&self, foreign: &'static [LayerSpec]) -> Option<&str> {
        LayerChoice::of(foreign, &self.name, []).ok()?;
        let is_wrong = |(key, value): &(&String, &toml::Value)| {
            let text = to_text(value);
            LayerChoice::of(foreign, &self.name, [(key.as_str(), text.as_str())]).is_err()
        };
        self.options.iter().find(is_wrong).map(|(key, _)| key.as_str())
    }
}

/// Returns the command-line form of a TOML value.
fn to_text(value: &toml::Value) -> String {
    match value {
        toml::Value::Boolean(true) => "on".to_owned(),
        toml::Value::Boolean(false) => "off".to_owned(),
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for layer in &self.layers {
            write!(formatter, "{layer}{SEPARATOR}")?;
        }
        self.leaf.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::LAYERS;

    #[test]
    fn a_stack_prints_as_it_was_given() {
        for text in ["mem:", "null / mem:", "null:passthrough=off / null / /tmp/a b", "dir:mem:"] {
            assert_eq!(Stack::parse(text, Foreign::default()).unwrap().to_string(), text);
        }
    }

    /// For two equal layers, the reverse order must not be suggested.
    #[test]
    fn misplaced_grounded_layer_error_suggests_a_valid_order() {
        const GROUNDED: LayerSpec =
            LayerSpec { name: "ground", kind: LayerKind::Grounded, ..LAYERS[0] };
        const CHANGING: LayerSpec =
            LayerSpec { name: "change", kind: LayerKind::Transformer, ..LAYERS[0] };
        let told = |text: &str| {
            let foreign = Foreign { layers: &[GROUNDED, CHANGING], ..Foreign::default() };
            Stack::parse(text, foreign).unwrap().check().map_err(|error| error.to_string())
        };
        assert_eq!(told("change / null / ground / null / mem:"), Ok(()));
        let other = told("ground / null / change / mem:").unwrap_err();
        assert!(other.ends_with("use the other order: -l change -l ground"), "{other}");
        let once = "layer 'ground' can be in a stack only once".to_owned();
        assert_eq!(told("ground / null / ground / mem:"), Err(once));
    }

    #[test]
    fn layers_file_errors_name_the_line_and_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("layers.toml");
        std::fs::write(&path, "[[layer]]\nname = \"null\"\npassthrough = false\n").unwrap();
        let layers = Stack::read_layers(&path, &[]).unwrap();
        assert_eq!(layers[0].to_string(), "null:passthrough=off");
        std::fs::write(&path, "[[layers]]\nname = \"null\"\n").unwrap();
        let message = Stack::read_layers(&path, &[]).unwrap_err().to_string();
        assert!(message.contains("layers.toml") && message.contains("line 1"), "{message}");
        assert!(message.contains("`layers`") && message.lines().count() == 1, "{message}");
        std::fs::write(&path, "[[layer]]\nname = \"null\"\n\n[[layer]]\nname = \"nil\"\n").unwrap();
        let message = Stack::read_layers(&path, &[]).unwrap_err().to_string();
        assert!(message.contains("layers.toml, line 4: unknown layer 'nil'"), "{message}");
        let options = "[[layer]]\nname = \"stats\"\n[[layer]]\nname = \"null\"\n\npasthrough = 1\n";
        std::fs::write(&path, options).unwrap();
        let message = Stack::read_layers(&path, &[]).unwrap_err().to_string();
        assert!(message.contains("line 6: ") && message.contains("'pasthrough'"), "{message}");
    }
}
