//! Reads and changes inode attributes, including side effects. For example, a write clears set-id
//! bits.

use std::ffi::OsStr;

use fslab_vfs::rules::acl::{self, Acl};
use fslab_vfs::rules::namespace::{Namespace, VALUE_BYTES_MAX};
use fslab_vfs::rules::{self, set_id};
use fslab_vfs::{
    Attr, Errno, FileKind, Ino, Permissions, Request, SetAttr, SetTime, Timestamp, XattrMode,
};

use crate::error::Result;
use crate::format::INODE_NO_ACCESS_TIME;
use crate::inode::Inode;
use crate::inode_flags::check_changeable;
use crate::types::InodeNo;
use crate::volume::Volume;

impl Volume {
    /// Returns the attributes that `stat` shows.
    pub(crate) fn attr(&self, ino: Ino, inode: &Inode) -> Attr {
        Attr {
            ino,
            number: ino.0,
            size: inode.size,
            is_size_known: true,
            blocks: inode.sectors.into(),
            block_size: self.block_size().bytes_u32(),
            kind: inode.kind,
            permissions: inode.permissions,
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            device: inode.device(),
            accessed: inode.accessed,
            modified: inode.modified,
            changed: inode.changed,
            created: inode.created,
        }
    }

    /// Applies changes in the order size, owner, permissions, times; later changes override effects
    /// of earlier ones. A new size also sets the file's times. A new size or owner may clear set-id
    /// bits.
    pub(crate) fn set_attributes(
        &mut self,
        request: &Request,
        no: InodeNo,
        changes: &SetAttr,
    ) -> Result<()> {
        self.begin(request)?;
        let mut inode = self.inode(no)?;
        check_changeable(&inode)?;
        if let Some(size) = changes.size {
            self.resize(request, &mut inode, size, changes.kill_set_id)?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            // The new owner must not get set-id bits that the old owner set. Directories keep these
            // bits, because there they only control inheritance.
            if inode.kind != FileKind::Directory {
                self.drop_privileges(&mut inode, request, false)?;
                let before = inode.permissions;
                inode.permissions = set_id::after_change_of_owner(before, inode.gid, request);
            }
            inode.uid = changes.uid.unwrap_or(inode.uid);
            inode.gid = changes.gid.unwrap_or(inode.gid);
        }
        if let Some(permissions) = changes.permissions {
            self.change_permissions(&mut inode, permissions)?;
        }
        change_time(&mut inode.accessed, changes.accessed, request.now);
        change_time(&mut inode.modified, changes.modified, request.now);
        if *changes != (SetAttr { kill_set_id: changes.kill_set_id, ..SetAttr::default() }) {
            inode.changed = request.now;
        }
        self.store_inode(&inode)
    }

    /// Sets the size of a regular file.
    pub(crate) fn resize(
        &mut self,
        request: &Request,
        inode: &mut Inode,
        size: u64,
        kill_set_id: bool,
    ) -> Result<()> {
        check_regular(inode)?;
        let answer = self.truncate(inode, size);
        // Store the inode even after a failure: the truncation may have freed some blocks already,
        // and the inode no longer maps them.
        self.store_inode(inode)?;
        answer?;
        self.drop_privileges(inode, request, kill_set_id)?;
        (inode.modified, inode.changed) = (request.now, request.now);
        Ok(())
    }

    /// Changes the permission bits and the access ACL. The kernel has already checked whether the
    /// set-group-ID bit is allowed, because only it knows all groups of the caller.
    fn change_permissions(&mut self, inode: &mut Inode, permissions: Permissions) -> Result<()> {
        if inode.kind == FileKind::Symlink {
            return Err(Errno::OPNOTSUPP.into());
        }
        let name = OsStr::new(acl::ACCESS);
        if self.may_have_xattrs(inode)?
            && let Some(bytes) = self.xattr(inode, name)?
            && let Some(access) = Acl::parse(&bytes)?
        {
            let value = access.with_mode(permissions).to_bytes();
            self.set_xattr(inode, name, &value, XattrMode::empty())?;
        }
        inode.permissions = permissions;
        Ok(())
    }

