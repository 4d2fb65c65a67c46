//! Statistics of samples: pure functions of numbers, with every random draw from a seed.

mod bootstrap;
mod summary;

pub use bootstrap::{CONFIDENCE, RatioInterval, paired_ratio};
pub use summary::Summary;
