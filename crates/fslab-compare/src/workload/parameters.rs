//! Parameters of workloads. A workload declares them with their defaults; a plan may set them.

use fslab_vfs::Size;
use std::collections::BTreeMap;
use std::fmt;

use toml::Value;

use super::Spec;
use super::output::{self, OutputFigure};

/// The declaration of a parameter by a workload.
#[derive(Debug)]
#[must_use]
pub struct Parameter {
    /// Its key in a plan.
    pub name: &'static str,
    /// One line that describes it.
    pub help: &'static str,
    /// Its value if a plan does not set it. This also determines its type and thus the valid
    /// values.
    pub default: DefaultValue,
}

/// The default of a parameter, which determines its type.
#[derive(Clone, Copy, Debug)]
pub enum DefaultValue {
    /// A whole number, at least 1.
    Count(u64),
    /// A number of 0 or more, integer or not; 0 often means none.
    Decimal(f64),
    /// A share in percent: a number, or a string such as "10 %".
    Percent(u64),
    /// A size in bytes: a number, or a string such as "32 MiB".
    Bytes(u64),
    /// A list of sizes.
    Sizes(&'static [u64]),
    /// One of several words; the first is the default.
    Choice(&'static [&'static str]),
    /// Any text; often a path.
    Text(&'static str),
    /// A command: its program and arguments.
    Command(&'static [&'static str]),
    /// Metrics in the output of a command; none by default.
    Metrics,
    /// Workloads with their own labels and parameters; none by default.
    Workloads,
}

impl Parameter {
    /// Declares a whole number, at least 1.
    pub const fn count(name: &'static str, help: &'static str, default: u64) -> Self {
        Self { name, help, default: DefaultValue::Count(default) }
    }

    /// Declares a number of 0 or more, integer or not.
    pub const fn decimal(name: &'static str, help: &'static str, default: f64) -> Self {
        Self { name, help, default: DefaultValue::Decimal(default) }
    }

    /// Declares a share in percent.
    pub const fn percent(name: &'static str, help: &'static str, default: u64) -> Self {
        Self { name, help, default: DefaultValue::Percent(default) }
    }

    /// Declares a size in bytes.
    pub const fn bytes(name: &'static str, help: &'static str, default: u64) -> Self {
        Self { name, help, default: DefaultValue::Bytes(default) }
    }

    /// Declares a list of sizes.
    pub const fn sizes(name: &'static str, help: &'static str, default: &'static [u64]) -> Self {
        Self { name, help, default: DefaultValue::Sizes(default) }
    }

    /// Declares one of several words; the first is the default.
    pub const fn choice(name: &'static str, help: &'static str, words: Words) -> Self {
        Self { name, help, default: DefaultValue::Choice(words) }
    }

    /// Declares any text; often a path.
    pub const fn text(name: &'static str, help: &'static str, default: &'static str) -> Self {
        Self { name, help, default: DefaultValue::Text(default) }
    }

    /// Declares a command: its program and arguments.
    pub const fn command(name: &'static str, help: &'static str, words: Words) -> Self {
        Self { name, help, default: DefaultValue::Command(words) }
    }
}

/// Words that are compiled into this program.
type Words = &'static [&'static str];

impl DefaultValue {
    /// Returns a description of the values that a plan may set.
    #[must_use]
    pub fn values(&self) -> String {
        match self {
            Self::Count(_) => "a whole number above 0".to_owned(),
            Self::Decimal(_) => "a number of 0 or more".to_owned(),
            Self::Percent(_) => "a share such as \"10 %\"".to_owned(),
            Self::Bytes(_) => "a size such as \"32 MiB\"".to_owned(),
            Self::Sizes(_) => "a list of sizes".to_owned(),
            Self::Choice(words) => words.join(", "),
            Self::Text(_) => "a text".to_owned(),
            Self::Command(_) => "a list: a program and its arguments".to_owned(),
            Self::Metrics => output::FORM.to_owned(),
            Self::Workloads => WORKLOADS_FORM.to_owned(),
        }
    }
}

impl fmt::Display for DefaultValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: u64| Size::of(bytes).to_string();
        match self {
            Self::Count(number) => write!(formatter, "{number}"),
            Self::Decimal(number) => write!(formatter, "{number}"),
            Self::Percent(number) => write!(formatter, "{number} %"),
            Self::Bytes(bytes) => formatter.write_str(&size(*bytes)),
            Self::Sizes(sizes) => {
                let sizes: Vec<String> = sizes.iter().copied().map(size).collect();
                formatter.write_str(&sizes.join(", "))
            }
            Self::Choice(words) => formatter.write_str(words.first().copied().unwrap_or_default()),
            Self::Text(text) => formatter.write_str(text),
            Self::Command(words) => formatter.write_str(&words.join(" ")),
            Self::Metrics | Self::Workloads => Ok(()),
        }
    }
}

