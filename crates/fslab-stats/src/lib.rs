//! Statistics of samples: pure functions of numbers, with every random draw from a seed.

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
pub use ratio::{CONFIDENCE, RatioInterval, half_width, paired_ratio, stratified_ratio};
pub use steady::{Steadiness, WINDOW as STEADY_WINDOW};
pub use summary::Summary;
