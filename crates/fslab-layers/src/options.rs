//! Options of layers: declared once with their kind and default, given as text, stored as values.

use fslab_vfs::{Size, parse_duration};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};

/// One option of a layer.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// The key.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The default value, in the form of user input.
    pub default: &'static str,
    /// The accepted values.
    pub value: ValueKind,
}

/// The kind of values that an option accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `on` or `off`.
    Switch,
    /// A whole number from `least` to `most`.
    Count {
        /// The smallest value.
        least: u64,
        /// The largest value.
        most: u64,
    },
    /// A number of bytes from `least` to `most`: `65536`, `64KiB`, `1MiB`.
    Bytes {
        /// The smallest value.
        least: u64,
        /// The largest value.
        most: u64,
    },
    /// A share: a number from 0 to 1.
    Share,
    /// A duration: `10ms`, `5s`, `2m 30s`.
    Duration,
    /// One of several words.
    Choice(&'static [&'static str]),
    /// Any text, which may be empty.
    Text,
    /// A path, which may be empty.
    Path,
    /// A path that the layer writes to. It must be given and be outside the mount, because a layer
    /// that writes through itself would deadlock.
    Place,
}

impl ValueKind {
    /// A description of the accepted values, for messages.
    #[must_use]
    pub fn expected(self) -> String {
        match self {
            Self::Switch => "'on' or 'off'".to_owned(),
            Self::Count { least, most } => format!("a whole number from {least} to {most}"),
            Self::Bytes { least, most } => {
                format!("a size such as 64KiB, from {} to {}", size(least), size(most))
            }
            Self::Share => "a number from 0 to 1".to_owned(),
            Self::Duration => "a time such as 10ms or 5s".to_owned(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Text => "a text".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Place => "a path outside the mount and the lower directory".to_owned(),
        }
    }

    /// Parses a value; `None` if it is not accepted.
    pub(crate) fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Switch => switch(text).map(Value::Switch),
            Self::Count { least, most } => within(text.parse().ok()?, least, most),
            Self::Bytes { least, most } => within(text.parse::<Size>().ok()?.bytes(), least, most),
            Self::Share => {
                let share = text.parse().ok()?;
                (0.0..=1.0).contains(&share).then_some(Value::Share(share))
            }
            Self::Duration => parse_duration(text).ok().map(Value::Duration),
            Self::Choice(words) => {
                words.iter().find(|word| **word == text).map(|word| Value::Choice(word))
            }
            Self::Text => Some(Value::Text(text.to_owned())),
            Self::Path | Self::Place => Some(Value::Path(text.into())),
        }
    }
}

