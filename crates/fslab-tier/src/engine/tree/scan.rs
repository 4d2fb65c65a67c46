//! The scan of all files and objects: corrects the catalogue and finds objects that no file needs.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fslab_vfs::{Errno, FileKind, Ino, Request};

use crate::archive::{Archive, ContainerKind};
use crate::catalogue::{ObjectRow, ObjectState, RowChange};
use crate::engine::Tier;
use crate::engine::copies::scrubbing::ProgressSink;
use crate::engine::files::TieredFile;
use crate::engine::tree::unmounted_scan::Directories;
use crate::engine::tree::walk::{SkippedDirectories, Visit, WalkEntry};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::object::bundle::contents_of;
use crate::object::reader::ObjectReader;
use crate::stored::residency::{Residency, Unreadable};

/// The result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Regular files.
    pub files: u64,
    /// Those of them that archives hold.
    pub archived: u64,
    /// Files whose bytes are partly or wholly offline.
    pub offline: u64,
    /// Files that can't be used, because their residency is damaged or another file's.
    pub damaged: Vec<String>,
    /// Those of them that may name any object: while there is one, nothing is said to be unneeded.
    pub unknown: u64,
    /// Rows that the catalogue had lost, or had otherwise.
    pub mended: u64,
    /// Objects in archives that no file needs: they go after the delay.
    pub unneeded: u64,
    /// Archives that are not attached, or away, with how many copies nobody looked at for that.
    pub missing: Vec<String>,
    /// Names changed behind the scan, where nobody told of them: nothing is said to be unneeded.
    pub is_overtaken: bool,
    /// Files or directories of others were walked past: who needs what can't be told of all.
    is_partly_hidden: bool,
}

impl Scanned {
    /// Whether all objects that files name were met.
    fn has_met_all(&self) -> bool {
        self.unknown == 0 && !self.is_overtaken
    }
}

/// Rows written in one transaction.
const BATCH: usize = 500;

/// Who could not answer.
enum Asked {
    File(Unreadable),
    Catalogue(Error),
}

/// A file that was looked at twice is where it was found last.
fn note(changes: &mut BTreeMap<Id, RowChange>, change: RowChange) {
    let RowChange { before, after } = change;
    let known = changes.entry(after.version.object);
    let known = known.or_insert_with(|| RowChange { before, after: after.clone() });
    known.after = after;
}

impl Tier {
    /// Scans the tree, then the archives, and returns all that was found.
    ///
    /// # Errors
    /// As [`Self::scan_with_progress`].
    pub fn scan(self: &Arc<Self>, request: &Request) -> Result<Scanned> {
        self.scan_with_progress(request, &mut |_| Ok(()))
    }

    /// Scans the tree, then the archives.
    ///
    /// Nobody repacks or expires meanwhile: what moved behind the scan would look as if no file
    /// named it, and what it had seen before as if it were needed still.
    ///
    /// # Errors
    /// What the file system below, the catalogue, an archive or `heard` answers.
    pub fn scan_with_progress(
        self: &Arc<Self>,
        request: &Request,
        heard: &mut ProgressSink<'_, Scanned>,
    ) -> Result<Scanned> {
        let _nobody_else = self.nobody_else(request)?;
        let number = self.catalogue.begin_scan()?;
        let mut scanned = Scanned::default();
        let (mut changes, mut foreign) = (BTreeMap::new(), HashSet::new());
        let mut directories = Directories::default();
        let closed = self.walk_all(request, &mut |place| {
            directories.add(&place.found.attr, self.around.inode_identity);
            if place.found.attr.kind == FileKind::Regular {
                scanned.files += 1;
                if self.around.marks.are_believed(&place.found.attr) {
                    self.scan_file(&place, number, &mut changes, &mut scanned)?;
                } else {
                    // Whatever its mark says, anybody may have written that.
                    foreign.insert((self.around.inode_identity)(&place.found.attr));
                }
            }
            if changes.len() >= BATCH {
                self.catalogue.put_where_still(std::mem::take(&mut changes).values())?;
            }
            heard(&mut scanned)?;
            Ok(Visit::Descend)
        })?;
        self.catalogue.put_where_still(changes.values())?;
        scanned.is_overtaken = !self.has_met_all(directories, request)?;
        if scanned.is_overtaken {
            tracing::warn!(
                "files were moved, made or removed while the tree, which is not mounted, was \
                 scanned: no object is taken for unneeded"
            );
        }
        self.retire_unseen(number, &closed, &foreign, &mut scanned)?;
        self.note_ended(number, &scanned)?;
        // What has no row may be needed where it can't be looked.
        scanned.is_partly_hidden = closed.is_any() || !foreign.is_empty();
        scanned.missing = self.missing_archives()?;
        heard(&mut scanned)?;
        // Another archive may have whole what is damaged in one. What no file here needs of those
        // that another tree writes to may be that one's.
        let mut in_part = HashSet::new();
        for archive in self.writable_archives() {
            self.scan_archive(&archive, &mut in_part, &mut scanned, (request, heard))?;
        }
        Ok(scanned)
    }

