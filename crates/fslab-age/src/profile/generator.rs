//! Turns a profile into operations, day by day.
//!
//! Long-lived files are created, changed and removed so that the utilisation follows the profile.
//! Files that live less than a day provide the remaining operations and bytes of the day. A day
//! removes only long-lived files that existed at its beginning. So the time of an operation does
//! not depend on other operations of that day.

use std::collections::HashSet;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::calendar::{DAY_NS, activity, short_life_ns, time_of_day};
use super::events::Events;
use super::long_lived::{Directories as Tree, File, Residents, even_weights};
use super::sizes::lognormal;
use super::{Directories, Profile};
use crate::error::Result;
use crate::workload::{Operation, OperationKind, Provenance};

/// Number of directories on which a day's work concentrates.
const BUSY_DIRECTORIES: usize = 8;

/// Share of new files that go to the day's busy directories.
const BUSY_SHARE: f64 = 0.7;

/// Number of operations of a file that lives less than a day: it is created, written and removed.
const SHORT_OPERATIONS: f64 = 3.0;

/// Generates the operations of a profile.
pub struct Generator {
    profile: Profile,
    seed: u64,
    random: Pcg64,
    residents: Residents,
    directories: Tree,
    busy: Vec<u64>,
    events: Events,
    day: u32,
    next_number: u64,
    written: u64,
    /// Correction factor for sizes of short-lived files. It is adjusted each day so that the
    /// written total matches the profile.
    short_scale: f64,
    owner: (u32, u32),
}

impl Generator {
    /// Makes a generator of a profile's workload; the seed determines all random choices. All files
    /// belong to `owner`, a user ID and a group ID.
    ///
    /// # Errors
    /// Fails if a parameter is invalid.
    pub fn new(profile: Profile, seed: u64, owner: (u32, u32)) -> Result<Self> {
        profile.check()?;
        let mut generator = Self {
            profile,
            seed,
            random: Pcg64::seed_from_u64(seed),
            residents: Residents::default(),
            directories: Tree::default(),
            busy: Vec::new(),
            events: Events::default(),
            day: 0,
            next_number: 1,
            written: 0,
            short_scale: 1.0,
            owner,
        };
        generator.populate();
        Ok(generator)
    }