fn size(bytes: u64) -> String {
    Size::of(bytes).to_string()
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn within(number: u64, least: u64, most: u64) -> Option<Value> {
    (least..=most).contains(&number).then_some(Value::Number(number))
}

/// A value that fits its option.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Switch(bool),
    Number(u64),
    Share(f64),
    Duration(Duration),
    Choice(&'static str),
    Text(String),
    Path(PathBuf),
}

/// The options of one layer in a stack: every declared option has an accepted value.
///
/// A layer must request each option by its declared kind. Otherwise the program panics, because the
/// layer has a bug. The registry's test builds every layer to find such bugs.
#[derive(Clone, Debug)]
pub struct Options {
    layer: &'static str,
    given: BTreeMap<&'static str, Given>,
}

#[derive(Clone, Debug)]
struct Given {
    text: String,
    value: Value,
}

impl Options {
    pub(crate) fn new(layer: &'static str) -> Self {
        Self { layer, given: BTreeMap::new() }
    }

    /// Sets an option; returns `false` if the value is not accepted.
    pub(crate) fn set(&mut self, option: &OptionSpec, text: &str) -> bool {
        let Some(value) = option.value.parse(text) else { return false };
        self.given.insert(option.name, Given { text: text.to_owned(), value });
        true
    }

    /// The value as given by the user.
    pub(crate) fn text_given(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(|given| given.text.as_str())
    }

    /// Whether a [`ValueKind::Switch`] is on.
    ///
    /// # Panics
    /// If the layer declared no such option. The same holds for all of the following methods.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name, |value| if let Value::Switch(on) = value { Some(*on) } else { None })
    }

    /// Returns the value of a [`ValueKind::Count`] or [`ValueKind::Bytes`].
    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        self.get(name, |value| if let Value::Number(number) = value { Some(*number) } else { None })
    }

    /// Returns the value of a [`ValueKind::Share`], from 0 to 1.
    #[must_use]
    pub fn share(&self, name: &str) -> f64 {
        self.get(name, |value| if let Value::Share(share) = value { Some(*share) } else { None })
    }

    /// Returns the value of a [`ValueKind::Duration`].
    #[must_use]
    pub fn duration(&self, name: &str) -> Duration {
        self.get(name, |value| if let Value::Duration(time) = value { Some(*time) } else { None })
    }

    /// Returns the value of a [`ValueKind::Choice`].
    #[must_use]
    pub fn choice(&self, name: &str) -> &'static str {
        self.get(name, |value| if let Value::Choice(word) = value { Some(*word) } else { None })
    }

    /// Returns the value of a [`ValueKind::Text`], which may be empty.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.get(name, |value| if let Value::Text(text) = value { Some(text) } else { None })
    }

    /// Returns the value of a [`ValueKind::Path`] or [`ValueKind::Place`]; `None` if it is empty.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<&Path> {
        let path: &PathBuf =
            self.get(name, |value| if let Value::Path(path) = value { Some(path) } else { None });
        (!path.as_os_str().is_empty()).then_some(path)
    }

    /// Returns the value of a [`ValueKind::Place`].
    ///
    /// # Errors
    /// If no path is given.
    pub fn place(&self, name: &'static str) -> Result<&Path> {
        self.path(name).ok_or_else(|| Error::Unfit {
            layer: self.layer,
            what: format!("needs {name}=PATH, the path of its output"),
        })
    }

    fn get<'a, T>(&'a self, name: &str, pick: impl Fn(&'a Value) -> Option<T>) -> T {
        let value = self.given.get(name).and_then(|given| pick(&given.value));
        value.unwrap_or_else(|| {
            panic!("layer '{}' did not declare an option '{name}' of this kind", self.layer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(kind: ValueKind, text: &str, value: Value) {
        assert_eq!(kind.parse(text), Some(value), "{text}");
    }

    #[track_caller]
    fn refuses(kind: ValueKind, text: &str) {
        assert_eq!(kind.parse(text), None, "{text}");
    }

    #[test]
    fn option_values_accept_common_notations() {
        let bytes = ValueKind::Bytes { least: 4096, most: 1 << 20 };
        reads(bytes, "64KiB", Value::Number(65_536));
        reads(bytes, "4096", Value::Number(4096));
        reads(ValueKind::Count { least: 0, most: 9 }, "9", Value::Number(9));
        reads(ValueKind::Duration, "10ms", Value::Duration(Duration::from_millis(10)));
        reads(ValueKind::Duration, "2m 30s", Value::Duration(Duration::from_secs(150)));
        reads(ValueKind::Share, "0.25", Value::Share(0.25));
        reads(ValueKind::Choice(&["none", "full"]), "full", Value::Choice("full"));
        reads(ValueKind::Text, "", Value::Text(String::new()));
        reads(ValueKind::Path, "/a b", Value::Path("/a b".into()));
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        refuses(ValueKind::Bytes { least: 4096, most: 1 << 20 }, "2MiB");
        refuses(ValueKind::Bytes { least: 4096, most: 1 << 20 }, "many");
        refuses(ValueKind::Count { least: 1, most: 9 }, "0");
        refuses(ValueKind::Count { least: 1, most: 9 }, "-1");
        refuses(ValueKind::Duration, "10");
        refuses(ValueKind::Duration, "-10ms");
        refuses(ValueKind::Share, "1.5");
        refuses(ValueKind::Share, "NaN");
        refuses(ValueKind::Choice(&["none", "full"]), "half");
    }

    #[test]
    fn expectations_name_the_limits() {
        let bytes = ValueKind::Bytes { least: 4096, most: 1 << 20 };
        assert_eq!(bytes.expected(), "a size such as 64KiB, from 4.0 KiB to 1.0 MiB");
        assert_eq!(ValueKind::Choice(&["a", "b"]).expected(), "one of a, b");
    }
}