    /// The tree was walked. Where a file could not tell what it names, that may be any object; and
    /// so may what a file names that moved behind the walk.
    fn note_ended(&self, number: u64, scanned: &Scanned) -> Result<()> {
        if scanned.is_overtaken {
            return Ok(());
        }
        if scanned.unknown == 0 {
            self.advance_open_epoch()?;
            self.catalogue.end_scan(number)?;
        }
        self.catalogue.end_doubt()?;
        self.tree.set_in_doubt(false);
        Ok(())
    }

    fn scan_file(
        self: &Arc<Self>,
        place: &WalkEntry<'_>,
        number: u64,
        changes: &mut BTreeMap<Id, RowChange>,
        scanned: &mut Scanned,
    ) -> Result<()> {
        let attr = &place.found.attr;
        let (residency, before) = match self.residency_and_row(attr.ino) {
            Ok(None) => return Ok(()),
            Ok(Some(known)) => known,
            Err(Asked::Catalogue(error)) => return Err(error),
            Err(Asked::File(Unreadable::Below(error))) => {
                return Err(Error::below(place.path)(error));
            }
            Err(Asked::File(Unreadable::Corrupt(what))) => {
                scanned.damaged.push(format!("{}: {what}", crate::error::shown(place.path)));
                scanned.unknown += 1;
                return Ok(());
            }
        };
        if !self.is_own(&residency, attr) {
            if !residency.offline.is_empty() {
                let what = "a copy of another file, made behind the mount";
                scanned.damaged.push(format!("{}: {what}", crate::error::shown(place.path)));
                self.keep_for_copy(place, residency, before, number, changes, scanned);
            }
            return Ok(());
        }
        if residency.moving {
            // Looked at, it gets its time back.
            let used = self.enter(attr.ino);
            drop(self.state(&used.file).map_err(Error::below(place.path))?);
        }
        let residency = self.with_recorded_copies(attr.ino, residency, before.as_ref());
        let residency = residency.map_err(Error::below(place.path))?;
        scanned.archived += 1;
        scanned.offline += u64::from(!residency.offline.is_empty());
        note(changes, self.change_of(place, residency, before, number, scanned));
        Ok(())
    }

    /// A stub on another inode can't be used, but where a tree was moved it is all that is left of
    /// its file: its object stays as long as it is there. Where the file itself is found, that is
    /// what the row tells of.
    fn keep_for_copy(
        &self,
        place: &WalkEntry<'_>,
        residency: Residency,
        before: Option<ObjectRow>,
        number: u64,
        changes: &mut BTreeMap<Id, RowChange>,
        scanned: &mut Scanned,
    ) {
        let is_seen = |row: &ObjectRow| row.seen == number && row.state == ObjectState::Live;
        let object = residency.version.object;
        let is_kept = before.as_ref().is_some_and(is_seen) || changes.contains_key(&object);
        if residency.tier == self.settings.tier && !is_kept {
            changes.insert(object, self.change_of(place, residency, before, number, scanned));
        }
    }