    /// Removes the privileges of a file whose content or owner changes. File capabilities are
    /// always removed. Set-id bits are cleared if `kill_set_id` is set and the caller may not keep
    /// them.
    pub(crate) fn drop_privileges(
        &mut self,
        inode: &mut Inode,
        request: &Request,
        kill_set_id: bool,
    ) -> Result<()> {
        if self.may_have_xattrs(inode)? {
            self.remove_xattr(inode, OsStr::new(rules::CAPABILITY))?;
        }
        if kill_set_id {
            inode.permissions = set_id::after_change(inode.permissions, inode.gid, request);
        }
        Ok(())
    }

    /// Sets an extended attribute. An access ACL also changes the permission bits.
    pub(crate) fn change_xattr(
        &mut self,
        request: &Request,
        no: InodeNo,
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
        self.begin(request)?;
        let mut inode = self.inode(no)?;
        check_changeable(&inode)?;
        namespace.check_kind(inode.kind)?;
        // An ACL is not stored if it is empty or equivalent to the permission bits.
        let stored = match namespace {
            Namespace::AccessAcl => {
                let (permissions, stored) = acl::set_access(inode.permissions, value)?;
                inode.permissions = permissions;
                stored
            }
            Namespace::DefaultAcl => acl::set_default(inode.kind, value)?,
            _ => Some(value.to_vec()),
        };
        let mode = if namespace.is_acl() { XattrMode::empty() } else { mode };
        match stored {
            Some(value) => self.set_xattr(&mut inode, name, &value, mode)?,
            None => drop(self.remove_xattr(&mut inode, name)?),
        }
        if kill_set_group_id {
            let bits = inode.permissions.bits() & !Permissions::SET_GID;
            inode.permissions = Permissions::new(bits);
        }
        inode.changed = request.now;
        self.store_inode(&inode)
    }

    /// Removes an extended attribute. As in the kernel, removing a missing ACL succeeds.
    pub(crate) fn drop_xattr(
        &mut self,
        request: &Request,
        no: InodeNo,
        name: &OsStr,
    ) -> Result<()> {
        let namespace = Namespace::of(name)?;
        self.begin(request)?;
        let mut inode = self.inode(no)?;
        check_changeable(&inode)?;
        namespace.check_kind(inode.kind)?;
        if !self.remove_xattr(&mut inode, name)? && !namespace.is_acl() {
            return Err(Errno::NODATA.into());
        }
        inode.changed = request.now;
        self.store_inode(&inode)
    }

    /// Updates the access time. A failure is only logged, because the read itself succeeded.
    pub(crate) fn touch_access(&mut self, no: InodeNo, request: &Request) {
        if self.options.read_only {
            return;
        }
        let answer = self.store_access(no, request);
        if let Err(error) = self.trouble.clone().see(answer) {
            tracing::warn!("can't record the access time of inode {no}: {error}");
        }
    }

    /// Whether an access at the time `now` must update the access time.
    pub(crate) fn access_is_due(&self, inode: &Inode, now: Timestamp) -> bool {
        let changed = inode.modified.max(inode.changed);
        let is_noted = inode.flags & INODE_NO_ACCESS_TIME == 0;
        is_noted && self.options.access_times.is_due(inode.kind, inode.accessed, changed, now)
    }

    fn store_access(&mut self, no: InodeNo, request: &Request) -> Result<()> {
        self.begin(request)?;
        let mut inode = self.inode(no)?;
        inode.accessed = request.now;
        self.store_inode(&inode)
    }
}

/// Fails unless the inode is a regular file, with the errno that `read` and `write` return.
pub(crate) fn check_regular(inode: &Inode) -> Result<()> {
    match inode.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Errno::ISDIR.into()),
        _ => Err(Errno::INVAL.into()),
    }
}

fn change_time(time: &mut Timestamp, change: Option<SetTime>, now: Timestamp) {
    match change {
        Some(SetTime::Now) => *time = now,
        Some(SetTime::To(given)) => *time = given,
        None => {}
    }
}