    /// Returns the provenance of the workload.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        Provenance {
            source: self.profile.describe(),
            seed: self.seed,
            volume_bytes: self.profile.volume_bytes,
            made_by: format!("fslab {}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Creates the files that exist before the first day. In Smith and Seltzer (1997), the first
    /// snapshot contains these files.
    fn populate(&mut self) {
        if let Directories::Flat { bytes_each } = self.profile.directories {
            let count = (self.profile.volume_bytes / bytes_each.max(1)).max(1);
            let sigma = self.profile.directory_sigma;
            for weight in even_weights(count, sigma, &mut self.random) {
                let number = self.directory_in(0, 0);
                self.directories.add_weighted(number, None, weight);
            }
        }
        let wanted = self.wanted_bytes(0.0);
        while self.residents.bytes() < wanted {
            self.grow_tree(0);
            let directory = self.directories.draw(&mut self.random);
            self.create_resident(0, directory);
        }
    }

    /// Returns the target space of long-lived files in bytes, after the fraction `progress` of all
    /// days.
    fn wanted_bytes(&self, progress: f64) -> u64 {
        let Profile { filled_at_first, utilisation, volume_bytes, .. } = self.profile;
        let share = filled_at_first + (utilisation - filled_at_first) * progress;
        (volume_bytes as f64 * share) as u64
    }

    /// Makes a directory in another directory and returns its number.
    fn directory_in(&mut self, time_ns: u64, directory: u64) -> u64 {
        let number = self.number();
        let operation = self.operation(time_ns, OperationKind::MakeDirectory, number);
        self.events.push(Operation { directory, mode: 0o755, ..operation });
        number
    }

    /// Makes a directory if there are too few directories for the files.
    fn grow_tree(&mut self, time_ns: u64) {
        let Directories::Tree { files_each, depth_max } = self.profile.directories else { return };
        let wanted = 1.0 + self.residents.count() as f64 / files_each.max(0.1);
        if (self.directories.count() as f64) < wanted {
            let parent = self.directories.parent_of_next(depth_max, &mut self.random);
            let directory = parent.map_or(0, |place| self.directories.number(place));
            let number = self.directory_in(time_ns, directory);
            self.directories.add(number, parent, self.profile.directory_sigma, &mut self.random);
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn operation(&self, time_ns: u64, kind: OperationKind, file: u64) -> Operation {
        let (uid, gid) = if kind.makes() { self.owner } else { (0, 0) };
        Operation { time_ns, kind, file, uid, gid, ..Operation::default() }
    }

    fn create(&mut self, time_ns: u64, directory: u64, size: u64) -> u64 {
        let file = self.number();
        let operation = self.operation(time_ns, OperationKind::Create, file);
        self.events.push(Operation { directory, mode: 0o644, ..operation });
        self.write(time_ns, file, 0, size);
        file
    }

    fn write(&mut self, time_ns: u64, file: u64, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        self.written += length;
        let operation = self.operation(time_ns, OperationKind::Write, file);
        self.events.push(Operation { offset, length, ..operation });
    }

    fn create_resident(&mut self, time_ns: u64, directory: u64) {
        let size = self.profile.sizes.draw(&mut self.random);
        let number = self.create(time_ns, directory, size);
        self.residents.add(File { number, size });
    }

    /// Plans a day and adds its operations to the events.
    fn plan_day(&mut self) {
        let start = u64::from(self.day) * DAY_NS;
        let activity = activity(&self.profile, &mut self.random);
        if activity == 0.0 {
            return;
        }
        self.busy =
            (0..BUSY_DIRECTORIES).map(|_| self.directories.draw(&mut self.random)).collect();
        let files = self.residents.count() as f64;
        let changed =
            self.change_residents(start, files * self.profile.changes_per_file * activity);
        let removed = self.remove_residents(start, &changed);
        let created = self.create_residents(start, removed, activity);
        // A creation needs two operations, and so do most changes.
        let long = 2 * created + 2 * changed.len() as u64 + removed;
        let operations = self.profile.operations_per_file * self.files_at_end() * activity;
        let short = (operations - long as f64) / SHORT_OPERATIONS;
        let short = self.count(short);
        self.create_short_lived(start, short);
    }

    /// Estimates the final number of files from the current average size.
    fn files_at_end(&self) -> f64 {
        let each = self.residents.bytes() as f64 / self.residents.count().max(1) as f64;
        self.wanted_bytes(1.0) as f64 / each.max(1.0)
    }

    /// Rounds randomly to an integer, so that the average is correct.
    fn count(&mut self, wanted: f64) -> u64 {
        let wanted = wanted.max(0.0);
        wanted as u64 + u64::from(self.random.random::<f64>() < wanted.fract())
    }

    fn change_residents(&mut self, start: u64, wanted: f64) -> HashSet<u64> {
        let mut changed = HashSet::new();
        for _ in 0..self.count(wanted) {
            let candidates = self.profile.change_candidates;
            let Some(place) = self.residents.pick(&mut self.random, candidates) else { break };
            let file = self.residents.at(place);
            if changed.insert(file.number) {
                let time = start + time_of_day(&mut self.random);
                let size = self.change(time, file);
                self.residents.resize(place, size);
            }
        }
        changed
    }

    /// Changes a file and returns its new size. A rewritten file keeps approximately its size.
    fn change(&mut self, time: u64, file: File) -> u64 {
        let largest = self.profile.volume_bytes / 16;
        if self.random.random_bool(self.profile.rewrites) {
            let operation = self.operation(time, OperationKind::Truncate, file.number);
            self.events.push(operation);
            let mu = libm::log(file.size.max(1) as f64) - 0.02;
            let size = lognormal(&mut self.random, mu, 0.2, largest);
            self.write(time, file.number, 0, size);
            return size;
        }
        let more = self.profile.sizes.draw(&mut self.random) / 4 + 1;
        if file.size + more > largest {
            return file.size;
        }
        self.write(time, file.number, file.size, more);
        file.size + more
    }

    /// Removes files, so that the utilisation reaches its target after the day's expected
    /// creations. Returns the number of removed files.
    fn remove_residents(&mut self, start: u64, changed: &HashSet<u64>) -> u64 {
        let expected = self.expected_new_bytes();
        let progress = f64::from(self.day + 1) / f64::from(self.profile.days);
        let wanted = self.wanted_bytes(progress);
        let mut removed = 0;
        let mut attempts = 4 * self.residents.count();
        while self.residents.bytes() + expected > wanted && attempts > 0 {
            attempts -= 1;
            let Some(place) = self.residents.pick(&mut self.random, 1) else { break };
            if changed.contains(&self.residents.at(place).number) {
                continue;
            }
            let file = self.residents.remove(place);
            let time = start + time_of_day(&mut self.random);
            self.events.push(self.operation(time, OperationKind::Remove, file.number));
            removed += 1;
        }
        removed
    }

    fn expected_new_bytes(&self) -> u64 {
        let each = self.residents.bytes() as f64 / self.residents.count().max(1) as f64;
        (self.residents.count() as f64 * self.profile.creates_per_file * each) as u64
    }

    /// Creates files until the utilisation reaches the target for the end of the day. The number of
    /// files is limited to twice the day's usual number, or to twice `removed` if that is larger.
    /// Returns the number of created files.
    fn create_residents(&mut self, start: u64, removed: u64, activity: f64) -> u64 {
        let progress = f64::from(self.day + 1) / f64::from(self.profile.days);
        let wanted = self.wanted_bytes(progress);
        let ordinary = self.residents.count() as f64 * self.profile.creates_per_file;
        let most = self.count((ordinary * activity).max(removed as f64) * 2.0);
        let mut created = 0;
        while self.residents.bytes() < wanted && created < most {
            let time = start + time_of_day(&mut self.random);
            self.grow_tree(start);
            let directory = self.directory();
            self.create_resident(time, directory);
            created += 1;
        }
        created
    }

    fn directory(&mut self) -> u64 {
        if self.busy.is_empty() || !self.random.random_bool(BUSY_SHARE) {
            return self.directories.draw(&mut self.random);
        }
        self.busy[self.random.random_range(0..self.busy.len())]
    }

    /// Creates `count` files that live less than a day. Their total size makes up the difference
    /// between the bytes written so far and the target of the profile.
    fn create_short_lived(&mut self, start: u64, count: u64) {
        if count == 0 {
            return;
        }
        let Profile { volume_bytes, writes_per_volume, short_sigma: sigma, .. } = self.profile;
        let end = f64::from(self.day + 1) * writes_per_volume * volume_bytes as f64;
        let populated = self.wanted_bytes(0.0);
        let lacking = (end - self.written.saturating_sub(populated) as f64).max(0.0);
        let mean = (lacking * self.short_scale / count as f64).max(1.0);
        let mu = libm::log(mean) - sigma * sigma / 2.0;
        let most = volume_bytes / 64;
        let before = self.written;
        for _ in 0..count {
            let time = start + time_of_day(&mut self.random);
            let size = lognormal(&mut self.random, mu, sigma, most);
            let directory = self.directory();
            let file = self.create(time, directory, size);
            let gone = time + short_life_ns(&mut self.random);
            self.events.push(self.operation(gone, OperationKind::Remove, file));
        }
        // Sizes that are too large are drawn again, which lowers the mean size. The correction
        // factor of the next day compensates for this.
        let got = (self.written - before).max(1) as f64;
        let ratio = (lacking / got).clamp(0.8, 1.25);
        self.short_scale = (self.short_scale * ratio).clamp(0.5, 4.0);
    }
}

impl Iterator for Generator {
    type Item = Result<Operation>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let planned_until = u64::from(self.day) * DAY_NS;
            // On day 0, only the initial files are returned; the first day is planned afterwards.
            let horizon = if self.day == 0 { 1 } else { planned_until };
            if let Some(operation) = self.events.pop_before(horizon) {
                return Some(Ok(operation));
            }
            if self.day >= self.profile.days {
                return None;
            }
            self.plan_day();
            self.day += 1;
        }
    }
}
