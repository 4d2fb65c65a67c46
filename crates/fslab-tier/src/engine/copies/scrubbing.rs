//! Scrubbing: reads all copies of all objects in the catalogue, except pending objects. Repairs
//! damaged copies from intact ones, and makes missing copies.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::iter;
use std::sync::Arc;

use fslab_vfs::{Request, Timestamp};
use parking_lot::MutexGuard;

use crate::archive::{Archive, Proof};
use crate::catalogue::{ObjectRow, ObjectState};
use crate::engine::Tier;
use crate::engine::copies::combined::CombinedCopies;
use crate::engine::copies::repair::{Repair, first_listed, listed, whole_length};
use crate::engine::copies::{KIND, verify};
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::object::bundle::Contents;
use crate::object::reader::ObjectReader;
use crate::rate_limit::{Pace, RateLimit};
use crate::stored::bytes::Corrupt;
use crate::stored::format::SourceRecord;
use crate::stored::{Location, Version};

/// The result of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Number of copies that were read.
    pub copies: u64,
    /// Number of copies in cold storage, which were not read.
    pub cold: u64,
    /// Number of damaged or missing copies that were repaired.
    pub repaired: u64,
    /// Number of copies that were made because there were fewer than the tier requires.
    pub made: u64,
    /// Number of resident files that will be archived again, because no copy is intact.
    pub anew: u64,
    /// Number of versions that still have fewer intact copies than required.
    pub short: u64,
    /// Archives that are unavailable or not attached, each with the number of its copies that were
    /// not read.
    pub missing: Vec<String>,
    /// Damaged copies that could not be repaired, and missing copies that could not be made, each
    /// with the cause.
    pub damaged: Vec<String>,
}

/// A callback that repeatedly receives the results so far. Entries that it removes from a list are
/// not passed to it again.
pub type ProgressSink<'a, T> = dyn FnMut(&mut T) -> Result<()> + 'a;

/// Number of versions whose new copies are recorded in the catalogue at once.
const BATCH: usize = 500;

impl Tier {
    /// Scrubs without a rate limit and without progress reports.
    ///
    /// # Errors
    /// The errors of [`Self::scrub_within`].
    pub fn scrub(self: &Arc<Self>, request: &Request) -> Result<Scrubbed> {
        self.scrub_within(request, None, &mut |_| Ok(()))
    }

    /// Reads and repairs all copies within a rate limit, which applies to read and written bytes.
    ///
    /// # Errors
    /// Errors of the catalogue and of `heard`. Errors of archives are part of the result.
    pub fn scrub_within(
        self: &Arc<Self>,
        request: &Request,
        limit: Option<&RateLimit>,
        heard: &mut ProgressSink<'_, Scrubbed>,
    ) -> Result<Scrubbed> {
        self.read_copies(request, limit, None, heard)
    }

    /// Copies the contents of an archive to other archives, until these have as many copies of each
    /// version as the tier requires. Their copies are verified before they are counted. The drained
    /// archive itself is read only if another copy is missing or damaged.
    ///
    /// # Errors
    /// The errors of [`Self::scrub_within`].
    pub fn drain(
        self: &Arc<Self>,
        archive: Id,
        request: &Request,
        limit: Option<&RateLimit>,
        heard: &mut ProgressSink<'_, Scrubbed>,
    ) -> Result<Scrubbed> {
        self.end_doubt_by_scan(request)?;
        self.read_copies(request, limit, Some(archive), heard)
    }

    /// Returns how many copies of a version would be missing without one archive, and how many
    /// other archives would accept a copy.
    pub(crate) fn copies_lacking_without(&self, version: &Version, archive: Id) -> (usize, usize) {
        let is_kept =
            |holder: &&Arc<dyn Archive>| holder.refusal().is_none() && holder.id() != archive;
        let kept = self.holders(version).iter().filter(is_kept).count();
        let mut targets = self.active_archives();
        targets.retain(|target| target.id() != archive && !version.copies.contains(&target.id()));
        (self.settings.copies.saturating_sub(kept), targets.len())
    }

