//! Parameters of workloads: declared once with their defaults, set by plans.

use std::collections::BTreeMap;

use toml::Value;

/// A parameter as a workload declares it.
#[derive(Debug)]
pub struct Parameter {
    /// Its key in a plan.
    pub name: &'static str,
    /// One line: what it means.
    pub help: &'static str,
    /// Its value when a plan does not set it; also says which values are valid.
    pub default: DefaultValue,
}

/// The default of a parameter, and by it its type.
#[derive(Debug)]
pub enum DefaultValue {
    /// A number of things, at least 1.
    Count(u64),
    /// A size in bytes: a number, or a string such as "32 MiB".
    Bytes(u64),
    /// One of several words; the first is the default.
    Choice(&'static [&'static str]),
    /// Any text; often a path.
    Text(&'static str),
}

/// What a plan sets; the rest have their defaults.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    numbers: BTreeMap<&'static str, u64>,
    words: BTreeMap<&'static str, &'static str>,
    texts: BTreeMap<&'static str, String>,
}

impl Parameters {
    /// The value of a number or size; 0 for a parameter that is a choice.
    #[must_use]
    pub fn number(&self, parameter: &Parameter) -> u64 {
        let default = match parameter.default {
            DefaultValue::Count(number) | DefaultValue::Bytes(number) => number,
            DefaultValue::Choice(_) | DefaultValue::Text(_) => 0,
        };
        self.numbers.get(parameter.name).copied().unwrap_or(default)
    }

    /// The value of a choice; empty for a parameter that is a number.
    #[must_use]
    pub fn word(&self, parameter: &Parameter) -> &'static str {
        let default = match parameter.default {
            DefaultValue::Choice(words) => words.first().copied().unwrap_or_default(),
            DefaultValue::Count(_) | DefaultValue::Bytes(_) | DefaultValue::Text(_) => "",
        };
        self.words.get(parameter.name).copied().unwrap_or(default)
    }

    /// The value of a text; `None` where it is empty.
    #[must_use]
    pub fn text(&self, parameter: &Parameter) -> Option<String> {
        let default = match parameter.default {
            DefaultValue::Text(text) => text,
            _ => "",
        };
        let text = self.texts.get(parameter.name).map_or(default, String::as_str);
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Sets a parameter from a plan; answers what is wrong with the value.
    pub(crate) fn set(&mut self, parameter: &Parameter, value: &Value) -> Result<(), String> {
        match parameter.default {
            DefaultValue::Count(_) => {
                self.numbers.insert(parameter.name, count(value)?);
            }
            DefaultValue::Bytes(_) => {
                self.numbers.insert(parameter.name, bytes(value)?);
            }
            DefaultValue::Choice(words) => {
                self.words.insert(parameter.name, choice(value, words)?);
            }
            DefaultValue::Text(_) => {
                let text =
                    value.as_str().ok_or_else(|| format!("must be a string, found {value}"))?;
                self.texts.insert(parameter.name, text.to_owned());
            }
        }
        Ok(())
    }
}

fn count(value: &Value) -> Result<u64, String> {
    value
        .as_integer()
        .and_then(|number| u64::try_from(number).ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("must be a whole number above 0, found {value}"))
}

fn bytes(value: &Value) -> Result<u64, String> {
    let size = match value {
        Value::Integer(number) => u64::try_from(*number).map_err(|error| error.to_string())?,
        Value::String(text) => text
            .parse::<bytesize::ByteSize>()
            .map_err(|error| format!("{text:?}: {error}"))?
            .as_u64(),
        other => return Err(format!("must be a size such as \"32 MiB\", found {other}")),
    };
    if size == 0 { Err("must be above 0".to_owned()) } else { Ok(size) }
}

fn choice(value: &Value, words: &'static [&'static str]) -> Result<&'static str, String> {
    let found = value.as_str().and_then(|found| words.iter().find(|word| **word == found));
    found.copied().ok_or_else(|| format!("must be one of {}, found {value}", words.join(", ")))
}
