//! What archives hold that the tree does not tell of: files archived after it, and objects in
//! another place than it says.

use std::sync::Arc;

use fslab_vfs::{Errno, Name, Request};

use super::Rebuilder;
use crate::archive::{Archive, ContainerKind};
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::Found;
use crate::runs::Runs;
use crate::stored::bundle::contents_of;
use crate::stored::format::{KIND_FILE, blocks_of};
use crate::stored::reader::ObjectReader;
use crate::stored::{Attributes, Version, residency};

impl Rebuilder<'_> {
    /// Objects that the tree does not know because they were archived after it.
    pub(super) fn add_younger(&mut self, since: u64, request: &Request) -> Result<()> {
        for archive in self.archives {
            let mut unknown = Vec::new();
            let listed = archive.list(ContainerKind::Files, &mut |container, length| {
                unknown.push((container, length));
            });
            listed.map_err(|source| {
                let archive = archive.label().to_owned();
                Error::Archive { archive, container: Id::default(), source }
            })?;
            for (container, length) in unknown {
                request.cancellation.check().or(Err(Error::Interrupted))?;
                // Of what the tree knows, only what it has elsewhere is of interest.
                let is_known = self.catalogue.knows_container(container)?;
                if is_known && self.missing.is_empty() {
                    continue;
                }
                let since = if is_known { u64::MAX } else { since };
                let walked = self.add_container(archive, container, length, since);
                if let Err(error) = walked {
                    self.rebuilt.problems.push(error.to_string());
                }
                self.write_rows(0)?;
            }
        }
        Ok(())
    }

    pub(super) fn add_container(
        &mut self,
        archive: &Arc<dyn Archive>,
        container: Id,
        length: u64,
        since: u64,
    ) -> Result<()> {
        let kind = ContainerKind::Files;
        for location in contents_of(archive, kind, container, length)?.members {
            let object = match ObjectReader::open_any(archive, kind, location) {
                Ok(object) => object,
                // The others of a bundle are as good as ever.
                Err(error) => {
                    self.rebuilt.problems.push(error.to_string());
                    continue;
                }
            };
            let heading = object.heading();
            let is_ours = heading.tier == self.tier && heading.kind == KIND_FILE;
            if is_ours && self.missing.contains_key(&heading.file) {
                self.find(&object);
            } else if is_ours && heading.sequence > since {
                self.add_object(&object)?;
            }
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
                entry.archived = Some((file, version.clone()));
                self.make(&entry)?;
            }
        }
        self.write_rows(0)
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
        let known = residency::read(&**self.lower, &self.request(), found.ino()).ok().flatten();
        let is_stub = known.as_ref().is_some_and(|known| {
            let whole = Runs::of(0..blocks_of(known.version.size));
            known.file == file
                && known.inode == (self.around.tell)(&found.attr)
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
