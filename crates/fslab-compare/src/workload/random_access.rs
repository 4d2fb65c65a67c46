//! Random reads and writes of the blocks of one file, for `bonnie` and `random-io`. This module
//! draws the blocks, makes their contents and verifies them.
//!
//! The contents written to a block depend only on its number. The final contents of the file
//! therefore do not depend on the order of writers, and can be checked.

use std::collections::HashSet;

use rand::distr::Distribution;
use rand::{RngExt, SeedableRng};
use rand_distr::Zipf;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use super::content::{self, Pool, read_exactly};
use crate::error::Result;
use crate::tree::{Access, Tree, TreeFile};
use fslab_stats::Directions;

/// The accesses of one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Accesses {
    /// Path of the file within the target.
    pub path: String,
    /// Size of a block in bytes.
    pub block_bytes: u64,
    /// Number of blocks of the file.
    pub blocks: u64,
    /// Number of visits. Each reads or writes one block.
    pub visits: u64,
    /// The share of visits that write, in percent.
    pub write_percent: u64,
    /// Whether a block is read before it is written, as Bonnie does.
    pub read_first: bool,
    /// The exponent of a Zipf distribution, by which some blocks are visited more often than
    /// others. 0 means that all blocks are equally likely.
    pub zipf: f64,
    /// Seed from which the visited blocks are drawn.
    pub seed: u64,
    /// Seed of the written contents, the same for all workers.
    pub content_seed: u64,
}

impl Accesses {
    /// Divides the visits evenly among workers, each with its own seed.
    pub fn shared_by(&self, workers: u64) -> Vec<Self> {
        let share = |number: u64| Self {
            visits: self.visits / workers + u64::from(number < self.visits % workers),
            seed: self.seed.wrapping_add(number),
            ..self.clone()
        };
        (0..workers).map(share).collect()
    }

    /// Makes all visits, or stops when `check` returns an error.
    pub fn run(&self, tree: &dyn Tree, check: impl Fn() -> Result<()>) -> Result<Directions> {
        let contents = written_contents(self.content_seed, self.block_bytes);
        let file = tree.open(&self.path, Access::ReadWrite)?;
        let mut buffer = vec![0; self.block_bytes as usize];
        let mut directions = Directions::start();
        for visit in self.visits() {
            check()?;
            let offset = visit.block * self.block_bytes;
            if !visit.writes || self.read_first {
                read_exactly(&*file, &self.path, offset, &mut buffer)?;
            }
            if visit.writes {
                file.write_at(offset, contents.piece(visit.block, buffer.len()))?;
            }
            directions.lap(visit.writes);
        }
        file.close()?;
        Ok(directions)
    }

    /// Returns the numbers of the blocks that these visits write.
    pub fn written(&self) -> HashSet<u64> {
        self.visits().filter(|visit| visit.writes).map(|visit| visit.block).collect()
    }

    fn visits(&self) -> impl Iterator<Item = Visit> {
        Draws::new(self).take(self.visits as usize)
    }
}

/// An endless sequence of visits.
#[derive(Debug)]
pub(super) struct Draws {
    random: Pcg64,
    blocks: u64,
    write_percent: u64,
    zipf: Option<Zipf<f64>>,
}

impl Draws {
    /// Makes the sequence for a worker's accesses.
    pub fn new(of: &Accesses) -> Self {
        let blocks = of.blocks.max(1);
        // Equally likely blocks are drawn as integers, which is faster.
        let zipf = if of.zipf > 0.0 { Zipf::new(blocks as f64, of.zipf).ok() } else { None };
        let random = Pcg64::seed_from_u64(of.seed);
        Self { random, blocks, write_percent: of.write_percent, zipf }
    }
}

impl Iterator for Draws {
    type Item = Visit;

    fn next(&mut self) -> Option<Visit> {
        let block = match &self.zipf {
            None => self.random.random_range(0..self.blocks),
            Some(zipf) => place(zipf.sample(&mut self.random) as u64 - 1, self.blocks),
        };
        Some(Visit { block, writes: self.random.random_range(0..100) < self.write_percent })
    }
}

/// A prime above the number of 4 KiB blocks of any file below 10 TB. The prime and the number of
/// blocks therefore have no common factor.
const SCATTER: u64 = 2_654_435_761;

/// Returns the block with a rank in the Zipf distribution; rank 0 is visited most. Blocks of
/// adjacent ranks are not adjacent.
fn place(rank: u64, blocks: u64) -> u64 {
    (u128::from(rank) * u128::from(SCATTER) % u128::from(blocks)) as u64
}

/// A visit to one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    /// The block's number.
    pub block: u64,
    /// Whether it is written; otherwise it is read.
    pub writes: bool,
}

/// Returns the contents from which each written block takes a piece.
pub(super) fn written_contents(seed: u64, block_bytes: u64) -> Pool {
    Pool::of(content::make("compressed", seed, block_bytes as usize + (1 << 20)))
}

