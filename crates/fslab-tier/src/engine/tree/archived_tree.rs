//! Archiving the names and attributes of the whole tree, so that the archives are sufficient to
//! rebuild it.
//!
//! The archived tree is an object, like an archived file. Its contents are entries, one after the
//! other. It is written while the tree is in use. Files that are created or changed during the
//! writing are in the next archived tree. Files that are renamed during the writing have a second
//! entry at the end, under their new name.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::{FileKind, Request, Timestamp};

use crate::archive::{Archive, ContainerKind};
use crate::calendar::age;
use crate::catalogue::ObjectState;
use crate::engine::Tier;
use crate::engine::copies::{CopyWriter, read_back};
use crate::engine::tree::walk::{Visit, WalkEntry};
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::{Found, is_missing};
use crate::object::archived_tree::{order, trees};
use crate::object::writer::{BlockEncoder, Heading, ObjectWriter};
use crate::rate_limit::Pace;
use crate::spool::Spool;
use crate::stored::format::KIND_TREE;
use crate::stored::residency::Unreadable;
use crate::stored::{Attributes, TreeEntry, Version};

/// Number of newest archived trees that each archive keeps regardless of their age.
const TREES_KEPT: usize = 3;

const DAY_SECONDS: i64 = 24 * 3600;

const MISSED: &str = "entries that were renamed during the walk may be missing from the archived \
                      tree; archive the tree again";

/// The result of archiving a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchivedTree {
    /// Number of files, directories and other names.
    pub entries: u64,
    /// Parts that are missing or incomplete, with the reason.
    pub problems: Vec<String>,
}

/// Entries that are collected for an archived tree.
#[derive(Default)]
struct Entries {
    spool: Spool,
    made: ArchivedTree,
    /// Whether the walk over the whole tree is complete. Entries that follow belong to inodes that
    /// were renamed during this walk.
    is_behind: bool,
}

impl Tier {
    /// Writes the names and attributes of the present tree to the required number of archives.
    ///
    /// # Errors
    /// Errors of the lower file system and of archives.
    pub fn archive_tree(self: &Arc<Self>, request: &Request) -> Result<ArchivedTree> {
        self.check_copy_targets()?;
        let (last, begun) = (last_number(&self.archives()), self.around.calendar.now());
        self.catalogue.next_sequence(begun, last)?;
        let (mut entries, sequence) = (Entries::default(), self.tree_sequence()?);
        let (_, was_all_seen) =
            self.walk_through(request, &mut |place| self.enter_place(&place, &mut entries))?;
        let Entries { mut spool, mut made, .. } = entries;
        if !was_all_seen {
            made.problems.push(MISSED.to_owned());
        }
        let mut done = Vec::new();
        self.with_copy_targets(|archives| {
            for archive in archives {
                if !done.contains(&archive.id()) {
                    let container = self.put_tree(archive, sequence, &mut spool, request)?;
                    done.push(archive.id());
                    self.drop_old_trees(archive, container)?;
                }
            }
            Ok(())
        })?;
        self.catalogue.note_tree(begun.seconds)?;
        Ok(made)
    }

    fn enter_place(&self, place: &WalkEntry<'_>, entries: &mut Entries) -> Result<Visit> {
        if self.is_walking_renamed() {
            if !self.is_still_there(place) {
                if !self.has_gone(place.found) {
                    entries.made.problems.push(MISSED.to_owned());
                }
                return Ok(Visit::Skip);
            }
            if !std::mem::replace(&mut entries.is_behind, true) {
                let root = Found::root(&self.lower).map_err(Error::below(b""))?;
                self.enter_entry(&WalkEntry { path: b"", found: &root }, entries)?;
            }
        }
        self.enter_entry(place, entries)?;
        Ok(Visit::Descend)
    }

    /// Adds an entry for a file, unless the file no longer exists. If its xattrs can't be read, the
    /// entry has none, which is better than no entry.
    fn enter_entry(&self, place: &WalkEntry<'_>, entries: &mut Entries) -> Result<()> {
        let archived = self.archived_as(place.found, place.path)?;
        let attr = &place.found.attr;
        let attributes = match self.attributes(attr, place.path) {
            Ok(attributes) => attributes,
            Err(Error::Below { source, .. }) if is_missing(&source) => return Ok(()),
            Err(error) => {
                let problem = format!(
                    "{error}; the archived tree contains this entry without xattrs, or omits it if \
                     it is a symbolic link"
                );
                entries.made.problems.push(problem);
                if attr.kind == FileKind::Symlink {
                    return Ok(());
                }
                Attributes { path: place.path.to_vec(), ..Attributes::of(attr) }
            }
        };
        entries.made.entries += u64::from(!entries.is_behind);
        entries.spool.put(&TreeEntry { attributes, size: attr.size, archived }.encode())
    }