    fn read_copies(
        self: &Arc<Self>,
        request: &Request,
        limit: Option<&RateLimit>,
        drained: Option<Id>,
        heard: &mut ProgressSink<'_, Scrubbed>,
    ) -> Result<Scrubbed> {
        let mut scrub = Scrub {
            tier: self,
            drained,
            pace: Pace { request, limits: [limit, None] },
            found: Scrubbed { missing: self.missing_archives()?, ..Scrubbed::default() },
            bundles: HashSet::new(),
            full: HashSet::new(),
            unavailable: HashSet::new(),
            cold: HashSet::new(),
            made: Vec::new(),
            intact_sources: HashSet::new(),
        };
        heard(&mut scrub.found)?;
        let scrubbed = self.catalogue.for_each_in_turn(&mut |row| {
            scrub.row(row)?;
            heard(&mut scrub.found)
        });
        // New copies are recorded even if the scrub ended early.
        scrub.note_made(0)?;
        scrubbed?;
        if drained.is_none() {
            self.scrub_trees(request, &mut scrub.found)?;
        }
        heard(&mut scrub.found)?;
        Ok(scrub.found)
    }

    /// Takes the lock under which objects are moved or deleted. Returns `None` if the object of a
    /// row was moved or deleted before, or no longer needs its sources.
    fn hold(&self, row: &ObjectRow, request: &Request) -> Result<Option<MutexGuard<'_, ()>>> {
        let held = self.nobody_else(request)?;
        let now = self.catalogue.get(row.version.object)?;
        let is_same = |now: &ObjectRow| {
            (now.version.location, &now.sources) == (row.version.location, &row.sources)
        };
        Ok(now.filter(is_same).map(|_| held))
    }
}

/// A running scrub or drain.
struct Scrub<'a> {
    tier: &'a Arc<Tier>,
    /// The archive that is drained. Its copies are not counted, and versions without a copy in it
    /// are skipped.
    drained: Option<Id>,
    pace: Pace<'a>,
    found: Scrubbed,
    /// Bundles whose lists were verified.
    bundles: HashSet<Id>,
    /// Full archives. They are not tried again, so that each is reported once.
    full: HashSet<Id>,
    /// Labels of archives that became unavailable during the scrub.
    unavailable: HashSet<String>,
    /// Containers in cold storage, each with its archive.
    cold: HashSet<(Id, Id)>,
    /// Versions with new copies that are not yet in the catalogue.
    made: Vec<Version>,
    /// The intact copies of sources that were verified, each with its archive.
    intact_sources: HashSet<(Id, SourceRecord)>,
}

