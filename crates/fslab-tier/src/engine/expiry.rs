//! Expiry: deletes old versions past their retention time, and objects that no file needs.

use std::collections::HashSet;
use std::sync::Arc;

use fslab_vfs::{Attr, FileKind, Request, Timestamp};
use parking_lot::MutexGuard;

use crate::archive::{Archive, Deletion};
use crate::calendar::age;
use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::Tier;
use crate::engine::metrics::Counter;
use crate::engine::outbound::archiving::delete_from;
use crate::engine::tree::scan::Scanned;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::lower::Found;
use crate::object::reader::ObjectReader;
use crate::stored::Version;
use crate::stored::residency::{ReadResidency, Residency, Unreadable};

pub(super) mod undelete;

/// The result of an expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Number of deleted objects, except those in `retained` containers.
    pub objects: u64,
    /// Number of containers that were deleted from archives, because none of their objects is left.
    pub containers: u64,
    /// Number of containers that can't be read any longer, but whose bytes a store retains.
    pub retained: u64,
    /// Number of bundles whose needed objects were moved to new bundles.
    pub repacked: u64,
}

/// Maximum number of rows that one transaction handles.
const BATCH: usize = 1000;

impl Tier {
    /// Returns the residency of a row's inode. `None` if the inode is no longer at the row's path,
    /// or was never archived.
    ///
    /// # Errors
    /// If the file can't be examined. It may then refer to any object.
    pub(super) fn named_version(&self, row: &ObjectRow) -> ReadResidency {
        let known = self.residency_in_place_of(row)?;
        Ok(known.filter(|(attr, _)| self.around.is_of(row.inode, attr)).map(|(_, known)| known))
    }

    /// Returns the attributes and the residency of the file at a row's path, even if its inode is
    /// not the row's inode.
    fn residency_in_place_of(
        &self,
        row: &ObjectRow,
    ) -> Result<Option<(Attr, Residency)>, Unreadable> {
        let found = match Found::at(&self.lower, &row.path) {
            Err(error) if is_elsewhere(&error) => return Ok(None),
            found => found?,
        };
        if found.attr.kind != FileKind::Regular {
            return Ok(None);
        }
        let known = self.residency_below(found.ino())?;
        Ok(known.map(|known| (found.attr.clone(), known)))
    }

    /// Deletes rows, and the containers that then contain no object. Returns the figures. Rows with
    /// a copy in an unavailable archive, or in one that another tree writes to, are kept, because
    /// that copy can't be deleted.
    pub(super) fn delete_rows(&self, rows: &[ObjectRow]) -> Result<Expired> {
        let mut rows = rows.to_vec();
        rows.retain(|row| self.is_in_writable(&row.version));
        // Rows are deleted before objects, because a row without an object would refer to a missing
        // copy. The next scan finds an object without a row.
        let (removed, unused) = self.catalogue.remove(&rows)?;
        for row in rows.iter().filter(|row| !removed.contains(&row.version.object)) {
            if row.state != ObjectState::Source {
                self.catalogue.keep_as_source(row.version.object)?;
            }
        }
        rows.retain(|row| removed.contains(&row.version.object));
        let archives = self.writable_archives();
        let deleted: Vec<Result<Deletion>> =
            unused.iter().map(|container| delete_from(&archives, *container)).collect();
        let deleted: Vec<Deletion> = deleted.into_iter().collect::<Result<_>>()?;
        let is_retained = |deleted: &Deletion| *deleted == Deletion::Retained;
        let retained = unused.iter().zip(&deleted).filter(|(_, deleted)| is_retained(deleted));
        let retained: HashSet<Id> = retained.map(|(container, _)| *container).collect();
        let is_deleted = |row: &&ObjectRow| !retained.contains(&row.version.location.container);
        Ok(Expired {
            objects: rows.iter().filter(is_deleted).count() as u64,
            containers: (unused.len() - retained.len()) as u64,
            retained: retained.len() as u64,
            repacked: 0,
        })
    }

    /// Returns whether all attached archives that contain a version are available and writable for
    /// this tree.
    fn is_in_writable(&self, version: &Version) -> bool {
        let is_own = |archive: &Arc<dyn Archive>| {
            archive.why_unavailable().is_none() && archive.refusal().is_none()
        };
        self.holders_anywhere(version).iter().all(is_own)
    }

