//! `hot-files`: reads a set of files completely, then overwrites them completely.
//!
//! Smith and Seltzer (1997) used the files of an aged file system that were changed in its last 30
//! days. The parameter `list` is a file with their paths, as written by `fslab age`. `all` stands
//! for all files of the target. Without a list, `files` files are generated from the seed.

use std::fs;
use std::path::PathBuf;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::content::{self, Content, Pool, REQUEST_BYTES};
use super::file_attributes::walk;
use super::{Parameter, Preparation, Spec, Workload};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session, Timed};
use crate::tree::{Access, TreeFile};
use fslab_report::sample::CacheState;
use fslab_stats::Stopwatch;

const LIST: Parameter = Parameter::text(
    "list",
    "file with one path in the target per line; `all` uses every file of the target; leave empty \
     to generate a set of files",
    "",
);

const OVERWRITE: Parameter = Parameter::choice(
    "overwrite",
    "whether to overwrite the set after reading it; use `no` for read-only targets",
    &["yes", "no"],
);

const FILES: Parameter = Parameter::count("files", "number of files in a generated set", 800);

const MEAN_SIZE: Parameter = Parameter::bytes(
    "mean_size",
    "mean size of generated files; half of the files are smaller than a quarter of this mean",
    29 << 10,
);

pub(super) const SPEC: Spec = Spec {
    name: "hot-files",
    help: "read a set of files, then overwrite them",
    parameters: &[LIST, OVERWRITE, FILES, MEAN_SIZE, content::DATA, content::DATA_FROM],
    phases: &["read", "overwrite"],
    construct: |parameters, seed| {
        Box::new(HotFiles {
            list: parameters.text(&LIST).map(PathBuf::from),
            overwrite: parameters.word(&OVERWRITE) == "yes",
            files: parameters.number(&FILES),
            mean_size: parameters.number(&MEAN_SIZE),
            content: Content::new(parameters, seed),
            seed,
            listed: Vec::new(),
            pool: Pool::default(),
        })
    },
};

struct HotFiles {
    list: Option<PathBuf>,
    overwrite: bool,
    files: u64,
    mean_size: u64,
    content: Content,
    seed: u64,
    listed: Vec<String>,
    pool: Pool,
}

/// A file of the set.
struct Hot {
    path: String,
    size: u64,
    /// Checksum of the file's first content; `None` for a listed file.
    checksum: Option<u32>,
}

impl Workload for HotFiles {
    fn prepare(&mut self, _preparation: &Preparation<'_>) -> Result<()> {
        if let Some(list) = self.list.as_ref().filter(|_| !self.wants_all()) {
            let text = fs::read_to_string(list).map_err(Error::file(list))?;
            let lines = text.lines().map(|line| line.trim().trim_start_matches("./"));
            self.listed = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
        }
        self.pool = Pool::new(&self.content, REQUEST_BYTES)?;
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        session.describe_data(self.content.describe());
        let set = self.set(session)?;
        session.make_cold()?;
        let read = Phase::new("read").cache(CacheState::Cold);
        session.measure(read, |timed| self.read(timed, &set))?;
        for hot in &set {
            hot.checksum.map_or(Ok(()), |expected| verify(session, &hot.path, expected))?;
        }
        if self.overwrite {
            session.measure(Phase::new("overwrite"), |timed| self.write_over(timed, &set))?;
            session.make_cold()?;
            self.verify_second(session, &set)?;
        }
        Ok(())
    }
}