/// A value that a plan sets.
#[derive(Clone, Debug)]
enum Set {
    Number(u64),
    Decimal(f64),
    Sizes(Vec<u64>),
    Word(&'static str),
    Text(String),
    Command(Vec<String>),
    Metrics(Vec<OutputFigure>),
    Workloads(Vec<NamedWorkload>),
}

/// A workload within another one.
#[derive(Clone, Debug)]
pub(crate) struct NamedWorkload {
    /// Its name in samples: its `label` if it has one, otherwise the name of the workload.
    pub label: String,
    /// The specification of the workload.
    pub spec: &'static Spec,
    /// The parameters that the plan sets.
    pub parameters: Parameters,
}

/// Describes the value that a plan must set, for error messages.
const WORKLOADS_FORM: &str = "a list of workloads, such as \
     [{ name = \"stream\", size = \"64 MiB\" }, { name = \"random-io\" }]";

impl NamedWorkload {
    /// Parses the table of a workload. The error states why the value is invalid.
    fn parse(value: &Value) -> Result<Self, String> {
        let table = value.as_table().ok_or_else(|| format!("must be {WORKLOADS_FORM}"))?;
        let name = table.get("name").map(text).transpose()?;
        let name = name.ok_or("a workload has no `name`")?;
        let spec = super::find(&name).ok_or_else(|| format!("unknown workload {name:?}"))?;
        let label = table.get("label").map(text).transpose()?.unwrap_or(name);
        let mut parameters = Parameters::default();
        for (key, value) in table.iter().filter(|(key, _)| !["name", "label"].contains(&&***key)) {
            let parameter = spec.parameters.iter().find(|parameter| parameter.name == key);
            let Some(parameter) = parameter else {
                let known: Vec<&str> = spec.parameters.iter().map(|one| one.name).collect();
                let known = known.join(", ");
                return Err(format!("{label}: unknown parameter `{key}`; known: {known}"));
            };
            parameters
                .set(parameter, value)
                .map_err(|wrong| format!("{label}: `{key}`: {wrong}"))?;
        }
        Ok(Self { label, spec, parameters })
    }
}

/// The parameters that a plan sets. The other parameters have their defaults.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    values: BTreeMap<&'static str, Set>,
}

impl Parameters {
    /// Returns the set value or the default.
    fn value(&self, parameter: &Parameter) -> Set {
        let set = self.values.get(parameter.name).cloned();
        set.unwrap_or_else(|| match parameter.default {
            DefaultValue::Count(number)
            | DefaultValue::Percent(number)
            | DefaultValue::Bytes(number) => Set::Number(number),
            DefaultValue::Decimal(number) => Set::Decimal(number),
            DefaultValue::Sizes(sizes) => Set::Sizes(sizes.to_vec()),
            DefaultValue::Choice(words) => Set::Word(words.first().copied().unwrap_or_default()),
            DefaultValue::Text(text) => Set::Text(text.to_owned()),
            DefaultValue::Command(words) => {
                Set::Command(words.iter().copied().map(str::to_owned).collect())
            }
            DefaultValue::Metrics => Set::Metrics(Vec::new()),
            DefaultValue::Workloads => Set::Workloads(Vec::new()),
        })
    }

    /// Returns the value of a number, share or size; 0 for a parameter of another type.
    #[must_use]
    pub fn number(&self, parameter: &Parameter) -> u64 {
        let Set::Number(number) = self.value(parameter) else { return 0 };
        number
    }

    /// Whether the plan sets this parameter.
    pub(crate) fn is_set(&self, parameter: &Parameter) -> bool {
        self.values.contains_key(parameter.name)
    }

    /// Returns the value of a decimal number; 0 for a parameter of another type.
    #[must_use]
    pub fn decimal(&self, parameter: &Parameter) -> f64 {
        let Set::Decimal(number) = self.value(parameter) else { return 0.0 };
        number
    }

    /// Returns the value of a list of sizes; empty for a parameter of another type.
    #[must_use]
    pub fn sizes(&self, parameter: &Parameter) -> Vec<u64> {
        let Set::Sizes(sizes) = self.value(parameter) else { return Vec::new() };
        sizes
    }

