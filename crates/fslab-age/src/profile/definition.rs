//! The values that a profile has, and their limits.

use super::Sizes;
use crate::error::{Error, Result};

/// What use of a file system is like. Every value is a default that a user may replace.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name on command lines.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Size of the file system, in bytes.
    pub volume_bytes: u64,
    /// Days of use.
    pub days: u32,
    /// Share of the volume that files take when use begins.
    pub filled_at_first: f64,
    /// Share of it at the end; between, it changes steadily.
    pub utilisation: f64,
    /// Sizes of files that stay.
    pub sizes: Sizes,
    /// Files made a day that stay, as a share of those there are.
    pub creates_per_file: f64,
    /// Files changed a day, as a share of those there are.
    pub changes_per_file: f64,
    /// Share of changes that write the whole file anew; the others append to it.
    pub rewrites: f64,
    /// How many candidates a changed file is the largest of: 1 has no preference.
    pub change_candidates: u32,
    /// Operations a day, whatever they are, for each file at the end; what creates, changes and
    /// removals leave is filled with files that live less than a day.
    pub operations_per_file: f64,
    /// Bytes written a day, as a share of the volume.
    pub writes_per_volume: f64,
    /// Spread of the sizes of files that live less than a day: sigma of their logarithm.
    pub short_sigma: f64,
    /// Spread of the days: sigma of the logarithm of how busy one is.
    pub day_sigma: f64,
    /// Share of days on which nothing happens.
    pub idle_days: f64,
    /// How directories lie.
    pub directories: Directories,
    /// Spread of how much directories are used: sigma of its logarithm.
    pub directory_sigma: f64,
}

/// How directories lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Directories {
    /// All in the root, one for so many bytes of the volume: a directory for each cylinder group,
    /// as in the paper.
    Flat {
        /// Bytes of the volume for each.
        bytes_each: u64,
    },
    /// A tree, in which a directory is made for so many files. Where one is made is drawn with a
    /// weight of two more than the directories that are there already (Agrawal et al. 2009).
    Tree {
        /// Files for each directory.
        files_each: f64,
        /// No directory lies deeper.
        depth_max: u32,
    },
}

impl Profile {
    /// Says which parameter can't be so.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub fn check(&self) -> Result<()> {
        let share = |value: f64| (0.0..=0.97).contains(&value);
        let small = |value: f64| (0.0..=10.0).contains(&value);
        let rules = [
            (self.volume_bytes >= 1 << 20, "a volume has at least 1 MiB"),
            ((1..=36_500).contains(&self.days), "there are 1 to 36,500 days"),
            (share(self.filled_at_first), "what is filled at first is a share from 0 to 0.97"),
            (share(self.utilisation), "the utilisation is a share from 0 to 0.97"),
            (share(self.idle_days), "the idle days are a share from 0 to 0.97"),
            ((0.0..=1.0).contains(&self.rewrites), "the rewrites are a share from 0 to 1"),
            (small(self.creates_per_file), "the creates of a file and day are from 0 to 10"),
            (small(self.changes_per_file), "the changes of a file and day are from 0 to 10"),
            (self.operations_per_file >= 0.0, "the operations of a file are not negative"),
            ((0.0..=100.0).contains(&self.writes_per_volume), "the writes are from 0 to 100"),
            (small(self.short_sigma) && small(self.day_sigma), "a spread is from 0 to 10"),
            (small(self.directory_sigma), "the spread of directories is from 0 to 10"),
            ((1..=1000).contains(&self.change_candidates), "the candidates are 1 to 1000"),
        ];
        let broken = rules.into_iter().find(|(holds, _)| !holds);
        broken.map_or(Ok(()), |(_, what)| Err(Error::parameter(what)))?;
        self.sizes.check()
    }

    /// The same use of a volume of another size.
    #[must_use]
    pub fn on_volume(&self, volume_bytes: u64) -> Self {
        let sizes = self.sizes.clone().at_most((volume_bytes / 64).max(4096));
        Self { volume_bytes, sizes, ..self.clone() }
    }

    /// One line that says what this profile is, for the provenance of a workload.
    #[must_use]
    pub fn describe(&self) -> String {
        // Every value is in the derived form, which changes with any of them.
        let told = format!("{self:?}");
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("profile {}: {told}", self.name)
    }
}
