//! The namespaces of extended attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::error::Errno;
use crate::types::FileKind;

use super::acl;

const NAME_BYTES_MAX: usize = 255;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// The class of an attribute name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// `user.`: for files and directories only.
    User,
    /// `trusted.` and `security.`: for every kind of inode.
    Privileged,
    /// A file's own access control list.
    AccessAcl,
    /// The default access control list of a directory.
    DefaultAcl,
}

impl Namespace {
    /// Returns the namespace of a name.
    ///
    /// # Errors
    /// `ERANGE` for a name of invalid length, `EINVAL` for a name that is only a prefix,
    /// `EOPNOTSUPP` for an unknown namespace.
    pub fn of(name: &OsStr) -> Result<Self, Errno> {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX {
            return Err(Errno::RANGE);
        }
        let prefixes: [(&[u8], Self); 3] = [
            (b"user.", Self::User),
            (b"trusted.", Self::Privileged),
            (b"security.", Self::Privileged),
        ];
        for (prefix, namespace) in prefixes {
            match bytes.strip_prefix(prefix) {
                Some(b"") => return Err(Errno::INVAL),
                Some(_) => return Ok(namespace),
                None => {}
            }
        }
        match name.to_str() {
            Some(acl::ACCESS) => Ok(Self::AccessAcl),
            Some(acl::DEFAULT) => Ok(Self::DefaultAcl),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Whether its attributes are access control lists.
    #[must_use]
    pub fn is_acl(self) -> bool {
        matches!(self, Self::AccessAcl | Self::DefaultAcl)
    }

    /// Whether inodes of this kind may have attributes of the namespace.
    ///
    /// # Errors
    /// `EPERM` or `EOPNOTSUPP`, as in the kernel.
    pub fn check_kind(self, kind: FileKind) -> Result<(), Errno> {
        match (self, kind) {
            (Self::User, FileKind::Regular | FileKind::Directory) => Ok(()),
            (Self::User, _) => Err(Errno::PERM),
            (Self::AccessAcl | Self::DefaultAcl, FileKind::Symlink) => Err(Errno::OPNOTSUPP),
            _ => Ok(()),
        }
    }
}
