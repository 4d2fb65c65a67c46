//! Inode flags that protect a file from changes.

use crate::error::{Errno, Result};
use crate::file_attr::FileAttr;
use crate::file_system::FileSystem;
use crate::types::{Ino, Request};

impl FileAttr {
    /// Refuses attributes that would set or clear the immutable or append-only flag.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for such a change; errors of `file_system` when reading the current flags.
    pub fn refuse_change_of_protection(
        &self,
        file_system: &dyn FileSystem,
        request: &Request,
        ino: Ino,
    ) -> Result<()> {
        let now = file_system.fileattr_get(request, ino, self.form())?.flags();
        let changed = now ^ self.flags();
        let is_protection = changed & (Self::IMMUTABLE | Self::APPEND) != 0;
        if is_protection { Err(Errno::OPNOTSUPP.into()) } else { Ok(()) }
    }
}
