//! The second pass over the archived tree, after all archives were read.

use fslab_vfs::{Errno, FileKind, Request, SetAttr};

use super::attributes::times_of;
use super::{BATCH, Rebuilder, entries};
use crate::error::{Error, Result, shown};
use crate::id::Id;
use crate::lower::Found;
use crate::object::reader::ObjectReader;
use crate::stored::{TreeEntry, Version};

impl Rebuilder<'_> {
    /// Makes the files whose objects were found elsewhere, and reports lost and older files. Then
    /// sets the times of directories, because making files has changed them, and the final
    /// permissions.
    pub(super) fn finish_tree(&mut self, tree: &ObjectReader, request: &Request) -> Result<()> {
        for moved in [true, false] {
            entries(tree, request, &mut |entry, is_behind| {
                if is_behind == moved { self.finish(&entry, is_behind) } else { Ok(()) }
            })?;
        }
        self.notes.write(0)?;
        entries(tree, request, &mut |entry, is_behind| {
            let finished = self.finish_directory(&entry, is_behind);
            self.tell(finished);
            Ok(())
        })?;
        self.close_directories();
        Ok(())
    }

    fn finish(&mut self, entry: &TreeEntry, is_behind: bool) -> Result<()> {
        let is_file = entry.attributes.kind() == Some(FileKind::Regular);
        if is_file && !self.is_superseded(entry, is_behind) {
            let finished = self.finish_file(entry);
            self.tell(finished);
        }
        self.notes.write(BATCH)
    }

    fn finish_file(&mut self, entry: &TreeEntry) -> Result<()> {
        let path = &entry.attributes.path;
        match (Found::at(self.lower, path), &entry.archived) {
            (Ok(found), Some((_, version))) => {
                self.tell_other(path, version, &found);
                self.tell_older(entry, version, &found);
            }
            (Ok(_), None) => {}
            (Err(error), archived) if error.errno() == Errno::NOENT => match archived {
                Some((file, _)) => return self.make_missing(entry, *file),
                // No version of the file was archived, either before the tree or after it.
                None if entry.size > 0 => self.rebuilt.lost.push(shown(path)),
                None => {}
            },
            // The failure to make the file was already reported.
            (Err(error), _) if error.errno() == Errno::NOTDIR => {}
            (Err(error), _) => return Err(Error::below(path)(error)),
        }
        Ok(())
    }

    /// Reports an existing file that is not the archived one. A killed rebuild may leave such a
    /// file, if the lower file system has no unnamed temporary files (`O_TMPFILE`).
    fn tell_other(&mut self, path: &[u8], version: &Version, found: &Found) {
        let is_same = (found.attr.size, found.attr.modified) == (version.size, version.modified);
        let is_file = found.attr.kind == FileKind::Regular;
        let read = || self.around.marks.read(&**self.lower, found.ino());
        if is_file && !is_same && matches!(read(), Ok(None)) {
            let why = "already exists and differs from the archived file; remove it and rebuild \
                again";
            self.rebuilt.problems.push(format!("{}: {why}", shown(path)));
        }
    }

    /// Reports a file that was changed after its last archived version.
    fn tell_older(&mut self, entry: &TreeEntry, version: &Version, found: &Found) {
        let was_changed =
            (entry.size, entry.attributes.modified) != (version.size, version.modified);
        let is_earlier = || {
            let known = self.own_residency(found);
            known.is_some_and(|known| !known.changed && known.version.sequence <= version.sequence)
        };
        if was_changed && is_earlier() {
            self.rebuilt.older.push(shown(&entry.attributes.path));
        }
    }

    /// Makes a file from the version in the archived tree, even if the version's object was moved.
    /// If that version is missing, uses the latest version in the archives.
    fn make_missing(&mut self, entry: &TreeEntry, file: Id) -> Result<()> {
        // Other reasons why the file is missing were already reported.
        let Some(latest) = self.missing.get(&file).copied() else { return Ok(()) };
        let named = entry.archived.as_ref().map_or(0, |(_, named)| named.sequence);
        let moved = self.moved_versions.get(&(file, named)).copied().flatten();
        let Some(object) = moved.or(latest.map(|(_, object)| object)) else {
            self.rebuilt.lost.push(shown(&entry.attributes.path));
            return Ok(());
        };
        if let Some(first) = self.place_of(object)? {
            // Another file already has the object, for example after the file was renamed and
            // archived again.
            return self.make_further(entry, &first);
        }
        let Some((_, row)) = self.notes.get(object)? else { return Ok(()) };
        let (attributes, version) = (&entry.attributes, &row.version);
        // A version that was archived after the archived tree was made is not older than its entry.
        let was_changed = (entry.size, attributes.modified) != (version.size, version.modified);
        if was_changed && version.sequence <= named {
            self.rebuilt.older.push(shown(&attributes.path));
        }
        self.make_stub(attributes, Some((file, row.version)))?;
        self.rebuilt.files += 1;
        Ok(())
    }

    /// Sets the times of a directory again, because making its files has changed them.
    fn finish_directory(&mut self, entry: &TreeEntry, is_behind: bool) -> Result<()> {
        let attributes = &entry.attributes;
        let path = &attributes.path;
        let is_directory = attributes.kind() == Some(FileKind::Directory);
        if !is_directory || self.is_superseded(entry, is_behind) {
            return Ok(());
        }
        let found = match Found::at(self.lower, path) {
            // A parent is not a directory, or the failure to make the directory was already
            // reported.
            Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            found => found.map_err(Error::below(path))?,
        };
        if found.attr.kind != FileKind::Directory {
            return Ok(());
        }
        if path.is_empty() {
            return self.apply_attributes(attributes, found.ino());
        }
        let set = self.lower.setattr(&self.request(), found.ino(), None, &times_of(attributes));
        set.map(drop).map_err(Error::below(path))
    }

    /// Sets the final permissions of directories, inner directories first.
    fn close_directories(&mut self) {
        for (path, permissions) in std::mem::take(&mut self.closing).into_iter().rev() {
            let changes = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
            let closed = Found::at(self.lower, &path)
                .and_then(|found| self.lower.setattr(&self.request(), found.ino(), None, &changes));
            self.tell(closed.map(drop).map_err(Error::below(&path)));
        }
    }
}
