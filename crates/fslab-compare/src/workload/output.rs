//! Reads figures from the output of a command. A plan sets the name of each figure and its position
//! in the output.

use regex::bytes::Regex;
use serde_json::Value as Json;
use toml::{Table, Value};

use crate::error::{Error, Result};
use fslab_report::sample::{Better, OwnMetric};

/// A figure in the output of a command.
#[derive(Clone, Debug)]
pub(crate) struct OutputFigure {
    name: String,
    place: Place,
    unit: String,
    better: Better,
}

/// The position of a figure in the output.
#[derive(Clone, Debug)]
enum Place {
    /// A JSON pointer (RFC 6901).
    Json(String),
    /// A regular expression; the figure is the first group of its last match.
    Regex(Regex),
}

/// Describes the value that a plan must set, for error messages.
pub(crate) const FORM: &str = "a table of metrics, such as \
     { tps = { regex = \"tps = ([0-9.]+)\", unit = \"1/s\", better = \"more\" } } or \
     { reads = { json = \"/disk/reads\" } }";

impl OutputFigure {
    /// Parses the figures that a plan lists. The error states why the value is invalid.
    pub fn parse(value: &Value) -> std::result::Result<Vec<Self>, String> {
        let table = value.as_table().ok_or_else(|| format!("must be {FORM}, found {value}"))?;
        table.iter().map(|(name, value)| Self::parse_one(name, value)).collect()
    }

    fn parse_one(name: &str, value: &Value) -> std::result::Result<Self, String> {
        let wrong = |reason: &str| format!("metric `{name}`: {reason}");
        let is_plain = |c: char| c.is_alphanumeric() || "-_%/".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(wrong("a name may contain only letters, digits and -, _, %, /"));
        }
        let Some(table) = value.as_table() else {
            return Err(wrong(&format!("must be a table with `json` or `regex`, found {value}")));
        };
        let known = ["json", "regex", "unit", "better"];
        if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(wrong(&format!("unknown key `{key}`; known: {}", known.join(", "))));
        }
        let place = match (text(table, "json"), text(table, "regex")) {
            (Some(Ok(pointer)), None) if pointer.starts_with('/') => Place::Json(pointer),
            (Some(Ok(_)), None) => {
                return Err(wrong("`json` must be a pointer such as \"/jobs/0/read/iops\""));
            }
            (None, Some(Ok(pattern))) => Place::Regex(expression(&pattern).map_err(|e| wrong(&e))?),
            (Some(Err(error)), _) | (_, Some(Err(error))) => return Err(wrong(&error)),
            _ => return Err(wrong("must have either `json` or `regex`")),
        };
        let unit = text(table, "unit").transpose().map_err(|error| wrong(&error))?;
        let better = match text(table, "better").transpose().map_err(|error| wrong(&error))? {
            None => Better::Less,
            Some(word) if word == "less" => Better::Less,
            Some(word) if word == "more" => Better::More,
            Some(word) => {
                return Err(wrong(&format!("`better` must be less or more, not {word:?}")));
            }
        };
        Ok(Self { name: name.to_owned(), place, unit: unit.unwrap_or_default(), better })
    }

    /// Finds the figure in an output.
    ///
    /// # Errors
    /// Returns [`Error::NoFigure`] if the output lacks it.
    pub fn find(&self, output: &[u8]) -> Result<OwnMetric> {
        let value = match &self.place {
            Place::Json(pointer) => json(output).and_then(|json| at(&json, pointer)),
            Place::Regex(pattern) => last_match(pattern, output),
        };
        let value = value.map_err(|reason| Error::NoFigure { name: self.name.clone(), reason })?;
        let Self { name, unit, better, .. } = self;
        Ok(OwnMetric { name: name.clone(), value, unit: unit.clone(), better: *better })
    }
}

fn text(table: &Table, key: &str) -> Option<std::result::Result<String, String>> {
    let value = table.get(key)?;
    let text = value.as_str().map(str::to_owned);
    Some(text.ok_or_else(|| format!("`{key}` must be a string, found {value}")))
}

fn expression(pattern: &str) -> std::result::Result<Regex, String> {
    let expression = Regex::new(pattern).map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        format!("`regex`: {}", last.trim_start_matches("error: "))
    })?;
    if expression.captures_len() < 2 {
        return Err("`regex` has no group: put ( ) around the number".to_owned());
    }
    Ok(expression)
}