    /// Deletes objects past their retention time, and repacks bundles that are then mostly
    /// unneeded.
    ///
    /// After a crash, a removed name may exist again, with a file that needs its object. So
    /// removals of names are made durable before objects are deleted, and after a crash, every file
    /// is examined first. Every file is also examined if no scan has run since an object was
    /// recorded as unneeded. That record may be wrong, for example if a part of the tree was not
    /// mounted during a scan. Objects with a copy in an unavailable archive are kept until that
    /// copy can be deleted, too.
    ///
    /// # Errors
    /// If another tree writes to all archives; errors of the catalogue, of the lower file system
    /// and of archives.
    pub fn expire(self: &Arc<Self>, request: &Request) -> Result<Expired> {
        if self.writable_archives().is_empty() && self.unavailable_archives().is_empty() {
            self.check_all_writable()?;
        }
        if self.is_in_doubt() || self.has_unproven()? {
            // The list of damaged files is dropped, because the commands for scans and scrubs
            // report it.
            let unheard = &mut |scanned: &mut Scanned| {
                scanned.damaged.clear();
                Ok(())
            };
            let unknown = self.scan_with_progress(request, unheard)?.unknown;
            if unknown > 0 {
                tracing::warn!(
                    "{unknown} damaged files may refer to any object, so objects that became \
                     unneeded since the last complete scan are kept"
                );
            }
        }
        let _nobody_else = self.nobody_else(request)?;
        self.look_for_archives();
        self.retry_deletions();
        let scanned = self.catalogue.scanned()?;
        let are_sources_known = self.find_sources(request)? && self.catalogue.is_listed()?;
        if !are_sources_known {
            tracing::warn!(
                "the versions of large files are kept, because objects that can't be read may need \
                 blocks of them"
            );
        }
        let (mut expired, mut behind) = (Expired::default(), None);
        loop {
            self.check_going(request)?;
            let mut due = self.due(behind, scanned)?;
            let Some(last) = due.last() else { break };
            behind = Some(last.version.object);
            due.retain(|row| are_sources_known || !row.may_be_source());
            self.expire_some(due, &mut expired)?;
        }
        expired.repacked = self.repack(request)?;
        Ok(expired)
    }

    /// Reads the sources of the objects whose sources are unknown, because a part of the catalogue
    /// was lost. Returns whether all of them were found.
    ///
    /// # Errors
    /// Errors of the catalogue; [`Error::Interrupted`].
    pub(super) fn find_sources(&self, request: &Request) -> Result<bool> {
        let (mut behind, mut are_known) = (None, true);
        loop {
            let unknown = self.catalogue.with_unknown_sources(behind, BATCH)?;
            let Some(last) = unknown.last() else { return Ok(are_known) };
            behind = Some(last.version.object);
            let mut found = Vec::new();
            for row in &unknown {
                self.check_going(request)?;
                match self.sources_in_archives(row)? {
                    Some(sources) => found.push((row.version.object, sources)),
                    None => are_known &= self.needs_no_sources(row)?,
                }
            }
            self.catalogue.resolve_sources(&found)?;
        }
    }

