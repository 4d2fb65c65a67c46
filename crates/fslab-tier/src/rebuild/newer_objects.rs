//! Processes objects that the archived tree does not refer to: versions archived later, objects
//! moved to other containers, and objects that no file needs.

use std::collections::HashMap;
use std::sync::Arc;

use fslab_vfs::{Errno, Request};

use super::object_roles::Role;
use super::stubs::named;
use super::{BATCH, Rebuilder};
use crate::archive::{Archive, ContainerKind};
use crate::catalogue::ObjectState;
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::Found;
use crate::object::bundle::{contents_of, list_bytes};
use crate::object::reader::ObjectReader;
use crate::runs::Runs;
use crate::stored::format::{KIND_FILE, blocks_of};
use crate::stored::{Attributes, Location, Residency, Version};

/// Maximum number of containers that are processed at a time.
const LISTED_MAX: usize = 1 << 19;

/// The number and total size of the known objects of a container.
#[derive(Default)]
struct Told {
    objects: usize,
    object_bytes: u64,
    /// The offset of the first object.
    first: u64,
}

impl Told {
    fn add(&mut self, location: Location) {
        let first = if self.objects == 0 { location.offset } else { self.first };
        self.first = first.min(location.offset);
        self.objects += 1;
        self.object_bytes = self.object_bytes.saturating_add(location.length);
    }

    /// Returns the length of a container that contains only these objects. For a bundle, the lists
    /// at both ends are included.
    fn bytes(&self) -> u64 {
        let list = list_bytes(self.objects);
        let lists = if self.first == list { 2 * list } else { 0 };
        self.object_bytes.saturating_add(lists)
    }
}

/// The file at the original path of an object.
enum Standing {
    /// A stub that may be replaced, because this run made it or it is an earlier version of the
    /// same file.
    Gives(Box<Residency>),
    /// A file of this tier with the same or a later version.
    Later,
    /// Any other file, which is kept.
    Other,
}