impl HotFiles {
    fn wants_all(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.as_os_str() == "all")
    }

    fn set(&self, session: &Session<'_>) -> Result<Vec<Hot>> {
        let tree = session.tree()?;
        if self.list.is_none() {
            return self.make(session);
        }
        let mut paths = self.listed.clone();
        if self.wants_all() {
            walk(tree, "", &mut |path| {
                session.check()?;
                let status = tree.status(path)?;
                paths.extend(status.is_file.then(|| path.to_owned()));
                Ok(status)
            })?;
            paths.sort();
        }
        let hot = |path: String| {
            let size = tree.status(&path)?.size;
            Ok(Hot { path, size, checksum: None })
        };
        paths.into_iter().map(hot).collect()
    }

    /// Makes files of realistic sizes: many are small, and few are large.
    fn make(&self, session: &Session<'_>) -> Result<Vec<Hot>> {
        let tree = session.tree()?;
        let mut random = Pcg64::seed_from_u64(self.seed);
        let mut set = Vec::new();
        for file in 0..self.files {
            session.check()?;
            let directory = format!("hot-{:03}", file / 25);
            if file % 25 == 0 {
                tree.make_directory(&directory)?;
            }
            let size = skewed(&mut random, self.mean_size);
            let path = format!("{directory}/file-{file}");
            let made = tree.create(&path)?;
            let checksum = self.write(&*made, file, size, 0)?;
            made.close()?;
            set.push(Hot { path, size, checksum: Some(checksum) });
        }
        tree.sync_all()?;
        Ok(set)
    }

    /// Writes the contents of a file and returns their checksum. `generation` is 0 for the first
    /// contents and 1 for those that overwrite them.
    fn write(&self, file: &dyn TreeFile, number: u64, size: u64, generation: u64) -> Result<u32> {
        let mut checksum = 0;
        for (offset, piece) in self.pieces(number, size, generation) {
            checksum = crc32c::crc32c_append(checksum, piece);
            file.write_at(offset, piece)?;
        }
        Ok(checksum)
    }

    fn pieces(
        &self,
        number: u64,
        size: u64,
        generation: u64,
    ) -> impl Iterator<Item = (u64, &[u8])> {
        let request = REQUEST_BYTES as u64;
        content::pieces(size, request).map(move |(offset, length)| {
            let key = (number << 24) ^ ((offset / request) << 1) ^ generation;
            (offset, self.pool.piece(key, length))
        })
    }

    fn read(&self, timed: &mut Timed<'_>, set: &[Hot]) -> Result<()> {
        let mut buffer = vec![0; REQUEST_BYTES];
        let stopwatch = Stopwatch::start_along(set.len() as u64);
        let mut bytes = 0;
        timed.each("read", stopwatch, set, |timed, hot| {
            bytes += content::read_file(timed, &hot.path, &mut buffer)?;
            Ok(())
        })?;
        timed.count(set.len() as u64, bytes);
        content::expect("bytes read", set.iter().map(|hot| hot.size).sum(), bytes)
    }

    fn write_over(&self, timed: &mut Timed<'_>, set: &[Hot]) -> Result<()> {
        let stopwatch = Stopwatch::start_along(set.len() as u64);
        timed.each("overwrite", stopwatch, set.iter().enumerate(), |timed, (number, hot)| {
            let file = timed.tree().open(&hot.path, Access::Write)?;
            for (offset, piece) in self.pieces(number as u64, hot.size, 1) {
                file.write_at(offset, piece)?;
            }
            file.close()
        })?;
        timed.count(set.len() as u64, set.iter().map(|hot| hot.size).sum());
        timed.flush()
    }

    fn verify_second(&self, session: &Session<'_>, set: &[Hot]) -> Result<()> {
        for (number, hot) in set.iter().enumerate() {
            let append = |sum, (_, piece): (u64, &[u8])| crc32c::crc32c_append(sum, piece);
            let expected = self.pieces(number as u64, hot.size, 1).fold(0, append);
            verify(session, &hot.path, expected)?;
        }
        Ok(())
    }
}

fn verify(session: &Session<'_>, path: &str, expected: u32) -> Result<()> {
    session.check()?;
    content::verify(session.tree()?, path, expected)
}

/// Draws a size from a log-uniform distribution with mean `mean`, whose largest size is 1024 times
/// the smallest. Its mean is the largest size times (1 - 1/1024) / ln 1024.
fn skewed(random: &mut Pcg64, mean: u64) -> u64 {
    let largest = mean as f64 * 1024_f64.ln() / (1.0 - 1.0 / 1024.0);
    (largest * 1024_f64.powf(-random.random::<f64>())) as u64
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    use super::skewed;

    #[test]
    fn file_sizes_have_the_requested_mean_and_are_mostly_small() {
        let mut random = Pcg64::seed_from_u64(3);
        let sizes: Vec<u64> = (0..20_000).map(|_| skewed(&mut random, 29 << 10)).collect();
        let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
        assert!((mean / f64::from(29 << 10) - 1.0).abs() < 0.05, "{mean}");
        let small = sizes.iter().filter(|size| **size < (29 << 10) / 4).count();
        assert!((9_000..11_500).contains(&small), "{small}");
    }
}
