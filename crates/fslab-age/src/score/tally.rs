//! Sums over the layouts of files, in total and by size class.

use std::collections::BTreeMap;

use fslab_vfs::Extent;
use serde::Serialize;

use super::Rules;
use super::distance::Distances;
use super::extents::{FileLayout, pieces_of};
use super::free::FreeSpace;
use super::map::Map;

/// Sums over files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// Number of files with at least one block.
    pub files: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of blocks that have a predecessor in their file.
    pub pairs: u64,
    /// Number of blocks that do not follow their predecessor.
    pub breaks: u64,
    /// Number of contiguous pieces.
    pub pieces: u64,
    /// Number of files whose first block is in another group than their directory.
    pub split: u64,
}

impl Sums {
    /// Adds a file.
    pub fn add(&mut self, layout: &FileLayout, split: bool) {
        if layout.blocks == 0 {
            return;
        }
        self.files += 1;
        self.blocks += layout.blocks;
        self.pairs += layout.pairs();
        self.breaks += layout.breaks;
        self.pieces += layout.pieces;
        self.split += u64::from(split);
    }

    /// Adds other sums.
    pub fn merge(&mut self, other: &Self) {
        self.files += other.files;
        self.blocks += other.blocks;
        self.pairs += other.pairs;
        self.breaks += other.breaks;
        self.pieces += other.pieces;
        self.split += other.split;
    }

    /// Returns the layout score; `None` if no block has a predecessor.
    #[must_use]
    pub fn score(&self) -> Option<f64> {
        (self.pairs > 0).then(|| 1.0 - self.breaks as f64 / self.pairs as f64)
    }

    /// Returns the share of split files, from 0 to 1; `None` without files.
    #[must_use]
    pub fn split_share(&self) -> Option<f64> {
        (self.files > 0).then(|| self.split as f64 / self.files as f64)
    }
}

/// The files in one size class.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Class {
    /// Minimum number of blocks per file; the maximum is one less than twice this number.
    pub from_blocks: u64,
    /// Sums over the files in the class.
    #[serde(flatten)]
    pub sums: Sums,
    /// Layout score of the files in the class.
    pub score: Option<f64>,
}

/// The layout of a file system.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Sums over all files.
    pub total: Sums,
    by_class: BTreeMap<u32, Sums>,
    /// Number of pieces, by the base-2 logarithm of their number of blocks, rounded down.
    pub piece_sizes: BTreeMap<u32, u64>,
    /// Distances between files in directory order.
    pub distances: Distances,
    /// Free space, if it is known.
    pub free: Option<FreeSpace>,
    /// Number of files without layout information, by reason.
    pub untold: BTreeMap<&'static str, u64>,
    /// Number of bytes that several files share.
    pub shared_bytes: u64,
    /// The map of the volume, if it was requested.
    pub map: Option<Map>,
}

impl Score {
    /// Makes an empty score.
    #[must_use]
    pub fn new(block_bytes: u64) -> Self {
        Self { block_bytes, ..Self::default() }
    }

    /// Makes an empty score that uses these rules.
    #[must_use]
    pub fn by(rules: Rules) -> Self {
        Self { map: rules.map_bytes.map(Map::new), ..Self::new(rules.block_bytes) }
    }

    /// Adds the extents of a file of `size` bytes to the sizes of pieces and to the map; the caller
    /// adds the layout with [`add`](Self::add). The map also shows preallocated space.
    pub fn add_extents(&mut self, extents: &[Extent], size: u64) {
        for blocks in pieces_of(extents, size, self.block_bytes.max(1)) {
            self.add_piece(blocks);
        }
        if let Some(map) = &mut self.map {
            extents.iter().for_each(|extent| map.add(extent));
        }
    }

    /// Adds the layout of a file.
    pub fn add(&mut self, layout: &FileLayout, split: bool) {
        self.total.add(layout, split);
        let class = layout.blocks.max(1).ilog2();
        self.by_class.entry(class).or_default().add(layout, split);
    }

    /// Counts a contiguous piece of `blocks` blocks.
    pub fn add_piece(&mut self, blocks: u64) {
        *self.piece_sizes.entry(blocks.max(1).ilog2()).or_default() += 1;
    }

    /// Counts a file without layout information.
    pub fn leave_out(&mut self, reason: &'static str) {
        *self.untold.entry(reason).or_default() += 1;
    }

    /// Adds the score of another part of the same file system.
    pub fn merge(&mut self, other: Self) {
        self.total.merge(&other.total);
        for (class, sums) in other.by_class {
            self.by_class.entry(class).or_default().merge(&sums);
        }
        for (size, count) in other.piece_sizes {
            *self.piece_sizes.entry(size).or_default() += count;
        }
        for (reason, count) in other.untold {
            *self.untold.entry(reason).or_default() += count;
        }
        self.distances.merge(other.distances);
        self.shared_bytes += other.shared_bytes;
        if let (Some(map), Some(other)) = (&mut self.map, &other.map) {
            map.merge(other);
        }
    }

    /// Returns the sums by size class, smallest files first.
    #[must_use]
    pub fn classes(&self) -> Vec<Class> {
        let class = |(log, sums): (&u32, &Sums)| Class {
            from_blocks: 1 << log,
            sums: *sums,
            score: sums.score(),
        };
        self.by_class.iter().filter(|(_, sums)| sums.files > 0).map(class).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIEMAP reports a 1 GiB file on ext4 like this: extents have at most 32,768 blocks, and
    /// preallocated space extends past the end.
    #[test]
    fn adjacent_extents_are_one_piece() {
        let extent = |at: u64, blocks: u64| Extent {
            logical: at * 4096,
            physical: (100 + at) * 4096,
            length: blocks * 4096,
        };
        let mut extents: Vec<_> = (0..8).map(|index| extent(index * 32_768, 32_768)).collect();
        extents.push(extent(8 * 32_768, 40));
        let mut score = Score::new(4096);
        score.add_extents(&extents, 1 << 30);
        assert_eq!(score.piece_sizes, BTreeMap::from([(18, 1)]));
    }
}
