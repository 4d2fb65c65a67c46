//! Handles the leftovers of interrupted runs: copies that have not received all names of their
//! originals, and originals under temporary names.
//!
//! Invariant: names and xattrs that users of the tree set never merge two files and never remove
//! the only copy of data. Root may convert a tree whose users can set both.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use fslab_vfs::{Attr, Errno, FileKind, FileSystem, Ino, Request, Result, XattrMode};

use super::{Conversion, Direction, Kept, Why, contents, copy_name, is_copy_name};
use crate::lower::is_absence;

/// Name of the xattr that marks a copy which has not received all names of its original. The value
/// is the inode number of the original, in 8 bytes, little-endian. Only a privileged process can
/// set this xattr.
const TRUSTED_NAME: &str = "trusted.fslab.convert";

/// The name of this xattr if an ordinary user runs the conversion.
const USER_NAME: &str = "user.fslab.convert";

/// Whether an xattr is `TRUSTED_NAME` or `USER_NAME`. Conversions do not copy these marks.
pub fn is_mark(name: &OsStr) -> bool {
    name == TRUSTED_NAME || name == USER_NAME
}

/// The kind of xattr that marks copies which have not received all names of their originals.
#[derive(Clone, Copy, Debug)]
pub enum Marking {
    /// An xattr that users of the tree can't set.
    Trusted,
    /// An xattr that users can set on files they may write; trusted only on files of this user.
    Own(u32),
}

impl Marking {
    /// Tests which xattr can be set, by setting it on the root temporarily.
    pub fn find(lower: &dyn FileSystem, request: &Request, owner: u32) -> Result<Self> {
        let (name, mode) = (OsStr::new(TRUSTED_NAME), XattrMode::empty());
        match lower.setxattr(request, Ino::ROOT, name, &[0; 8], mode) {
            Ok(()) => lower.removexattr(request, Ino::ROOT, name).map(|()| Self::Trusted),
            Err(error) => match error.errno() {
                Errno::PERM | Errno::ACCESS | Errno::ROFS => Ok(Self::Own(owner)),
                errno if is_absence(errno) => Ok(Self::Own(owner)),
                _ => Err(error),
            },
        }
    }

    /// Whether a mark on a file with these attributes is trusted.
    pub fn marks(self, attr: &Attr) -> bool {
        match self {
            Self::Trusted => true,
            Self::Own(owner) => attr.uid == owner,
        }
    }

    fn name(self) -> &'static OsStr {
        match self {
            Self::Trusted => OsStr::new(TRUSTED_NAME),
            Self::Own(_) => OsStr::new(USER_NAME),
        }
    }
}

/// A marked copy, which has not received all names of its original.
pub struct Unfinished {
    pub(super) copy: Ino,
    /// The names of the copy that were found.
    pub(super) paths: Vec<PathBuf>,
}

impl Unfinished {
    /// Whether all names of the copy were found.
    fn has_all_names(&self, copy: &Attr) -> bool {
        copy.links as usize == self.paths.len()
    }
}

impl Conversion {
    /// Durably records the original on a copy.
    pub(super) fn mark_copy(&self, copy: Ino, original: Ino) -> Result<()> {
        let (lower, name, value) = (&*self.lower, self.marking.name(), original.0.to_le_bytes());
        self.with_right_to_write(copy, &|| {
            lower.setxattr(&self.request, copy, name, &value, XattrMode::empty())
        })?;
        contents::sync(lower, &self.request, copy)
    }

    /// Removes the mark; the file is independent from now on.
    pub(super) fn unmark(&self, copy: Ino) -> Result<()> {
        self.with_right_to_write(copy, &|| match self.lower.removexattr(
            &self.request,
            copy,
            self.marking.name(),
        ) {
            Err(error) if is_absence(error.errno()) => Ok(()),
            answer => answer,
        })
    }

