//! Extended attributes, with the kernel's bounds and errors.
//!
//! One value may have 64 KiB and all values of an inode 1 MiB together. (ext4 has room for about
//! one block or one further inode each; its `ENOSPC` comes earlier.)

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::error::{Errno, Result};
use crate::types::{FileKind, Ino, Permissions, Request, XattrMode};

use super::acl::{self, Acl};
use super::node::Node;
use super::tree::Tree;

const NAME_BYTES_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 64 << 10;
const TOTAL_BYTES_MAX: usize = 1 << 20;

/// How a name is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Namespace {
    /// For files and directories only.
    User,
    /// `trusted.` and `security.`: for every kind.
    Privileged,
    AccessAcl,
    DefaultAcl,
}

impl Namespace {
    fn of(name: &OsStr) -> Result<Self> {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX {
            return Err(Errno::RANGE.into());
        }
        let prefixes: [(&[u8], Self); 3] = [
            (b"user.", Self::User),
            (b"trusted.", Self::Privileged),
            (b"security.", Self::Privileged),
        ];
        for (prefix, namespace) in prefixes {
            match bytes.strip_prefix(prefix) {
                Some(b"") => return Err(Errno::INVAL.into()),
                Some(_) => return Ok(namespace),
                None => {}
            }
        }
        match name.to_str() {
            Some(acl::ACCESS) => Ok(Self::AccessAcl),
            Some(acl::DEFAULT) => Ok(Self::DefaultAcl),
            _ => Err(Errno::OPNOTSUPP.into()),
        }
    }

    fn is_acl(self) -> bool {
        matches!(self, Self::AccessAcl | Self::DefaultAcl)
    }

    /// Whether inodes of this kind may have attributes of the namespace.
    fn check_kind(self, kind: FileKind) -> Result<()> {
        match (self, kind) {
            (Self::User, FileKind::Regular | FileKind::Directory) => Ok(()),
            (Self::User, _) => Err(Errno::PERM.into()),
            (Self::AccessAcl | Self::DefaultAcl, FileKind::Symlink) => Err(Errno::OPNOTSUPP.into()),
            _ => Ok(()),
        }
    }
}

impl Tree {
    pub fn getxattr(&self, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        let node = self.node(ino)?;
        if let namespace @ (Namespace::AccessAcl | Namespace::DefaultAcl) = Namespace::of(name)? {
            namespace.check_kind(node.kind)?;
        }
        node.xattrs.get(name).cloned().ok_or_else(|| Errno::NODATA.into())
    }

    pub fn listxattr(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        for name in self.node(ino)?.xattrs.keys() {
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        Ok(names)
    }

    pub fn setxattr(
        &mut self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let kill_set_group_id = mode.contains(XattrMode::KILL_SET_GROUP_ID);
        let mode = mode - XattrMode::KILL_SET_GROUP_ID;
        if !(XattrMode::CREATE | XattrMode::REPLACE).contains(mode) {
            return Err(Errno::INVAL.into());
        }
        let namespace = Namespace::of(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Errno::TOOBIG.into());
        }
        let node = self.node_mut(ino)?;
        namespace.check_kind(node.kind)?;
        match namespace {
            Namespace::AccessAcl => set_access_acl(node, value)?,
            Namespace::DefaultAcl => set_default_acl(node, value)?,
            _ => set_plain(node, name, value, mode)?,
        }
        if kill_set_group_id {
            let bits = node.permissions.bits() & !Permissions::SET_GID;
            node.permissions = Permissions::new(bits);
        }
        node.changed = request.now;
        Ok(())
    }

    pub fn removexattr(&mut self, request: &Request, ino: Ino, name: &OsStr) -> Result<()> {
        let namespace = Namespace::of(name)?;
        let node = self.node_mut(ino)?;
        namespace.check_kind(node.kind)?;
        // Removing a list that is not there succeeds, as in the kernel.
        if node.xattrs.remove(name).is_none() && !namespace.is_acl() {
            return Err(Errno::NODATA.into());
        }
        node.changed = request.now;
        Ok(())
    }
}

/// Gives a new inode the attributes that security modules want on it.
pub(super) fn label(node: &mut Node, labels: &[(OsString, Vec<u8>)]) -> Result<()> {
    labels.iter().try_for_each(|(name, value)| match Namespace::of(name)? {
        Namespace::Privileged => set_plain(node, name, value, XattrMode::empty()),
        _ => Err(Errno::OPNOTSUPP.into()),
    })
}

fn set_plain(node: &mut Node, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
    let present = node.xattrs.get(name).map(Vec::len);
    match present {
        Some(_) if mode.contains(XattrMode::CREATE) => return Err(Errno::EXIST.into()),
        None if mode.contains(XattrMode::REPLACE) => return Err(Errno::NODATA.into()),
        _ => {}
    }
    let others: usize =
        node.xattrs.values().map(Vec::len).sum::<usize>() - present.unwrap_or_default();
    if others + value.len() > TOTAL_BYTES_MAX {
        return Err(Errno::NOSPC.into());
    }
    node.xattrs.insert(name.to_owned(), value.to_vec());
    Ok(())
}

/// A list that says no more than mode bits becomes mode bits; an empty one is removed. The kernel
/// ignores the create and replace flags here.
fn set_access_acl(node: &mut Node, value: &[u8]) -> Result<()> {
    let access = if value.is_empty() { None } else { Acl::parse(value)? };
    let Some(access) = access else {
        node.xattrs.remove(OsStr::new(acl::ACCESS));
        return Ok(());
    };
    let bits = (node.permissions.bits() & !0o777) | access.mode_bits();
    node.permissions = Permissions::new(bits);
    if access.is_plain_mode() {
        node.xattrs.remove(OsStr::new(acl::ACCESS));
    } else {
        node.xattrs.insert(acl::ACCESS.into(), access.to_bytes());
    }
    Ok(())
}

/// Whether the list makes sense is looked at only where there can be one, as in the kernel.
fn set_default_acl(node: &mut Node, value: &[u8]) -> Result<()> {
    let decoded = if value.is_empty() { None } else { Acl::decode(value)? };
    match decoded {
        Some(_) if node.kind != FileKind::Directory => return Err(Errno::ACCESS.into()),
        Some(default) => {
            node.xattrs.insert(acl::DEFAULT.into(), default.checked()?.to_bytes());
        }
        None => {
            node.xattrs.remove(OsStr::new(acl::DEFAULT));
        }
    }
    Ok(())
}
