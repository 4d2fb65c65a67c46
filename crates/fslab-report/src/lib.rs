//! Reports: a model computed only from samples, and renderers, one per file.
//!
//! A new renderer is one file with a `SPEC` and a line in [`RENDERERS`].
//!
//! Start with these types: [`sample::Sample`], [`Provenance`], [`Report`].
//!
//! ```
//! use fslab_report::sample::Record;
//! use fslab_report::{Provenance, Report};
//!
//! let report = Report::new(&[Record::Provenance(Box::new(Provenance::default()))]);
//! assert_eq!(report.samples, 0);
//! ```

mod cells;
mod choice;
mod compute;
mod csv;
mod dashboard;
#[cfg(feature = "parquet")]
pub mod dataset;
mod error;
mod flat;
mod format;
mod gate;
mod history;
mod html;
mod json;
mod junit;
mod latencies;
mod markdown;
mod merge;
mod metrics;
mod model;
mod names;
mod noise_floor;
mod overview;
mod pairing;
#[cfg(feature = "parquet")]
mod parquet;
mod pooling;
mod provenance;
pub mod sample;
mod shell;
mod terminal;
mod time_parts;
mod why;
mod words;

pub use cells::{Cells, Share};
pub use choice::{Choice, Recording};
pub use error::{Error, Result};
pub use format::{bytes, significant, without_zeros};
pub use gate::{Gate, Judgement, Outcome};
pub use history::{History, Run, Series, text as history_text};
pub use junit::render as junit;
pub use markdown::plain as markdown_plain;
pub use model::{
    Against, Group, LatencyFigures, MetricFloor, MetricRow, NoiseFloor, Point, Progress, Report,
    Row, Verdict,
};
pub use names::{distinct, nearest, suggestion};
pub use pooling::Pooling;
pub use provenance::{Form, Provenance};
pub use shell::{command_line, quoted};

/// The style sheet of reports. A page must include it after the style sheets of charts.
pub const STYLE: &str = include_str!("../templates/report.css");

/// All renderers.
pub const RENDERERS: &[&Renderer] = &[
    &terminal::SPEC,
    &html::SPEC,
    &markdown::SPEC,
    &json::SPEC,
    &csv::SPEC,
    &dashboard::SMALLER,
    &dashboard::BIGGER,
    #[cfg(feature = "parquet")]
    &parquet::SPEC,
];

/// A renderer of reports.
#[derive(Debug)]
pub struct Renderer {
    /// Its name.
    pub name: &'static str,
    /// One line that describes its output.
    pub help: &'static str,
    /// Renders a report.
    pub render: fn(&Report) -> Result<Vec<u8>>,
}

/// Returns the renderer with a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Renderer> {
    RENDERERS.iter().copied().find(|renderer| renderer.name == name)
}

/// Renders the tables for a terminal.
#[must_use]
pub fn terminal(report: &Report) -> String {
    terminal::render(report)
}

/// Renders the HTML page.
///
/// # Errors
/// Returns errors of the template.
pub fn html(report: &Report) -> Result<String> {
    html::render(report)
}

/// Renders the model as JSON.
///
/// # Errors
/// Returns errors of the encoder.
pub fn json(report: &Report) -> Result<String> {
    json::render(report)
}