impl Scrub<'_> {
    fn row(&mut self, row: ObjectRow) -> Result<()> {
        let is_elsewhere =
            self.drained.is_some_and(|drained| !row.version.copies.contains(&drained));
        if row.state == ObjectState::Pending || is_elsewhere {
            return Ok(());
        }
        let made = self.object(&row)?;
        let row = ObjectRow { version: row.version.clone().with_copies(&made), ..row };
        if !made.is_empty() {
            let named = self.tier.record_copies(&row);
            self.tell(named, &row.path)?;
            self.made.push(row.version.clone());
            self.note_made(BATCH)?;
        }
        // An object at an offset above 0 is in a bundle, because a bundle begins with a list.
        let location = row.version.location;
        if location.offset > 0 && self.bundles.insert(location.container) {
            self.lists(&row)?;
        }
        Ok(())
    }

    /// Verifies and repairs all copies of an object, and makes missing ones. Returns the archives
    /// with newly made copies.
    fn object(&mut self, row: &ObjectRow) -> Result<Vec<Id>> {
        let (mut whole, mut damaged, mut cold) = (Vec::new(), Vec::new(), Vec::new());
        let mut wanted = self.tier.settings.copies;
        let mut holders = self.tier.holders(&row.version);
        holders.sort_by_key(|archive| self.is_drained(archive));
        for archive in holders {
            if self.is_drained(&archive) && damaged.is_empty() && self.counted(&whole) >= wanted {
                break;
            }
            match self.verify(&archive, row) {
                Ok(()) => {
                    self.note_read(row, &archive)?;
                    whole.push(archive);
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) if self.note_cold(&archive, &error) => {
                    cold.push(archive);
                    continue;
                }
                Err(error) if error.is_unavailable() => {
                    self.note_unavailable(&error);
                    continue;
                }
                Err(error) => damaged.push((archive, error)),
            }
            self.found.copies += 1;
        }
        // A copy in cold storage can't be read, but it exists. A drain counts only verified copies.
        if self.drained.is_none() {
            wanted = wanted.saturating_sub(self.counted(&cold));
        }
        if damaged.is_empty() && !whole.is_empty() {
            self.tier.catalogue.note_damaged(row.version.object, false)?;
        }
        if damaged.is_empty() && (self.counted(&whole) >= wanted || self.others(row).is_empty()) {
            self.found.short += u64::from(self.counted(&whole) < wanted);
            return Ok(Vec::new());
        }
        // An object that was deleted or moved during the scrub is not damaged, and must not be made
        // again.
        let Some(_stays) = self.tier.hold(row, self.pace.request)? else { return Ok(Vec::new()) };
        let is_lost = is_lost(&row.version, &damaged);
        let from = match whole.first() {
            Some(whole) => Some(Arc::clone(whole)),
            None if damaged.is_empty() => None,
            None => self.put_together(row)?,
        };
        for (archive, damage) in damaged {
            if self.is_drained(&archive) && from.is_some() {
                continue;
            }
            let writable = from.as_ref().filter(|_| archive.refusal().is_none());
            let repaired = writable.map(|from| self.copy(row, from, &archive));
            // A source in cold storage prevents the repair.
            let repaired = repaired.filter(|repaired| {
                !repaired.as_ref().is_err_and(|error| self.note_cold(&archive, error))
            });
            if self.tell_repaired(repaired, damage, &row.path)? {
                self.note_repaired(row, &archive)?;
                whole.push(archive);
            }
        }
        let made = self.make_missing(row, &mut whole, wanted)?;
        let has_none = whole.is_empty() && is_lost;
        if has_none || !whole.is_empty() {
            self.tier.catalogue.note_damaged(row.version.object, has_none)?;
        }
        if has_none && self.archive_anew(row)? {
            self.found.anew += 1;
        } else {
            self.found.short += u64::from(self.counted(&whole) < wanted);
        }
        Ok(made)
    }

    /// Counts a copy that could not be read because a container is in cold storage; returns whether
    /// that is so. A drain needs these copies, so it also reports the archive.
    fn note_cold(&mut self, archive: &Arc<dyn Archive>, error: &Error) -> bool {
        let Some(container) = error.cold_container() else { return false };
        self.found.cold += 1;
        self.cold.insert((archive.id(), container));
        if self.drained.is_some() && self.unavailable.insert(archive.label().to_owned()) {
            self.found.missing.push(format!("{error}; copies in cold storage were not read"));
        }
        true
    }

    fn archive_anew(&mut self, row: &ObjectRow) -> Result<bool> {
        match self.tier.archive_anew(row) {
            Ok(is_said) => Ok(is_said),
            Err(error) => self.tell(Err(error), &row.path).map(|()| false),
        }
    }

    /// Counts copies in archives that no other tree writes to and that are not being drained.
    fn counted(&self, archives: &[Arc<dyn Archive>]) -> usize {
        let is_counted =
            |archive: &&Arc<dyn Archive>| archive.refusal().is_none() && !self.is_drained(archive);
        archives.iter().filter(is_counted).count()
    }

    fn is_drained(&self, archive: &Arc<dyn Archive>) -> bool {
        self.drained == Some(archive.id())
    }

    /// Returns the archives that accept copies and have no recorded copy of an object.
    fn others(&self, row: &ObjectRow) -> Vec<Arc<dyn Archive>> {
        let mut archives = self.tier.active_archives();
        archives.retain(|archive| !row.version.copies.contains(&archive.id()));
        archives.retain(|archive| !self.full.contains(&archive.id()));
        archives
    }

    /// Makes copies in other archives until the required number of copies exists.
    fn make_missing(
        &mut self,
        row: &ObjectRow,
        whole: &mut Vec<Arc<dyn Archive>>,
        wanted: usize,
    ) -> Result<Vec<Id>> {
        let mut made = Vec::new();
        for archive in self.others(row) {
            if self.counted(whole) >= wanted {
                break;
            }
            // An interrupted run may have left an unrecorded copy in this archive.
            let is_there = self.verify(&archive, row);
            let copied = match (is_there, whole.first()) {
                (Err(Error::Interrupted), _) => return Err(Error::Interrupted),
                // The copy in cold storage is not replaced.
                (Err(error), _) if self.note_cold(&archive, &error) => continue,
                (Err(_), None) => continue,
                (Err(_), Some(from)) => self.copy(row, from, &archive),
                (Ok(()), _) => Ok(()),
            };
            match copied {
                Ok(()) => {
                    self.note_repaired(row, &archive)?;
                    self.found.made += 1;
                    made.push(archive.id());
                    whole.push(archive);
                }
                Err(error) if self.note_cold(&archive, &error) => {}
                Err(error) => {
                    self.full.extend(is_full(&error).then(|| archive.id()));
                    self.tell(Err(error), &row.path)?;
                }
            }
        }
        Ok(made)
    }

    /// Verifies a copy of an object and of its sources. A version that is no longer kept needs no
    /// sources.
    fn verify(&mut self, archive: &Arc<dyn Archive>, row: &ObjectRow) -> Result<()> {
        match row.may_be_source()
            && self.tier.catalogue.is_source(row.version.location.container)?
        {
            true => self.verify_source(archive, &source_of(&row.version))?,
            false => verify(archive, &row.version, self.pace)?,
        }
        if !row.may_have_sources() {
            return Ok(());
        }
        let object = ObjectReader::open(archive, &row.version)?;
        object.sources().iter().try_for_each(|source| self.verify_source(archive, source))
    }

    /// Records that a copy of an object was read and found intact.
    fn note_read(&self, row: &ObjectRow, archive: &Arc<dyn Archive>) -> Result<()> {
        let (container, now) = (row.version.location.container, self.tier.now_seconds().into());
        self.tier.catalogue.note_read(container, archive.id(), now)
    }

    /// Records that a repaired or new copy of an object was read back.
    fn note_repaired(&self, row: &ObjectRow, archive: &Arc<dyn Archive>) -> Result<()> {
        let container = row.version.location.container;
        self.tier.note_proofs(container, &[(archive.id(), Proof::ReadBack)])
    }

    /// Verifies a copy of a source, once in a scrub.
    fn verify_source(&mut self, archive: &Arc<dyn Archive>, source: &SourceRecord) -> Result<()> {
        let copy = (archive.id(), *source);
        if !self.intact_sources.contains(&copy) {
            verify(archive, &version_of(source), self.pace)?;
            self.intact_sources.insert(copy);
        }
        Ok(())
    }

    /// Copies a source into an archive, if the archive has no intact copy of it.
    fn copy_source(&mut self, source: &SourceRecord, to: &Arc<dyn Archive>) -> Result<()> {
        let row = self.tier.catalogue.get(Id(source.object))?;
        // An archive may be malicious, so that the source is not the recorded object.
        let row = row.filter(|row| source_of(&row.version) == *source);
        let damage = match self.verify_source(to, source) {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Ok(()) => return row.map_or(Ok(()), |row| self.note_source(row, to)),
            // A copy in cold storage is not read. If the source is the recorded object, it counts
            // as intact, but not in a drain, which counts only verified copies.
            Err(error) if error.cold_container().is_some() => {
                let row = row.filter(|_| self.drained.is_none()).ok_or(error)?;
                return self.note_source(row, to);
            }
            Err(error) => error,
        };
        let Some(row) = row else { return Err(damage) };
        let others = self.tier.holders(&row.version).into_iter();
        let mut others = others.filter(|archive| archive.id() != to.id());
        let whole = others.find(|archive| self.verify_source(archive, source).is_ok());
        let from = match whole {
            Some(whole) => whole,
            None => self.put_together(&row)?.ok_or(damage)?,
        };
        let part = row.version.location;
        self.repair((&from, part.offset), (to, part), part.length)?;
        self.verify_source(to, source)?;
        self.note_source(row, to)
    }

    /// Records that an archive has a copy of a source.
    fn note_source(&mut self, row: ObjectRow, archive: &Arc<dyn Archive>) -> Result<()> {
        if row.version.copies.contains(&archive.id()) {
            return Ok(());
        }
        let row = ObjectRow { version: row.version.clone().with_copies(&[archive.id()]), ..row };
        self.tier.record_copies(&row)?;
        self.made.push(row.version);
        Ok(())
    }

    /// Copies an object into an archive, with the rest of its container and its sources, and
    /// verifies the new copy.
    fn copy(
        &mut self,
        row: &ObjectRow,
        from: &Arc<dyn Archive>,
        to: &Arc<dyn Archive>,
    ) -> Result<()> {
        let location = row.version.location;
        if row.may_have_sources() {
            let object = ObjectReader::open(from, &row.version)?;
            object.sources().iter().try_for_each(|source| self.copy_source(source, to))?;
            if verify(to, &row.version, self.pace).is_ok() {
                return Ok(());
            }
        }
        let holders = self.tier.holders(&row.version);
        let length = whole_length(to, holders.iter().chain([from]), location)?;
        self.repair((from, location.offset), (to, location), length)?;
        verify(to, &row.version, self.pace)
    }

    /// Combines all copies of an object into one. Returns `None` if a part is not intact in any
    /// copy.
    fn put_together(&self, row: &ObjectRow) -> Result<Option<Arc<dyn Archive>>> {
        let (holders, version) = (self.tier.holders(&row.version), &row.version);
        match CombinedCopies::whole(holders, version, self.pace.request) {
            Ok(whole) => Ok(Some(whole)),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            // The damage of each copy is reported separately.
            Err(_) => Ok(None),
        }
    }

    /// Verifies and repairs the lists of a bundle's members. Without the lists, the members can be
    /// found only with the catalogue. A damaged list is repaired from an intact list of any copy.
    /// The contents of a copy are determined by its own list, or by another copy's list if its own
    /// lists are damaged.
    fn lists(&mut self, row: &ObjectRow) -> Result<()> {
        let holders = self.tier.holders(&row.version);
        let container = row.version.location.container;
        let is_read = |archive: &&Arc<dyn Archive>| {
            !self.is_drained(archive) && !self.cold.contains(&(archive.id(), container))
        };
        let kept = || holders.iter().filter(is_read);
        if kept().all(|archive| has_lists(archive, row.version.location)) {
            return Ok(());
        }
        let Some(_stays) = self.tier.hold(row, self.pace.request)? else { return Ok(()) };
        let kept: Vec<_> = kept().cloned().collect();
        for archive in &kept {
            self.repair_lists(row, archive, &holders)?;
        }
        Ok(())
    }

    fn repair_lists(
        &mut self,
        row: &ObjectRow,
        archive: &Arc<dyn Archive>,
        holders: &[Arc<dyn Archive>],
    ) -> Result<()> {
        let location = row.version.location;
        let copies = || iter::once(archive).chain(holders);
        let Some((teller, contents)) = first_listed(copies(), location) else {
            return self.tell(listed(archive, location).map(drop), &row.path);
        };
        let places = list_places(&contents, location.container);
        let root = places.iter().find_map(|place| whole_list(teller, place).ok());
        // Another archive is preferred as the source of the list, because the repair also takes
        // other bytes from the source that this copy lacks.
        let others = holders.iter().filter(|other| other.id() != archive.id()).chain([teller]);
        let whole = others
            .flat_map(|other| places.map(|place| (other, place)))
            .find(|(other, place)| is_list(other, place, root).is_ok());
        for place in places {
            let Err(error) = is_list(archive, &place, root) else { continue };
            let repaired = whole.filter(|_| archive.refusal().is_none()).map(|(from, list)| {
                self.repair((from, list.offset), (archive, place), contents.length())?;
                is_list(archive, &place, root)
            });
            self.tell_repaired(repaired, error, &row.path)?;
        }
        Ok(())
    }

    /// Rewrites a container in the archive `to` with a part copied from the archive `from`. The
    /// container then has `length` bytes.
    fn repair(
        &self,
        (from, from_offset): (&Arc<dyn Archive>, u64),
        (to, part): (&Arc<dyn Archive>, Location),
        length: u64,
    ) -> Result<()> {
        let repair = Repair { kind: KIND, from, from_offset, to, part, length };
        repair.run(self.pace)
    }

    /// Records the collected new copies in the catalogue, if there are more than `least` of them.
    fn note_made(&mut self, least: usize) -> Result<()> {
        if self.made.len() > least {
            self.tier.catalogue.add_copies(&std::mem::take(&mut self.made))?;
        }
        Ok(())
    }

    fn tell(&mut self, done: Result<()>, path: &[u8]) -> Result<()> {
        match done {
            Ok(()) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) if error.is_unavailable() => self.note_unavailable(&error),
            Err(error) => self.found.damaged.push(format!("{}: {error}", shown(path))),
        }
        Ok(())
    }

    /// Reports that a copy was damaged or repaired; returns whether it is now intact. A copy is
    /// also reported as damaged if an archive became unavailable during the repair.
    fn tell_repaired(
        &mut self,
        repaired: Option<Result<()>>,
        damage: Error,
        path: &[u8],
    ) -> Result<bool> {
        let told = match repaired {
            None => Err(damage),
            Some(Err(error)) if error.is_unavailable() => {
                self.note_unavailable(&error);
                Err(damage)
            }
            Some(repaired) => repaired,
        };
        let is_whole = told.is_ok();
        self.found.repaired += u64::from(is_whole);
        self.tell(told, path).map(|()| is_whole)
    }

    /// Reports that an archive became unavailable, once for each archive.
    fn note_unavailable(&mut self, error: &Error) {
        let Error::Archive { archive, .. } = error else { return };
        if self.unavailable.insert(archive.clone()) {
            self.found
                .missing
                .push(format!("{error}; the remaining copies in this archive were not checked"));
        }
    }
}

