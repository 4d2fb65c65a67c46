//! Makes the entries of an archived tree: files as stubs, directories, links, and other kinds.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fslab_vfs::{Errno, FileKind, Ino, Name, Permissions};

use super::object_roles::Role;
use super::stubs::named;
use super::{BATCH, Rebuilder};
use crate::archive::{Archive, ContainerKind};
use crate::catalogue::ObjectRow;
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::Found;
use crate::object::reader::ObjectReader;
use crate::stored::{Attributes, TreeEntry, Version};

/// The permissions that a directory needs until its contents are made.
const OWNER_MAY: u32 = 0o700;

impl Rebuilder<'_> {
    /// Makes the file, directory or other inode of an entry. Failures are added to the report.
    pub(super) fn make(&mut self, entry: &TreeEntry, is_behind: bool) -> Result<()> {
        if entry.attributes.path.is_empty() || self.is_superseded(entry, is_behind) {
            return Ok(());
        }
        if is_behind {
            self.moved.insert(entry.attributes.ino);
        }
        let made = self.make_one(entry);
        self.tell(made);
        self.notes.write(BATCH)
    }

    /// Returns whether a later entry contains the same file under its new name. A file with several
    /// hard links keeps each name.
    pub(super) fn is_superseded(&self, entry: &TreeEntry, is_behind: bool) -> bool {
        let attributes = &entry.attributes;
        let has_one_name = attributes.links <= 1 || attributes.kind() == Some(FileKind::Directory);
        !is_behind && has_one_name && self.moved.contains(&attributes.ino)
    }

    fn make_one(&mut self, entry: &TreeEntry) -> Result<()> {
        let path = &entry.attributes.path;
        match Found::at(self.lower, path) {
            Ok(found) => return self.meet(entry, &found),
            Err(error) if error.errno() == Errno::NOENT => {}
            Err(error) => return Err(Error::below(path)(error)),
        }
        match entry.attributes.kind() {
            Some(FileKind::Regular) => self.make_file(entry),
            _ => self.make_other(entry),
        }
    }

    /// Keeps an existing file or directory. A directory that this run made for its children gets
    /// the attributes of its entry.
    fn meet(&mut self, entry: &TreeEntry, found: &Found) -> Result<()> {
        let attributes = &entry.attributes;
        let is_directory = attributes.kind() == Some(FileKind::Directory);
        if is_directory && self.implied.remove(&attributes.path) {
            self.rebuilt.directories += 1;
            return self.apply_directory_attributes(attributes, found.ino());
        }
        self.remember_name(entry, found);
        Ok(())
    }

    /// Records the path of an existing file, so that its other names can be made.
    fn remember_name(&mut self, entry: &TreeEntry, found: &Found) {
        let Attributes { ino, links, path, .. } = &entry.attributes;
        let are_files = [entry.attributes.kind(), Some(found.attr.kind)]
            .into_iter()
            .all(|kind| kind == Some(FileKind::Regular));
        if *links <= 1 || !are_files {
            return;
        }
        let is_it = match &entry.archived {
            Some((file, _)) => self.own_residency(found).is_some_and(|known| known.file == *file),
            None => entry.size == 0 && found.attr.size == 0,
        };
        if is_it {
            self.named.insert(*ino, path.clone());
        }
    }

    fn make_file(&mut self, entry: &TreeEntry) -> Result<()> {
        let attributes = &entry.attributes;
        if let Some(first) = self.first_name(entry)? {
            return self.make_further(entry, &first);
        }
        match &entry.archived {
            // A later step finds the version, if the file was archived after the archived tree was
            // made.
            None if entry.size > 0 => return Ok(()),
            None => {
                self.make_stub(attributes, None)?;
                if attributes.links > 1 {
                    self.named.insert(attributes.ino, attributes.path.clone());
                }
            }
            Some((file, version)) => {
                let version = self.with_copies(version);
                if version.copies.is_empty() {
                    // A later step looks for this version at another location, or for a later one.
                    self.missing.entry(*file).or_default();
                    self.moved_versions.entry((*file, version.sequence)).or_default();
                    return Ok(());
                }
                self.make_stub(attributes, Some((*file, version)))?;
            }
        }
        self.rebuilt.files += 1;
        Ok(())
    }

    /// Returns the path at which the file of an entry already exists.
    fn first_name(&self, entry: &TreeEntry) -> Result<Option<Vec<u8>>> {
        let attributes = &entry.attributes;
        if attributes.links > 1
            && let Some(first) = self.named.get(&attributes.ino)
        {
            return Ok(Some(first.clone()));
        }
        let Some((_, version)) = &entry.archived else { return Ok(None) };
        self.place_of(version.object)
    }

    /// Returns the path of the file that refers to an object, if there is one.
    pub(super) fn place_of(&self, object: Id) -> Result<Option<Vec<u8>>> {
        let noted = self.notes.get(object)?;
        let is_named = |(role, _): &(Role, ObjectRow)| *role != Role::Unneeded;
        Ok(noted.filter(is_named).map(|(_, row)| row.path))
    }

    /// Makes an additional name of a file. If the archived file had only one name, reports a
    /// problem instead, because an object must not belong to two files. A change of one file could
    /// make the tier delete the object that the other one needs.
    pub(super) fn make_further(&mut self, entry: &TreeEntry, first: &[u8]) -> Result<()> {
        let path = &entry.attributes.path;
        if entry.attributes.links > 1 {
            return self.make_link(first, path);
        }
        let what = "not created, because the same archived version already exists as";
        let (path, first) = (shown(path), shown(first));
        self.rebuilt
            .problems
            .push(format!("{path}: {what} {first}; copy that file if both are needed"));
        Ok(())
    }

    fn make_link(&mut self, first: &[u8], path: &[u8]) -> Result<()> {
        let source = Found::at(self.lower, first).map_err(Error::below(first))?;
        let (parent, name) = self.parent(path)?;
        let name = named(name, path)?;
        let linked = self.lower.link(&self.request(), source.ino(), parent.ino(), name);
        let entry = linked.map_err(Error::below(path))?;
        self.lower.forget(entry.attr.ino, 1);
        self.rebuilt.links += 1;
        Ok(())
    }

    /// Returns a version with a list of the archives that contain it at present, with its sources.
    /// If none has the sources, the archives with the object itself are listed.
    pub(super) fn with_copies(&self, version: &Version) -> Version {
        let container = version.location.container;
        let holds = |archive: &&Arc<dyn Archive>| {
            let end = version.location.offset.saturating_add(version.location.length);
            archive.length((ContainerKind::Files, container)).is_ok_and(|length| length >= end)
        };
        let mut holders: Vec<&Arc<dyn Archive>> = self.archives.iter().filter(holds).collect();
        if has_sources(&holders, version) {
            let lacks = |archive: &Arc<dyn Archive>| {
                ObjectReader::is_lost_in(std::slice::from_ref(archive), version)
            };
            if !holders.iter().all(|archive| lacks(archive)) {
                holders.retain(|archive| !lacks(archive));
            }
        }
        let copies = holders.into_iter().map(|archive| archive.id()).collect();
        Version { copies, ..version.clone() }
    }

    /// Returns the parent directory of a path, and the name in it. Missing parents are made. Does
    /// not recurse, because an untrusted archive determines the depth of the path.
    pub(super) fn parent<'p>(&mut self, path: &'p [u8]) -> Result<(Found, &'p OsStr)> {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = match cut {
            Some(cut) => (&path[..cut], &path[cut + 1..]),
            None => (&path[..0], path),
        };
        let below = || Error::below(parent);
        let mut found = Found::root(self.lower).map_err(below())?;
        let mut length = 0;
        for part in parent.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            length += part.len() + usize::from(length > 0);
            let inner = self.directory(found.ino(), &parent[..length], OsStr::from_bytes(part));
            found = inner.map_err(below())?;
        }
        Ok((found, OsStr::from_bytes(name)))
    }

    /// Returns a child of a directory; makes a directory if the child does not exist. The
    /// permissions of the new directory are not known yet, so only its owner may enter it.
    fn directory(&mut self, parent: Ino, path: &[u8], name: &OsStr) -> fslab_vfs::Result<Found> {
        match Found::below(self.lower, parent, name) {
            Err(error) if error.errno() == Errno::NOENT => {
                let name = Name::new(name)?;
                let made = self.lower.mkdir(&self.request(), parent, name, OWNER_MAY)?;
                let found = Found::below(self.lower, parent, name.as_os_str());
                self.lower.forget(made.attr.ino, 1);
                self.implied.insert(path.to_vec());
                found
            }
            found => found,
        }
    }

    fn make_other(&mut self, entry: &TreeEntry) -> Result<()> {
        let attributes = &entry.attributes;
        let path = &attributes.path;
        let is_device =
            matches!(attributes.kind(), Some(FileKind::BlockDevice | FileKind::CharDevice));
        if is_device && !self.is_trusting {
            self.rebuilt.left_out.push(format!("{}: a device was skipped", shown(path)));
            return Ok(());
        }
        let (parent, name) = self.parent(path)?;
        let name = named(name, path)?;
        let (request, parent) = (self.request(), parent.ino());
        let device = attributes.device;
        let made = match attributes.kind() {
            Some(FileKind::Directory) => self.lower.mkdir(&request, parent, name, OWNER_MAY),
            Some(FileKind::Symlink) => {
                self.lower.symlink(&request, parent, name, OsStr::from_bytes(&attributes.target))
            }
            kind => {
                // Only the owner may use the new file until its permissions are set.
                let mode = kind.map_or(0, FileKind::mode_bits) | 0o600;
                self.lower.mknod(&request, parent, name, mode, device)
            }
        };
        let made = made.map_err(Error::below(path))?;
        let is_directory = made.attr.kind == FileKind::Directory;
        self.rebuilt.directories += u64::from(is_directory);
        self.rebuilt.others += u64::from(!is_directory);
        let dressed = match is_directory {
            true => self.apply_directory_attributes(attributes, made.attr.ino),
            false => self.apply_attributes(attributes, made.attr.ino),
        };
        self.lower.forget(made.attr.ino, 1);
        dressed
    }

    /// Applies the attributes of a directory. Missing permissions of its owner are added until its
    /// contents are made.
    fn apply_directory_attributes(&mut self, attributes: &Attributes, ino: Ino) -> Result<()> {
        let mode = attributes.mode | OWNER_MAY;
        if mode != attributes.mode {
            self.closing.push((attributes.path.clone(), Permissions::new(attributes.mode)));
        }
        self.apply_attributes(&Attributes { mode, ..attributes.clone() }, ino)
    }
}

/// Returns whether a version has sources, according to the first archive that can be read.
fn has_sources(archives: &[&Arc<dyn Archive>], version: &Version) -> bool {
    let may_have_some = ObjectRow::unread_sources(version).is_none();
    let mut readers = archives.iter().map(|archive| ObjectReader::open(archive, version));
    may_have_some
        && readers.find_map(|reader| reader.ok()).is_some_and(|reader| !reader.sources().is_empty())
}
