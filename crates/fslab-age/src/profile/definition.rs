//! The parameters of a profile and their limits.

use super::Sizes;
use crate::error::{Error, Result};

/// A model of how a file system is used. All values are defaults that a user can change.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name of the profile on command lines.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Size of the file system, in bytes.
    pub volume_bytes: u64,
    /// Number of days of use.
    pub days: u32,
    /// Share of the volume that files use at the beginning.
    pub filled_at_first: f64,
    /// Share of the volume that files use at the end. The share changes linearly with time.
    pub utilisation: f64,
    /// Sizes of long-lived files.
    pub sizes: Sizes,
    /// Number of long-lived files created per day, relative to the number of files.
    pub creates_per_file: f64,
    /// Number of files changed per day, relative to the number of files.
    pub changes_per_file: f64,
    /// Share of changes that rewrite the whole file; the others append.
    pub rewrites: f64,
    /// Number of random files from which each change selects the largest; 1 means no preference for
    /// large files.
    pub change_candidates: u32,
    /// Number of operations per day, for each file that exists at the end. Creations, changes and
    /// removals of long-lived files use a part of these operations; files that live less than a day
    /// use the rest.
    pub operations_per_file: f64,
    /// Bytes written per day, as a share of the volume.
    pub writes_per_volume: f64,
    /// Sigma of the logarithm of the size of files that live less than a day.
    pub short_sigma: f64,
    /// Sigma of the logarithm of a day's activity.
    pub day_sigma: f64,
    /// Share of idle days.
    pub idle_days: f64,
    /// The structure of the directories.
    pub directories: Directories,
    /// Sigma of the logarithm of a directory's weight, which determines its share of new files.
    pub directory_sigma: f64,
}

/// The structure of the directories.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Directories {
    /// All directories are in the root directory. Smith and Seltzer (1997) used one directory per
    /// cylinder group.
    Flat {
        /// Bytes of the volume per directory.
        bytes_each: u64,
    },
    /// A tree. The parent of a new directory is random; its weight is its number of subdirectories
    /// plus two (Agrawal et al. 2009).
    Tree {
        /// Number of files per directory.
        files_each: f64,
        /// Maximum depth of a directory.
        depth_max: u32,
    },
}

impl Profile {
    /// Checks the parameters; the error describes an invalid one.
    ///
    /// # Errors
    /// Returns [`Error::Parameter`].
    pub fn check(&self) -> Result<()> {
        let share = |value: f64| (0.0..=0.97).contains(&value);
        let small = |value: f64| (0.0..=10.0).contains(&value);
        let rules = [
            (self.volume_bytes >= 1 << 20, "the volume must have at least 1 MiB"),
            ((1..=36_500).contains(&self.days), "the number of days must be from 1 to 36,500"),
            (
                share(self.filled_at_first),
                "the share of the volume filled at first must be from 0 to 0.97",
            ),
            (share(self.utilisation), "the utilisation must be from 0 to 0.97"),
            (share(self.idle_days), "the share of idle days must be from 0 to 0.97"),
            ((0.0..=1.0).contains(&self.rewrites), "the share of rewrites must be from 0 to 1"),
            (
                small(self.creates_per_file),
                "the number of creations per file and day must be from 0 to 10",
            ),
            (
                small(self.changes_per_file),
                "the number of changes per file and day must be from 0 to 10",
            ),
            (
                self.operations_per_file >= 0.0,
                "the number of operations per file must not be negative",
            ),
            (
                (0.0..=100.0).contains(&self.writes_per_volume),
                "the bytes written per day must be from 0 to 100 times the volume",
            ),
            (
                small(self.short_sigma) && small(self.day_sigma),
                "the spreads of sizes and of daily activity must be from 0 to 10",
            ),
            (small(self.directory_sigma), "the spread of directory weights must be from 0 to 10"),
            (
                (1..=1000).contains(&self.change_candidates),
                "the number of candidates for a change must be from 1 to 1000",
            ),
        ];
        let broken = rules.into_iter().find(|(holds, _)| !holds);
        broken.map_or(Ok(()), |(_, what)| Err(Error::parameter(what)))?;
        self.sizes.check()
    }

    /// Returns the same profile for a volume of another size. File sizes are limited to 1/64 of the
    /// volume, or 4 KiB if that is larger.
    #[must_use]
    pub fn on_volume(&self, volume_bytes: u64) -> Self {
        let sizes = self.sizes.clone().at_most((volume_bytes / 64).max(4096));
        Self { volume_bytes, sizes, ..self.clone() }
    }

    /// Describes the profile in one line, for the provenance of a workload.
    #[must_use]
    pub fn describe(&self) -> String {
        // The debug format contains all values, so that different parameters give different
        // descriptions.
        let told = format!("{self:?}");
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("profile {}: {told}", self.name)
    }
}
