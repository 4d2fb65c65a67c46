//! What is made of the entries of a tree, and of objects: files as stubs, directories, links, and
//! the rest.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fslab_vfs::{
    Attr, Errno, FileKind, Handle, Ino, Name, OpenMode, Permissions, SetAttr, SetTime, XattrMode,
};

use super::{BATCH, Rebuilder};
use crate::archive::{Archive, ContainerKind};
use crate::catalogue::{ObjectRow, ObjectState};
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::Found;
use crate::runs::Runs;
use crate::stored::format::blocks_of;
use crate::stored::{Attributes, Residency, TreeEntry, Version};

impl Rebuilder<'_> {
    /// Makes what an entry is about. What goes wrong with it is reported.
    pub(super) fn make(&mut self, entry: &TreeEntry) -> Result<()> {
        if entry.attributes.path.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.make_one(entry) {
            self.rebuilt.problems.push(error.to_string());
        }
        self.write_rows(BATCH)
    }

    pub(super) fn make_one(&mut self, entry: &TreeEntry) -> Result<()> {
        let path = &entry.attributes.path;
        let kind = entry.attributes.kind();
        match Found::at(self.lower, path) {
            Ok(found) => {
                self.rebuilt.kept += u64::from(kind != Some(FileKind::Directory));
                return self.note_kept(entry, &found);
            }
            Err(error) if error.errno() == Errno::NOENT => {}
            Err(error) => return Err(Error::below(path)(error)),
        }
        match kind {
            Some(FileKind::Regular) => self.make_file(entry),
            _ => self.make_other(entry),
        }
    }

    /// What is there may name an object: its row is kept.
    pub(super) fn note_kept(&mut self, entry: &TreeEntry, found: &Found) -> Result<()> {
        let known = self.around.marks.read(&**self.lower, &self.request(), found.ino());
        let own = known
            .ok()
            .flatten()
            .filter(|known| known.tier == self.tier && self.around.is_of(known.inode, &found.attr));
        if let Some(known) = own {
            self.note(known.file, &known.version, &found.attr, &entry.attributes.path);
        } else if self.is_unbelieved_stub(found, &entry.attributes.path)? {
            let path = shown(&entry.attributes.path);
            let what =
                "is a stub by a mark that root does not believe; remove it and rebuild again";
            self.rebuilt.problems.push(format!("{path}: {what}"));
        }
        Ok(())
    }

    fn is_unbelieved_stub(&self, found: &Found, path: &[u8]) -> Result<bool> {
        let (marks, request) = (self.around.marks, self.request());
        marks.is_unbelieved_stub(&**self.lower, &request, found.ino()).map_err(Error::below(path))
    }

    pub(super) fn make_file(&mut self, entry: &TreeEntry) -> Result<()> {
        let attributes = &entry.attributes;
        if attributes.links > 1
            && let Some(first) = self.named.get(&attributes.ino).cloned()
        {
            return self.make_link(&first, &attributes.path);
        }
        let made = match &entry.archived {
            None if entry.size > 0 => {
                self.unarchived.push(attributes.path.clone());
                return Ok(());
            }
            None => self.make_stub(attributes, None)?,
            Some((file, version)) => {
                let version = self.with_copies(version);
                if version.copies.is_empty() {
                    // A later version may be there, or the same one in another place.
                    let missing = self.missing.entry(*file).or_default();
                    missing.0.push(entry.clone());
                    return Ok(());
                }
                if (entry.size, attributes.modified) != (version.size, version.modified) {
                    self.rebuilt.older.push(shown(&attributes.path));
                }
                self.make_stub(attributes, Some((*file, version)))?
            }
        };
        self.rebuilt.files += u64::from(made);
        if attributes.links > 1 {
            self.named.insert(attributes.ino, attributes.path.clone());
        }
        Ok(())
    }

    pub(super) fn make_link(&mut self, first: &[u8], path: &[u8]) -> Result<()> {
        let source = Found::at(self.lower, first).map_err(Error::below(first))?;
        let (parent, name) = self.parent(path)?;
        let linked = Name::new(name)
            .map_err(fslab_vfs::Error::from)
            .and_then(|name| self.lower.link(&self.request(), source.ino(), parent.ino(), name));
        let entry = linked.map_err(Error::below(path))?;
        self.lower.forget(entry.attr.ino, 1);
        self.rebuilt.links += 1;
        Ok(())
    }

    /// The archives that hold a version, by asking them.
    pub(super) fn with_copies(&self, version: &Version) -> Version {
        let container = version.location.container;
        let holds = |archive: &&Arc<dyn Archive>| {
            let end = version.location.offset.saturating_add(version.location.length);
            archive.length(ContainerKind::Files, container).is_ok_and(|length| length >= end)
        };
        let copies = self.archives.iter().filter(holds).map(|archive| archive.id()).collect();
        Version { copies, ..version.clone() }
    }

    /// The directory that a path lies in, made if an archive does not tell of it, and the name.
    /// Archives say how deep a path is: nothing here calls itself.
    pub(super) fn parent<'p>(&self, path: &'p [u8]) -> Result<(Found, &'p OsStr)> {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = match cut {
            Some(cut) => (&path[..cut], &path[cut + 1..]),
            None => (&path[..0], path),
        };
        let below = || Error::below(parent);
        let mut found = Found::root(self.lower).map_err(below())?;
        for part in parent.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let inner = self.directory(found.ino(), OsStr::from_bytes(part));
            found = inner.map_err(below())?;
        }
        Ok((found, OsStr::from_bytes(name)))
    }

    /// What a directory has of a name, made as a directory if it has nothing.
    fn directory(&self, parent: Ino, name: &OsStr) -> fslab_vfs::Result<Found> {
        match Found::below(self.lower, parent, name) {
            Err(error) if error.errno() == Errno::NOENT => {
                let made = self.lower.mkdir(&self.request(), parent, Name::new(name)?, 0o755)?;
                let found = Found::below(self.lower, parent, name);
                self.lower.forget(made.attr.ino, 1);
                found
            }
            found => found,
        }
    }

    /// Makes a file whose bytes are in archives, or an empty one.
    pub(super) fn make_stub(
        &mut self,
        attributes: &Attributes,
        archived: Option<(Id, Version)>,
    ) -> Result<bool> {
        let path = &attributes.path;
        let (parent, name) = self.parent(path)?;
        let below = || Error::below(path);
        let request = self.request();
        let flags = OpenMode::READ_WRITE | OpenMode::EXCLUSIVE;
        let name = Name::new(name).map_err(fslab_vfs::Error::from).map_err(below())?;
        // Nobody reads it before it is whole.
        let created = self.lower.create(&request, parent.ino(), name, 0o600, flags);
        let (entry, opened) = created.map_err(below())?;
        let (ino, handle) = (entry.attr.ino, opened.handle);
        let filled = self.fill(attributes, archived, &entry.attr, handle);
        let released = self.lower.release(&request, ino, handle).map_err(below());
        let done = filled.and(released);
        if done.is_err()
            && let Err(error) = self.lower.unlink(&request, parent.ino(), name)
        {
            tracing::warn!(%error, "{}: half of it is left", shown(path));
        }
        self.lower.forget(ino, 1);
        done.map(|()| true)
    }

    pub(super) fn fill(
        &mut self,
        attributes: &Attributes,
        archived: Option<(Id, Version)>,
        attr: &Attr,
        handle: Handle,
    ) -> Result<()> {
        let (request, ino) = (self.request(), attr.ino);
        let below = || Error::below(&attributes.path);
        if let Some((file, version)) = archived {
            let blocks = blocks_of(version.size);
            let residency = Residency {
                tier: self.tier,
                file,
                inode: (self.around.tell)(attr),
                changed: false,
                moving: false,
                touched_seconds: 0,
                offline: Runs::of(0..blocks),
                version: version.clone(),
            };
            self.around.marks.write(&**self.lower, &request, ino, &residency).map_err(below())?;
            let size = SetAttr { size: Some(version.size), ..SetAttr::default() };
            self.lower.setattr(&request, ino, Some(handle), &size).map_err(below())?;
            let times = Attributes { modified: version.modified, ..attributes.clone() };
            self.dress(&times, ino)?;
            self.note(file, &version, attr, &attributes.path);
        } else {
            self.dress(attributes, ino)?;
        }
        self.lower.fsync(&request, ino, handle, false).map_err(below())
    }

    pub(super) fn note(&mut self, file: Id, version: &Version, attr: &Attr, path: &[u8]) {
        self.rows.push(ObjectRow {
            state: ObjectState::Live,
            file,
            inode: (self.around.tell)(attr),
            version: version.clone(),
            since: self.around.calendar.now(),
            seen: 0,
            path: path.to_vec(),
        });
    }

    /// Gives an inode its owner, xattrs, permissions and times, in the order in which they last.
    pub(super) fn dress(&mut self, attributes: &Attributes, ino: Ino) -> Result<()> {
        let request = self.request();
        let below = || Error::below(&attributes.path);
        let owner =
            SetAttr { uid: Some(attributes.uid), gid: Some(attributes.gid), ..SetAttr::default() };
        if let Err(error) = self.lower.setattr(&request, ino, None, &owner) {
            let path = shown(&attributes.path);
            self.rebuilt.problems.push(format!("{path}: keeps another owner: {error}"));
        }
        for (name, value) in &attributes.xattrs {
            let name = OsStr::from_bytes(name);
            let set = self.lower.setxattr(&request, ino, name, value, XattrMode::empty());
            if let Err(error) = set {
                let path = shown(&attributes.path);
                let name = name.display();
                self.rebuilt.problems.push(format!("{path}: has no xattr {name}: {error}"));
            }
        }
        let is_link = attributes.kind() == Some(FileKind::Symlink);
        let permissions = (!is_link).then(|| Permissions::new(attributes.mode));
        let rest = SetAttr {
            permissions,
            accessed: Some(SetTime::To(attributes.accessed)),
            modified: Some(SetTime::To(attributes.modified)),
            ..SetAttr::default()
        };
        self.lower.setattr(&request, ino, None, &rest).map(drop).map_err(below())
    }

    pub(super) fn make_other(&mut self, entry: &TreeEntry) -> Result<()> {
        let attributes = &entry.attributes;
        let path = &attributes.path;
        let (parent, name) = self.parent(path)?;
        let name = Name::new(name).map_err(fslab_vfs::Error::from).map_err(Error::below(path))?;
        let (request, parent) = (self.request(), parent.ino());
        let (mode, device) = (attributes.mode, attributes.device);
        let made = match attributes.kind() {
            Some(FileKind::Directory) => self.lower.mkdir(&request, parent, name, 0o700),
            Some(FileKind::Symlink) => {
                self.lower.symlink(&request, parent, name, OsStr::from_bytes(&attributes.target))
            }
            _ => self.lower.mknod(&request, parent, name, mode, device),
        };
        let made = made.map_err(Error::below(path))?;
        let is_directory = made.attr.kind == FileKind::Directory;
        self.rebuilt.directories += u64::from(is_directory);
        self.rebuilt.others += u64::from(!is_directory);
        let dressed = self.dress(attributes, made.attr.ino);
        self.lower.forget(made.attr.ino, 1);
        dressed
    }

    pub(super) fn finish_directory(&mut self, entry: &TreeEntry) -> Result<()> {
        let attributes = &entry.attributes;
        if attributes.kind() != Some(FileKind::Directory) {
            return Ok(());
        }
        let path = &attributes.path;
        let found = Found::at(self.lower, path).map_err(Error::below(path))?;
        let times = SetAttr {
            accessed: Some(SetTime::To(attributes.accessed)),
            modified: Some(SetTime::To(attributes.modified)),
            ..SetAttr::default()
        };
        if path.is_empty() {
            self.dress(attributes, found.ino())?;
        }
        let set = self.lower.setattr(&self.request(), found.ino(), None, &times);
        set.map(drop).map_err(Error::below(path))
    }
}
