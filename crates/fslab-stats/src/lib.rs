//! Statistics of samples: pure functions of numbers. Random numbers come from a seed that the
//! caller gives.
//!
//! The main types: [`RatioInterval`], [`Margin`], [`Latency`].
//!
//! ```
//! use fslab_stats::paired_ratio;
//!
//! // Seconds of a target and of the baseline, one pair per round.
//! let pairs = [(2.0, 1.0), (2.1, 1.0), (1.9, 1.0), (2.0, 1.01), (2.05, 1.0), (2.0, 0.99)];
//! let ratio = paired_ratio(&pairs, 1).unwrap();
//! assert!(ratio.low < 2.0 && 2.0 < ratio.high && ratio.shows_difference());
//! ```

mod bootstrap;
mod changes;
mod geometric;
mod holm;
mod latency;
mod margin;
mod outliers;
mod ratio;
mod steady;
mod summary;

pub use bootstrap::{Bootstrap, Method};
pub use changes::{Change, FIGURES_LEAST as CHANGE_FIGURES_LEAST, changes};
pub use geometric::GeometricMean;
pub use holm::holm;
pub use latency::*;
pub use margin::{Margin, Margins};
pub use outliers::{MODIFIED_Z_MOST, outliers};
pub use ratio::{
    CONFIDENCE, RatioInterval, clustered_ratio, half_width, paired_ratio, stratified_ratio,
};
pub use steady::{Steadiness, WINDOW as STEADY_WINDOW};
pub use summary::Summary;
