//! Margins: the largest difference from the baseline at which a target is judged equal, or fast
//! enough.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::RatioInterval;

/// A margin, written as `2 %` or `at most 10 % slower` in plans and on command lines.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq)]
#[serde(try_from = "String", into = "String")]
pub struct Margin {
    side: Side,
    /// The margin as a share: 0.02 for 2 %.
    share: f64,
}

/// The differences that a margin bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Faster and slower: a test of equivalence.
    Both,
    /// Only slower: a test of non-inferiority.
    Slower,
}

impl Margin {
    /// Returns the smallest and largest ratio within the margin. A margin of 2 % reaches from
    /// 1/1.02 to 1.02, so that exchanging target and baseline does not change the verdict.
    #[must_use]
    pub fn range(self) -> (f64, f64) {
        let most = 1.0 + self.share;
        match self.side {
            Side::Both => (most.recip(), most),
            Side::Slower => (0.0, most),
        }
    }

    /// Whether the margin bounds both directions.
    #[must_use]
    pub fn is_two_sided(self) -> bool {
        self.side == Side::Both
    }

    /// Whether the whole interval lies within the margin. If the margin bounds both directions,
    /// this is equivalent to two one-sided tests, otherwise to one.
    #[must_use]
    pub fn holds(self, interval: &RatioInterval) -> bool {
        let (least, most) = self.range();
        least <= interval.low && interval.high <= most
    }

    /// Returns the verdict on a target whose interval lies within the margin.
    #[must_use]
    pub fn words(self) -> String {
        match self.side {
            Side::Both => format!("equal within {self}"),
            Side::Slower => self.to_string(),
        }
    }
}

impl fmt::Display for Margin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounding removes the error of the division by 100, so that the user's own number is
        // printed.
        let percent = (self.share * 1e8).round() / 1e6;
        match self.side {
            Side::Both => write!(formatter, "{percent} %"),
            Side::Slower => write!(formatter, "at most {percent} % slower"),
        }
    }
}

impl FromStr for Margin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a margin: write \"2 %\" or \"at most 10 % slower\"");
        let text = text.trim();
        let (side, number) = match text.strip_prefix("at most ") {
            Some(rest) => (Side::Slower, rest.strip_suffix("slower").ok_or_else(wrong)?),
            None => (Side::Both, text),
        };
        let number = number.trim().strip_suffix('%').ok_or_else(wrong)?;
        let percent: f64 = number.trim().parse().ok().ok_or_else(wrong)?;
        let is_usable = percent > 0.0 && percent <= 100.0;
        is_usable
            .then_some(Self { side, share: percent / 100.0 })
            .ok_or_else(|| format!("{text:?}: a margin must be above 0 % and at most 100 %"))
    }
}

impl TryFrom<String> for Margin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Margin> for String {
    fn from(margin: Margin) -> Self {
        margin.to_string()
    }
}

/// The margins of a comparison.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Margins {
    /// Margin of the rows without a margin for their target or workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<Margin>,
    /// Margins of workloads, by label.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub workloads: BTreeMap<String, Margin>,
    /// Margins of targets, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub targets: BTreeMap<String, Margin>,
}

impl Margins {
    /// Returns the margin of a row: that of the target if there is one, else that of the workload,
    /// else the one for all rows.
    #[must_use]
    pub fn of(&self, workload: &str, target: &str) -> Option<Margin> {
        let own = self.targets.get(target).or_else(|| self.workloads.get(workload));
        own.copied().or(self.all)
    }

    /// Whether there are no margins.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: f64, high: f64) -> RatioInterval {
        RatioInterval { ratio: f64::midpoint(low, high), low, high, rounds: 10, p_value: 0.5 }
    }

    #[test]
    fn margins_are_read_and_written() {
        for (text, shown, words) in [
            ("2 %", "2 %", "equal within 2 %"),
            (" 2.5% ", "2.5 %", "equal within 2.5 %"),
            ("7 %", "7 %", "equal within 7 %"),
            ("at most 10 % slower", "at most 10 % slower", "at most 10 % slower"),
        ] {
            let margin: Margin = text.parse().unwrap();
            assert_eq!((margin.to_string(), margin.words()), (shown.to_owned(), words.to_owned()));
            let json = serde_json::to_string(&margin).unwrap();
            assert_eq!(serde_json::from_str::<Margin>(&json).unwrap(), margin);
        }
    }

    #[test]
    fn invalid_margins_are_refused() {
        for text in ["", "2", "%", "two %", "at most 2 %", "2 % slower", "at most 2 slower"] {
            assert!(text.parse::<Margin>().unwrap_err().contains("is not a margin"), "{text}");
        }
        for text in ["0 %", "-1 %", "101 %", "nan %"] {
            assert!(text.parse::<Margin>().unwrap_err().contains("above 0 %"), "{text}");
        }
    }

    /// The whole interval must lie within the margin, not only the ratio.
    #[test]
    fn margin_must_contain_the_whole_interval() {
        let (equal, slower) =
            ("2 %".parse::<Margin>().unwrap(), "at most 2 % slower".parse::<Margin>().unwrap());
        for (low, high, is_equal, is_fast_enough) in [
            (0.99, 1.01, true, true),
            (1.0 / 1.02, 1.02, true, true),
            (0.99, 1.021, false, false),
            (0.979, 1.01, false, true),
            (0.5, 0.6, false, true),
            (1.03, 1.04, false, false),
        ] {
            let found = (equal.holds(&interval(low, high)), slower.holds(&interval(low, high)));
            assert_eq!(found, (is_equal, is_fast_enough), "{low} to {high}");
        }
    }

    #[test]
    fn target_margin_overrides_the_workload_margin() {
        let margin = |text: &str| text.parse::<Margin>().unwrap();
        let margins = Margins {
            all: Some(margin("1 %")),
            workloads: BTreeMap::from([("names".to_owned(), margin("2 %"))]),
            targets: BTreeMap::from([("null".to_owned(), margin("3 %"))]),
        };
        let of = |workload, target| margins.of(workload, target).unwrap().to_string();
        let found = [of("stream", "xfs"), of("names", "xfs"), of("names", "null")];
        assert_eq!(found, ["1 %", "2 %", "3 %"]);
        assert_eq!(Margins::default().of("names", "null"), None);
    }
}
