//! Figures as a paper gives them: a number, a range or a bound, in one of a few units.

use serde::Serialize;

use crate::report::significant;

/// What a unit's figures can be held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Figures of any machine, around 1: one thing over another.
    Ratio,
    /// Figures of any machine.
    Exact,
    /// Only figures of the same machine.
    Machine,
}

/// A unit that claims may name.
#[derive(Debug)]
pub struct Unit {
    /// As it is written behind a number.
    pub name: &'static str,
    /// What its figures can be held against.
    pub scale: Scale,
    /// From the figure to a ratio, seconds, bytes, bytes a second, or a count.
    to_base: fn(f64) -> f64,
    /// And back.
    from_base: fn(f64) -> f64,
}

const fn ratio(name: &'static str, to_base: fn(f64) -> f64, from_base: fn(f64) -> f64) -> Unit {
    Unit { name, scale: Scale::Ratio, to_base, from_base }
}

const fn plain(name: &'static str, scale: Scale) -> Unit {
    Unit { name, scale, to_base: |value| value, from_base: |value| value }
}

/// Every unit.
pub const UNITS: &[Unit] = &[
    plain("times", Scale::Ratio),
    ratio("% more", |share| 1.0 + share / 100.0, |ratio| (ratio - 1.0) * 100.0),
    ratio("% faster", |share| 1.0 + share / 100.0, |ratio| (ratio - 1.0) * 100.0),
    plain("bytes", Scale::Exact),
    plain("blocks", Scale::Exact),
    plain("pointers", Scale::Exact),
    plain("files", Scale::Exact),
    plain("%", Scale::Exact),
    plain("of 1", Scale::Exact),
    Unit {
        name: "KB",
        scale: Scale::Exact,
        to_base: |value| value * 1024.0,
        from_base: |value| value / 1024.0,
    },
    Unit {
        name: "MB",
        scale: Scale::Exact,
        to_base: |value| value * 1_048_576.0,
        from_base: |value| value / 1_048_576.0,
    },
    plain("cycles", Scale::Machine),
    plain("cycles/s", Scale::Machine),
    plain("writes", Scale::Exact),
    plain("operations", Scale::Exact),
    plain("months", Scale::Exact),
    Unit {
        name: "GB",
        scale: Scale::Exact,
        to_base: |value| value * 1_073_741_824.0,
        from_base: |value| value / 1_073_741_824.0,
    },
    plain("s", Scale::Machine),
    Unit {
        name: "h",
        scale: Scale::Machine,
        to_base: |value| value * 3600.0,
        from_base: |value| value / 3600.0,
    },
    Unit {
        name: "MB/s",
        scale: Scale::Machine,
        to_base: |value| value * 1_048_576.0,
        from_base: |value| value / 1_048_576.0,
    },
];

/// A number, a range or a bound, as the paper has it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Published {
    /// Its lower end; `None` for "at most", and where there is a unit alone.
    pub low: Option<f64>,
    /// Its upper end; `None` for "at least", and where there is a unit alone.
    pub high: Option<f64>,
    /// The unit of both.
    #[serde(serialize_with = "unit_name")]
    pub unit: &'static Unit,
}

fn unit_name<S: serde::Serializer>(
    unit: &&'static Unit,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(unit.name)
}

impl Published {
    /// Whether there is a number.
    #[must_use]
    pub fn is_number(&self) -> bool {
        self.low.or(self.high).is_some()
    }

    /// Its ends in the unit's base, open ends at infinity.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        let base = |end: Option<f64>, open| end.map_or(open, self.unit.to_base);
        (base(self.low, f64::NEG_INFINITY), base(self.high, f64::INFINITY))
    }

    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        let unit = self.unit.name;
        match (self.low, self.high) {
            (Some(low), Some(high)) if low == high => format!("{low} {unit}"),
            (Some(low), Some(high)) => format!("{low} to {high} {unit}"),
            (Some(low), None) => format!("at least {low} {unit}"),
            (None, Some(high)) => format!("at most {high} {unit}"),
            (None, None) => String::new(),
        }
    }
}

impl Unit {
    /// The one of a name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        UNITS.iter().find(|unit| unit.name == name)
    }

    /// A figure in the base as a number of this unit.
    #[must_use]
    pub fn number(&self, base: f64) -> String {
        let value = (self.from_base)(base);
        // What is counted is not rounded.
        let whole = self.scale == Scale::Exact && value.fract() == 0.0;
        if whole { value.to_string() } else { significant(value) }
    }
}
