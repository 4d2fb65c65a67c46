//! Turns distributions into operations of a workload.

use std::collections::VecDeque;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::distribution::{Depth, Distributions};
use super::files::{File, Files, mean_stored};
use crate::error::{Error, Result};
use crate::profile::DAY_NS;
use crate::workload::{Operation, OperationKind, Provenance};

/// Maximum number of ticks, which limits the run time.
const TICKS_MAX: f64 = 200e6;

/// Maximum deviation of the used space from its target, as a share.
const TOLERANCE: f64 = 0.02;

/// The settings of a Geriatrix workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ageing {
    /// Size of the file system, in bytes.
    pub volume_bytes: u64,
    /// Share of the volume that files use.
    pub utilisation: f64,
    /// Number of days over which the operations are spread.
    pub days: u32,
    /// Seed for all random choices.
    pub seed: u64,
    /// The user ID and group ID of all files.
    pub owner: (u32, u32),
}

/// Generates operations that produce the given distributions.
pub struct GeriatrixGenerator {
    source: String,
    distributions: Distributions,
    ageing: Ageing,
    /// Expected number of files on the volume.
    expected_files: f64,
    random: Pcg64,
    files: Files,
    /// The numbers of the directories at each depth.
    directories: Vec<Vec<u64>>,
    tick: usize,
    ticks: usize,
    populated: bool,
    next_number: u64,
    due: VecDeque<Operation>,
}

impl GeriatrixGenerator {
    /// Reads the distributions from a directory.
    ///
    /// # Errors
    /// Fails if they are invalid or need too many operations, and on I/O errors.
    pub fn read(directory: &Path, ageing: Ageing) -> Result<Self> {
        let source = format!("Geriatrix {}", directory.display());
        Self::new(Distributions::read(directory)?, ageing, source)
    }

    /// Makes a generator for these distributions; `source` describes their origin.
    ///
    /// # Errors
    /// Fails if such files do not fit on the volume, or if too many operations would be needed.
    pub fn new(distributions: Distributions, ageing: Ageing, source: String) -> Result<Self> {
        check(&distributions, ageing)?;
        let wanted = ageing.volume_bytes as f64 * ageing.utilisation;
        let expected_files = (wanted / mean_stored(&distributions.sizes).max(1.0)).max(1.0);
        let ticks = ticks(&distributions, expected_files)?;
        let mut generator = Self {
            source,
            files: Files::new(&distributions),
            directories: Vec::new(),
            random: Pcg64::seed_from_u64(ageing.seed),
            distributions,
            ageing,
            expected_files,
            tick: 0,
            ticks,
            populated: false,
            next_number: 1,
            due: VecDeque::new(),
        };
        generator.make_directories();
        Ok(generator)
    }