/// Checks that each block written by a worker has the written content, and that every other block
/// has its earlier content, which `original` returns.
pub(super) fn verify(
    file: &dyn TreeFile,
    workers: &[Accesses],
    original: impl Fn(u64, &mut [u8]),
) -> Result<()> {
    let Some(first) = workers.first() else { return Ok(()) };
    let written = workers.iter().flat_map(Accesses::written).collect();
    verify_written(file, first, &written, original)
}

/// Like [`verify`], for a known set of written blocks.
pub(super) fn verify_written(
    file: &dyn TreeFile,
    first: &Accesses,
    written: &HashSet<u64>,
    original: impl Fn(u64, &mut [u8]),
) -> Result<()> {
    let contents = written_contents(first.content_seed, first.block_bytes);
    let mut found = vec![0; first.block_bytes as usize];
    let mut expected = found.clone();
    for block in 0..first.blocks {
        read_exactly(file, &first.path, block * first.block_bytes, &mut found)?;
        if written.contains(&block) {
            expected.copy_from_slice(contents.piece(block, found.len()));
        } else {
            original(block, &mut expected);
        }
        if found != expected {
            let path = format!("{}, block {block}", first.path);
            content::same(&path, crc32c::crc32c(&expected), crc32c::crc32c(&found))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Accesses, Draws, place, verify};
    use crate::error::Error;
    use crate::tree::{Access, HostTree, Tree};
    use fslab_stats::Stopwatch;

    fn accesses(seed: u64) -> Accesses {
        Accesses {
            path: "file".to_owned(),
            block_bytes: 512,
            blocks: 64,
            visits: 100,
            write_percent: 30,
            read_first: true,
            zipf: 0.0,
            seed,
            content_seed: 1,
        }
    }

    /// Two workers write. The verification succeeds if both are listed, and fails if only one is.
    #[test]
    fn verification_detects_blocks_of_an_unlisted_worker() {
        let directory = tempfile::tempdir_in(".").unwrap();
        std::fs::write(directory.path().join("file"), vec![5; 512 * 64]).unwrap();
        let tree = HostTree::open(directory.path()).unwrap();
        let workers = [accesses(1), accesses(2)];
        for worker in &workers {
            let done = worker.run(&tree, || Ok(())).unwrap();
            let count = |stopwatch: Stopwatch| stopwatch.finish("x").0.unwrap().count;
            let (reads, writes) = (count(done.reads), count(done.writes));
            assert_eq!(reads + writes, 100);
            let visits = worker.visits().filter(|visit| visit.writes).count();
            assert_eq!(writes, visits as u64);
            assert!((15..60).contains(&worker.written().len()), "{:?}", worker.written());
        }
        let check = |workers: &[Accesses]| {
            let file = tree.open("file", Access::Read).unwrap();
            verify(&*file, workers, |_, bytes| bytes.fill(5))
        };
        check(&workers).unwrap();
        assert!(matches!(check(&workers[..1]), Err(Error::WrongContents { .. })));
    }
    /// Returns Pearson's chi-squared statistic: blocks are drawn with one exponent of the Zipf
    /// distribution, and compared with the shares for another exponent.
    fn chi_squared(drawn_with: f64, expected_by: f64) -> f64 {
        const BLOCKS: u64 = 50;
        const DRAWS: usize = 200_000;
        let accesses = Accesses { blocks: BLOCKS, zipf: drawn_with, ..accesses(5) };
        let mut found = [0_u64; BLOCKS as usize];
        for visit in Draws::new(&accesses).take(DRAWS) {
            found[visit.block as usize] += 1;
        }
        let weight = |rank: u64| ((rank + 1) as f64).powf(-expected_by);
        let all: f64 = (0..BLOCKS).map(weight).sum();
        let of_rank = |rank: u64| {
            let expected = DRAWS as f64 * weight(rank) / all;
            let block = if drawn_with > 0.0 { place(rank, BLOCKS) } else { rank };
            (found[block as usize] as f64 - expected).powi(2) / expected
        };
        (0..BLOCKS).map(of_rank).sum()
    }

    /// With 49 degrees of freedom and the right distribution, the statistic exceeds 85.4 with a
    /// probability of 1 in 1000.
    #[test]
    fn accessed_blocks_follow_the_requested_zipf_distribution() {
        for zipf in [0.0, 0.5, 1.0, 1.2] {
            let statistic = chi_squared(zipf, zipf);
            assert!(statistic < 85.4, "zipf {zipf}: {statistic}");
        }
        for (drawn, expected) in [(0.0, 0.1), (0.5, 0.55), (1.2, 1.25)] {
            let statistic = chi_squared(drawn, expected);
            assert!(
                statistic > 85.4,
                "{drawn} can't be distinguished from {expected}: {statistic}"
            );
        }
    }

    /// Each rank has its own block, and the first blocks are far apart.
    #[test]
    fn ranks_are_scattered_over_all_blocks() {
        for blocks in [1, 2, 50, 4096, 65_536] {
            let places: std::collections::HashSet<u64> =
                (0..blocks).map(|rank| place(rank, blocks)).collect();
            assert_eq!(places.len() as u64, blocks);
        }
        assert!(place(1, 65_536).abs_diff(place(0, 65_536)) > 100);
    }
}
