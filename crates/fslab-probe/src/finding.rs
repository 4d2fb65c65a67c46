//! The results of probing an attribute: its value, the methods that were tried, and the confidence.

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
    /// A count.
    Count(u64),
    /// At least this count, because the search ended there.
    AtLeast(u64),
    /// At least this number of bytes, because the search ended there.
    BytesAtLeast(u64),
    /// A number of bytes in this range; the exact number is unknown.
    Between {
        /// Inclusive lower bound.
        low: u64,
        /// Exclusive upper bound.
        high: u64,
    },
    /// A time in nanoseconds.
    Nanoseconds(u64),
    /// The first and last second that can be stored, counted from 1970.
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

/// Formats a second since 1970 as a date, or as a number if it is outside the calendar.
fn calendar(second: i64) -> String {
    jiff::Timestamp::from_second(second)
        .map_or_else(|_far| format!("second {second}"), |date| date.to_string())
}

/// One measured point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// The quantity that was varied, such as bytes, blocks or pages.
    pub x: u64,
    /// The measured quantity.
    pub y: u64,
}

/// One method of finding an attribute, and its result.
#[derive(Clone, Debug, Serialize)]
pub struct Method {
    /// A short description of the measured quantity.
    pub name: &'static str,
    /// The value, or the reason why there is none. In JSON these are the fields `answer` and
    /// `not_applicable`, one of which is null.
    #[serde(flatten, serialize_with = "as_two_fields")]
    pub outcome: Result<Value, String>,
    /// The points from which the value was derived.
    pub series: Vec<Point>,
    /// All measurements, if each point is computed from several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Point>,
    /// The jump from which the value was derived, if there is one.
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

/// An abrupt increase in a series of times.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Jump {
    /// The `x` of the first point with a longer time.
    pub at: u64,
    /// The additional time in ticks of the cycle counter.
    pub ticks: f64,
}

impl Method {
    pub(crate) fn found(name: &'static str, value: Value, series: Vec<Point>) -> Self {
        Self { name, outcome: Ok(value), series, samples: Vec::new(), jump: None }
    }

    pub(crate) fn failed(
        name: &'static str,
        reason: impl Into<String>,
        series: Vec<Point>,
    ) -> Self {
        Self { name, outcome: Err(reason.into()), series, samples: Vec::new(), jump: None }
    }
}

/// The confidence in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// Two methods that count different quantities agree.
    Agreed,
    /// Only one method found a value.
    Single,
}

/// The result for an attribute.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The value with its confidence, or the reason why there is none.
    pub answer: Result<(Value, Confidence), String>,
    /// All methods that were tried.
    pub methods: Vec<Method>,
}

impl Finding {
    /// Combines methods. If all methods that found a value agree, this value is the result;
    /// otherwise the result is "not applicable".
    pub(crate) fn conclude(methods: Vec<Method>) -> Self {
        let answer = conclude(&methods);
        Self { answer, methods }
    }

    pub(crate) fn by(method: Method) -> Self {
        Self::conclude(vec![method])
    }

    /// Makes a finding for an attribute to which no method applies, for this reason.
    pub(crate) fn none(name: &'static str, reason: impl Into<String>) -> Self {
        Self::by(Method::failed(name, reason, Vec::new()))
    }

    /// Returns the value, if there is one.
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
            Err(format!("the methods disagree: {name} gives {value}, {other_name} gives {other}"))
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
    fn agreeing_methods_raise_the_confidence() {
        let finding = Finding::conclude(vec![found("a", 4096), found("b", 4096), failed("no")]);
        assert_eq!(finding.answer, Ok((Value::Bytes(4096), Confidence::Agreed)));
        let finding = Finding::conclude(vec![found("a", 4096), failed("no")]);
        assert_eq!(finding.answer, Ok((Value::Bytes(4096), Confidence::Single)));
    }

    #[test]
    fn disagreeing_methods_give_no_answer() {
        let finding = Finding::conclude(vec![found("a", 4096), found("b", 1024)]);
        assert_eq!(
            finding.answer,
            Err("the methods disagree: a gives 4096 bytes, b gives 1024 bytes".to_owned())
        );
    }

    #[test]
    fn missing_value_reports_every_reason_once() {
        let finding = Finding::conclude(["no holes", "no device", "no holes"].map(failed).into());
        assert_eq!(finding.answer, Err("no holes; no device".to_owned()));
    }
}
