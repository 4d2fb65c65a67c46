//! The existing directories and long-lived files of a generated workload.

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use statrs::distribution::{ContinuousCDF, Normal};

use super::sizes::any_lognormal;

/// Allocation unit in bytes; most file systems use this block size.
const UNIT_BYTES: u64 = 4096;

/// The long-lived files.
#[derive(Default)]
pub struct Residents {
    files: Vec<File>,
    bytes: u64,
}

/// A long-lived file.
#[derive(Clone, Copy)]
pub struct File {
    /// The number of the file.
    pub number: u64,
    /// Size in bytes.
    pub size: u64,
}

impl Residents {
    /// Returns the space that the files need, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn count(&self) -> usize {
        self.files.len()
    }

    pub fn add(&mut self, file: File) {
        self.bytes += stored(file.size);
        self.files.push(file);
    }

    /// Returns the index of the largest among `candidates` random files.
    pub fn pick(&self, random: &mut Pcg64, candidates: u32) -> Option<usize> {
        if self.files.is_empty() {
            return None;
        }
        let drawn = (0..candidates.max(1)).map(|_| random.random_range(0..self.files.len()));
        drawn.max_by_key(|place| self.files[*place].size)
    }

    pub fn at(&self, place: usize) -> File {
        self.files[place]
    }

    pub fn resize(&mut self, place: usize, size: u64) {
        self.bytes = self.bytes - stored(self.files[place].size) + stored(size);
        self.files[place].size = size;
    }

    pub fn remove(&mut self, place: usize) -> File {
        let file = self.files.swap_remove(place);
        self.bytes -= stored(file.size);
        file
    }
}

/// Returns a weight for each of `count` directories: the quantiles of the lognormal distribution,
/// in random order. Randomly drawn weights would vary too much between seeds: the weight of the
/// busiest of about ninety directories determines how many files do not fit in its cylinder group.
/// With quantiles, only the position of the busiest directory varies.
pub fn even_weights(count: u64, sigma: f64, random: &mut Pcg64) -> Vec<f64> {
    let normal = Normal::standard();
    let quantile = |place: u64| normal.inverse_cdf((place as f64 + 0.5) / count as f64);
    let mut weights: Vec<_> = (0..count).map(|place| libm::exp(sigma * quantile(place))).collect();
    weights.shuffle(random);
    weights
}

/// Returns the space that a file needs, in bytes.
pub(super) fn stored(size: u64) -> u64 {
    size.div_ceil(UNIT_BYTES) * UNIT_BYTES
}

/// The directories, weighted by their use.
#[derive(Default)]
pub struct Directories {
    numbers: Vec<u64>,
    /// Cumulative sums of the weights.
    sums: Vec<f64>,
    depths: Vec<u32>,
    /// For each directory, the number of its subdirectories.
    within: Vec<u32>,
}

impl Directories {
    /// Adds a directory to the root, or to the directory at index `parent`.
    pub fn add(&mut self, number: u64, parent: Option<usize>, sigma: f64, random: &mut Pcg64) {
        let weight = any_lognormal(random, 0.0, sigma);
        self.add_weighted(number, parent, weight);
    }

    /// Adds a directory with a given weight.
    pub fn add_weighted(&mut self, number: u64, parent: Option<usize>, weight: f64) {
        self.numbers.push(number);
        self.sums.push(self.sums.last().copied().unwrap_or_default() + weight);
        self.depths.push(parent.map_or(1, |place| self.depths[place] + 1));
        self.within.push(0);
        if let Some(place) = parent {
            self.within[place] += 1;
        }
    }

    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the file number of the directory at an index.
    pub fn number(&self, place: usize) -> u64 {
        self.numbers[place]
    }

    /// Returns the number of a random directory, weighted by use; 0 (the root) if there are no
    /// directories.
    pub fn draw(&self, random: &mut Pcg64) -> u64 {
        let Some(total) = self.sums.last() else { return 0 };
        let at = random.random::<f64>() * total;
        let place = self.sums.partition_point(|sum| *sum <= at).min(self.numbers.len() - 1);
        self.numbers[place]
    }

    /// Returns the index of the parent for the next directory, as in Impressions (Agrawal et al.
    /// 2009). This is a random directory whose depth is less than `depth_max`, weighted by its
    /// number of subdirectories plus two. `None` means the root.
    pub fn parent_of_next(&self, depth_max: u32, random: &mut Pcg64) -> Option<usize> {
        // Rejection sampling: a random directory is accepted with a probability proportional to its
        // weight.
        let heaviest = self.within.iter().max().copied().unwrap_or_default() + 2;
        for _ in 0..1000 {
            let place = random.random_range(0..=self.numbers.len());
            // The index after the last directory means the root.
            let within = self.within.get(place)?;
            let accepted = random.random_range(0..heaviest) < within + 2;
            if accepted && self.depths[place] < depth_max {
                return Some(place);
            }
        }
        None
    }
}
