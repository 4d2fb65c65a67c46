//! Extended attributes, with the kernel's limits and errors.
//!
//! A value may have up to 64 KiB, and all values of an inode up to 1 MiB together. ext4 returns
//! `ENOSPC` earlier, because it limits each value to about one block or one additional inode.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::error::{Errno, Result};
use crate::rules::acl;
use crate::rules::namespace::{Namespace, VALUE_BYTES_MAX};
use crate::types::{Ino, Permissions, Request, XattrMode};

use super::node::Node;
use super::tree::Tree;

impl Tree {
    pub fn getxattr(&self, _: &Request, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        let node = self.node(ino)?;
        if let namespace @ (Namespace::AccessAcl | Namespace::DefaultAcl) = Namespace::of(name)? {
            namespace.check_kind(node.kind)?;
        }
        node.xattrs.get(name).cloned().ok_or_else(|| Errno::NODATA.into())
    }

    pub fn listxattr(&self, _: &Request, ino: Ino) -> Result<Vec<u8>> {
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
            _ => node.set_xattr(name, value, mode)?,
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
        // Removing a missing ACL succeeds, as in the kernel.
        if node.xattrs.remove(name).is_none() && !namespace.is_acl() {
            return Err(Errno::NODATA.into());
        }
        node.changed = request.now;
        Ok(())
    }
}

fn set_access_acl(node: &mut Node, value: &[u8]) -> Result<()> {
    let (permissions, stored) = acl::set_access(node.permissions, value)?;
    node.permissions = permissions;
    store(node, acl::ACCESS, stored);
    Ok(())
}

fn set_default_acl(node: &mut Node, value: &[u8]) -> Result<()> {
    let stored = acl::set_default(node.kind, value)?;
    store(node, acl::DEFAULT, stored);
    Ok(())
}

fn store(node: &mut Node, name: &str, value: Option<Vec<u8>>) {
    match value {
        Some(value) => node.xattrs.insert(name.into(), value),
        None => node.xattrs.remove(OsStr::new(name)),
    };
}