    /// Returns the value of a choice; empty for a parameter of another type.
    #[must_use]
    pub fn word(&self, parameter: &Parameter) -> &'static str {
        let Set::Word(word) = self.value(parameter) else { return "" };
        word
    }

    /// Returns the value of a text; `None` if it is empty.
    #[must_use]
    pub fn text(&self, parameter: &Parameter) -> Option<String> {
        let Set::Text(text) = self.value(parameter) else { return None };
        Some(text).filter(|text| !text.is_empty())
    }

    /// Returns the value of a command; empty if there is none.
    #[must_use]
    pub fn command(&self, parameter: &Parameter) -> Vec<String> {
        let Set::Command(words) = self.value(parameter) else { return Vec::new() };
        words
    }

    /// Returns the metrics that a plan lists; empty for a parameter of another type.
    pub(crate) fn metrics(&self, parameter: &Parameter) -> Vec<OutputFigure> {
        let Set::Metrics(metrics) = self.value(parameter) else { return Vec::new() };
        metrics
    }

    /// Returns the workloads that a plan lists; empty for a parameter of another type.
    pub(crate) fn workloads(&self, parameter: &Parameter) -> Vec<NamedWorkload> {
        let Set::Workloads(workloads) = self.value(parameter) else { return Vec::new() };
        workloads
    }

    /// Returns all workloads that a plan lists within this one.
    pub(crate) fn workloads_mut(&mut self) -> impl Iterator<Item = &mut NamedWorkload> {
        let lists = self.values.values_mut().filter_map(|set| match set {
            Set::Workloads(list) => Some(list),
            _ => None,
        });
        lists.flatten()
    }

    /// Sets a command from the words of a command line.
    pub(crate) fn set_command(&mut self, parameter: &Parameter, words: Vec<String>) {
        self.values.insert(parameter.name, Set::Command(words));
    }

    /// Sets a text from code instead of a plan.
    pub(crate) fn set_text(&mut self, parameter: &Parameter, text: String) {
        self.values.insert(parameter.name, Set::Text(text));
    }

    /// Sets a parameter from a plan. The error states why the value is invalid.
    pub(crate) fn set(&mut self, parameter: &Parameter, value: &Value) -> Result<(), String> {
        let set = match parameter.default {
            DefaultValue::Count(_) => Set::Number(count(value)?),
            DefaultValue::Decimal(_) => Set::Decimal(decimal(value)?),
            DefaultValue::Percent(_) => Set::Number(percent(value)?),
            DefaultValue::Bytes(_) => Set::Number(bytes(value)?),
            DefaultValue::Sizes(_) => Set::Sizes(sizes(value)?),
            DefaultValue::Choice(words) => Set::Word(choice(value, words)?),
            DefaultValue::Text(_) => Set::Text(text(value)?),
            DefaultValue::Command(_) => Set::Command(command(value)?),
            DefaultValue::Metrics => Set::Metrics(OutputFigure::parse(value)?),
            DefaultValue::Workloads => {
                let list = value.as_array().ok_or_else(|| format!("must be {WORKLOADS_FORM}"))?;
                Set::Workloads(list.iter().map(NamedWorkload::parse).collect::<Result<_, _>>()?)
            }
        };
        self.values.insert(parameter.name, set);
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

fn decimal(value: &Value) -> Result<f64, String> {
    let number = match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    };
    number
        .filter(|number| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| format!("must be a number of 0 or more, found {value}"))
}

/// Parses a share in percent, at most 100.
pub(crate) fn percent(value: &Value) -> Result<u64, String> {
    let number = match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::String(text) => text.trim_end_matches('%').trim().parse().ok(),
        _ => None,
    };
    number
        .filter(|number| *number <= 100)
        .ok_or_else(|| format!("must be a share such as \"10 %\", found {value}"))
}

/// Parses a size in bytes.
///
/// # Errors
/// Fails if the value is not a size, or is 0.
pub fn bytes(value: &Value) -> Result<u64, String> {
    let size = match value {
        Value::Integer(number) => u64::try_from(*number).map_err(|error| error.to_string())?,
        Value::String(text) => {
            text.parse::<Size>().map_err(|error| format!("{text:?}: {error}"))?.bytes()
        }
        other => return Err(format!("must be a size such as \"32 MiB\", found {other}")),
    };
    if size == 0 { Err("must be above 0".to_owned()) } else { Ok(size) }
}

fn sizes(value: &Value) -> Result<Vec<u64>, String> {
    let wrong = || format!("must be a list of sizes such as [\"8 KiB\"], found {value}");
    let list = value.as_array().filter(|list| !list.is_empty()).ok_or_else(wrong)?;
    list.iter().map(bytes).collect()
}

fn choice(value: &Value, words: &'static [&'static str]) -> Result<&'static str, String> {
    let found = value.as_str().and_then(|found| words.iter().find(|word| **word == found));
    found.copied().ok_or_else(|| format!("must be one of {}, found {value}", words.join(", ")))
}

fn text(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("must be a string, found {value}"))
}

fn command(value: &Value) -> Result<Vec<String>, String> {
    let wrong = || format!("must be a list such as [\"gzip\", \"-9\"], found {value}");
    let list = value.as_array().filter(|list| !list.is_empty()).ok_or_else(wrong)?;
    list.iter().map(|word| word.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}