    /// Returns the containers of an object's sources; `None` if the object can't be read.
    fn sources_in_archives(&self, row: &ObjectRow) -> Result<Option<Vec<Id>>> {
        let version = &row.version;
        let read = self.ask_holders(version, |archive| {
            Ok(ObjectReader::open(archive, version)?.source_containers())
        });
        match read {
            Ok(sources) => Ok(Some(sources)),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) => {
                let path = crate::error::shown(&row.path);
                tracing::warn!(%error, "{path}: can't read an archived version");
                Ok(None)
            }
        }
    }

    /// Returns whether an unreadable object needs no sources: its version is no longer kept, or no
    /// archive has the object.
    fn needs_no_sources(&self, row: &ObjectRow) -> Result<bool> {
        if self.is_due(row)? && !self.is_read(row) {
            self.catalogue.keep_as_source(row.version.object)?;
            return Ok(true);
        }
        Ok(self.has_all_archives() && ObjectReader::is_lost_in(&self.archives(), &row.version))
    }

    /// Returns whether the retention time of an object is over, and a scan has confirmed that no
    /// file needs it.
    fn is_due(&self, row: &ObjectRow) -> Result<bool> {
        let is_old = self.is_old(row, self.around.calendar.now());
        Ok(is_old && is_proven(row, self.catalogue.scanned()?))
    }

    /// Tries again to delete the containers that stores retain. A failure does not prevent the
    /// expiry of other versions.
    fn retry_deletions(&self) {
        for archive in self.writable_archives() {
            if let Err(error) = archive.retry_deletions() {
                let label = archive.label();
                tracing::warn!(%error, "{label}: can't delete the retained containers for now");
            }
        }
    }

    /// Returns `None` if [`Self::expire`] would not delete an object now. Otherwise returns whether
    /// a scan has confirmed that no file needs the object. `scanned` is the number of the last
    /// complete scan.
    ///
    /// # Errors
    /// Errors of the catalogue.
    pub(crate) fn is_expirable(&self, row: &ObjectRow, scanned: u64) -> Result<Option<bool>> {
        let goes = self.is_old(row, self.around.calendar.now())
            && !self.is_kept_for_others(row)?
            && !self.is_partly_unavailable(&row.version)
            && !self.is_read(row)
            && self.is_in_writable(&row.version);
        Ok(goes.then(|| is_proven(row, scanned)))
    }

    /// Returns whether an unneeded object is kept because another object needs its blocks, or may
    /// do so.
    fn is_kept_for_others(&self, row: &ObjectRow) -> Result<bool> {
        if !row.may_be_source() {
            return Ok(false);
        }
        let are_known =
            self.catalogue.is_listed()? && self.catalogue.with_unknown_sources(None, 1)?.is_empty();
        Ok(!are_known || self.catalogue.is_source(row.version.location.container)?)
    }

    /// Takes the lock under which unneeded objects are determined, deleted or moved; waits for it
    /// if necessary.
    pub(super) fn nobody_else(&self, request: &Request) -> Result<MutexGuard<'_, ()>> {
        let alone = self.lock_while_going(&self.expiry, request)?;
        // Checked after locking, because changes made after a shutdown would not become durable.
        self.check_open().map(|()| alone)
    }

    fn expire_some(&self, mut due: Vec<ObjectRow>, expired: &mut Expired) -> Result<()> {
        // A file may be read although its removal was recorded, because it may still be open, or
        // have reappeared in the lower directory.
        due.retain(|row| !self.is_read(row));
        // An archive may have become unavailable without being noticed. Rows with copies in such
        // archives are kept.
        let archives = self.archives();
        let unseen = archives.iter().filter(|archive| archive.check().is_err());
        let unseen: Vec<Id> = unseen.map(|archive| archive.id()).collect();
        let is_seen = |row: &ObjectRow| !row.version.copies.iter().any(|id| unseen.contains(id));
        due.retain(|row| is_seen(row) && self.is_in_writable(&row.version));
        self.sync_tree().map_err(Error::below(b""))?;
        let deleted = self.delete_rows(&due)?;
        expired.containers += deleted.containers;
        expired.retained += deleted.retained;
        expired.objects += deleted.objects;
        self.counters.add(Counter::ExpiredObjects, deleted.objects);
        Ok(())
    }

    /// Returns the next rows that may be deleted, after the object `behind`. Their retention time
    /// is over, and a scan has confirmed that they are unneeded.
    fn due(&self, behind: Option<Id>, scanned: u64) -> Result<Vec<ObjectRow>> {
        let now = self.around.calendar.now();
        let mut due: Vec<ObjectRow> = Vec::new();
        self.catalogue.for_some(behind, &mut |row| {
            let is_due = self.is_old(&row, now) && is_proven(&row, scanned);
            if is_due && !self.is_partly_unavailable(&row.version) {
                due.push(row);
            }
            Ok(due.len() < BATCH)
        })?;
        Ok(due)
    }

    /// Returns whether some object is past its retention time, but no scan has confirmed that
    /// neither a file nor another object needs it.
    fn has_unproven(&self) -> Result<bool> {
        let (now, scanned) = (self.around.calendar.now(), self.catalogue.scanned()?);
        // A scan can list the objects with sources only if no archive is missing. If a scan could
        // not, it is not repeated before the next start of the engine.
        let is_listable = !self.catalogue.is_listed()?
            && self.has_all_archives()
            && !self.tree.has_listing_failed();
        let mut is_found = false;
        self.catalogue.for_some(None, &mut |row| {
            let is_unproven = !is_proven(&row, scanned) || (is_listable && row.may_be_source());
            is_found = self.is_old(&row, now) && is_unproven;
            Ok(!is_found)
        })?;
        Ok(is_found)
    }

    /// Returns whether an object has been recorded as unneeded for at least the retention time.
    fn is_old(&self, row: &ObjectRow, now: Timestamp) -> bool {
        use ObjectState::{Removed, Replaced, Source};
        let is_unused = matches!(row.state, Replaced | Removed | Source);
        is_unused && age(row.since, now) >= self.settings.keep
    }

    pub(super) fn is_read(&self, row: &ObjectRow) -> bool {
        let object = row.version.object;
        let uses = |file: &Arc<crate::engine::TieredFile>| {
            let state = file.lock();
            state.known().is_some_and(|known| known.recorded.version.object == object)
        };
        let is_open = self.files.all().iter().any(uses);
        is_open || self.may_be_named(row)
    }

    /// Returns whether the file at a row's path refers to the row's object, or may do so because it
    /// can't be read. A stub at this path counts even if its inode is not the row's inode, because
    /// moving a tree gives its stubs new inodes.
    fn may_be_named(&self, row: &ObjectRow) -> bool {
        let names_it = |(attr, known): &(Attr, Residency)| {
            let means_it = self.around.is_of(row.inode, attr) || !known.offline.is_empty();
            known.version.object == row.version.object && means_it
        };
        match self.residency_in_place_of(row) {
            Ok(known) => known.is_some_and(|known| names_it(&known)),
            Err(error) => {
                let path = crate::error::shown(&row.path);
                tracing::warn!(
                    "{path}: the versions of this file are kept, because it can't be read: {error}"
                );
                true
            }
        }
    }
}

/// Returns whether a scan that began after an object was recorded as unneeded has examined every
/// file. If a file referred to the object, the scan would have recorded it as needed.
fn is_proven(row: &ObjectRow, scanned: u64) -> bool {
    row.seen < scanned
}

/// Returns whether an error means that there is no file at a path. Other errors mean that the file
/// can't be examined.
fn is_elsewhere(error: &fslab_vfs::Error) -> bool {
    use fslab_vfs::Errno;
    matches!(error.errno(), Errno::NOENT | Errno::NOTDIR | Errno::STALE)
}