    /// Returns whether a renamed inode still has the name under which it was found after the walk.
    fn is_still_there(&self, place: &WalkEntry<'_>) -> bool {
        let found = Found::at(&self.lower, place.path);
        found.is_ok_and(|found| found.ino() == place.found.ino())
    }

    fn has_gone(&self, found: &Found) -> bool {
        let attr = self.lower.getattr(&self.request(), found.ino(), None);
        attr.map_or_else(|error| is_missing(&error), |attr| attr.links == 0)
    }

    /// Returns the sequence number for a new archived tree. It is lower than the numbers of all
    /// objects that may be missing in the archived tree, such as uploads in progress during the
    /// walk. Versions that repacking is copying to a new object are ignored, because they are not
    /// newer, and a rebuild finds them in either object. If they counted, they would lower the
    /// number and make the archived tree seem outdated.
    fn tree_sequence(&self) -> Result<u64> {
        let drawn = self.sequence_below_pending()?;
        let (mut pending, mut settled) = (HashSet::new(), HashSet::new());
        self.catalogue.for_each(&mut |row| {
            // Pending objects of earlier runs are ignored, because the walk finds each one that a
            // file refers to.
            if row.state == ObjectState::Pending
                && row.version.sequence > self.outbound.first_sequence
            {
                pending.insert((row.version.sequence, row.file));
            }
            Ok(())
        })?;
        self.catalogue.for_each(&mut |row| {
            let version = (row.version.sequence, row.file);
            if row.state != ObjectState::Pending && pending.contains(&version) {
                settled.insert(version);
            }
            Ok(())
        })?;
        let first = pending.difference(&settled).map(|(sequence, _)| *sequence).min();
        Ok(first.map_or(drawn, |first| drawn.min(first.saturating_sub(1))))
    }

    /// Returns the archived version of a file, if it has one. Skips an invalid residency with a
    /// warning. If the lower file system can't read the residency, archiving the tree fails.
    /// Otherwise the new archived tree would lack the file's version, and in time replace the trees
    /// that contain it.
    fn archived_as(&self, found: &Found, path: &[u8]) -> Result<Option<(Id, Version)>> {
        if found.attr.kind != FileKind::Regular {
            return Ok(None);
        }
        match self.residency_below(found.ino()) {
            Ok(known) => {
                let known = known.filter(|known| {
                    known.tier == self.settings.tier && self.means_something(known, &found.attr)
                });
                Ok(known.map(|known| (known.file, known.version)))
            }
            Err(Unreadable::Below(error)) => Err(Error::below(path)(error)),
            Err(unknown @ Unreadable::UnknownObject(_)) => {
                Err(Error::Refused { what: format!("{}: {unknown}", shown(path)) })
            }
            Err(Unreadable::Corrupt(what)) => {
                tracing::warn!(
                    "{}: {what}; the archived tree records no archived version of this file",
                    shown(path)
                );
                Ok(None)
            }
        }
    }

    fn put_tree(
        &self,
        archive: &Arc<dyn Archive>,
        sequence: u64,
        spool: &mut Spool,
        request: &Request,
    ) -> Result<Id> {
        let now = self.around.calendar.now();
        let container = self.around.identities.make();
        let heading = Heading {
            kind: KIND_TREE,
            object: self.around.identities.make(),
            file: Id::default(),
            tier: self.settings.tier,
            sequence,
            size: spool.length(),
            created: now,
            may_have_sources: false,
        };
        let root = Found::root(&self.lower).map_err(Error::below(b""))?;
        let attributes = self.attributes(&root.attr, b"")?;
        let (archives, pace) = (std::slice::from_ref(archive), Pace { request, limits: [None; 2] });
        let mut sink = CopyWriter::begin(archives, (ContainerKind::Tree, container), pace)?;
        let mut encoder = BlockEncoder::new(self.settings.level.max(1));
        let mut writer = ObjectWriter::begin(&mut sink, &heading, &attributes, &mut encoder)?;
        spool.blocks(&mut |bytes| {
            pace.check()?;
            writer.block(bytes)
        })?;
        let written = writer.finish()?;
        read_back(sink.finish()?, |archive| {
            self.verify_tree(archive, container, written, request)
        })?;
        Ok(container)
    }