    /// Returns the original of a marked copy, if the mark is trusted.
    pub(super) fn origin(&self, attr: &Attr) -> Result<Option<Ino>> {
        if !self.marking.marks(attr) {
            return Ok(None);
        }
        match self.lower.getxattr(&self.request, attr.ino, self.marking.name()) {
            Ok(value) => Ok(value.try_into().ok().map(|bytes| Ino(u64::from_le_bytes(bytes)))),
            Err(error) if is_absence(error.errno()) => Ok(None),
            // This user can't read the file, so it is not a copy that a run of this user made.
            Err(error) if error.errno() == Errno::ACCESS => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records a name of a marked copy. An original has only one copy, so the mark is removed from
    /// any other file that names the same original.
    pub(super) fn note_unfinished(
        &self,
        unfinished: &mut HashMap<Ino, Unfinished>,
        origin: Ino,
        copy: Ino,
        path: &Path,
    ) -> Result<()> {
        match unfinished.entry(origin) {
            Entry::Vacant(entry) => {
                entry.insert(Unfinished { copy, paths: vec![path.to_owned()] });
            }
            Entry::Occupied(mut entry) if entry.get().copy == copy => {
                entry.get_mut().paths.push(path.to_owned());
            }
            Entry::Occupied(_) => self.unmark(copy)?,
        }
        Ok(())
    }

    /// Looks up the copy of an interrupted run, if it is exactly what this run would make.
    /// Otherwise a user may have changed it, and the two files are treated as independent.
    pub(super) fn take_up(&self, attr: &Attr, found: &Unfinished) -> Kept<Option<Ino>> {
        let Some(copy) = self.find_copy(found)? else { return Ok(None) };
        let made = self.lower.getattr(&self.request, copy, None)?;
        let fits = if found.has_all_names(&made) { self.fits(attr, copy) } else { Ok(false) };
        let taken = fits.and_then(|fits| match fits {
            true => Ok(Some(copy)),
            false => Ok(self.unmark(copy).map(|()| None)?),
        });
        if !matches!(taken, Ok(Some(_))) {
            self.lower.forget(copy, 1);
        }
        taken
    }

    /// Gives the names of a copy back to its original, if a run of the other direction made the
    /// copy and was interrupted. The original then already has the form that this run makes.
    /// Returns whether the original has the names. If not, the two files are independent.
    pub(super) fn give_names_back(
        &self,
        (path, original): (&Path, Ino),
        found: &Unfinished,
    ) -> Kept<bool> {
        let (parent, ino) = self.find(path)?;
        self.give_back(parent);
        let given = match ino == original {
            true => self.give_names_to(original, found),
            false => Ok(false),
        };
        self.lower.forget(ino, 1);
        given
    }

    fn give_names_to(&self, original: Ino, found: &Unfinished) -> Kept<bool> {
        if !self.is_as_made(&self.lower.getattr(&self.request, original, None)?)? {
            return Ok(false);
        }
        let Some(copy) = self.find_copy(found)? else { return Ok(false) };
        let given = self.give_names_of(copy, original, found).and_then(|is_given| match is_given {
            true => Ok(true),
            false => Ok(self.unmark(copy).map(|()| false)?),
        });
        self.lower.forget(copy, 1);
        given
    }

    fn give_names_of(&self, copy: Ino, original: Ino, found: &Unfinished) -> Kept<bool> {
        let stored = match self.direction {
            Direction::Encode => original,
            Direction::Decode => copy,
        };
        self.layered.getattr(&self.request, stored, None)?;
        let attr = self.lower.getattr(&self.request, copy, None)?;
        if !found.has_all_names(&attr) {
            return Ok(false);
        }
        let lease = self.lease(&attr)?;
        if !self.fits(&attr, original)? {
            return Ok(false);
        }
        let named = self.give_names(&attr, original, &found.paths, lease.as_ref());
        self.tidied(self.remove_own_names(copy, &found.paths, named.is_ok()));
        named.map(|()| true)
    }

    /// Looks up a copy by its path, which may now refer to another file.
    fn find_copy(&self, found: &Unfinished) -> Result<Option<Ino>> {
        let (parent, ino) = match self.find(&found.paths[0]) {
            Err(error) if error.errno() == Errno::NOENT => return Ok(None),
            found => found?,
        };
        self.give_back(parent);
        if ino == found.copy {
            return Ok(Some(ino));
        }
        self.lower.forget(ino, 1);
        Ok(None)
    }

    /// Whether `copy` is exactly what this run would make of the file with the attributes `attr`.
    fn fits(&self, attr: &Attr, copy: Ino) -> Kept<bool> {
        let made = self.lower.getattr(&self.request, copy, None)?;
        let fits = copy != attr.ino
            && has_attributes_of(&made, attr)
            && self.kept_xattrs(copy)? == self.kept_xattrs(attr.ino)?
            && self.is_as_made(&made)?;
        if !fits {
            return Ok(false);
        }
        // Permissions do not exclude writers, because a process may still have the copy open for
        // writing. The lease detects this.
        match self.lease(&made).and_then(|_lease| self.compare(attr, copy, &|_, _| {})) {
            Ok(()) => Ok(true),
            Err(Why::InUse | Why::Changed | Why::Differs { .. }) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Whether a file has the form that this run makes, stored or plain.
    fn is_as_made(&self, made: &Attr) -> Kept<bool> {
        match self.is_stored(made) {
            Ok(is_stored) => Ok(is_stored == (self.direction == Direction::Encode)),
            // The copy was damaged or overwritten.
            Err(Why::Failed(fslab_vfs::Error::Damaged { .. }) | Why::Unrecorded) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the mark of a copy that has all its names, because its original no longer exists.
    pub(super) fn forget_origin(&self, found: &Unfinished) -> Result<()> {
        let Some(copy) = self.find_copy(found)? else { return Ok(()) };
        let done = self.unmark(copy);
        self.lower.forget(copy, 1);
        done
    }

    /// Removes a temporary name left by an interrupted run. It refers to a copy that never had
    /// another name, or to an original. An original may have been written to after its name was
    /// given to the copy. So the name is removed only if another file in the directory has the same
    /// content.
    ///
    /// The temporary name contains the inode number of the original, which has its own name in the
    /// same directory. If no file there has that number, the temporary name has no meaning, because
    /// the tree was moved or the original no longer exists.
    pub(super) fn remove_left(
        &self,
        directory: Ino,
        (name, ino): (&OsStr, Ino),
        beside: &[(OsString, Attr)],
    ) -> Kept<()> {
        let attr = self.lower.getattr(&self.request, ino, None)?;
        let is_original =
            |(own, attr): &(OsString, Attr)| !is_copy_name(own) && copy_name(attr.ino) == name;
        let is_only_here = attr.links == 1 && !beside.iter().any(is_original);
        if is_only_here && !self.is_among(&attr, beside)? {
            return Err(Why::Original);
        }
        self.note_times(directory)?;
        Ok(self.remove_if(directory, name, ino)?)
    }

    /// Whether one of `files` has the content and attributes of the file that `attr` describes.
    /// Each file may be plain or stored.
    fn is_among(&self, attr: &Attr, files: &[(OsString, Attr)]) -> Kept<bool> {
        let (_lease, xattrs) = (self.lease(attr)?, self.kept_xattrs(attr.ino)?);
        for (name, other) in files {
            let is_candidate = !is_copy_name(name) && has_attributes_of(other, attr);
            if !is_candidate || self.kept_xattrs(other.ino)? != xattrs {
                continue;
            }
            match self.compare_contents(attr.ino, other.ino) {
                Ok(()) => return Ok(true),
                Err(Why::Differs { .. }) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(false)
    }
}

/// Whether a file has the attributes that a copy receives from its original, except for xattrs.
fn has_attributes_of(file: &Attr, original: &Attr) -> bool {
    let key = |attr: &Attr| (attr.kind, attr.uid, attr.gid, attr.permissions, attr.modified);
    file.kind == FileKind::Regular && key(file) == key(original)
}
