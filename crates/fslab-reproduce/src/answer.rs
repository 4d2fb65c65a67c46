//! The JSON output of fslab's commands, and how claims read figures from it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figure::{At, AtUnit, Figure, Outcome};

/// The output of each command by the command's name, or the reason why there is none.
pub type Answers = BTreeMap<String, std::result::Result<Value, String>>;

/// A command of fslab whose output claims read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Name of the command in claims.
    pub name: String,
    /// Arguments; the command writes JSON to its standard output.
    pub run: Vec<String>,
}

/// The value that a claim reads from a command's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Name of the command.
    pub from: String,
    /// Path of the figure.
    pub at: Way,
    /// Path of the figure to divide by. The result is then the ratio of the two figures at each
    /// point.
    pub against: Option<Way>,
    /// Path of the reason why there is no figure.
    pub reason: Option<Way>,
    /// If present, the value at the path is a list, and each element is a figure.
    pub each: Option<Each>,
    /// Factor that converts the figure to the base unit: bytes, seconds, bytes per second, a count
    /// or a ratio.
    #[serde(default = "one")]
    pub factor: f64,
}

fn one() -> f64 {
    1.0
}

/// The keys by which the elements of a list are read as figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Each {
    /// Key of a figure's position.
    pub at: String,
    /// Key of the figure.
    pub is: String,
    /// Unit of the position.
    #[serde(default)]
    pub unit: AtUnit,
    /// Smallest position that is used.
    pub from: Option<f64>,
}

/// A path in a JSON document: keys joined by dots. `[key=value,...]` selects the element of a list
/// with these values, `[last]` the last element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Way {
    text: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Last,
    With(Vec<(String, String)>),
}

impl TryFrom<String> for Way {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (step, after) = Step::first(rest).ok_or_else(|| {
                format!("`{text}` is not a path into the output; can't parse `{rest}`")
            })?;
            steps.push(step);
            rest = after.strip_prefix('.').unwrap_or(after);
        }
        if steps.is_empty() {
            Err("a path needs at least one key".to_owned())
        } else {
            Ok(Self { text, steps })
        }
    }
}

impl From<Way> for String {
    fn from(way: Way) -> Self {
        way.text
    }
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Step {
    /// Returns the first step of a path and the remaining path.
    fn first(way: &str) -> Option<(Self, &str)> {
        let Some(inner) = way.strip_prefix('[') else {
            let (key, after) = way.split_at(way.find(['.', '[']).unwrap_or(way.len()));
            return (!key.is_empty()).then(|| (Self::Key(key.to_owned()), after));
        };
        let (inside, after) = inner.split_once(']')?;
        if inside == "last" {
            return Some((Self::Last, after));
        }
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=')?;
            Some((key.trim().to_owned(), value.trim().to_owned()))
        };
        let pairs = inside.split(',').map(pair).collect::<Option<Vec<_>>>()?;
        Some((Self::With(pairs), after))
    }

    fn follow<'v>(&self, from: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Key(key) => from.get(key),
            Self::Last => from.as_array()?.last(),
            Self::With(pairs) => from.as_array()?.iter().find(|element| {
                pairs.iter().all(|(key, value)| match element.get(key) {
                    Some(Value::String(text)) => text == value,
                    Some(other) => value.parse().is_ok_and(|wanted: Value| wanted == *other),
                    None => false,
                })
            }),
        }
    }
}

impl Way {
    /// Returns the value at the path; `None` if there is no value, or null.
    #[must_use]
    pub fn follow<'v>(&self, from: &'v Value) -> Option<&'v Value> {
        let found = self.steps.iter().try_fold(from, |value, step| step.follow(value))?;
        (!found.is_null()).then_some(found)
    }
}

impl Reading {
    /// Returns the figures in the command's output, or the reason why there are none.
    #[must_use]
    pub fn outcome(&self, answers: &Answers) -> Outcome {
        let answer = match answers.get(&self.from) {
            None => return Outcome::Missing(format!("the command `{}` was not run", self.from)),
            Some(Err(reason)) => return Outcome::Missing(reason.clone()),
            Some(Ok(answer)) => answer,
        };
        let own = self.found(answer, &self.at);
        let Some(against) = &self.against else { return own };
        match (own, self.found(answer, against)) {
            (Outcome::Figures(own), Outcome::Figures(others)) => {
                Outcome::Figures(ratios(&own, &others))
            }
            (Outcome::Figures(_), other) => other,
            (own, _) => own,
        }
    }

    fn found(&self, answer: &Value, at: &Way) -> Outcome {
        let missing = || format!("the output of `{}` has no figure at {at}", self.from);
        match at.follow(answer) {
            None => {
                let reason = self.reason.as_ref().and_then(|way| way.follow(answer)?.as_str());
                let nothing = || format!("the output of `{}` has no value at {at}", self.from);
                Outcome::Missing(reason.map_or_else(nothing, str::to_owned))
            }
            Some(value) => self.told(value).unwrap_or_else(|| Outcome::Missing(missing())),
        }
    }

    fn told(&self, value: &Value) -> Option<Outcome> {
        if let Some(each) = &self.each {
            let elements = value.as_array()?.iter();
            let figures: Vec<Figure> =
                elements.filter_map(|element| self.element(each, element)).collect();
            return (!figures.is_empty()).then_some(Outcome::Figures(figures));
        }
        if let Some(words) = value.as_str() {
            return Some(Outcome::Words(words.to_owned()));
        }
        Some(Outcome::Figures(vec![self.figure(value)?]))
    }

