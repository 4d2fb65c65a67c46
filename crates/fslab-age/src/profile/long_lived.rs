//! The files and directories that stay for more than a day, as the generator knows them.

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use statrs::distribution::{ContinuousCDF, Normal};

use super::sizes::any_lognormal;

/// Space is counted in units of this many bytes: what a file takes on most file systems.
const UNIT_BYTES: u64 = 4096;

/// Files that stay.
#[derive(Default)]
pub struct Residents {
    files: Vec<File>,
    bytes: u64,
}

/// A file that stays.
#[derive(Clone, Copy)]
pub struct File {
    /// Its number.
    pub number: u64,
    /// Its size in bytes.
    pub size: u64,
}

impl Residents {
    /// Space that the files take, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// One more.
    pub fn add(&mut self, file: File) {
        self.bytes += stored(file.size);
        self.files.push(file);
    }

    /// The largest of `candidates` of them, by its place.
    pub fn pick(&self, random: &mut Pcg64, candidates: u32) -> Option<usize> {
        if self.files.is_empty() {
            return None;
        }
        let drawn = (0..candidates.max(1)).map(|_| random.random_range(0..self.files.len()));
        drawn.max_by_key(|place| self.files[*place].size)
    }

    /// The file at a place.
    pub fn at(&self, place: usize) -> File {
        self.files[place]
    }

    /// Gives a file another size.
    pub fn resize(&mut self, place: usize, size: u64) {
        self.bytes = self.bytes - stored(self.files[place].size) + stored(size);
        self.files[place].size = size;
    }

    /// Takes one away.
    pub fn remove(&mut self, place: usize) -> File {
        let file = self.files.swap_remove(place);
        self.bytes -= stored(file.size);
        file
    }
}

/// How much each of `count` directories is used: the quantiles of the lognormal distribution, in an
/// order that is drawn. Drawn weights would make the most used of some ninety directories, and so
/// how many files overflow its group, another with each seed; here only its place is.
pub fn even_weights(count: u64, sigma: f64, random: &mut Pcg64) -> Vec<f64> {
    let normal = Normal::standard();
    let quantile = |place: u64| normal.inverse_cdf((place as f64 + 0.5) / count as f64);
    let mut weights: Vec<_> = (0..count).map(|place| libm::exp(sigma * quantile(place))).collect();
    weights.shuffle(random);
    weights
}

/// Space that a file takes.
pub(super) fn stored(size: u64) -> u64 {
    size.div_ceil(UNIT_BYTES) * UNIT_BYTES
}

/// Directories, each with how much it is used.
#[derive(Default)]
pub struct Directories {
    numbers: Vec<u64>,
    /// Sums of the weights up to each.
    sums: Vec<f64>,
    depths: Vec<u32>,
    /// Directories in each.
    within: Vec<u32>,
}

impl Directories {
    /// One more: in the root, or in the one at place `parent`.
    pub fn add(&mut self, number: u64, parent: Option<usize>, sigma: f64, random: &mut Pcg64) {
        let weight = any_lognormal(random, 0.0, sigma);
        self.add_weighted(number, parent, weight);
    }

    /// One more, used as much as `weight` says.
    pub fn add_weighted(&mut self, number: u64, parent: Option<usize>, weight: f64) {
        self.numbers.push(number);
        self.sums.push(self.sums.last().copied().unwrap_or_default() + weight);
        self.depths.push(parent.map_or(1, |place| self.depths[place] + 1));
        self.within.push(0);
        if let Some(place) = parent {
            self.within[place] += 1;
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// The number of the directory at a place.
    pub fn number(&self, place: usize) -> u64 {
        self.numbers[place]
    }

    /// One, by how much it is used; the root where there is none.
    pub fn draw(&self, random: &mut Pcg64) -> u64 {
        let Some(total) = self.sums.last() else { return 0 };
        let at = random.random::<f64>() * total;
        let place = self.sums.partition_point(|sum| *sum <= at).min(self.numbers.len() - 1);
        self.numbers[place]
    }

    /// Where the next one goes, as Impressions does it: a directory with two more than the
    /// directories it has for weight, no deeper than allowed. `None` is the root.
    pub fn parent_of_next(&self, depth_max: u32, random: &mut Pcg64) -> Option<usize> {
        // All weights are at least 2, and most directories have none in them: few draws are in
        // vain.
        let heaviest = self.within.iter().max().copied().unwrap_or_default() + 2;
        for _ in 0..1000 {
            let place = random.random_range(0..=self.numbers.len());
            // The place behind the last one stands for the root.
            let within = self.within.get(place)?;
            let accepted = random.random_range(0..heaviest) < within + 2;
            if accepted && self.depths[place] < depth_max {
                return Some(place);
            }
        }
        None
    }
}