    /// Returns the provenance of the workload.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        let Ageing { volume_bytes, utilisation, days, seed, owner } = self.ageing;
        Provenance {
            source: format!(
                "{}, {} ages, {} sizes, {} depths: {} bytes, {utilisation} in use, {days} days, \
                 owner {}:{}",
                self.source,
                self.distributions.ages.len(),
                self.distributions.sizes.len(),
                self.distributions.depths.len(),
                volume_bytes,
                owner.0,
                owner.1,
            ),
            seed,
            volume_bytes,
            made_by: format!("fslab {}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Makes the directories of every depth, each in a directory that is one level higher.
    fn make_directories(&mut self) {
        let deepest = self.distributions.depths.last().map_or(1, |depth| depth.depth);
        self.directories.push(vec![0]);
        for depth in 2..=deepest {
            let named = self.distributions.depths.iter().find(|one| one.depth == depth);
            // A depth without an entry gets one directory, so that deeper directories have a
            // parent.
            let count = named.map_or(1, |one| one.directories);
            let above = std::mem::take(&mut self.directories[depth as usize - 2]);
            let parents = above.iter().cycle().take(count as usize);
            let made = parents.map(|parent| self.make_directory(*parent)).collect();
            self.directories[depth as usize - 2] = above;
            self.directories.push(made);
        }
    }

    fn make_directory(&mut self, directory: u64) -> u64 {
        let number = self.number();
        let made = self.operation(OperationKind::MakeDirectory, number);
        self.due.push_back(Operation { directory, mode: 0o755, ..made });
        number
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn operation(&self, kind: OperationKind, file: u64) -> Operation {
        let (uid, gid) = if kind.makes() { self.ageing.owner } else { (0, 0) };
        // Initial files are created at time 0.
        let passed = if self.populated { self.tick as f64 / self.ticks as f64 } else { 0.0 };
        let time_ns = (passed * f64::from(self.ageing.days) * DAY_NS as f64) as u64;
        Operation { time_ns, kind, file, uid, gid, ..Operation::default() }
    }

    fn wanted_bytes(&self) -> f64 {
        self.ageing.volume_bytes as f64 * self.ageing.utilisation
    }

    /// Performs one tick: while the volume is being filled, creates a file; later, creates or
    /// removes one.
    fn step(&mut self) {
        let share = self.files.bytes() as f64 / self.wanted_bytes();
        if !self.populated {
            if share < 1.0 && self.tick < self.ticks {
                self.create_drawn();
            } else {
                self.populated = true;
            }
            return;
        }
        let makes = match share {
            share if share > 1.0 + TOLERANCE => false,
            share if share < 1.0 - TOLERANCE => true,
            _ => self.random.random_bool(0.5),
        };
        if makes {
            self.create_lacking()
        } else {
            self.remove()
        }
        self.tick += 1;
    }

    fn create_drawn(&mut self) {
        let sizes: Vec<f64> = self.distributions.sizes.iter().map(|one| one.share).collect();
        let depths: Vec<f64> = self.distributions.depths.iter().map(|one| one.share).collect();
        let (size, depth) = (self.draw(&sizes), self.draw(&depths));
        self.create(size, depth);
        self.tick += 1;
    }

    fn create_lacking(&mut self) {
        let size = self.files.lacking_size(&self.distributions);
        let depth = self.files.lacking_depth(&self.distributions);
        self.create(size, depth);
    }

    fn draw(&mut self, shares: &[f64]) -> usize {
        let mut left = self.random.random::<f64>();
        let found = shares.iter().position(|share| {
            left -= share;
            left < 0.0
        });
        found.unwrap_or(shares.len() - 1)
    }

    fn create(&mut self, size: usize, depth: usize) {
        let bytes = self.distributions.sizes[size].value as u64;
        let Depth { depth: level, .. } = self.distributions.depths[depth];
        let among = self.directories[level as usize - 1].len();
        let directory = self.directories[level as usize - 1][self.random.random_range(0..among)];
        let number = self.number();
        let made = self.operation(OperationKind::Create, number);
        self.due.push_back(Operation { directory, mode: 0o644, ..made });
        let written = self.operation(OperationKind::Write, number);
        self.due.push_back(Operation { length: bytes, ..written });
        let stays = self.random.random::<f64>() < self.share_that_stays();
        self.files.add(File { number, size, depth }, stays, bytes);
    }

    /// Returns the probability that a file created in this tick is kept until the end. The files
    /// that are kept for each age are spread evenly over the ticks of that age.
    fn share_that_stays(&self) -> f64 {
        let ages = &self.distributions.ages;
        let oldest = ages.last().map_or(1.0, |age| age.value);
        let own = (1.0 - self.tick as f64 / self.ticks as f64) * oldest;
        let place = ages.partition_point(|age| age.value < own).min(ages.len() - 1);
        let younger = place.checked_sub(1).map_or(0.0, |place| ages[place].value);
        let span_ticks = (ages[place].value - younger) / oldest * self.ticks as f64;
        // While the volume is being filled, each tick creates a file; afterwards, half of the ticks
        // do.
        let made = if self.populated { span_ticks / 2.0 } else { span_ticks };
        self.expected_files * ages[place].share / made.max(1.0)
    }

    fn remove(&mut self) {
        let (sizes, random) = (&self.distributions.sizes, &mut self.random);
        if let Some(file) = self.files.remove_one(sizes, random) {
            self.due.push_back(self.operation(OperationKind::Remove, file.number));
        }
    }
}

impl Iterator for GeriatrixGenerator {
    type Item = Result<Operation>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(operation) = self.due.pop_front() {
                return Some(Ok(operation));
            }
            match self.tick < self.ticks {
                true => self.step(),
                // After the last tick, the remaining files that should not be kept are removed.
                false if !self.files.all_stay() => self.remove(),
                false => return None,
            }
        }
    }
}

fn check(distributions: &Distributions, ageing: Ageing) -> Result<()> {
    let largest = distributions.sizes.last().map_or(0.0, |size| size.value);
    let rules = [
        (ageing.volume_bytes >= 1 << 20, "the volume must have at least 1 MiB"),
        ((1..=36_500).contains(&ageing.days), "the number of days must be from 1 to 36,500"),
        ((0.01..=0.97).contains(&ageing.utilisation), "the utilisation must be from 0.01 to 0.97"),
        (
            largest <= ageing.volume_bytes as f64 * ageing.utilisation / 4.0,
            "the largest size exceeds a quarter of the bytes of all files; use a larger volume",
        ),
    ];
    let broken = rules.into_iter().find(|(holds, _)| !holds);
    broken.map_or(Ok(()), |(_, what)| Err(Error::parameter(what)))
}

/// Returns the number of ticks that is needed so that every age gets its share of the files. Each
/// age has a range of ticks, half of which create a file.
fn ticks(distributions: &Distributions, files: f64) -> Result<usize> {
    let oldest = distributions.ages.last().map_or(1.0, |age| age.value);
    let (mut younger, mut most) = (0.0, 1.0_f64);
    for age in &distributions.ages {
        let span = (age.value - younger) / oldest;
        // An age with an empty range of ticks cannot have files.
        most = if span > 0.0 { most.max(age.share / span) } else { most };
        younger = age.value;
    }
    let ticks = 2.0 * files * most;
    if ticks <= TICKS_MAX {
        return Ok(ticks.ceil() as usize);
    }
    Err(Error::parameter(format!(
        "on a volume of this size, these ages need {ticks:.0} steps of the simulation, but at most \
         {TICKS_MAX:.0} are allowed; use a smaller volume"
    )))
}
