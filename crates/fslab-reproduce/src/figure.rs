//! Figures found here, that is, measured or computed by fslab, with positions and intervals.

use std::fmt;

use fslab_report::bytes;
use serde::{Deserialize, Serialize};

/// A figure found here, in the base unit.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct Figure {
    /// Its position if it is one of several figures, for example a size or a day.
    pub at: Option<At>,
    /// Geometric mean over the rounds.
    pub value: f64,
    /// Its 95 % interval; `None` for one round and for counted figures.
    pub interval: Option<(f64, f64)>,
    /// Number of rounds; 0 for counted figures.
    pub rounds: usize,
    /// Number of measured rounds that are left out because a value is 0. Ratios and geometric means
    /// need values above 0.
    pub zero_rounds: usize,
}

/// Position of a figure among others.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct At {
    /// Value of the position.
    pub value: f64,
    /// Unit of the value.
    pub unit: AtUnit,
}

/// Units of positions.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AtUnit {
    /// Bytes.
    #[default]
    Bytes,
    /// Days of use.
    Days,
    /// Block groups.
    Groups,
    /// Blocks of a file.
    Blocks,
    /// Files.
    Files,
    /// Seconds.
    Seconds,
}

impl fmt::Display for At {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        match self.unit {
            AtUnit::Bytes => formatter.write_str(&bytes(value.max(0.0).round() as u64)),
            AtUnit::Days => write!(formatter, "day {value:.0}"),
            AtUnit::Groups => write!(formatter, "{value:.0} groups"),
            AtUnit::Blocks => write!(formatter, "block {value:.0}"),
            AtUnit::Files => write!(formatter, "{value:.0} files"),
            AtUnit::Seconds => write!(formatter, "{value:.6} s"),
        }
    }
}

impl Figure {
    /// Returns a figure that was counted, not measured in rounds.
    #[must_use]
    pub fn counted(value: f64) -> Self {
        Self { at: None, value, interval: None, rounds: 0, zero_rounds: 0 }
    }
}

/// The outcome for a claim.
#[derive(Clone, Debug, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// One figure, or one for each position.
    Figures(Vec<Figure>),
    /// A text instead of a number.
    Words(String),
    /// There is no figure, because it could not be measured. The text states the reason.
    Missing(String),
    /// There is deliberately no figure. The text states the reason.
    NotReproduced(String),
}
