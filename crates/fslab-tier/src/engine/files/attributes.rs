//! What is kept of a file beside its bytes.

use std::ffi::OsStr;

use fslab_vfs::{Attr, FileKind, Ino};

use crate::engine::Tier;
use crate::error::{Error, Result};
use crate::lower::xattr_names;
use crate::stored::format::ATTRIBUTES_BYTES_MAX;
use crate::stored::{Attributes, marks};

impl Tier {
    /// What is kept of a file beside its bytes.
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
            let why = "has more xattrs than an archive takes (512 KiB)";
            return Err(Error::NotNow { path: crate::error::shown(path), why });
        }
        Ok(attributes)
    }

    /// The value of an xattr as programs see it.
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
                    // It was removed meanwhile.
                    Err(error) if error.errno() == fslab_vfs::Errno::NODATA => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(xattrs)
    }
}
