//! A paper's charts: axes, series and order, for redrawing with the figures found here.

use serde::{Deserialize, Serialize};

use super::{Basis, Kind};
use crate::published::Unit;

/// A chart of the paper.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// Stable name.
    pub id: String,
    /// Place in the paper.
    pub place: String,
    /// Title.
    pub title: String,
    /// How the series are drawn.
    pub form: Form,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// A note that readers need.
    pub note: Option<String>,
    /// Series, in the paper's order.
    pub lines: Vec<Line>,
}

/// How a chart draws its series.
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
    /// Label, without the unit.
    pub label: String,
    /// Unit of the numbers; `None` if the axis shows names.
    pub unit: Option<&'static Unit>,
    /// Whether the axis is logarithmic.
    pub logarithmic: bool,
}

/// A series of a chart.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Name on an axis of names, if the series is a single bar.
    pub category: Option<String>,
    /// How its figures are obtained.
    pub kind: Kind,
    /// Source of the figures.
    pub basis: Basis,
}