    /// What a file says, and what the catalogue said of its object at some moment at which the file
    /// was there and said it: who changes the one and then the other later is seen to have done so.
    fn residency_and_row(&self, ino: Ino) -> Result<Option<(Residency, Option<ObjectRow>)>, Asked> {
        let read = || self.residency_below(ino).map_err(Asked::File);
        let Some(mut residency) = read()? else { return Ok(None) };
        loop {
            let row = self.catalogue.get(residency.version.object).map_err(Asked::Catalogue)?;
            let is_gone = match self.lower.getattr(&self.request(), ino, None) {
                Err(error) if matches!(error.errno(), Errno::NOENT | Errno::STALE) => true,
                attr => attr.map_err(|error| Asked::File(error.into()))?.links == 0,
            };
            match read()? {
                Some(again) if again.version.object != residency.version.object => {
                    residency = again;
                }
                Some(again) if !is_gone => return Ok(Some((again, row))),
                // Whoever took its last name says so.
                _ => return Ok(None),
            }
        }
    }

    fn change_of(
        &self,
        place: &WalkEntry<'_>,
        residency: Residency,
        before: Option<ObjectRow>,
        number: u64,
        scanned: &mut Scanned,
    ) -> RowChange {
        let is_known = before
            .as_ref()
            .is_some_and(|row| row.state == ObjectState::Live && row.version == residency.version);
        scanned.mended += u64::from(!is_known);
        let since = before.as_ref().map_or_else(|| self.around.calendar.now(), |row| row.since);
        let after = ObjectRow {
            state: ObjectState::Live,
            file: residency.file,
            inode: residency.inode,
            version: residency.version,
            since,
            seen: number,
            path: place.path.to_vec(),
        };
        RowChange { before, after }
    }

    /// Rows of objects that no file names, and of which nobody said anything since the scan began:
    /// a clock could be set back meanwhile, and does not tell that. A file that can't tell what it
    /// names may have any name by now, and so may name any of them. Where there are directories
    /// into which nobody may look, what was not met may have been moved into one of them; what is
    /// another user's by now has its mark still.
    fn retire_unseen(
        &self,
        number: u64,
        closed: &SkippedDirectories,
        foreign: &HashSet<Id>,
        scanned: &mut Scanned,
    ) -> Result<()> {
        if !scanned.has_met_all() {
            return Ok(());
        }
        let is_unseen = |row: &ObjectRow| {
            let is_current = matches!(row.state, ObjectState::Live | ObjectState::Pending);
            let is_hidden = closed.is_any() || foreign.contains(&row.inode);
            is_current && row.seen < number && !is_hidden
        };
        let mut behind = None;
        loop {
            // Who ends meanwhile has said something of his, and who begins is there afterwards.
            let mut archived = self.inodes_archived()?;
            let mut unseen = self.some_rows(behind, &is_unseen)?;
            let Some(last) = unseen.last() else { return Ok(()) };
            behind = Some(last.version.object);
            archived.extend(self.inodes_archived()?);
            let used = self.objects_used();
            unseen.retain(|row| {
                !archived.contains(&row.inode) && !used.contains(&row.version.object)
            });
            self.retire(number, unseen, scanned)?;
        }
    }

    /// The next rows behind that of an object which are such as asked for: however many there are,
    /// the others wait in the catalogue.
    fn some_rows(
        &self,
        behind: Option<Id>,
        is_asked: &dyn Fn(&ObjectRow) -> bool,
    ) -> Result<Vec<ObjectRow>> {
        let mut rows = Vec::new();
        self.catalogue.for_some(behind, &mut |row| {
            if is_asked(&row) {
                rows.push(row);
            }
            Ok(rows.len() < BATCH)
        })?;
        Ok(rows)
    }