impl Rebuilder<'_> {
    /// Processes each object for which no file was made yet.
    pub(super) fn add_younger(&mut self, request: &Request) -> Result<()> {
        for archive in self.archives {
            let mut add = |part: &[(Id, u64)]| self.add_containers(archive, part, request);
            match in_parts(archive, LISTED_MAX, &mut add) {
                // Another archive may contain the data that this archive could not return.
                Err(error @ Error::Archive { .. }) => self.tell(Err(error)),
                added => added?,
            }
        }
        self.add_incomplete()?;
        self.notes.write(0)
    }

    /// Processes the objects with missing sources. If archives have a later version of the same
    /// file, such a version was probably no longer kept, and later versions need blocks of its
    /// object. Otherwise the loss is reported.
    fn add_incomplete(&mut self) -> Result<()> {
        let incomplete = std::mem::take(&mut self.incomplete);
        if incomplete.is_empty() {
            return Ok(());
        }
        let mut latest: HashMap<Id, u64> = HashMap::new();
        let mut note = |file: Id, version: &Version| {
            let known = latest.entry(file).or_default();
            *known = version.sequence.max(*known);
        };
        incomplete.values().for_each(|(file, version, _)| note(*file, version));
        self.notes.for_each(&mut |_, row| note(row.file, &row.version))?;
        for (_, (file, version, attributes)) in incomplete {
            if latest.get(&file).is_some_and(|latest| *latest > version.sequence) {
                self.retire(ObjectState::Source, file, &version, &attributes.path);
                continue;
            }
            if let Some(archive) = self.archives.first() {
                self.tell(ObjectReader::open_complete(archive, &version).map(drop));
            }
            let placed = self.place_version(&attributes, file, &version);
            self.tell(placed);
        }
        Ok(())
    }

    fn add_containers(
        &mut self,
        archive: &Arc<dyn Archive>,
        part: &[(Id, u64)],
        request: &Request,
    ) -> Result<()> {
        let told = self.told(part)?;
        for (container, length) in part.iter().copied() {
            request.cancellation.check().or(Err(Error::Interrupted))?;
            // A container without known objects is always opened, so that damage is reported.
            let has_more = |told: &Told| told.objects == 0 || told.bytes() < length;
            let has_more = told.get(&container).is_none_or(has_more);
            if has_more || !self.missing.is_empty() {
                let added = self.add_container(archive, container, length);
                self.tell(added);
                self.notes.write(BATCH)?;
            }
        }
        Ok(())
    }

    /// Returns the number and total size of the known objects of each container, without access to
    /// the archive.
    fn told(&mut self, part: &[(Id, u64)]) -> Result<HashMap<Id, Told>> {
        let mut told: HashMap<Id, Told> =
            part.iter().map(|(container, _)| (*container, Told::default())).collect();
        self.notes.for_each(&mut |_, row| {
            if let Some(told) = told.get_mut(&row.version.location.container) {
                told.add(row.version.location);
            }
        })?;
        Ok(told)
    }

    fn add_container(
        &mut self,
        archive: &Arc<dyn Archive>,
        container: Id,
        length: u64,
    ) -> Result<()> {
        let kind = ContainerKind::Files;
        let contents = contents_of(archive, container, length)?;
        for (number, location) in contents.members.into_iter().enumerate() {
            if let Some(object) = contents.objects.get(number)
                && self.is_known(*object)?
            {
                continue;
            }
            // Damage to one member of a bundle does not affect the others.
            let placed = ObjectReader::open_any(archive, kind, location)
                .and_then(|object| self.place(&object));
            self.tell(placed);
        }
        Ok(())
    }

    /// Returns whether the role of an object is known. If so, also passes the object to
    /// [`Self::offer`].
    fn is_known(&mut self, object: Id) -> Result<bool> {
        let Some((_, row)) = self.notes.get(object)? else { return Ok(false) };
        self.offer(row.file, (row.version.sequence, object));
        Ok(true)
    }

    /// Records an object as a candidate for a file whose object is not at the location recorded in
    /// the archived tree. The same version at another location is preferred, then the latest
    /// version.
    fn offer(&mut self, file: Id, found: super::Latest) {
        let is_wanted = found.0 <= self.until;
        if let Some(latest) = self.missing.get_mut(&file).filter(|_| is_wanted) {
            *latest = (*latest).max(Some(found));
        }
        if let Some(object) = self.moved_versions.get_mut(&(file, found.0)) {
            *object = (*object).max(Some(found.1));
        }
    }

    /// Makes a file from an object if the object is newer than the archived tree. Otherwise records
    /// that no file refers to the object.
    fn place(&mut self, object: &ObjectReader) -> Result<()> {
        let heading = object.heading();
        let is_ours = heading.tier == self.tier && heading.kind == KIND_FILE;
        if !is_ours || self.is_known(heading.object)? {
            return Ok(());
        }
        let (file, attributes) = (heading.file, object.attributes());
        let has_sources = !object.sources().is_empty();
        if has_sources && ObjectReader::is_lost_in(self.archives, &object.version()) {
            let found = (file, object.version(), attributes.clone());
            self.incomplete.insert(heading.object, found);
            return Ok(());
        }
        self.place_version(attributes, file, &object.version())
    }

    /// Like [`Self::place`], for the version and the attributes in an object.
    fn place_version(
        &mut self,
        attributes: &Attributes,
        file: Id,
        version: &Version,
    ) -> Result<()> {
        let version = self.with_copies(version);
        self.offer(file, (version.sequence, version.object));
        let is_younger = version.sequence > self.since && version.sequence <= self.until;
        let placed =
            if is_younger { self.add_object(attributes, file, &version) } else { Ok(false) };
        if !matches!(placed, Ok(true)) {
            self.retire(ObjectState::Removed, file, &version, &attributes.path);
        }
        placed.map(drop)
    }

    /// Records that no file refers to an object. It can be restored until its retention time has
    /// passed.
    fn retire(&mut self, state: ObjectState, file: Id, version: &Version, path: &[u8]) {
        let row = self.row(state, file, Id::default(), version, path);
        self.notes.put(row);
    }

    /// Makes or replaces the file of an object. Returns whether a file now refers to the object.
    fn add_object(&mut self, attributes: &Attributes, file: Id, version: &Version) -> Result<bool> {
        let path = &attributes.path;
        let found = match Found::at(self.lower, path) {
            Ok(found) => found,
            Err(error) if error.errno() == Errno::NOENT => {
                self.make_stub(attributes, Some((file, version.clone())))?;
                self.rebuilt.younger += 1;
                self.rebuilt.added += 1;
                return Ok(true);
            }
            Err(error) if error.errno() == Errno::NOTDIR => {
                self.rebuilt.unplaced.push(shown(path));
                return Ok(false);
            }
            Err(error) => return Err(Error::below(path)(error)),
        };
        match self.standing(&found, file, version)? {
            Standing::Gives(known) => {
                // If the stub belongs to another file, only this name is replaced. Its other names
                // are kept.
                let earlier = &known.version;
                let has_other_names = found.attr.links > 1;
                if has_other_names && known.file == file {
                    self.renew(&found, attributes, file, version)?;
                    self.retire(ObjectState::Replaced, known.file, earlier, path);
                } else {
                    let (parent, name) = self.parent(path)?;
                    let gone = self.lower.unlink(&self.request(), parent.ino(), named(name, path)?);
                    gone.map_err(Error::below(path))?;
                    drop(found);
                    if !has_other_names {
                        self.retire(ObjectState::Replaced, known.file, earlier, path);
                    }
                    self.make_stub(attributes, Some((file, version.clone())))?;
                }
                // The replaced version may itself be newer than the archived tree; then it was
                // counted before.
                self.rebuilt.younger += u64::from(earlier.sequence <= self.since);
                Ok(true)
            }
            Standing::Later => Ok(false),
            Standing::Other => {
                self.rebuilt.unplaced.push(shown(path));
                Ok(false)
            }
        }
    }

    fn standing(&self, found: &Found, file: Id, version: &Version) -> Result<Standing> {
        let Some(known) = self.own_residency(found) else { return Ok(Standing::Other) };
        if known.version.sequence >= version.sequence {
            return Ok(Standing::Later);
        }
        let whole = Runs::of(0..blocks_of(known.version.size));
        let is_stub = !known.changed && known.offline == whole;
        let noted = self.notes.get(known.version.object)?;
        let is_made = noted.is_some_and(|(role, row)| {
            role == Role::Made && self.around.is_of(row.inode, &found.attr)
        });
        let gives = is_stub && (is_made || known.file == file);
        Ok(if gives { Standing::Gives(Box::new(known)) } else { Standing::Other })
    }
}

