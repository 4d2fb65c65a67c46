//! Attributes of files: those that are archived with a file, and those that the mount shows.

use std::ffi::OsStr;

use fslab_vfs::{Attr, FileKind, Ino};

use crate::engine::Tier;
use crate::error::{Error, Result};
use crate::lower::xattr_names;
use crate::stored::StoredResidency;
use crate::stored::format::ATTRIBUTES_BYTES_MAX;
use crate::stored::residency::{ReadResidency, Unreadable};
use crate::stored::{Attributes, Residency, marks};

impl Tier {
    /// Returns the attributes that are archived together with a file's bytes.
    pub(in crate::engine) fn attributes(&self, attr: &Attr, path: &[u8]) -> Result<Attributes> {
        let shown = self.root.shown(attr.clone());
        let mut attributes = Attributes { path: path.to_vec(), ..Attributes::of(&shown) };
        let below = || Error::below(path);
        if attr.kind == FileKind::Symlink {
            let target = self.lower.readlink(&self.request(), attr.ino).map_err(below())?;
            attributes.target = target.into_encoded_bytes();
        }
        attributes.xattrs = self.xattrs(attr.ino).map_err(below())?;
        let bytes: usize =
            attributes.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes + path.len() + attributes.target.len() > ATTRIBUTES_BYTES_MAX / 2 {
            let why = "has more xattrs than an archive accepts (512 KiB)";
            return Err(Error::NotNow { path: crate::error::shown(path), why });
        }
        Ok(attributes)
    }

    /// Returns the value of an xattr as programs see it.
    pub(crate) fn shown_xattr(&self, ino: Ino, name: &OsStr, value: Vec<u8>) -> Vec<u8> {
        if ino == Ino::ROOT { self.root.xattr_shown(name, value) } else { value }
    }

    fn xattrs(&self, ino: Ino) -> fslab_vfs::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let request = self.request();
        let mut xattrs = Vec::new();
        for name in xattr_names(&*self.lower, &request, ino)? {
            if !marks::is_ours(&name) {
                match self.lower.getxattr(&request, ino, &name) {
                    Ok(value) => {
                        let value = self.shown_xattr(ino, &name, value);
                        xattrs.push((name.into_encoded_bytes(), value));
                    }
                    // The xattr was removed after the names were listed.
                    Err(error) if error.errno() == fslab_vfs::Errno::NODATA => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(xattrs)
    }

    /// Returns the attributes of an inode as the mount shows them. A file with offline bytes is
    /// shown with at least one block. If the engine was killed during a recall and left a wrong
    /// modification time, the right time is shown.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn shown(&self, attr: Attr) -> fslab_vfs::Result<Attr> {
        let may_seem_empty = attr.size > 0 && attr.blocks == 0;
        if attr.kind != FileKind::Regular || !(may_seem_empty || self.is_in_doubt()) {
            return Ok(self.root().shown(attr));
        }
        // A compact residency is not expanded, because the time of such a file is right.
        if self.in_use(attr.ino).is_none()
            && let Ok(Some(StoredResidency::Compact(_))) = self.stored_below(attr.ino)
        {
            return Ok(Attr { blocks: attr.blocks.max(1), ..attr });
        }
        match self.residency_of(&attr) {
            Ok(None) => Ok(attr),
            Ok(Some(known)) => Ok(with_residency(attr, &known)),
            // At least one block is shown, because archivers treat a file without blocks as a
            // single hole.
            Err(Unreadable::Corrupt(_) | Unreadable::UnknownObject(_)) => {
                Ok(Attr { blocks: attr.blocks.max(1), ..attr })
            }
            Err(Unreadable::Below(error)) => Err(error),
        }
    }

    /// Returns the present residency of an inode. A residency copied from another file (for example
    /// by `rsync -X`, or by `cp -a` as root) is ignored unless it records offline blocks.
    pub(crate) fn residency_of(&self, attr: &Attr) -> ReadResidency {
        let known = match self.in_use(attr.ino) {
            Some(file) => self.present_residency(&file),
            None => self.residency_below(attr.ino),
        };
        Ok(known?.filter(|known| self.means_something(known, attr)))
    }
}

fn with_residency(attr: Attr, known: &Residency) -> Attr {
    let is_unavailable = !known.offline.is_empty() && attr.size > 0;
    let was_moving = known.moving && attr.size == known.version.size;
    let blocks = if is_unavailable { attr.blocks.max(1) } else { attr.blocks };
    let modified = if was_moving { known.version.modified } else { attr.modified };
    Attr { blocks, modified, ..attr }
}
