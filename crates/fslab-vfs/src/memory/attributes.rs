//! Changes attributes: size, owner, permissions and times.

use std::ffi::OsStr;

use crate::error::{Errno, Result};
use crate::rules::acl::{self, Acl};
use crate::rules::set_id;
use crate::types::{
    Attr, FileKind, Handle, Ino, Permissions, Request, SetAttr, SetTime, Timestamp,
};

use super::node::Node;
use super::tree::Tree;

impl Tree {
    /// Applies the changes in the order size, owner, permissions, times. A later change overrides
    /// side effects of earlier ones: a new size or owner may set times and clear set-id bits.
    pub fn setattr(
        &mut self,
        request: &Request,
        ino: Ino,
        _: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        if let Some(size) = changes.size {
            self.truncate(ino, size, request, changes.kill_set_id)?;
        }
        let node = self.node_mut(ino)?;
        if changes.uid.is_some() || changes.gid.is_some() {
            change_owner(request, node, changes);
        }
        if let Some(permissions) = changes.permissions {
            change_permissions(node, permissions)?;
        }
        change_time(&mut node.accessed, changes.accessed, request.now);
        change_time(&mut node.modified, changes.modified, request.now);
        if *changes != (SetAttr { kill_set_id: changes.kill_set_id, ..SetAttr::default() }) {
            node.changed = request.now;
        }
        Ok(node.attr(ino))
    }

    pub fn truncate(
        &mut self,
        ino: Ino,
        size: u64,
        request: &Request,
        kill_set_id: bool,
    ) -> Result<()> {
        let node = self.nodes.get_mut(&ino).ok_or(crate::Error::Stale { ino })?;
        node.data_mut()?.truncate(&mut self.space, size)?;
        node.drop_privileges(request, kill_set_id);
        node.touch_contents(request.now);
        Ok(())
    }

    /// Updates the access time if an update is due.
    pub fn touch_access(&mut self, ino: Ino, now: Timestamp) {
        let choice = self.access_times;
        let node = self.nodes.get_mut(&ino);
        if let Some(node) = node.filter(|node| node.access_is_due(choice, now)) {
            node.accessed = now;
        }
    }
}

/// Changes the owner. The set-id bits of the old owner are cleared, except on directories, where
/// they control inheritance.
fn change_owner(request: &Request, node: &mut Node, changes: &SetAttr) {
    if node.kind != FileKind::Directory {
        node.drop_privileges(request, false);
        node.permissions = set_id::after_change_of_owner(node.permissions, node.gid, request);
    }
    node.uid = changes.uid.unwrap_or(node.uid);
    node.gid = changes.gid.unwrap_or(node.gid);
}

/// Changes permissions. The sender, which knows all groups, has checked whether the caller may set
/// the set-group-id bit.
fn change_permissions(node: &mut Node, permissions: Permissions) -> Result<()> {
    if node.kind == FileKind::Symlink {
        return Err(Errno::OPNOTSUPP.into());
    }
    node.permissions = permissions;
    if let Some(bytes) = node.xattrs.get_mut(OsStr::new(acl::ACCESS))
        && let Some(access) = Acl::parse(bytes)?
    {
        *bytes = access.with_mode(permissions).to_bytes();
    }
    Ok(())
}

fn change_time(time: &mut Timestamp, change: Option<SetTime>, now: Timestamp) {
    match change {
        Some(SetTime::Now) => *time = now,
        Some(SetTime::To(given)) => *time = given,
        None => {}
    }
}