/// Returns the JSON value in an output. The program may have printed other lines before it.
pub(super) fn json(output: &[u8]) -> std::result::Result<Json, String> {
    let start = output.iter().position(|byte| b"{[".contains(byte)).unwrap_or(0);
    let mut values = serde_json::Deserializer::from_slice(&output[start..]).into_iter();
    match values.next() {
        Some(value) => value.map_err(|error| format!("the output is not JSON: {error}")),
        None => Err("the output is empty".to_owned()),
    }
}

fn at(json: &Json, pointer: &str) -> std::result::Result<f64, String> {
    let found = json.pointer(pointer).ok_or_else(|| format!("the JSON has no {pointer}"))?;
    found.as_f64().ok_or_else(|| format!("{pointer} is {found}, which is not a number"))
}

fn last_match(pattern: &Regex, output: &[u8]) -> std::result::Result<f64, String> {
    let found = pattern.captures_iter(output).last();
    let found = found.ok_or_else(|| format!("the output does not match {pattern}"))?;
    let text = found.get(1).map(|group| String::from_utf8_lossy(group.as_bytes()).into_owned());
    let text = text.unwrap_or_default();
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("{pattern} found {text:?}, which is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(text: &str) -> std::result::Result<Vec<OutputFigure>, String> {
        let table: Table = text.parse().unwrap();
        OutputFigure::parse(&table["metrics"])
    }

    fn found(text: &str, output: &str) -> std::result::Result<f64, String> {
        let figures = figures(text).unwrap();
        figures[0].find(output.as_bytes()).map(|one| one.value).map_err(|error| error.to_string())
    }

    #[test]
    fn metrics_are_found_by_json_pointer_and_regex() {
        let regex = r#"metrics = { tps = { regex = 'tps = ([0-9.]+)' } }"#;
        assert_eq!(found(regex, "tps = 10.5\nlatency\ntps = 12.25 (without)"), Ok(12.25));
        let json = r#"metrics = { x = { json = "/a/1/b" } }"#;
        assert_eq!(found(json, "note: slow\n{\"a\": [0, {\"b\": 7}]}\nend"), Ok(7.0));
        let parsed = figures(r#"metrics = { t = { json = "/t", unit = "1/s", better = "more" } }"#);
        let one = parsed.unwrap()[0].find(b"{\"t\": 3}").unwrap();
        assert_eq!((&*one.unit, one.better), ("1/s", Better::More));
    }

    #[test]
    fn output_without_the_metric_is_refused() {
        let regex = r#"metrics = { tps = { regex = '(\w+) tps' } }"#;
        for (text, output, reason) in [
            (regex, "nothing", "metric `tps`: the output does not match (\\w+) tps"),
            (regex, "many tps", "(\\w+) tps found \"many\", which is not a number"),
            (regex, "nan tps", "found \"nan\", which is not a number"),
            (r#"metrics = { x = { json = "/a" } }"#, "{\"b\": 1}", "the JSON has no /a"),
            (r#"metrics = { x = { json = "/a" } }"#, "{\"a\": \"1\"}", "/a is \"1\""),
            (r#"metrics = { x = { json = "/a" } }"#, "", "the output is empty"),
            (r#"metrics = { x = { json = "/a" } }"#, "a {", "the output is not JSON"),
        ] {
            let error = found(text, output).unwrap_err();
            assert!(error.contains(reason), "{output}: {error}");
        }
    }

    #[test]
    fn wrong_metrics_are_refused() {
        for (text, reason) in [
            ("metrics = 3", "must be a table of metrics"),
            ("metrics = { x = 3 }", "must be a table with `json` or `regex`"),
            ("metrics = { x = {} }", "must have either `json` or `regex`"),
            (r#"metrics = { x = { json = "/a", regex = "(b)" } }"#, "must have either"),
            (r#"metrics = { x = { json = "a" } }"#, "must be a pointer"),
            (r#"metrics = { x = { json = 3 } }"#, "`json` must be a string"),
            (r#"metrics = { x = { regex = "a" } }"#, "has no group"),
            (r#"metrics = { x = { regex = "(a" } }"#, "unclosed group"),
            (r#"metrics = { x = { regex = "(a)", better = "most" } }"#, "must be less or more"),
            (r#"metrics = { x = { regex = "(a)", foo = "most" } }"#, "unknown key `foo`"),
            (r#"metrics = { "a b" = { regex = "(a)" } }"#, "a name may contain only letters"),
        ] {
            let error = figures(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