/// Returns a version as the source of others.
fn source_of(version: &Version) -> SourceRecord {
    SourceRecord {
        object: version.object.0,
        container: version.location.container.0,
        length: version.location.length.into(),
        root: version.root,
    }
}

/// Returns the version in a source, as far as it is needed to read the source.
fn version_of(source: &SourceRecord) -> Version {
    Version {
        object: Id(source.object),
        location: Location::of_source(source),
        size: 0,
        sequence: 0,
        modified: Timestamp::default(),
        root: source.root,
        copies: Vec::new(),
    }
}

/// Returns whether every copy was verified and is damaged or missing. A copy that was not read, for
/// example in an unavailable archive, may be intact.
fn is_lost(version: &Version, damaged: &[(Arc<dyn Archive>, Error)]) -> bool {
    let is_lost = |error: &Error| match error {
        Error::Damaged { .. } => true,
        Error::Archive { source, .. } => matches!(
            source.kind(),
            ErrorKind::NotFound | ErrorKind::InvalidData | ErrorKind::UnexpectedEof
        ),
        _ => false,
    };
    damaged.len() >= version.copies.len() && damaged.iter().all(|(_, error)| is_lost(error))
}

/// Returns whether an archive accepts no more data, because it is full, over quota or read-only.
fn is_full(error: &Error) -> bool {
    use fslab_vfs::Errno;
    let Error::Archive { source, .. } = error else { return false };
    matches!(Errno::from_io_error(source), Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS))
}