    fn element(&self, each: &Each, element: &Value) -> Option<Figure> {
        let value = element.get(&each.at)?.as_f64()?;
        if each.from.is_some_and(|from| value < from) {
            return None;
        }
        let figure = self.figure(element.get(&each.is)?)?;
        Some(Figure { at: Some(At { value, unit: each.unit }), ..figure })
    }

    /// Reads a figure in one of three forms. A number is exact. A range has `low` and `high`, and
    /// optionally a `value` between them. A `value` alone is the result of a single run.
    fn figure(&self, value: &Value) -> Option<Figure> {
        let number = |value: &Value| value.as_f64().map(|number| number * self.factor);
        if let Some(value) = number(value) {
            return Some(Figure::counted(value));
        }
        if value.get("low").is_none() && value.get("high").is_none() {
            return Some(once(number(value.get("value")?)?));
        }
        let (low, high) = (number(value.get("low")?)?, number(value.get("high")?)?);
        let value = value.get("value").and_then(number).unwrap_or(f64::midpoint(low, high));
        Some(Figure { interval: Some((low, high)), ..Figure::counted(value) })
    }
}

/// Returns a figure from a single run.
fn once(value: f64) -> Figure {
    Figure { rounds: 1, ..Figure::counted(value) }
}

/// Divides figures by other figures at the same positions. The ratio is exact if both figures are
/// exact. It has no interval, because the intervals of two figures do not determine the interval of
/// their ratio.
fn ratios(own: &[Figure], others: &[Figure]) -> Vec<Figure> {
    let is_exact = |figure: &Figure| figure.interval.is_none() && figure.rounds == 0;
    let ratio = |figure: &Figure| {
        let other = others.iter().find(|other| other.at == figure.at)?;
        let value = figure.value / other.value;
        let both = is_exact(figure) && is_exact(other);
        let ratio = if both { Figure::counted(value) } else { once(value) };
        Some(Figure { at: figure.at, ..ratio })
    };
    own.iter().filter_map(ratio).filter(|figure| figure.value.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reading(at: &str) -> Reading {
        let at = Way::try_from(at.to_owned()).unwrap();
        let reason = Way::try_from("rows[last].why".to_owned()).ok();
        Reading { from: "c".to_owned(), at, against: None, reason, each: None, factor: 2.0 }
    }

    fn answers() -> Answers {
        let rows = json!({ "rows": [
            { "name": "a", "kind": "x", "n": 1 },
            { "name": "a", "kind": "y", "n": 2, "range": { "low": 3, "high": 5 },
              "mean": { "value": 3.5, "low": 3, "high": 5 }, "once": { "value": 4 } },
            { "name": "b", "n": null, "why": "too small", "list": [{ "d": 7, "s": 0.5 }] },
        ]});
        Answers::from([("c".to_owned(), Ok(rows)), ("d".to_owned(), Err("no root".to_owned()))])
    }

    #[test]
    fn paths_into_answers_yield_figures_words_or_reasons() {
        let figure =
            |value, interval| Outcome::Figures(vec![Figure { interval, ..Figure::counted(value) }]);
        for (at, expected) in [
            ("rows[name=a,kind=y].n", figure(4.0, None)),
            ("rows[name=a,kind=y].range", figure(8.0, Some((6.0, 10.0)))),
            ("rows[name=a,kind=y].mean", figure(7.0, Some((6.0, 10.0)))),
            ("rows[name=a,kind=y].once", Outcome::Figures(vec![once(8.0)])),
            ("rows[name=a].kind", Outcome::Words("x".to_owned())),
            ("rows[last].n", Outcome::Missing("too small".to_owned())),
            ("rows[name=c].n", Outcome::Missing("too small".to_owned())),
        ] {
            assert_eq!(reading(at).outcome(&answers()), expected, "{at}");
        }
        let other = Reading { from: "d".to_owned(), ..reading("rows") };
        assert_eq!(other.outcome(&answers()), Outcome::Missing("no root".to_owned()));
        let each = Each { at: "d".to_owned(), is: "s".to_owned(), unit: AtUnit::Days, from: None };
        let list = Reading { each: Some(each), ..reading("rows[last].list") };
        let at = Some(At { value: 7.0, unit: AtUnit::Days });
        let expected = Outcome::Figures(vec![Figure { at, ..Figure::counted(1.0) }]);
        assert_eq!(list.outcome(&answers()), expected);
        let each = list.each.map(|each| Each { from: Some(8.0), ..each });
        let above = Reading { each, ..reading("rows[last].list") };
        assert!(matches!(above.outcome(&answers()), Outcome::Missing(_)));
    }

    #[test]
    fn ratio_is_computed_from_two_figures_of_an_answer() {
        let against = |at: &str| Way::try_from(at.to_owned()).ok();
        let half = Reading { against: against("rows[kind=y].n"), ..reading("rows[kind=x].n") };
        let expected = Outcome::Figures(vec![Figure::counted(0.5)]);
        assert_eq!(half.outcome(&answers()), expected);
        // The ratio is not exact if a figure is from one run or has an interval.
        for way in ["rows[kind=y].once", "rows[kind=y].mean"] {
            let of = Reading { against: against(way), ..reading("rows[kind=x].n") };
            let Outcome::Figures(found) = of.outcome(&answers()) else { panic!("{way}") };
            assert_eq!((found[0].interval, found[0].rounds), (None, 1), "{way}");
        }
        let none = Reading { against: against("rows[last].n"), ..reading("rows[kind=x].n") };
        assert_eq!(none.outcome(&answers()), Outcome::Missing("too small".to_owned()));
    }

    #[test]
    fn invalid_paths_into_answers_are_refused() {
        for text in ["", "a..b", "a[b", "a[b]", ".a"] {
            assert!(Way::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
