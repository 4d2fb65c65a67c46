//! Random reads of blocks of one file, some of which are written: what Bonnie's seekers and
//! `random-io` share, in threads of this process or in processes of their own.
//!
//! What is written to a block depends on its number alone, so that the contents of the file in
//! the end don't depend on who wrote first, and can be checked.

use std::collections::HashSet;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use super::content::{self, Pool, read_exactly};
use crate::error::Result;
use crate::tree::{Access, Tree, TreeFile};
use fslab_stats::Directions;

/// One worker's share of the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Accesses {
    /// The file, within the target.
    pub path: String,
    /// Size of a block.
    pub block_bytes: u64,
    /// Blocks of the file.
    pub blocks: u64,
    /// How many blocks are visited.
    pub visits: u64,
    /// Of these, the share that is written, in percent.
    pub write_percent: u64,
    /// Whether a block that is written is read before, as Bonnie does.
    pub read_first: bool,
    /// Where places come from.
    pub seed: u64,
    /// Where the contents that are written come from; the same for all workers.
    pub content_seed: u64,
}

impl Accesses {
    /// Even shares of the visits, each in places of its own.
    pub fn shared_by(&self, workers: u64) -> Vec<Self> {
        let share = |number: u64| Self {
            visits: self.visits / workers + u64::from(number < self.visits % workers),
            seed: self.seed.wrapping_add(number),
            ..self.clone()
        };
        (0..workers).map(share).collect()
    }

    /// Visits all its blocks; `check` may stop it.
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

    /// The blocks that are written.
    pub fn written(&self) -> HashSet<u64> {
        self.visits().filter(|visit| visit.writes).map(|visit| visit.block).collect()
    }

    fn visits(&self) -> impl Iterator<Item = Visit> {
        let mut random = Pcg64::seed_from_u64(self.seed);
        (0..self.visits).map(move |_| Visit {
            block: random.random_range(0..self.blocks.max(1)),
            writes: random.random_range(0..100) < self.write_percent,
        })
    }
}

/// One block's turn.
#[derive(Clone, Copy, Debug)]
struct Visit {
    block: u64,
    writes: bool,
}

/// What blocks hold once they are written: a piece of this each.
fn written_contents(seed: u64, block_bytes: u64) -> Pool {
    Pool::of(content::make("compressed", seed, block_bytes as usize + (1 << 20)))
}

/// Checks that each block of a file holds what it held before, by `original`, or what the
/// workers were to write there.
pub(super) fn verify(
    file: &dyn TreeFile,
    workers: &[Accesses],
    original: impl Fn(u64, &mut [u8]),
) -> Result<()> {
    let Some(first) = workers.first() else { return Ok(()) };
    let written: HashSet<u64> = workers.iter().flat_map(Accesses::written).collect();
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
    use super::{Accesses, verify};
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
            seed,
            content_seed: 1,
        }
    }

    /// Two workers write; the outcome is known, and one block written elsewhere is found.
    #[test]
    fn what_was_written_where_is_known() {
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
}
