//! What archives hold that the tree does not tell of: files archived after it, and objects in
//! another place than it says.

use std::collections::HashMap;
use std::sync::Arc;

use fslab_vfs::{Errno, Name, Request};

use super::Rebuilder;
use crate::archive::{Archive, ContainerKind};
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::Found;
use crate::runs::Runs;
use crate::stored::bundle::{contents_of, list_bytes};
use crate::stored::format::{KIND_FILE, blocks_of};
use crate::stored::reader::ObjectReader;
use crate::stored::{Attributes, Location, Version};

/// What of a container has rows.
#[derive(Default)]
struct Told {
    objects: usize,
    object_bytes: u64,
    is_bundle: bool,
}

impl Told {
    fn add(&mut self, location: Location) {
        self.objects += 1;
        self.object_bytes = self.object_bytes.saturating_add(location.length);
        // Only what is in a bundle has something before it.
        self.is_bundle |= location.offset > 0;
    }

    /// Bytes of a container that has nothing else.
    fn bytes(&self) -> u64 {
        let lists = if self.is_bundle { 2 * list_bytes(self.objects) } else { 0 };
        self.object_bytes.saturating_add(lists)
    }
}

impl Rebuilder<'_> {
    /// Objects that the tree does not know because they were archived after it.
    pub(super) fn add_younger(&mut self, since: u64, request: &Request) -> Result<()> {
        for archive in self.archives {
            let (told, mut found) = (self.told()?, Vec::new());
            let listed = archive.list(ContainerKind::Files, &mut |container, length| {
                found.push((container, length));
            });
            listed.map_err(|source| {
                let archive = archive.label().to_owned();
                Error::Archive { archive, container: Id::default(), source }
            })?;
            for (container, length) in found {
                request.cancellation.check().or(Err(Error::Interrupted))?;
                let has_more = told.get(&container).is_none_or(|told| told.bytes() < length);
                if !has_more && self.missing.is_empty() {
                    continue;
                }
                let walked = self.add_container(archive, container, length, since);
                if let Err(error) = walked {
                    self.rebuilt.problems.push(error.to_string());
                }
                self.write_rows(0)?;
            }
        }
        Ok(())
    }

    /// What of each container has rows, and so needs no archive to be asked.
    fn told(&self) -> Result<HashMap<Id, Told>> {
        let mut told = HashMap::<Id, Told>::new();
        self.catalogue.for_each(&mut |row| {
            told.entry(row.version.location.container).or_default().add(row.version.location);
            Ok(())
        })?;
        Ok(told)
    }

    /// Whether an object has a row already, or was put where it belongs from another archive. What
    /// the archives have of a file whose object is not where the tree says is always of interest.
    fn is_told(&self, object: Id) -> Result<bool> {
        if self.placed.contains(&object) {
            return Ok(true);
        }
        let row = self.catalogue.get(object)?;
        Ok(row.is_some_and(|row| !self.missing.contains_key(&row.file)))
    }

    fn add_container(
        &mut self,
        archive: &Arc<dyn Archive>,
        container: Id,
        length: u64,
        since: u64,
    ) -> Result<()> {
        let kind = ContainerKind::Files;
        let contents = contents_of(archive, kind, container, length)?;
        for (number, location) in contents.members.into_iter().enumerate() {
            if let Some(object) = contents.objects.get(number)
                && self.is_told(*object)?
            {
                continue;
            }
            let object = match ObjectReader::open_any(archive, kind, location) {
                Ok(object) => object,
                // The others of a bundle are as good as ever.
                Err(error) => {
                    self.rebuilt.problems.push(error.to_string());
                    continue;
                }
            };
            if let Err(error) = self.place(&object, since) {
                self.rebuilt.problems.push(error.to_string());
            }
        }
        Ok(())
    }

    /// Puts an object where it belongs, if it is one of this tree and not known.
    fn place(&mut self, object: &ObjectReader, since: u64) -> Result<()> {
        let heading = object.heading();
        let is_ours = heading.tier == self.tier && heading.kind == KIND_FILE;
        if !is_ours || self.is_told(heading.object)? {
            return Ok(());
        }
        if self.missing.contains_key(&heading.file) {
            self.find(object);
        } else if heading.sequence > since {
            self.add_object(object)?;
            self.placed.insert(heading.object);
        }
        Ok(())
    }

    /// An object of a file that the tree names, and whose object it names is not there any more:
    /// the latest is what the archives have of it.
    pub(super) fn find(&mut self, object: &ObjectReader) {
        let version = self.with_copies(&object.version());
        if let Some((_, found)) = self.missing.get_mut(&object.heading().file)
            && found.as_ref().is_none_or(|found| found.sequence < version.sequence)
        {
            *found = Some(version);
        }
    }

    /// Makes files whose objects were found in another place than the tree names.
    pub(super) fn make_missing(&mut self) -> Result<()> {
        for (file, (entries, found)) in std::mem::take(&mut self.missing) {
            for mut entry in entries {
                let Some(version) = &found else {
                    self.rebuilt.lost.push(shown(&entry.attributes.path));
                    continue;
                };
                if let Some((_, named)) = &entry.archived
                    && named.sequence < version.sequence
                {
                    // It was archived after the tree was: as it was then, or later.
                    entry.size = version.size;
                    entry.attributes.modified = version.modified;
                }
                entry.archived = Some((file, version.clone()));
                self.make(&entry)?;
            }
        }
        self.write_rows(0)
    }

    /// What no archive had when the tree was made may have been archived since.
    pub(super) fn tell_lost(&mut self) {
        let mut lost = std::mem::take(&mut self.unarchived);
        lost.retain(|path| Found::at(self.lower, path).is_err());
        self.rebuilt.lost.extend(lost.iter().map(|path| shown(path)));
    }

    pub(super) fn add_object(&mut self, object: &ObjectReader) -> Result<()> {
        let attributes = object.attributes();
        let version = self.with_copies(&object.version());
        let file = object.heading().file;
        match Found::at(self.lower, &attributes.path) {
            Ok(found) => self.follow(found, file, &version, attributes),
            Err(error) if error.errno() == Errno::NOENT => {
                self.rebuilt.younger += 1;
                self.make_stub(attributes, Some((file, version))).map(drop)
            }
            Err(error) => Err(Error::below(&attributes.path)(error)),
        }
    }

    /// An earlier version of the same file, of which nothing is here, gives way to a later one.
    pub(super) fn follow(
        &mut self,
        found: Found,
        file: Id,
        version: &Version,
        attributes: &Attributes,
    ) -> Result<()> {
        let path = &attributes.path;
        let known =
            self.around.marks.read(&**self.lower, &self.request(), found.ino()).ok().flatten();
        let is_stub = known.as_ref().is_some_and(|known| {
            let whole = Runs::of(0..blocks_of(known.version.size));
            known.file == file
                && self.around.is_of(known.inode, &found.attr)
                && !known.changed
                && known.offline == whole
                && known.version.sequence < version.sequence
        });
        if !is_stub || attributes.links > 1 {
            self.rebuilt.kept += 1;
            return Ok(());
        }
        let (parent, name) = self.parent(path)?;
        let name = Name::new(name).map_err(fslab_vfs::Error::from).map_err(Error::below(path))?;
        drop(found);
        let gone = self.lower.unlink(&self.request(), parent.ino(), name);
        gone.map_err(Error::below(path))?;
        self.rebuilt.younger += 1;
        self.make_stub(attributes, Some((file, version.clone()))).map(drop)
    }
}
