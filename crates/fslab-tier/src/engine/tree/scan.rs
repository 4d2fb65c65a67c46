//! The scan of all files and objects: corrects the catalogue and finds objects that no file needs.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fslab_vfs::{FileKind, Request};

use crate::archive::{Archive, ContainerKind};
use crate::catalogue::{ObjectRow, ObjectState, RowChange};
use crate::engine::Tier;
use crate::engine::copies::scrubbing::ProgressSink;
use crate::engine::files::TieredFile;
use crate::engine::tree::unmounted_scan::Directories;
use crate::engine::tree::walk::{Visit, WalkEntry};
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::is_missing;
use crate::object::bundle::contents_of;
use crate::object::reader::ObjectReader;
use crate::stored::StoredResidency;
use crate::stored::residency::{Residency, Unreadable};

/// The result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Number of regular files.
    pub files: u64,
    /// Number of regular files that are archived.
    pub archived: u64,
    /// Number of files whose bytes are partly or wholly offline.
    pub offline: u64,
    /// Files that can't be used, because their residency is damaged or belongs to another file.
    pub damaged: Vec<String>,
    /// Number of damaged files that may refer to any object. If there are any, no object is
    /// recorded as unneeded.
    pub unknown: u64,
    /// Number of rows that were missing or wrong in the catalogue, and were corrected.
    pub repaired: u64,
    /// Number of objects in archives that no file needs. They are deleted after the retention time.
    pub unneeded: u64,
    /// Archives that are unavailable or not attached, each with the number of its copies that were
    /// not read.
    pub missing: Vec<String>,
    /// Whether names may have changed unnoticed during the scan. No object is then recorded as
    /// unneeded.
    pub is_overtaken: bool,
    /// Whether files or directories of other users were skipped. Objects without a row may then be
    /// needed.
    is_partly_hidden: bool,
}

impl Scanned {
    /// Returns whether all objects that files refer to were found.
    fn has_met_all(&self) -> bool {
        self.unknown == 0 && !self.is_overtaken
    }
}

/// Maximum number of rows that one transaction writes.
const BATCH: usize = 500;

impl Tier {
    /// Scans the tree and then the archives, and returns the results.
    ///
    /// # Errors
    /// The errors of [`Self::scan_with_progress`].
    pub fn scan(self: &Arc<Self>, request: &Request) -> Result<Scanned> {
        self.scan_with_progress(request, &mut |_| Ok(()))
    }

    /// Scans the tree and then the archives, and reports the results so far to `heard`.
    ///
    /// Nothing is repacked or expired during the scan. If a repack replaced the object of a file
    /// that was already visited, the new object would seem unneeded and the old one needed.
    ///
    /// # Errors
    /// Errors of the lower file system, the catalogue, archives and `heard`.
    pub fn scan_with_progress(
        self: &Arc<Self>,
        request: &Request,
        heard: &mut ProgressSink<'_, Scanned>,
    ) -> Result<Scanned> {
        let _nobody_else = self.nobody_else(request)?;
        let mut scan = Scan {
            tier: self,
            request,
            number: self.catalogue.begin_scan()?,
            found: Scanned::default(),
            changes: BTreeMap::new(),
            foreign: HashSet::new(),
            in_part: HashSet::new(),
            asks_archives: self.catalogue.is_distrusted()?,
            unresolved: 0,
            has_unlisted: false,
        };
        let skipped = scan.files(heard)?;
        scan.retire_unseen(skipped)?;
        scan.note_ended()?;
        // An object without a row may be needed by a file that can't be examined.
        scan.found.is_partly_hidden = skipped > 0 || !scan.foreign.is_empty();
        scan.found.missing = self.missing_archives()?;
        heard(&mut scan.found)?;
        // Archives that another tree writes to are skipped, because an object that no file here
        // needs may belong to that tree.
        for archive in self.writable_archives() {
            scan.archive(&archive, heard)?;
        }
        let is_listed = !scan.has_unlisted && scan.found.missing.is_empty();
        if self.has_all_archives() {
            self.tree.set_listing_failed(!is_listed);
            if is_listed {
                self.catalogue.note_listed()?;
            }
        }
        Ok(scan.found)
    }

    fn objects_used(&self) -> HashSet<Id> {
        let object = |file: Arc<TieredFile>| Some(file.lock().recorded()?.version.object);
        self.files.all().into_iter().filter_map(object).collect()
    }

    /// Returns the identities of inodes that are being archived.
    fn inodes_archived(&self) -> Result<HashSet<Id>> {
        let mut inodes = HashSet::new();
        for file in self.files.all().iter().filter(|file| file.lock().is_archiving) {
            match self.lower.getattr(&self.request(), file.ino(), None) {
                Err(error) if is_missing(&error) => {}
                attr => {
                    let attr = attr.map_err(Error::below(b""))?;
                    inodes.insert((self.around.inode_identity)(&attr));
                }
            }
        }
        Ok(inodes)
    }
}

