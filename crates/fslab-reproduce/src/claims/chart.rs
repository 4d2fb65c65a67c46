//! A paper's charts: their axes, series and order, to be drawn again from figures found here.

use serde::{Deserialize, Serialize};

use super::{Basis, Kind};
use crate::published::Unit;

/// A chart of the paper.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// A name that stays.
    pub id: String,
    /// Where in the paper.
    pub place: String,
    /// What it shows.
    pub title: String,
    /// How it shows it.
    pub form: Form,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What a reader must know.
    pub note: Option<String>,
    /// Its series, in the paper's order.
    pub lines: Vec<Line>,
}

/// How a chart shows its series.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Lines through points.
    #[default]
    Lines,
    /// Bars side by side.
    Bars,
}

/// An axis.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// What it shows, without the unit.
    pub label: String,
    /// The unit of its numbers; `None` where they are names.
    pub unit: Option<&'static Unit>,
    /// Whether it is logarithmic.
    pub logarithmic: bool,
}

/// A series of a chart.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Where it stands on an axis of names, as a bar of its own.
    pub category: Option<String>,
    /// How its figures are come by.
    pub kind: Kind,
    /// From what.
    pub basis: Basis,
}
