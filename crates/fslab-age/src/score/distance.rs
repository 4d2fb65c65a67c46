//! Distances from the end of a file to the beginning of the next file, in directory order. The
//! layout score does not show them, although they affect the cost of reading a tree.

use serde::Serialize;

/// The distances between consecutive files of a listing.
#[derive(Clone, Debug, Default)]
pub struct Distances {
    bytes: Vec<u64>,
}

/// Statistics of [`Distances`], in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Distance {
    /// Number of pairs of files.
    pub pairs: u64,
    /// Mean.
    pub mean: f64,
    /// The median.
    pub median: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// Share of pairs whose files are adjacent on the device.
    pub adjacent: f64,
}

impl Distances {
    /// Adds the distance between two offsets, in bytes.
    pub fn add(&mut self, from: u64, to: u64) {
        self.bytes.push(from.abs_diff(to));
    }

    /// Adds other distances.
    pub fn merge(&mut self, mut other: Self) {
        self.bytes.append(&mut other.bytes);
    }

    /// Returns the statistics; `None` for fewer than two files.
    #[must_use]
    pub fn figures(&self) -> Option<Distance> {
        let mut sorted = self.bytes.clone();
        sorted.sort_unstable();
        let count = sorted.len();
        let at = |share: f64| sorted.get(((count as f64 * share) as usize).min(count - 1)).copied();
        (count > 0).then(|| Distance {
            pairs: count as u64,
            mean: sorted.iter().map(|bytes| *bytes as f64).sum::<f64>() / count as f64,
            median: at(0.5).unwrap_or_default(),
            p90: at(0.9).unwrap_or_default(),
            adjacent: sorted.partition_point(|bytes| *bytes == 0) as f64 / count as f64,
        })
    }
}
