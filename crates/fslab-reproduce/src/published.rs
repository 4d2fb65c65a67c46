//! Published figures: a number, a range or a bound, with a unit.

use serde::Serialize;

use fslab_report::significant;

/// The condition under which figures of a unit can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Ratios of two values. Ratios from different machines can be compared.
    Ratio,
    /// Counts, sizes and shares. Figures from different machines can be compared.
    Exact,
    /// Times and rates. Only figures from the same machine can be compared.
    Machine,
}

/// A unit that claims may use. To convert a figure to the base unit, multiply it by `factor` and
/// add `origin`.
#[derive(Debug)]
pub struct Unit {
    /// Name, which is written after a number.
    pub name: &'static str,
    /// The condition under which its figures can be compared.
    pub scale: Scale,
    /// The figure 0 in the base unit. For example, `0 % more` is a ratio of 1.
    origin: f64,
    /// Size of the unit in the base unit: seconds, bytes, bytes per second, a count or a ratio.
    factor: f64,
}

const fn unit(name: &'static str, scale: Scale, factor: f64) -> Unit {
    Unit { name, scale, origin: 0.0, factor }
}

const fn percent(name: &'static str) -> Unit {
    Unit { name, scale: Scale::Ratio, origin: 1.0, factor: 0.01 }
}

const KB: f64 = 1024.0;
const MB: f64 = 1024.0 * KB;
const GB: f64 = 1024.0 * MB;

/// All units.
pub const UNITS: &[Unit] = &[
    unit("times", Scale::Ratio, 1.0),
    percent("% more"),
    percent("% faster"),
    unit("bytes", Scale::Exact, 1.0),
    unit("KB", Scale::Exact, KB),
    unit("MB", Scale::Exact, MB),
    unit("GB", Scale::Exact, GB),
    unit("blocks", Scale::Exact, 1.0),
    unit("pointers", Scale::Exact, 1.0),
    unit("files", Scale::Exact, 1.0),
    unit("writes", Scale::Exact, 1.0),
    unit("operations", Scale::Exact, 1.0),
    unit("groups", Scale::Exact, 1.0),
    unit("days", Scale::Exact, 1.0),
    unit("months", Scale::Exact, 1.0),
    unit("%", Scale::Exact, 1.0),
    unit("of 1", Scale::Exact, 1.0),
    unit("s", Scale::Machine, 1.0),
    unit("ns", Scale::Machine, 1e-9),
    unit("h", Scale::Machine, 3600.0),
    unit("MB/s", Scale::Machine, MB),
    unit("cycles", Scale::Machine, 1.0),
    unit("cycles/s", Scale::Machine, 1.0),
];

/// A number, a range or a bound from a paper.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Published {
    /// Lower end; `None` for "at most" and if there is only a unit.
    pub low: Option<f64>,
    /// Upper end; `None` for "at least" and if there is only a unit.
    pub high: Option<f64>,
    /// Share by which a figure may lie outside the ends; `None` if there is no margin.
    pub margin: Option<f64>,
    /// Unit of both ends.
    pub unit: &'static Unit,
}

impl Serialize for Unit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

/// Returns half a unit of the last digit of a number. For whole numbers this is 0.5.
fn half_of_last_digit(number: f64) -> f64 {
    let decimals = number.to_string().split_once('.').map_or(0, |(_, digits)| digits.len());
    0.5 / 10_f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX))
}

/// Numbers below this are written with a power of ten.
const TINY: f64 = 1e-3;

/// A published ratio represents all values that round to it. It is vague if the largest of them is
/// more than this many times the smallest.
const VAGUE: f64 = 1.1;

/// Returns a number as text. Very small numbers have a power of ten.
fn readable(value: f64) -> String {
    let tiny = value != 0.0 && value.abs() < TINY;
    if tiny { format!("{value:.3e}") } else { value.to_string() }
}

impl Published {
    /// Whether there is a number.
    #[must_use]
    pub fn is_number(&self) -> bool {
        self.low.or(self.high).is_some()
    }

    /// Whether it is one number without a margin.
    #[must_use]
    pub fn is_single_number(&self) -> bool {
        self.low.is_some() && self.low == self.high && self.margin.is_none()
    }

    /// Whether it is a ratio of 1, which means that both values are equal.
    #[must_use]
    pub fn is_equality(&self) -> bool {
        self.unit.scale == Scale::Ratio && self.middle() == Some(1.0)
    }

    /// Whether a wide range of values rounds to this ratio. For example, 1.5 to 2.5 round to "2
    /// times".
    #[must_use]
    pub fn is_vague(&self) -> bool {
        let (low, high) = self.range();
        let is_rounded_ratio = self.unit.scale == Scale::Ratio && self.is_single_number();
        is_rounded_ratio && high > VAGUE * low
    }

    /// Returns the ends in the base unit, widened by the margin; open ends are infinite. A single
    /// number without a margin means all numbers that round to it. For example, 13 % means 12.5 to
    /// 13.5.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        let rounded = match self.low {
            Some(low) if self.is_single_number() => half_of_last_digit(low),
            _ => 0.0,
        };
        let wider = 1.0 + self.margin.unwrap_or(0.0);
        let base = |end: Option<f64>, open| end.map_or(open, |end| self.unit.to_base(end));
        (
            base(self.low.map(|low| low - rounded), f64::NEG_INFINITY) / wider,
            base(self.high.map(|high| high + rounded), f64::INFINITY) * wider,
        )
    }

    /// Returns the number in the base unit, if it is a single one.
    pub(super) fn middle(&self) -> Option<f64> {
        let low = self.low.filter(|low| Some(*low) == self.high)?;
        Some(self.unit.to_base(low))
    }

    /// Returns the published figure as text.
    #[must_use]
    pub fn words(&self) -> String {
        let unit = self.unit.name;
        let margin = self.margin.map(|share| format!("{} %", (share * 1e8).round() / 1e6));
        let figure = match (self.low.map(readable), self.high.map(readable)) {
            (Some(_), Some(_)) if self.is_equality() => "equal".to_owned(),
            (Some(low), Some(high)) if low == high => format!("{low} {unit}"),
            (Some(low), Some(high)) => format!("{low} to {high} {unit}"),
            (Some(low), None) => format!("at least {low} {unit}"),
            (None, Some(high)) => format!("at most {high} {unit}"),
            (None, None) => String::new(),
        };
        match margin {
            Some(margin) => format!("{figure} within {margin}"),
            None => figure,
        }
    }
}

impl Unit {
    /// Returns the unit with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        UNITS.iter().find(|unit| unit.name == name)
    }

    /// Converts a figure of this unit to the base unit.
    fn to_base(&self, value: f64) -> f64 {
        self.origin + value * self.factor
    }

    /// Converts from the base unit to this unit.
    #[must_use]
    pub fn of_base(&self, base: f64) -> f64 {
        (base - self.origin) / self.factor
    }

    /// Converts from the base unit to this unit, and returns the number as text.
    #[must_use]
    pub fn number(&self, base: f64) -> String {
        let value = self.of_base(base);
        // Whole numbers of exact units are not rounded.
        let whole = self.scale == Scale::Exact && value.fract() == 0.0;
        let tiny = value != 0.0 && value.abs() < TINY;
        if whole || tiny { readable(value) } else { significant(value) }
    }
}
