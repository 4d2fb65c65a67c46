//! What was found out, by which methods, and how sure it is.

use std::fmt;

use fslab_report::distinct;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "value", rename_all = "kebab-case")]
pub enum Value {
    /// A number of bytes.
    Bytes(u64),
    /// A number of things.
    Count(u64),
    /// At least so many: the search ended there.
    AtLeast(u64),
    /// At least so many bytes: the search ended there.
    BytesAtLeast(u64),
    /// A number of bytes that was not searched for more closely.
    Between {
        /// It is at least this.
        low: u64,
        /// It is less than this.
        high: u64,
    },
    /// A time in nanoseconds.
    Nanoseconds(u64),
    /// The first and last second since 1970 that can be told.
    Seconds {
        /// The earliest.
        first: i64,
        /// The latest.
        last: i64,
    },
    /// One of the words that the attribute's help explains.
    Word(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(formatter, "{bytes} bytes"),
            Self::Count(count) => write!(formatter, "{count}"),
            Self::AtLeast(count) => write!(formatter, "at least {count}"),
            Self::BytesAtLeast(bytes) => write!(formatter, "at least {bytes} bytes"),
            Self::Between { low, high } => write!(formatter, "{low} to {high} bytes"),
            Self::Nanoseconds(time) => write!(formatter, "{time} ns"),
            Self::Seconds { first, last } => {
                write!(formatter, "{} to {}", calendar(*first), calendar(*last))
            }
            Self::Word(word) => formatter.write_str(word),
        }
    }
}

/// A second since 1970 as a date, or as it is where no calendar reaches it.
fn calendar(second: i64) -> String {
    jiff::Timestamp::from_second(second)
        .map_or_else(|_far| format!("second {second}"), |date| date.to_string())
}

/// One measured pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// What was varied: bytes, blocks, pages.
    pub x: u64,
    /// What was counted.
    pub y: u64,
}

/// One way to find an attribute, and what it found.
#[derive(Clone, Debug, Serialize)]
pub struct Method {
    /// What was counted, in a few words.
    pub name: &'static str,
    /// The value, or why there is none; in JSON `answer` and `not_applicable`, one of them null.
    #[serde(flatten, serialize_with = "as_two_fields")]
    pub outcome: Result<Value, String>,
    /// The pairs that the value was read from.
    pub series: Vec<Point>,
    /// All measurements, where a pair is one of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Point>,
    /// By how much a pair stands out from others, where the value was read from that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jump: Option<Jump>,
}

fn as_two_fields<S: Serializer>(
    outcome: &Result<Value, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_map(Some(2))?;
    fields.serialize_entry("answer", &outcome.as_ref().ok())?;
    fields.serialize_entry("not_applicable", &outcome.as_ref().err())?;
    fields.end()
}

/// A jump among times.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Jump {
    /// The `x` of the first pair that stands out as the later ones do.
    pub at: u64,
    /// How much longer it takes, in ticks of the cycle counter.
    pub ticks: f64,
}

impl Method {
    /// A method that found a value.
    pub(crate) fn found(name: &'static str, value: Value, series: Vec<Point>) -> Self {
        Self { name, outcome: Ok(value), series, samples: Vec::new(), jump: None }
    }

    /// A method that does not apply.
    pub(crate) fn failed(
        name: &'static str,
        reason: impl Into<String>,
        series: Vec<Point>,
    ) -> Self {
        Self { name, outcome: Err(reason.into()), series, samples: Vec::new(), jump: None }
    }
}

/// How sure a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// Two methods that count different things agree.
    Agreed,
    /// One method found it.
    Single,
}

/// What is known of an attribute.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The value and how sure it is, or why there is none.
    pub answer: Result<(Value, Confidence), String>,
    /// All methods that were tried.
    pub methods: Vec<Method>,
}

impl Finding {
    /// Concludes: a value where all methods that found one agree, else "not applicable".
    pub(crate) fn conclude(methods: Vec<Method>) -> Self {
        let answer = conclude(&methods);
        Self { answer, methods }
    }

    /// Concludes from one method.
    pub(crate) fn by(method: Method) -> Self {
        Self::conclude(vec![method])
    }

    /// That no method applies, and why.
    pub(crate) fn none(name: &'static str, reason: impl Into<String>) -> Self {
        Self::by(Method::failed(name, reason, Vec::new()))
    }

    /// The value, where one is known.
    #[must_use]
    pub fn value(&self) -> Option<&Value> {
        self.answer.as_ref().ok().map(|(value, _)| value)
    }
}

fn conclude(methods: &[Method]) -> Result<(Value, Confidence), String> {
    let found: Vec<_> = methods
        .iter()
        .filter_map(|method| Some((method.name, method.outcome.as_ref().ok()?)))
        .collect();
    let Some((name, value)) = found.first() else {
        let reasons = methods.iter().filter_map(|method| method.outcome.as_ref().err());
        return Err(distinct(reasons.map(String::as_str)).join("; "));
    };
    match found.iter().find(|(_, other)| other != value) {
        Some((other_name, other)) => {
            Err(format!("the methods disagree: {name} says {value}, {other_name} says {other}"))
        }
        None if found.len() > 1 => Ok(((*value).clone(), Confidence::Agreed)),
        None => Ok(((*value).clone(), Confidence::Single)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &'static str, bytes: u64) -> Method {
        Method::found(name, Value::Bytes(bytes), Vec::new())
    }

    fn failed(reason: &str) -> Method {
        Method::failed("c", reason, Vec::new())
    }

    #[test]
    fn two_methods_that_agree_are_surer_than_one() {
        let finding = Finding::conclude(vec![found("a", 4096), found("b", 4096), failed("no")]);
        assert_eq!(finding.answer, Ok((Value::Bytes(4096), Confidence::Agreed)));
        let finding = Finding::conclude(vec![found("a", 4096), failed("no")]);
        assert_eq!(finding.answer, Ok((Value::Bytes(4096), Confidence::Single)));
    }

    #[test]
    fn methods_that_disagree_say_nothing() {
        let finding = Finding::conclude(vec![found("a", 4096), found("b", 1024)]);
        assert_eq!(
            finding.answer,
            Err("the methods disagree: a says 4096 bytes, b says 1024 bytes".to_owned())
        );
    }

    #[test]
    fn without_a_value_every_reason_is_told() {
        let finding = Finding::conclude(["no holes", "no device", "no holes"].map(failed).into());
        assert_eq!(finding.answer, Err("no holes; no device".to_owned()));
    }
}