    /// Deletes old archived trees, except those that `thinned` selects. Always keeps the new tree
    /// `made`.
    fn drop_old_trees(&self, archive: &Arc<dyn Archive>, made: Id) -> Result<()> {
        let mut trees = trees(archive)?;
        let rank = |container: Id, tree: &Heading| (container == made, order(tree));
        trees.sort_by_key(|(container, tree)| Reverse(rank(*container, tree)));
        let created: Vec<_> = trees.iter().map(|(_, tree)| tree.created).collect();
        let kept = thinned(&created, self.around.calendar.now(), self.settings.keep);
        for ((container, _), _) in trees.iter().zip(kept).filter(|(_, is_kept)| !is_kept) {
            let deleted = archive.delete((ContainerKind::Tree, *container));
            deleted.map_err(Error::archive(archive.label(), *container))?;
        }
        Ok(())
    }
}

/// Returns the greatest sequence number of the archived trees. A rebuild uses the tree with the
/// greatest number, so later trees need greater ones. The catalogue and the clock do not ensure
/// this, because the catalogue may have been lost, and the clock may have been ahead.
pub(in crate::engine) fn last_number(archives: &[Arc<dyn Archive>]) -> u64 {
    let mut last = 0;
    for archive in archives {
        match trees(archive) {
            Ok(trees) => {
                let numbers = trees.iter().map(|(_, tree)| tree.sequence);
                last = numbers.fold(last, u64::max);
            }
            Err(error) => tracing::warn!(
                "can't read archived trees; new versions may get lower sequence numbers than these \
                 trees: {error}"
            ),
        }
    }
    last
}

/// Returns for each archived tree, from the newest to the oldest, whether it is kept. The newest
/// [`TREES_KEPT`] are kept. Of the other trees within the retention time, one a day is kept if it
/// is less than a week old, otherwise one a week.
fn thinned(created: &[Timestamp], now: Timestamp, keep: Duration) -> Vec<bool> {
    let mut times = HashSet::new();
    let is_kept = |(number, created): (usize, &Timestamp)| {
        let age = age(*created, now);
        let is_young = age < Duration::from_secs(7 * DAY_SECONDS as u64);
        let span = if is_young { DAY_SECONDS } else { 7 * DAY_SECONDS };
        let is_first = times.insert((is_young, created.seconds.div_euclid(span)));
        number < TREES_KEPT || (age < keep && is_first)
    };
    created.iter().enumerate().map(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Archives a tree every hour for this many days; returns the ages in hours of those that are
    /// kept.
    fn after(days: i64, keep_days: u64) -> Vec<i64> {
        let keep = Duration::from_secs(keep_days * DAY_SECONDS as u64);
        let mut trees: Vec<Timestamp> = Vec::new();
        for hour in 0..=days * 24 {
            let now = Timestamp { seconds: 1_790_000_000 + hour * 3600, nanoseconds: 0 };
            trees.insert(0, now);
            let mut kept = thinned(&trees, now, keep).into_iter();
            trees.retain(|_| kept.next() == Some(true));
        }
        let ages = trees.iter().map(|tree| (trees[0].seconds - tree.seconds) / 3600);
        ages.collect()
    }

    #[test]
    fn trees_are_thinned_out_and_kept_as_long_as_versions() {
        assert_eq!(after(90, 0), [0, 1, 2]);
        let ages = after(90, 30);
        assert_eq!(ages[..3], [0, 1, 2]);
        let days: Vec<i64> = ages.iter().map(|hours| hours / 24).collect();
        assert!((1..7).all(|day| days.iter().filter(|age| **age == day).count() == 1), "{days:?}");
        let weeks: Vec<i64> = days.into_iter().filter(|day| *day >= 7).collect();
        assert!((3..=5).contains(&weeks.len()) && weeks.last() > Some(&20), "{weeks:?}");
        assert!(weeks[1..].windows(2).all(|pair| pair[1] - pair[0] == 7), "{weeks:?}");
    }
}