    fn retire(&self, number: u64, rows: Vec<ObjectRow>, scanned: &mut Scanned) -> Result<()> {
        scanned.unneeded += rows.len() as u64;
        let since = self.around.calendar.now();
        let removed = |row: ObjectRow| RowChange {
            before: Some(row.clone()),
            after: ObjectRow { state: ObjectState::Removed, since, seen: number, ..row },
        };
        let changes: Vec<_> = rows.into_iter().map(removed).collect();
        self.catalogue.put_where_still(&changes)
    }

    fn objects_used(&self) -> HashSet<Id> {
        let object = |file: Arc<TieredFile>| {
            let state = file.lock();
            state.known().map(|known| known.recorded.version.object)
        };
        self.files.all().into_iter().filter_map(object).collect()
    }

    /// Inodes of files on their way into archives.
    fn inodes_archived(&self) -> Result<HashSet<Id>> {
        let files = self.files.all();
        let archived = files.iter().filter(|file| file.lock().is_archiving);
        archived.filter_map(|file| self.inode_of(file.ino()).transpose()).collect()
    }

    /// None if it is gone.
    fn inode_of(&self, ino: Ino) -> Result<Option<Id>> {
        match self.lower.getattr(&self.request(), ino, None) {
            Ok(attr) => Ok(Some((self.around.inode_identity)(&attr))),
            Err(error) if matches!(error.errno(), Errno::NOENT | Errno::STALE) => Ok(None),
            Err(error) => Err(Error::below(b"")(error)),
        }
    }

    fn scan_archive(
        &self,
        archive: &Arc<dyn Archive>,
        in_part: &mut HashSet<Id>,
        scanned: &mut Scanned,
        (request, heard): (&Request, &mut ProgressSink<'_, Scanned>),
    ) -> Result<()> {
        let mut unknown = Vec::new();
        let mut problem = None;
        let listed = archive.list(ContainerKind::Files, &mut |container, length| match self
            .catalogue
            .knows_container(container)
        {
            Ok(true) if !in_part.contains(&container) => {}
            Ok(_) => unknown.push((container, length)),
            Err(error) => problem = Some(error),
        });
        match listed.map_err(Error::archive(archive.label(), Id::default())) {
            Err(error) if error.is_unavailable() => {
                scanned.missing.push(error.to_string());
                return Ok(());
            }
            listed => listed?,
        }
        problem.map_or(Ok(()), Err)?;
        for (container, length) in unknown {
            self.check_going(request)?;
            let before = scanned.damaged.len();
            match self.note_unneeded(archive, container, length, scanned) {
                Err(error) if error.is_unavailable() => {
                    scanned.missing.push(error.to_string());
                    return Ok(());
                }
                noted => scanned.damaged.extend(noted.err().map(|error| error.to_string())),
            }
            if scanned.damaged.len() > before {
                in_part.insert(container);
            }
            heard(scanned)?;
        }
        Ok(())
    }

    fn note_unneeded(
        &self,
        archive: &Arc<dyn Archive>,
        container: Id,
        length: u64,
        scanned: &mut Scanned,
    ) -> Result<()> {
        let since = self.around.calendar.now();
        let mut rows = Vec::new();
        let kind = ContainerKind::Files;
        for location in contents_of(archive, kind, container, length)?.members {
            match ObjectReader::open_any(archive, kind, location) {
                Ok(reader) if self.catalogue.get(reader.heading().object)?.is_some() => {}
                Ok(reader) => rows.push(ObjectRow {
                    state: ObjectState::Removed,
                    file: reader.heading().file,
                    inode: Id::default(),
                    version: reader.version(),
                    since,
                    seen: 0,
                    path: reader.attributes().path.clone(),
                }),
                // The others of a bundle are as good as ever.
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => scanned.damaged.push(error.to_string()),
            }
        }
        if !scanned.has_met_all() || scanned.is_partly_hidden {
            return Ok(());
        }
        scanned.unneeded += rows.len() as u64;
        self.catalogue.put(&rows)
    }
}
