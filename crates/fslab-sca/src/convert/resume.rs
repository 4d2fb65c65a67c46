//! What interrupted runs left: copies that do not have all names of their originals yet, and
//! originals under names of ours.
//!
//! Invariant: no name and no xattr that a user of the tree can set makes one file out of two, or
//! removes what is nowhere else. Root converts trees of others, who set both as they like.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use fslab_vfs::{Attr, Errno, FileKind, FileSystem, Ino, Request, Result, XattrMode};

use super::{Conversion, Direction, Kept, Why, contents, copy_name, is_copy_name};
use crate::lower::is_absence;

/// On a copy, while not all names of the original are its: the inode of the original, in 8 bytes,
/// little-endian. Only who is privileged can set it.
const TRUSTED_NAME: &str = "trusted.fslab.convert";

/// The same of an ordinary user's run.
const USER_NAME: &str = "user.fslab.convert";

/// Whether an xattr is a mark of either kind, which no copy has of its original.
pub fn is_mark(name: &OsStr) -> bool {
    name == TRUSTED_NAME || name == USER_NAME
}

/// How copies are marked that do not have all names of their originals yet.
#[derive(Clone, Copy, Debug)]
pub enum Marking {
    /// By an xattr that users of the tree can't set.
    Trusted,
    /// By one that users set on what they may write to: believed on files of this user only.
    Own(u32),
}

impl Marking {
    /// Finds out what can be set, by setting it on the root for a moment.
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

    /// Whether a mark on a file of this owner is believed.
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

/// A copy that is marked as one that does not have all names of its original yet.
pub struct Unfinished {
    copy: Ino,
    /// One of its names.
    path: PathBuf,
    /// How many of its names were found.
    names: u32,
}

impl Conversion {
    /// Durably says on a copy whose it is.
    pub(super) fn mark_copy(&self, copy: Ino, original: Ino) -> Result<()> {
        let (lower, name, value) = (&*self.lower, self.marking.name(), original.0.to_le_bytes());
        self.with_right_to_write(copy, &|| {
            lower.setxattr(&self.request, copy, name, &value, XattrMode::empty())
        })?;
        contents::sync(lower, &self.request, copy)
    }

    /// A file is one of its own from now on.
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

    /// Whose copy a file says it is that does not have all names yet, if that can be believed.
    pub(super) fn origin(&self, attr: &Attr) -> Result<Option<Ino>> {
        if !self.marking.marks(attr) {
            return Ok(None);
        }
        match self.lower.getxattr(&self.request, attr.ino, self.marking.name()) {
            Ok(value) => Ok(value.try_into().ok().map(|bytes| Ino(u64::from_le_bytes(bytes)))),
            Err(error) if is_absence(error.errno()) => Ok(None),
            // No run of this user can have read the file, nor made it as a copy.
            Err(error) if error.errno() == Errno::ACCESS => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes a name of a marked copy. An original has one copy: another file that says to be it is
    /// none.
    pub(super) fn note_unfinished(
        &self,
        unfinished: &mut HashMap<Ino, Unfinished>,
        origin: Ino,
        copy: Ino,
        path: &Path,
    ) -> Result<()> {
        match unfinished.entry(origin) {
            Entry::Vacant(entry) => {
                entry.insert(Unfinished { copy, path: path.to_owned(), names: 1 });
            }
            Entry::Occupied(mut entry) if entry.get().copy == copy => entry.get_mut().names += 1,
            Entry::Occupied(_) => self.unmark(copy)?,
        }
        Ok(())
    }

    /// Looks the copy up that an interrupted run made, if it is just what this run would make. Else
    /// it is a file of its own, with whatever somebody changed of it, and the original is as well.
    pub(super) fn take_up(&self, attr: &Attr, found: &Unfinished) -> Kept<Option<Ino>> {
        let Some(copy) = self.find_copy(found)? else { return Ok(None) };
        let taken = self.fits(attr, copy, found).and_then(|fits| match fits {
            true => Ok(Some(copy)),
            false => Ok(self.unmark(copy).map(|()| None)?),
        });
        if !matches!(taken, Ok(Some(_))) {
            self.lower.forget(copy, 1);
        }
        taken
    }

    /// Looks a copy up by its path, which may lead to another file by now.
    fn find_copy(&self, found: &Unfinished) -> Result<Option<Ino>> {
        let (parent, ino) = match self.find(&found.path) {
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

    /// Whether a copy is what this run would make of the original.
    fn fits(&self, attr: &Attr, copy: Ino, found: &Unfinished) -> Kept<bool> {
        let made = self.lower.getattr(&self.request, copy, None)?;
        let fits = copy != attr.ino
            && made.links == found.names
            && has_attributes_of(&made, attr)
            && self.kept_xattrs(copy)? == self.kept_xattrs(attr.ino)?
            && self.is_as_made(&made)?;
        if !fits {
            return Ok(false);
        }
        // Who has it open for writing need not be one who may do that now.
        match self.lease(&made).and_then(|_lease| self.compare(attr, copy, &|_, _| {})) {
            Ok(()) => Ok(true),
            Err(Why::InUse | Why::Changed | Why::Differs { .. }) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Whether a file is of the kind that this run makes.
    fn is_as_made(&self, made: &Attr) -> Kept<bool> {
        match self.is_stored(made) {
            Ok(is_stored) => Ok(is_stored == (self.direction == Direction::Encode)),
            // Somebody has damaged it, or written something else into it.
            Err(Why::Failed(fslab_vfs::Error::Damaged { .. }) | Why::Unrecorded) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes the mark of a copy whose original is gone: it has all names there are.
    pub(super) fn forget_origin(&self, found: &Unfinished) -> Result<()> {
        let Some(copy) = self.find_copy(found)? else { return Ok(()) };
        let done = self.unmark(copy);
        self.lower.forget(copy, 1);
        done
    }

    /// Removes a name of ours, with what an interrupted run left there. That is a copy that never
    /// had another name, or an original, which may have been written to when its name was another's
    /// already: this goes only if it is to be found beside, as its copy.
    ///
    /// A copy is named by its original, which has its own name beside it. Where nothing there has
    /// that inode, the name tells nothing: the tree was moved, or the original is gone.
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

    /// Whether one of these files is the same as another, whichever of both is a stored file.
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

/// Whether a file has what a copy has of its original, but for the xattrs.
fn has_attributes_of(file: &Attr, original: &Attr) -> bool {
    let key = |attr: &Attr| (attr.kind, attr.uid, attr.gid, attr.permissions, attr.modified);
    file.kind == FileKind::Regular && key(file) == key(original)
}
