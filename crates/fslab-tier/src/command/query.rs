//! Queries that select files by residency, owner, size and age, and the sums of groups of files.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Execution;
use crate::engine::WalkEntry;
use crate::error::{Error, Result};
use crate::event::{Event, EventSink, FileSummary, Residence, UsageSums, go_on};
use crate::policy::{Conditions, Facts, glob, is_one_of};

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

/// The groups of files by age: exclusive upper limits in seconds, and names.
const AGES: [(u64, &str); 6] = [
    (DAY, "used within a day"),
    (7 * DAY, "used within a week"),
    (30 * DAY, "used within 30 days"),
    (90 * DAY, "used within 90 days"),
    (365 * DAY, "used within a year"),
    (u64::MAX, "not used for a year"),
];

/// The groups of files by size: exclusive upper limits in bytes, and names.
const SIZES: [(u64, &str); 7] = [
    (1, "empty"),
    (4 << 10, "below 4 KiB"),
    (64 << 10, "below 64 KiB"),
    (1 << 20, "below 1 MiB"),
    (64 << 20, "below 64 MiB"),
    (1 << 30, "below 1 GiB"),
    (u64::MAX, "1 GiB or more"),
];

/// The files that a query selects. All conditions must hold; an empty list matches all files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Query {
    /// The residency.
    pub states: Vec<Residence>,
    /// Patterns for the path from the root of the tree, as in a policy.
    pub patterns: Vec<String>,
    /// Owning users, by number.
    pub users: Vec<u32>,
    /// Owning groups, by number.
    pub groups: Vec<u32>,
    /// Minimum size in bytes.
    pub larger: u64,
    /// Exclusive upper limit of the size in bytes; `None` for no limit.
    pub smaller: Option<u64>,
    /// Minimum time since the last modification, in seconds.
    pub unchanged: u64,
    /// Minimum time since the last read or modification, in seconds.
    pub unused: u64,
    /// Whether only pinned files are selected.
    pub only_pinned: bool,
}

/// A query whose patterns are parsed.
pub struct Selector {
    states: Vec<Residence>,
    only_pinned: bool,
    conditions: Conditions,
}

impl Query {
    pub(super) fn selects_all(&self) -> bool {
        *self == Self::default()
    }

    /// Parses the patterns.
    ///
    /// # Errors
    /// A pattern is invalid.
    pub fn selector(&self) -> Result<Selector> {
        let globs = self.patterns.iter().map(|text| glob(text)).collect::<Result<_, _>>();
        let conditions = Conditions {
            paths: globs.map_err(|what| Error::Refused { what })?,
            users: self.users.clone(),
            groups: self.groups.clone(),
            larger: self.larger,
            smaller: self.smaller.unwrap_or(u64::MAX),
            unchanged: Duration::from_secs(self.unchanged),
            unused: Duration::from_secs(self.unused),
        };
        Ok(Selector { states: self.states.clone(), only_pinned: self.only_pinned, conditions })
    }
}

impl Selector {
    /// Returns the summary of a file if the file is selected. `summary` is called only if the other
    /// conditions hold.
    ///
    /// # Errors
    /// Errors of `summary`.
    pub fn select<E>(
        &self,
        facts: &Facts,
        summary: impl FnOnce() -> Result<FileSummary, E>,
    ) -> Result<Option<FileSummary>, E> {
        if !self.conditions.hold_for(facts) {
            return Ok(None);
        }
        let summary = summary()?;
        let is_pinned = !self.only_pinned || summary.pinned;
        Ok((is_pinned && is_one_of(&self.states, &summary.state)).then_some(summary))
    }
}

/// The property by which the sums of `fslab tier du` are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// The residency.
    State,
    /// The owning user.
    User,
    /// The owning group.
    Group,
    /// The size.
    Size,
    /// The time since the last read or modification.
    Age,
}

impl Grouping {
    /// All properties.
    pub const ALL: [Self; 5] = [Self::State, Self::User, Self::Group, Self::Size, Self::Age];

    /// Returns the name for the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::User => "user",
            Self::Group => "group",
            Self::Size => "size",
            Self::Age => "age",
        }
    }

    /// Returns the position of a file's group in the output, and the group's name.
    fn group_of(self, facts: &Facts, state: Residence) -> (u64, String) {
        match self {
            Self::State => (state as u64, state.name().to_owned()),
            Self::User => (facts.uid.into(), format!("user {}", facts.uid)),
            Self::Group => (facts.gid.into(), format!("group {}", facts.gid)),
            Self::Size => class_of(&SIZES, facts.size),
            Self::Age => class_of(&AGES, facts.unused.as_secs()),
        }
    }
}