/// Returns the locations of a bundle's two lists: at its start and at its end.
fn list_places(contents: &Contents, container: Id) -> [Location; 2] {
    let length = contents.list_bytes;
    [0, contents.length() - length].map(|offset| Location { container, offset, length })
}

/// Returns whether a copy of a bundle has both of its lists, intact and equal.
fn has_lists(archive: &Arc<dyn Archive>, member: Location) -> bool {
    let both = |contents: Contents| {
        let [first, last] = list_places(&contents, member.container);
        let root = whole_list(archive, &first)?;
        is_list(archive, &last, Some(root))
    };
    listed(archive, member).and_then(both).is_ok()
}

/// Fails unless a bundle has an intact list with this root hash.
fn is_list(archive: &Arc<dyn Archive>, place: &Location, root: Option<[u8; 32]>) -> Result<()> {
    match whole_list(archive, place)? {
        found if Some(found) == root => Ok(()),
        _ => Err(Error::damaged(
            archive.label(),
            place.container,
            Corrupt("the bundle's two lists of members differ"),
        )),
    }
}

/// Verifies a list of a bundle and returns its root hash. The list at the end is valid only if no
/// bytes follow it.
fn whole_list(archive: &Arc<dyn Archive>, place: &Location) -> Result<[u8; 32]> {
    let container = place.container;
    archive.forget((KIND, container));
    let list = ObjectReader::open_any(archive, KIND, *place)?;
    list.block(0)?;
    let length =
        archive.length((KIND, container)).map_err(Error::archive(archive.label(), container))?;
    if place.offset > 0 && length != place.offset + place.length {
        return Err(list.damaged(Corrupt("the bundle does not end with its list of members")));
    }
    Ok(list.version().root)
}
