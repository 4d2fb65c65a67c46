//! Sums of layouts: in all, and by classes of size.

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
    /// Files with at least one block.
    pub files: u64,
    /// Blocks.
    pub blocks: u64,
    /// Blocks that have a predecessor in their file.
    pub pairs: u64,
    /// Those that do not follow it.
    pub breaks: u64,
    /// Pieces.
    pub pieces: u64,
    /// Files whose first block lies in another group than their directory.
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

    /// The layout score; `None` where no block has a predecessor.
    #[must_use]
    pub fn score(&self) -> Option<f64> {
        (self.pairs > 0).then(|| 1.0 - self.breaks as f64 / self.pairs as f64)
    }

    /// Share of split files, from 0 to 1; `None` where there are no files.
    #[must_use]
    pub fn split_share(&self) -> Option<f64> {
        (self.files > 0).then(|| self.split as f64 / self.files as f64)
    }
}

/// Files of one size class.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Class {
    /// The class holds files from so many blocks, and of less than twice as many.
    pub from_blocks: u64,
    /// Their sums.
    #[serde(flatten)]
    pub sums: Sums,
    /// Their layout score.
    pub score: Option<f64>,
}

/// What is known of the layout of a file system.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Sums over all files.
    pub total: Sums,
    by_class: BTreeMap<u32, Sums>,
    /// Pieces by the logarithm, base 2, of their blocks, rounded down.
    pub piece_sizes: BTreeMap<u32, u64>,
    /// From file to file in the order of directories.
    pub distances: Distances,
    /// Free space, where it could be had.
    pub free: Option<FreeSpace>,
    /// Files that no layout can be told of, with the reason and how many.
    pub untold: BTreeMap<&'static str, u64>,
    /// Bytes that several files share.
    pub shared_bytes: u64,
    /// What lies where, if it was asked for.
    pub map: Option<Map>,
}

impl Score {
    /// Nothing yet.
    #[must_use]
    pub fn new(block_bytes: u64) -> Self {
        Self { block_bytes, ..Self::default() }
    }

    /// Likewise, for files that are looked at so.
    #[must_use]
    pub fn by(rules: Rules) -> Self {
        Self { map: rules.map_bytes.map(Map::new), ..Self::new(rules.block_bytes) }
    }

    /// Adds where a file of `size` bytes lies, beside its layout. The map shows reserved space too.
    pub fn add_extents(&mut self, extents: &[Extent], size: u64) {
        for blocks in pieces_of(extents, size, self.block_bytes.max(1)) {
            self.add_piece(blocks);
        }
        if let Some(map) = &mut self.map {
            extents.iter().for_each(|extent| map.add(extent));
        }
    }

    /// Adds a file.
    pub fn add(&mut self, layout: &FileLayout, split: bool) {
        self.total.add(layout, split);
        let class = layout.blocks.max(1).ilog2();
        self.by_class.entry(class).or_default().add(layout, split);
    }

    /// Counts a piece of so many blocks.
    pub fn add_piece(&mut self, blocks: u64) {
        *self.piece_sizes.entry(blocks.max(1).ilog2()).or_default() += 1;
    }

    /// Counts a file that no layout can be told of.
    pub fn leave_out(&mut self, reason: &'static str) {
        *self.untold.entry(reason).or_default() += 1;
    }

    /// Adds another part of the same file system.
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

    /// Sums by size, the smallest files first.
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

    /// As FIEMAP reports a file of 1 GiB on ext4, whose extents have at most 32,768 blocks, with
    /// reserved space behind its end.
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