/// Returns the position and the name of the first class with a limit above the value.
fn class_of(classes: &[(u64, &str)], value: u64) -> (u64, String) {
    let index = classes.iter().position(|(limit, _)| value < *limit);
    let index = index.unwrap_or(classes.len() - 1);
    (index as u64, classes[index].1.to_owned())
}

/// The sums of the files at one path, or for each group of files at several paths. Each file is
/// counted once, as by du(1), even if it has several names or several of the paths contain it.
pub struct Sums<'a> {
    paths: &'a [Vec<u8>],
    by: Option<Grouping>,
    sums: BTreeMap<(u64, String), UsageSums>,
    /// The inodes of counted files that may be found again, under another name or another path.
    met: HashSet<u64>,
}

impl<'a> Sums<'a> {
    /// Returns empty sums: one for each path, or a single one for all paths if `by` is set.
    pub fn of(paths: &'a [Vec<u8>], by: Option<Grouping>) -> impl Iterator<Item = Self> {
        let together = if by.is_some() { paths.len().max(1) } else { 1 };
        let (sums, met) = (BTreeMap::new(), HashSet::new());
        paths.chunks(together).map(move |paths| Self {
            paths,
            by,
            sums: sums.clone(),
            met: met.clone(),
        })
    }

    /// Returns the paths whose files are to be added.
    #[must_use]
    pub fn paths(&self) -> &'a [Vec<u8>] {
        self.paths
    }

    /// Adds a file. `ino` is its inode, and `links` the number of its names.
    pub fn add(&mut self, (ino, links): (u64, u64), facts: &Facts, file: &FileSummary) {
        let is_met_once = self.paths.len() < 2 && links < 2;
        if is_met_once || self.met.insert(ino) {
            let group = self.by.map(|by| by.group_of(facts, file.state)).unwrap_or_default();
            self.sums.entry(group).or_default().add(file);
        }
    }

    /// Returns an event for the path, or one event for each group. Groups are sorted by state, user
    /// or group ID, size or age.
    #[must_use]
    pub fn events(self) -> Vec<Event> {
        if self.by.is_some() {
            let groups = self.sums.into_iter();
            return groups.map(|((_, name), sums)| sums.event_of_group(name)).collect();
        }
        let sums = self.sums.into_values().next().unwrap_or_default();
        self.paths.iter().map(|path| sums.event(path)).collect()
    }
}

/// Work on a selected file.
type Work<'a> =
    dyn FnMut(&WalkEntry<'_>, &Facts, &FileSummary, &mut EventSink<'_>) -> Result<()> + 'a;

impl Execution<'_> {
    /// Reports the state of each selected file.
    pub(super) fn find(&mut self, paths: &[Vec<u8>], query: &Query) -> Result<()> {
        self.each_selected(paths, query, &mut |_, _, summary, tell| {
            go_on(tell(Event::State(summary.clone())))
        })
    }

    /// Reports the sums of the selected files at each path. With `by`, reports the sums of each
    /// group of files at all paths.
    pub(super) fn usage(
        &mut self,
        paths: &[Vec<u8>],
        query: &Query,
        by: Option<Grouping>,
    ) -> Result<()> {
        for mut sums in Sums::of(paths, by) {
            self.each_selected(sums.paths(), query, &mut |place, facts, summary, _| {
                let attr = &place.found.attr;
                sums.add((attr.ino.0, attr.links.into()), facts, summary);
                Ok(())
            })?;
            sums.events().into_iter().try_for_each(|event| go_on((self.tell)(event)))?;
        }
        Ok(())
    }

    fn each_selected(
        &mut self,
        paths: &[Vec<u8>],
        query: &Query,
        work: &mut Work<'_>,
    ) -> Result<()> {
        let (tier, selector) = (self.tier, query.selector()?);
        let now = tier.surroundings().calendar.now();
        self.each_file(paths, &mut |place, tell| {
            let attr = &place.found.attr;
            let facts = Facts::of_attributes(place.path, attr, now);
            match selector.select(&facts, || tier.file_summary(attr, place.path))? {
                Some(summary) => work(place, &facts, &summary, tell),
                None => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_contain_the_values_below_their_limit() {
        let size = |bytes| class_of(&SIZES, bytes).1;
        assert_eq!(size(0), "empty");
        assert_eq!([size(1), size(4095)], ["below 4 KiB"; 2]);
        assert_eq!(size(4096), "below 64 KiB");
        assert_eq!([size(1 << 30), size(u64::MAX)], ["1 GiB or more"; 2]);
        assert_eq!(class_of(&AGES, 7 * DAY).1, "used within 30 days");
    }
}
