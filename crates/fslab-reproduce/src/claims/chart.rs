//! The axes and series of a paper's charts. The charts are redrawn with the figures found here.

use serde::{Deserialize, Serialize};

use super::{Basis, Kind};
use crate::published::Unit;

/// A chart of the paper.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// Stable identifier.
    pub id: String,
    /// Section or figure of the paper.
    pub place: String,
    /// Its title.
    pub title: String,
    /// The way in which the series are drawn.
    pub form: Form,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// An explanation for readers.
    pub note: Option<String>,
    /// Series in the order of the paper.
    pub lines: Vec<Line>,
}

/// The way in which a chart shows its series.
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
    /// Label without the unit.
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
    /// Label below the bar, if the series is a single bar.
    pub category: Option<String>,
    /// The way in which this project gets its figures.
    pub kind: Kind,
    /// Source of the figures.
    pub basis: Basis,
}
