//! Makes stubs: files whose bytes are in archives only.

use std::ffi::OsStr;

use fslab_vfs::{Attr, Handle, Ino, Name, OpenMode, SetAttr};

use super::Rebuilder;
use super::attributes::is_described;
use crate::catalogue::{ObjectRow, ObjectState};
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::{Found, OwnFile};
use crate::runs::Runs;
use crate::stored::format::blocks_of;
use crate::stored::{Attributes, Residency, StoredResidency, Version};

impl Rebuilder<'_> {
    /// Makes a file whose bytes are in archives, or an empty file. If the lower file system has
    /// unnamed temporary files (`O_TMPFILE`), the file gets its name only when it is complete. A
    /// program that opened an incomplete file would read zeros.
    pub(super) fn make_stub(
        &mut self,
        attributes: &Attributes,
        archived: Option<(Id, Version)>,
    ) -> Result<()> {
        let path = &attributes.path;
        let (parent, name) = self.parent(path)?;
        let (name, request) = (named(name, path)?, self.request());
        let (parent, mode) = (parent.ino(), OpenMode::READ_WRITE);
        let nameless = self.lower.tmpfile(&request, parent, 0o600, mode);
        let (is_nameless, mut has_name) = (nameless.is_ok(), nameless.is_err());
        let made = nameless.or_else(|_| {
            // The mode keeps others from reading the file before it is complete.
            self.lower.create(&request, parent, name, 0o600, mode | OpenMode::EXCLUSIVE)
        });
        let (entry, opened) = made.map_err(Error::below(path))?;
        let (ino, handle) = (entry.attr.ino, opened.handle);
        let done = self.fill(attributes, archived.as_ref(), &entry.attr, handle).and_then(|()| {
            if is_nameless {
                let linked = self.lower.link(&request, ino, parent, name);
                linked.map_err(Error::below(path))?;
                self.lower.forget(ino, 1);
                has_name = true;
            }
            self.lower.fsync(&request, ino, handle, false).map_err(Error::below(path))
        });
        let done = done.and(self.lower.release(&request, ino, handle).map_err(Error::below(path)));
        match (&done, archived) {
            (Ok(()), Some((file, version))) => {
                self.note(file, &version, &entry.attr, path);
            }
            (Err(_), _) if has_name => self.take_back(parent, name, path),
            _ => {}
        }
        self.lower.forget(ino, 1);
        done
    }

    fn take_back(&self, parent: Ino, name: Name<'_>, path: &[u8]) {
        if let Err(error) = self.lower.unlink(&self.request(), parent, name) {
            tracing::warn!(%error, "{}: can't remove the incomplete file", shown(path));
        }
    }

    fn fill(
        &mut self,
        attributes: &Attributes,
        archived: Option<&(Id, Version)>,
        attr: &Attr,
        handle: Handle,
    ) -> Result<()> {
        let Some((file, version)) = archived else {
            return self.apply_attributes(attributes, attr.ino);
        };
        let (request, ino) = (self.request(), attr.ino);
        let below = || Error::below(&attributes.path);
        let poisoned = version.size > 0 && self.poison.is_ready(version.size);
        let residency = Residency { poisoned, ..self.stub(*file, version, attr) };
        let write = |residency: &Residency| {
            let stored = StoredResidency::shortest(residency);
            self.around.marks.write(&**self.lower, &request, ino, &stored).map_err(below())
        };
        let resize = |size| {
            let size = SetAttr { size: Some(size), ..SetAttr::default() };
            self.lower.setattr(&request, ino, Some(handle), &size).map_err(below())
        };
        write(&residency)?;
        resize(version.size)?;
        if let Err(error) = self.put_poison(&residency, (ino, handle)) {
            tracing::info!(%error, "{}: can't write poison; the file reads as zeros while the tree \
                is not mounted", shown(&attributes.path));
            // Removes poison that may have been written to a part of the file.
            resize(0)?;
            resize(version.size)?;
            write(&Residency { poisoned: false, ..residency })?;
        }
        self.apply_attributes(&Attributes { modified: version.modified, ..attributes.clone() }, ino)
    }

    /// Turns a stub with several names into a later version. The residency is written last. If this
    /// run is stopped before that, the next run finds the earlier version and repeats the change.
    /// After a failure, the file gets the size and time of the earlier version again. Other values
    /// would be mistaken for a change of the file.
    pub(super) fn renew(
        &mut self,
        found: &Found,
        attributes: &Attributes,
        file: Id,
        version: &Version,
    ) -> Result<()> {
        let (path, ino) = (&attributes.path, found.ino());
        let below = || Error::below(path);
        let own = OwnFile::open(self.lower, &self.around.calendar, ino, true).map_err(below())?;
        // Offline blocks that were holes remain holes, and poison remains poison.
        let earlier = self.own_residency(found);
        let poisoned = earlier.as_ref().is_some_and(Residency::is_poisoned);
        let residency = Residency { poisoned, ..self.stub(file, version, &found.attr) };
        if let Err(error) = self.change_stub(&own, attributes, &residency) {
            let Attr { size, modified, .. } = found.attr;
            let (_, ino, handle) = own.place();
            let restored = own
                .set_size(size)
                .and_then(|()| {
                    earlier.map_or(Ok(()), |known| self.put_poison(&known, (ino, handle)))
                })
                .and_then(|()| own.set_modified(modified));
            self.tell(restored.map_err(below()));
            return Err(error);
        }
        own.sync().map_err(below())?;
        self.note(file, version, &found.attr, path);
        Ok(())
    }

    fn change_stub(
        &mut self,
        own: &OwnFile,
        attributes: &Attributes,
        residency: &Residency,
    ) -> Result<()> {
        let (ino, version) = (own.ino(), &residency.version);
        let below = || Error::below(&attributes.path);
        own.set_size(version.size).map_err(below())?;
        let (_, _, handle) = own.place();
        self.put_poison(residency, (ino, handle)).map_err(below())?;
        self.remove_extra_xattrs(attributes, ino, is_described)?;
        self.apply_attributes(
            &Attributes { modified: version.modified, ..attributes.clone() },
            ino,
        )?;
        own.sync().map_err(below())?;
        let stored = StoredResidency::shortest(residency);
        self.around.marks.write(&**self.lower, &self.request(), ino, &stored).map_err(below())
    }

    /// Fills a whole file with poison, if its residency records poison.
    fn put_poison(&self, residency: &Residency, file: (Ino, Handle)) -> fslab_vfs::Result<()> {
        let size = residency.version.size;
        if residency.is_poisoned() {
            self.poison.put(file, 0..size, size)?;
        }
        Ok(())
    }

    /// Returns the residency of a file whose bytes are all in archives.
    pub(super) fn stub(&self, file: Id, version: &Version, attr: &Attr) -> Residency {
        Residency {
            tier: self.tier,
            file,
            inode: (self.around.inode_identity)(attr),
            changed: false,
            moving: false,
            poisoned: false,
            touched_seconds: 0,
            offline: Runs::of(0..blocks_of(version.size)),
            version: version.clone(),
        }
    }

    /// Records that a file exists and refers to an object.
    pub(super) fn note(&mut self, file: Id, version: &Version, attr: &Attr, path: &[u8]) {
        let inode = (self.around.inode_identity)(attr);
        let row = self.row(ObjectState::Live, file, inode, version, path);
        self.notes.put(row);
    }

    pub(super) fn row(
        &self,
        state: ObjectState,
        file: Id,
        inode: Id,
        version: &Version,
        path: &[u8],
    ) -> ObjectRow {
        let (version, path) = (version.clone(), path.to_vec());
        let since = self.around.calendar.now();
        let sources = match state {
            ObjectState::Source => Some(Vec::new()),
            _ => ObjectRow::unread_sources(&version),
        };
        ObjectRow { state, file, inode, version, since, seen: 0, path, sources }
    }
}

pub(super) fn named<'n>(name: &'n OsStr, path: &[u8]) -> Result<Name<'n>> {
    Name::new(name).map_err(fslab_vfs::Error::from).map_err(Error::below(path))
}