/// A running scan.
struct Scan<'a> {
    tier: &'a Arc<Tier>,
    request: &'a Request,
    number: u64,
    found: Scanned,
    /// Changed rows to be written, by object.
    changes: BTreeMap<Id, RowChange>,
    /// Inodes of other users' files. Their xattrs are ignored, because these users may have forged
    /// them.
    foreign: HashSet<Id>,
    /// Containers with damaged parts in one archive. They are also read in other archives, whose
    /// copies of these parts may be intact.
    in_part: HashSet<Id>,
    /// Whether the catalogue may be older than the tree, and so lack copies. Compact residencies
    /// don't list copies, so the archives are asked.
    asks_archives: bool,
    /// Number of compact residencies whose objects could not be read from any archive.
    unresolved: u64,
    /// Whether an object that has or may have sources got no row.
    has_unlisted: bool,
}

impl Scan<'_> {
    /// Scans all files. Returns the number of directories that were skipped.
    fn files(&mut self, heard: &mut ProgressSink<'_, Scanned>) -> Result<u64> {
        let tier = self.tier;
        let around = &tier.around;
        let mut directories = Directories::default();
        let skipped = tier.walk_all(self.request, &mut |place| {
            let attr = &place.found.attr;
            directories.add(attr, around.inode_identity);
            if attr.kind == FileKind::Regular {
                self.found.files += 1;
                if around.marks.are_believed(attr) {
                    self.file(&place)?;
                } else {
                    self.foreign.insert((around.inode_identity)(attr));
                }
            }
            if self.changes.len() >= BATCH {
                self.write_changes()?;
            }
            heard(&mut self.found)?;
            Ok(Visit::Descend)
        })?;
        self.write_changes()?;
        self.found.is_overtaken = !tier.has_met_all(directories, self.request)?;
        if self.found.is_overtaken {
            tracing::warn!("the unmounted tree changed during the scan, so all objects are kept");
        }
        Ok(skipped)
    }

    fn write_changes(&mut self) -> Result<()> {
        self.tier.catalogue.put_where_still(std::mem::take(&mut self.changes).values())
    }

    /// Records the end of the walk, after which the catalogue is no longer in doubt. If a file's
    /// residency is unreadable, it may refer to any object, so the scan's number is not recorded.
    /// If a file may have moved to a directory that the walk had already visited, nothing is
    /// recorded.
    fn note_ended(&self) -> Result<()> {
        // An unavailable archive may have the only copy of an unresolved object.
        if self.found.is_overtaken || self.unresolved > 0 {
            return Ok(());
        }
        if self.found.unknown == 0 {
            self.tier.advance_open_epoch()?;
            self.tier.catalogue.end_scan(self.number)?;
        }
        self.tier.catalogue.end_doubt()?;
        self.tier.tree.set_in_doubt(false);
        Ok(())
    }

    fn file(&mut self, place: &WalkEntry<'_>) -> Result<()> {
        let (tier, attr) = (self.tier, &place.found.attr);
        let Some((residency, before)) = self.residency_and_row(place)? else { return Ok(()) };
        if !tier.is_own(&residency, attr) {
            if !residency.offline.is_empty() {
                self.note_damaged(
                    place,
                    &"was copied in the lower directory from another file with offline bytes",
                );
                // A stub on another inode can't be used. If a tree was moved, the stub is the only
                // reference to its object, which is then kept as long as the stub exists. If the
                // scan also finds the original file, the row describes that file instead.
                let is_seen =
                    |row: &ObjectRow| row.seen == self.number && row.state == ObjectState::Live;
                let object = residency.version.object;
                let is_kept =
                    before.as_ref().is_some_and(is_seen) || self.changes.contains_key(&object);
                if residency.tier == tier.settings.tier && !is_kept {
                    let residency = self.with_found_copies(residency, place);
                    let change = self.change_of(place, residency, before);
                    self.changes.insert(object, change);
                }
            }
            return Ok(());
        }
        if residency.moving {
            // A recall or release was interrupted. Loading the state restores the file's
            // modification time.
            let used = tier.enter(attr.ino);
            drop(tier.state(&used.file).map_err(Error::below(place.path))?);
        }
        let residency = tier.with_recorded_copies(attr.ino, residency, before.as_ref());
        let residency = self.with_found_copies(residency.map_err(Error::below(place.path))?, place);
        self.found.archived += 1;
        self.found.offline += u64::from(!residency.offline.is_empty());
        let RowChange { before, after } = self.change_of(place, residency, before);
        // A file that was visited twice gets the path at which it was found last.
        let known = self.changes.entry(after.version.object);
        let known = known.or_insert_with(|| RowChange { before, after: after.clone() });
        known.after = after;
        Ok(())
    }

    /// Adds the archives that have a copy to a residency that is stored in the compact form.
    fn with_found_copies(&mut self, known: Residency, place: &WalkEntry<'_>) -> Residency {
        if !self.asks_archives {
            return known;
        }
        let stored = self.tier.stored_below(place.found.ino());
        let Ok(Some(StoredResidency::Compact(compact))) = stored else { return known };
        match self.tier.find_version(&compact) {
            Ok((_, found)) if found.root == known.version.root => {
                let version = known.version.clone().with_copies(&found.copies);
                Residency { version, ..known }
            }
            Ok(_) => known,
            Err(error) => {
                self.unresolved += 1;
                self.note_damaged(place, &error);
                known
            }
        }
    }

    fn note_damaged(&mut self, place: &WalkEntry<'_>, what: &dyn std::fmt::Display) {
        self.found.damaged.push(format!("{}: {what}", shown(place.path)));
    }

    /// Returns a file's residency and the catalogue's row of its object, both as of the same
    /// moment, so that a change after this moment is recognised.
    fn residency_and_row(
        &mut self,
        place: &WalkEntry<'_>,
    ) -> Result<Option<(Residency, Option<ObjectRow>)>> {
        let (tier, ino) = (self.tier, place.found.ino());
        let Some(mut residency) = self.residency(place)? else { return Ok(None) };
        loop {
            let row = tier.catalogue.get(residency.version.object)?;
            let is_gone = match tier.lower.getattr(&tier.request(), ino, None) {
                Err(error) if is_missing(&error) => true,
                attr => attr.map_err(Error::below(place.path))?.links == 0,
            };
            match self.residency(place)? {
                Some(again) if again.version.object != residency.version.object => {
                    residency = again;
                }
                Some(again) if !is_gone => return Ok(Some((again, row))),
                // The file has no name left. The function that removes the last name records the
                // removal.
                _ => return Ok(None),
            }
        }
    }

    fn residency(&mut self, place: &WalkEntry<'_>) -> Result<Option<Residency>> {
        match self.tier.residency_below(place.found.ino()) {
            Ok(known) => Ok(known),
            Err(Unreadable::Below(error)) => Err(Error::below(place.path)(error)),
            Err(what) => {
                self.unresolved += u64::from(matches!(what, Unreadable::UnknownObject(_)));
                self.note_damaged(place, &what);
                self.found.unknown += 1;
                Ok(None)
            }
        }
    }

    fn change_of(
        &mut self,
        place: &WalkEntry<'_>,
        residency: Residency,
        before: Option<ObjectRow>,
    ) -> RowChange {
        let Residency { file, inode, mut version, .. } = residency;
        if let Some(row) = before.as_ref().filter(|row| row.version.root == version.root) {
            // A time that a program has set later is not a fact about the object.
            version.modified = row.version.modified;
        }
        let is_same = |row: &ObjectRow| row.state == ObjectState::Live && row.version == version;
        self.found.repaired += u64::from(!before.as_ref().is_some_and(is_same));
        let now = || self.tier.around.calendar.now();
        let since = before.as_ref().map_or_else(now, |row| row.since);
        let (state, path) = (ObjectState::Live, place.path.to_vec());
        let known = before.as_ref().and_then(ObjectRow::known_sources).cloned();
        let sources = known.or_else(|| ObjectRow::unread_sources(&version));
        let seen = self.number;
        let after = ObjectRow { state, file, inode, version, since, seen, path, sources };
        RowChange { before, after }
    }

    /// Finds objects that no file refers to, and records them as removed, unless a row was changed
    /// since the scan began. Scan numbers show such changes, because times are unreliable if a
    /// clock is set back.
    ///
    /// Nothing is recorded if an unreadable file may refer to any of the objects, or if directories
    /// were skipped that may contain files with such objects. Objects of files that now belong to
    /// another user are kept, too, because the xattrs of these files may still refer to them.
    fn retire_unseen(&mut self, skipped: u64) -> Result<()> {
        if !self.found.has_met_all() {
            return Ok(());
        }
        let is_unseen = |row: &ObjectRow| {
            let is_current = matches!(row.state, ObjectState::Live | ObjectState::Pending);
            let is_hidden = skipped > 0 || self.foreign.contains(&row.inode);
            is_current && row.seen < self.number && !is_hidden
        };
        let (tier, mut behind) = (self.tier, None);
        loop {
            // Files that are being archived are listed before and after the rows are read, to
            // include uploads that end or begin in between.
            let mut archived = tier.inodes_archived()?;
            // Rows are handled in batches, which bounds memory use.
            let mut unseen = Vec::new();
            tier.catalogue.for_some(behind, &mut |row| {
                unseen.extend(is_unseen(&row).then_some(row));
                Ok(unseen.len() < BATCH)
            })?;
            let Some(last) = unseen.last() else { return Ok(()) };
            behind = Some(last.version.object);
            archived.extend(tier.inodes_archived()?);
            let used = tier.objects_used();
            unseen.retain(|row| {
                !archived.contains(&row.inode) && !used.contains(&row.version.object)
            });
            self.found.unneeded += unseen.len() as u64;
            let (state, since) = (ObjectState::Removed, tier.around.calendar.now());
            let removed = |row: ObjectRow| RowChange {
                before: Some(row.clone()),
                after: ObjectRow {
                    state,
                    since,
                    seen: self.number,
                    // An object that was pending may not need all of its recorded sources.
                    sources: row.known_sources().cloned(),
                    ..row
                },
            };
            let changes: Vec<_> = unseen.into_iter().map(removed).collect();
            tier.catalogue.put_where_still(&changes)?;
        }
    }

    /// Scans an archive; reports it as missing if it becomes unavailable.
    fn archive(
        &mut self,
        archive: &Arc<dyn Archive>,
        heard: &mut ProgressSink<'_, Scanned>,
    ) -> Result<()> {
        match self.containers(archive, heard) {
            Err(error) if error.is_unavailable() => {
                self.found.missing.push(error.to_string());
                Ok(())
            }
            scanned => scanned,
        }
    }

    fn containers(
        &mut self,
        archive: &Arc<dyn Archive>,
        heard: &mut ProgressSink<'_, Scanned>,
    ) -> Result<()> {
        let (catalogue, in_part) = (&self.tier.catalogue, &self.in_part);
        let (mut unknown, mut problem) = (Vec::new(), Ok(()));
        let mut visit = |container, length| match catalogue.knows_container(container) {
            Ok(true) if !in_part.contains(&container) => {}
            Ok(_) => unknown.push((container, length)),
            Err(error) => problem = Err(error),
        };
        let listed = archive.list(ContainerKind::Files, &mut visit);
        listed.map_err(Error::archive(archive.label(), Id::default()))?;
        problem?;
        let mut cold = 0_u64;
        for (container, length) in unknown {
            self.tier.check_going(self.request)?;
            let before = self.found.damaged.len();
            match self.note_unneeded(archive, container, length) {
                Err(error) if error.cold_container().is_some() => cold += 1,
                Err(error) if error.is_unavailable() => return Err(error),
                noted => self.found.damaged.extend(noted.err().map(|error| error.to_string())),
            }
            if self.found.damaged.len() > before {
                self.in_part.insert(container);
            }
            heard(&mut self.found)?;
        }
        if cold > 0 {
            let label = archive.label();
            let what = "objects in cold storage that are not in the catalogue were not read";
            self.found.missing.push(format!("archive {label}: {cold} {what}"));
        }
        Ok(())
    }

    /// Returns whether no archive has all sources of an object. Then its version was probably no
    /// longer kept.
    fn has_lost_sources(&self, object: &ObjectReader) -> bool {
        !object.sources().is_empty()
            && self.found.missing.is_empty()
            && self.tier.has_all_archives()
            && ObjectReader::is_lost_in(&self.tier.archives(), &object.version())
    }

    fn note_unneeded(
        &mut self,
        archive: &Arc<dyn Archive>,
        container: Id,
        length: u64,
    ) -> Result<()> {
        let since = self.tier.around.calendar.now();
        let (mut rows, kind) = (Vec::new(), ContainerKind::Files);
        for location in contents_of(archive, container, length)?.members {
            match ObjectReader::open_any(archive, kind, location) {
                Ok(reader) if self.tier.catalogue.get(reader.heading().object)?.is_some() => {}
                Ok(reader) => {
                    let (state, sources) = match self.has_lost_sources(&reader) {
                        true => (ObjectState::Source, Vec::new()),
                        false => (ObjectState::Removed, reader.source_containers()),
                    };
                    rows.push(ObjectRow {
                        state,
                        file: reader.heading().file,
                        inode: Id::default(),
                        version: reader.version(),
                        since,
                        seen: 0,
                        path: reader.attributes().path.clone(),
                        sources: Some(sources),
                    });
                }
                // A damaged member of a bundle does not affect the other members.
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => self.found.damaged.push(error.to_string()),
            }
        }
        if !self.found.has_met_all() || self.found.is_partly_hidden {
            self.has_unlisted |= rows.iter().any(ObjectRow::may_have_sources);
            return Ok(());
        }
        self.found.unneeded += rows.len() as u64;
        self.tier.catalogue.put(&rows)
    }
}
