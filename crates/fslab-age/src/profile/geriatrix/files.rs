//! The existing files, and the sizes and depths that are underrepresented among them.

use rand::RngExt;
use rand_pcg::Pcg64;

use super::distribution::{Bucket, Distributions};
use crate::profile::long_lived::stored;

#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The number of the file in the workload.
    pub number: u64,
    /// The index of the size in the distribution.
    pub size: usize,
    /// The index of the depth in the distribution.
    pub depth: usize,
}

/// The existing files.
pub struct Files {
    /// Files that are kept until the end.
    staying: Vec<File>,
    others: Vec<File>,
    sizes: Vec<u64>,
    depths: Vec<u64>,
    bytes: u64,
}

impl Files {
    pub fn new(distributions: &Distributions) -> Self {
        Self {
            staying: Vec::new(),
            others: Vec::new(),
            sizes: vec![0; distributions.sizes.len()],
            depths: vec![0; distributions.depths.len()],
            bytes: 0,
        }
    }

    /// Returns the space that the files need, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn count(&self) -> usize {
        self.staying.len() + self.others.len()
    }

    pub fn add(&mut self, file: File, stays: bool, bytes: u64) {
        self.sizes[file.size] += 1;
        self.depths[file.depth] += 1;
        self.bytes += stored(bytes);
        if stays { self.staying.push(file) } else { self.others.push(file) }
    }

    /// Removes a random file. A file that should be kept until the end is removed only if there are
    /// no other files.
    pub fn remove_one(&mut self, sizes: &[Bucket], random: &mut Pcg64) -> Option<File> {
        let among = if self.others.is_empty() { &mut self.staying } else { &mut self.others };
        if among.is_empty() {
            return None;
        }
        let file = among.swap_remove(random.random_range(0..among.len()));
        self.sizes[file.size] -= 1;
        self.depths[file.depth] -= 1;
        self.bytes -= stored(sizes[file.size].value as u64);
        Some(file)
    }

    /// Whether all existing files should be kept until the end.
    pub fn all_stay(&self) -> bool {
        self.others.is_empty()
    }

    /// Returns the index of the size that is most underrepresented among the existing files.
    pub fn lacking_size(&self, distributions: &Distributions) -> usize {
        lacking(&self.sizes, self.count(), distributions.sizes.iter().map(|size| size.share))
    }

    /// Returns the index of the depth that is most underrepresented among the existing files.
    pub fn lacking_depth(&self, distributions: &Distributions) -> usize {
        lacking(&self.depths, self.count(), distributions.depths.iter().map(|depth| depth.share))
    }
}

fn lacking(counts: &[u64], all: usize, shares: impl Iterator<Item = f64>) -> usize {
    let all = all.max(1) as f64;
    let lacks = counts.iter().zip(shares).map(|(count, share)| share - *count as f64 / all);
    let most = lacks.enumerate().reduce(|most, next| if next.1 > most.1 { next } else { most });
    most.map_or(0, |(place, _)| place)
}

/// Returns the average space that a file needs, in bytes.
pub fn mean_stored(sizes: &[Bucket]) -> f64 {
    sizes.iter().map(|size| stored(size.value as u64) as f64 * size.share).sum()
}
