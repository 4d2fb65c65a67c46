//! Pinning: an xattr on a file that prevents its release, regardless of the policy.

use std::ffi::OsStr;

use fslab_vfs::{Attr, Errno, FileSystem, Ino, Result, XattrMode};

use crate::engine::Tier;

/// The xattr of a pinned file.
pub const PIN_NAME: &str = "user.fslab.pin";

impl Tier {
    /// Pins or unpins a file.
    pub(crate) fn set_pinned(&self, ino: Ino, is_pinned: bool) -> Result<()> {
        let (request, name) = (self.request(), OsStr::new(PIN_NAME));
        if is_pinned {
            return self.lower.setxattr(&request, ino, name, b"1", XattrMode::empty());
        }
        match self.lower.removexattr(&request, ino, name) {
            Err(error) if error.errno() == Errno::NODATA => Ok(()),
            done => done,
        }
    }

    /// Returns whether a file is pinned. A file whose xattr can't be read counts as pinned.
    pub(crate) fn is_pinned(&self, attr: &Attr) -> bool {
        self.users_xattr(attr, PIN_NAME).map_or(true, |value| value.is_some())
    }
}
