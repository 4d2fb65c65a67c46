//! Attaching, retiring, draining and detaching archives while the engine runs.
//!
//! An upload first registers itself, and then checks whether its archive accepts copies. Detaching
//! an archive first makes it refuse copies, and then checks for registered uploads. So no upload to
//! a detached archive is in progress.

use std::sync::Arc;

use fslab_vfs::Request;

use crate::archive::{Archive, ArchiveEntry, ArchiveUsage};
use crate::engine::Tier;
use crate::engine::tree::archived_tree::last_number;
use crate::error::{Error, Result};
use crate::id::Id;

impl Tier {
    /// Attaches an archive. It replaces an attached archive with the same identity.
    pub fn attach(self: &Arc<Self>, archive: Arc<dyn Archive>) {
        let archive = self.recalls.with_time_limit(archive, &self.settings, &self.around);
        self.forget_readers(archive.id());
        let mut archives = self.archives.write();
        archives.retain(|known| known.id() != archive.id());
        archives.push(archive);
        let count = archives.len();
        drop(archives);
        self.add_movers(count);
        self.queue().resume_postponed();
    }

    /// Starts recall threads until there is one for each archive, because each archive reserves
    /// one.
    fn add_movers(self: &Arc<Self>, archives: usize) {
        let movers = self.mover_count();
        // If there are no threads, recalls are disabled.
        if movers == 0 || movers >= archives {
            return;
        }
        if let Err(error) = self.start_movers(archives - movers) {
            tracing::warn!(
                "can't start more recall threads, so an unresponsive archive may delay recalls \
                 from other archives: {error}"
            );
        }
    }

    /// Returns the tier's entry for the archive that has this identity or URL.
    ///
    /// # Errors
    /// If the tier has no such archive.
    pub(crate) fn entry_named(&self, name: &str) -> Result<ArchiveEntry> {
        let known = self.known_archives.read();
        let is_it = |known: &&ArchiveEntry| {
            known.id.to_string() == name || known.address.to_string() == name
        };
        known.iter().find(is_it).cloned().ok_or_else(|| Error::Refused {
            what: format!("the tier has no archive {name}; see `fslab tier archives`"),
        })
    }

    /// Stores an archive's entry in the list of known archives, and replaces an earlier one.
    pub(crate) fn note_entry(&self, entry: ArchiveEntry) {
        let mut known = self.known_archives.write();
        match known.iter_mut().find(|known| known.id == entry.id) {
            Some(known) => *known = entry,
            None => known.push(entry),
        }
    }

    /// Returns how the tier uses an archive.
    pub(in crate::engine) fn usage_of(&self, archive: Id) -> ArchiveUsage {
        self.known_archive(archive).map_or_else(ArchiveUsage::default, |known| known.usage)
    }

    /// Detaches an archive that no object needs. `save` makes the detachment durable in the home.
    ///
    /// # Errors
    /// If objects would be left with fewer copies than the tier requires; errors of `save`. The
    /// archive is then attached as before.
    pub(crate) fn detach(
        self: &Arc<Self>,
        entry: &ArchiveEntry,
        request: &Request,
        save: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.end_doubt_by_scan(request)?;
        // Scrubs and repacking hold this lock while they write to archives.
        let _nobody_else = self.nobody_else(request)?;
        self.note_entry(ArchiveEntry { usage: ArchiveUsage::Detached, ..entry.clone() });
        // The catalogue of an older home may list copies in this archive only.
        let detached = self
            .check_unneeded(entry, request)
            .and_then(|()| self.advance_open_epoch())
            .and_then(|()| save());
        if let Err(error) = detached {
            self.note_entry(entry.clone());
            return Err(error);
        }
        self.archives.write().retain(|archive| archive.id() != entry.id);
        // Cached readers would keep the archive open and its lease held.
        self.forget_readers(entry.id);
        self.queue().release(entry.id);
        self.queue().resume_postponed();
        Ok(())
    }

    /// Scans the tree if the catalogue is in doubt. After a crash, the catalogue may lack objects
    /// that files need.
    ///
    /// # Errors
    /// If the catalogue is still in doubt after the scan; errors of the scan.
    pub(in crate::engine) fn end_doubt_by_scan(self: &Arc<Self>, request: &Request) -> Result<()> {
        if !self.is_in_doubt() {
            return Ok(());
        }
        self.scan(request)?;
        match self.is_in_doubt() {
            false => Ok(()),
            true => Err(Error::Refused {
                what: "it is not certain which objects are needed: run `fslab tier scan`, and \
                       repair the reported files"
                    .to_owned(),
            }),
        }
    }

    fn check_unneeded(&self, entry: &ArchiveEntry, request: &Request) -> Result<()> {
        let name = entry.address.label();
        let refused = |what: String| Err(Error::Refused { what });
        if self.outbound.has_upload_to(entry.id) {
            return refused(format!("files are being archived to {name}: try again later"));
        }
        // The copies of objects whose sources remain unknown are not counted.
        self.find_sources(request)?;
        let (only_there, copies) = (self.count_needing(entry.id)?, self.settings.copies);
        if only_there > 0 {
            return refused(format!(
                "{only_there} versions have fewer than {copies} copies outside of {name}: run \
                 `fslab tier drain` first"
            ));
        }
        let (this, others): (Vec<_>, Vec<_>) =
            self.archives().into_iter().partition(|archive| archive.id() == entry.id);
        if last_number(&this) > last_number(&others) {
            return refused(format!(
                "the newest archived tree is only in {name}: run `fslab tier drain` first"
            ));
        }
        Ok(())
    }

    /// Returns the number of versions that would have too few copies without an archive. Copies in
    /// unavailable archives, copies that another tree may delete, and copies without all of their
    /// sources are ignored.
    fn count_needing(&self, archive: Id) -> Result<u64> {
        let others: Vec<Id> = self.writable_archives().iter().map(|other| other.id()).collect();
        let (mut count, wanted) = (0, self.settings.copies);
        let sources = self.catalogue.source_versions()?;
        self.catalogue.for_each(&mut |row| {
            let copies = &row.version.copies;
            let has_sources = |copy: &Id| {
                let needed = row.sources.as_ref();
                needed.is_some_and(|needed| {
                    needed.iter().all(|source| {
                        sources.get(source).is_some_and(|source| source.copies.contains(copy))
                    })
                })
            };
            let is_left =
                |copy: &&Id| **copy != archive && others.contains(copy) && has_sources(copy);
            let left = copies.iter().filter(is_left);
            count += u64::from(copies.contains(&archive) && left.count() < wanted);
            Ok(())
        })?;
        Ok(count)
    }
}
