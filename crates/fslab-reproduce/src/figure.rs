//! Figures that were found, with their places and intervals.

use std::fmt;

use fslab_report::bytes;
use serde::{Deserialize, Serialize};

/// A figure of this project's own, in the base of its unit.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct Figure {
    /// What it belongs to, where it is one of several: a size, a day.
    pub at: Option<At>,
    /// Geometric mean over the rounds.
    pub value: f64,
    /// Its 95 % interval; `None` for one round, and for what is counted.
    pub interval: Option<(f64, f64)>,
    /// Rounds it is made of; 0 for what is counted.
    pub rounds: usize,
    /// Rounds that were measured and are left out, because a side is 0 in them: no ratio and no
    /// geometric mean is made of that.
    pub zero_rounds: usize,
}

/// Where a figure stands among others.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct At {
    /// How many.
    pub value: f64,
    /// Of what.
    pub unit: AtUnit,
}

/// What the places of figures are counted in.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AtUnit {
    /// Bytes.
    #[default]
    Bytes,
    /// Days of use.
    Days,
    /// Groups of blocks.
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
    /// A figure that was counted, not measured in rounds.
    #[must_use]
    pub fn counted(value: f64) -> Self {
        Self { at: None, value, interval: None, rounds: 0, zero_rounds: 0 }
    }
}

/// What was found for a claim.
#[derive(Clone, Debug, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Figures: one, or one for each size.
    Figures(Vec<Figure>),
    /// What is no number.
    Words(String),
    /// Nothing, because it could not be measured: why.
    Missing(String),
    /// Nothing, by intention: why.
    NotReproduced(String),
}