/// A function that is called with containers and their lengths.
type VisitPart<'a> = dyn FnMut(&[(Id, u64)]) -> Result<()> + 'a;

/// Calls `visit` with the containers of an archive, at most `most` at a time.
fn in_parts(archive: &Arc<dyn Archive>, most: usize, visit: &mut VisitPart<'_>) -> Result<()> {
    let (mut part, mut done) = (Vec::new(), Ok(()));
    let listed = archive.list(ContainerKind::Files, &mut |container, length| {
        if done.is_ok() {
            part.push((container, length));
        }
        if part.len() == most {
            done = visit(&part);
            part.clear();
        }
    });
    done?;
    // The containers that were listed before an error are processed too.
    visit(&part)?;
    listed.map_err(Error::archive(archive.label(), Id::default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::testing::MemoryArchive;

    #[test]
    fn container_without_a_list_counts_only_the_bytes_of_its_objects() {
        let bytes = |places: &[(u64, u64)]| {
            let mut told = Told::default();
            for (offset, length) in places {
                told.add(Location { container: Id([2; 16]), offset: *offset, length: *length });
            }
            told.bytes()
        };
        let small = list_bytes(0);
        assert_eq!(bytes(&[(0, 1000), (1000, 2000)]), 3000);
        assert!(bytes(&[(0, 1000), (1000, 2000)]) < 3000 + small);
        assert!(bytes(&[(small, 1000), (small + 1000, 2000)]) < small + 3000);
        let list = list_bytes(2);
        let bundle = bytes(&[(list, 1000), (list + 1000, 2000)]);
        assert_eq!(bundle, 2 * list + 3000);
    }

    #[test]
    fn containers_are_visited_in_bounded_batches() {
        let memory = MemoryArchive::new(Id([1; 16]), "a");
        (0..10).for_each(|number| memory.put((ContainerKind::Files, Id([number; 16])), vec![0; 3]));
        let archive: Arc<dyn Archive> = Arc::new(memory);
        let mut parts = Vec::new();
        let mut visit = |part: &[(Id, u64)]| {
            parts.push(part.len());
            Ok(())
        };
        in_parts(&archive, 4, &mut visit).unwrap();
        assert_eq!(parts, [4, 4, 2]);
        let mut calls = 0;
        let mut fail = |_: &[(Id, u64)]| {
            calls += 1;
            Err(Error::Interrupted)
        };
        assert!(in_parts(&archive, 4, &mut fail).is_err());
        assert_eq!(calls, 1, "no further objects are visited after a failure");
    }
}
