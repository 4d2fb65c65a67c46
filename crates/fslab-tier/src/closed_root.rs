//! Closes the root directory of a tree to programs that do not use the mount.
//!
//! In the lower directory, a released file is a hole or poison. A program that reads it there gets
//! zeros or the poison text, without an error. So only the root user may enter the root directory
//! of a tier's tree. The directory has mode 0400, and an xattr keeps the mode that the mount shows.
//! The directory remains closed whether the tree is mounted or not, so nothing depends on a clean
//! shutdown of the daemon.
//!
//! An engine of the root user enters a closed directory by its capabilities. The engine of an
//! ordinary user lacks them. So the root directory of an ordinary user's tree has mode 0700 while
//! the engine works, and 0400 after a clean shutdown.
//!
//! Invariant: the xattr with the mode is durable before the root directory is closed. The directory
//! is durably open again before the xattr is removed. A mode other than 0400 and 0700 was set by
//! the directory's owner, and is kept from then on.

use std::ffi::OsStr;

use fslab_vfs::rules::acl::{self, Acl};
use fslab_vfs::{
    Attr, Errno, FileSystem, Handle, Ino, Permissions, Request, Result, SetAttr, XattrMode,
};
use parking_lot::Mutex;

use crate::lower::own_request;
use crate::stored::Marks;
use crate::stored::marks::{sync_root, takes_no_xattr};

/// The mode of a closed root directory. Its owner can still read the xattrs.
const CLOSED: u32 = 0o400;
/// The mode of the root directory of an ordinary user's tree while the engine works.
const IN_USE: u32 = 0o700;
/// The mode bits that change when the root directory is closed.
const CHANGED: u32 = 0o777;

/// The root directory of a tree, and its mode as programs see it in the mount.
#[derive(Debug)]
pub(crate) struct ClosedRoot {
    marks: Marks,
    /// The mode that the mount shows; `None` if the root directory is not closed.
    kept: Mutex<Option<Permissions>>,
}

/// What an engine does with the root directory of its tree.
#[derive(Clone, Copy, Debug)]
pub enum Treatment {
    /// The engine closes the root directory, so that programs can access the tree only through the
    /// mount.
    Close,
    /// The engine opens the root directory if an earlier engine closed it.
    Open,
    /// The engine leaves the root directory unchanged, because it only answers a query.
    Leave,
}

impl ClosedRoot {
    /// Reads the present state of the root directory.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn of(lower: &dyn FileSystem, marks: Marks) -> Result<Self> {
        let attr = lower.getattr(&own_request(), Ino::ROOT, None)?;
        Ok(Self { marks, kept: Mutex::new(kept(lower, marks, &attr)?) })
    }

    /// Closes or opens the root directory durably before an engine works on the tree.
    ///
    /// # Errors
    /// Errors of the lower file system. A root directory that does not accept xattrs remains open,
    /// with a warning.
    pub fn enter(lower: &dyn FileSystem, marks: Marks, treatment: Treatment) -> Result<Self> {
        let root = Self::of(lower, marks)?;
        match treatment {
            Treatment::Close => root.close(lower)?,
            Treatment::Open => root.open(lower)?,
            Treatment::Leave => {}
        }
        Ok(root)
    }

    fn close(&self, lower: &dyn FileSystem) -> Result<()> {
        let (request, mut kept) = (own_request(), self.kept.lock());
        let attr = lower.getattr(&request, Ino::ROOT, None)?;
        if kept.is_none() {
            let mode = attr.permissions;
            let written = self.marks.write_mode(lower, &request, mode);
            match written.and_then(|()| sync_root(lower)) {
                Err(error) if takes_no_xattr(error.errno()) => {
                    tracing::warn!(
                        "can't store an xattr on the tree's root directory ({error}), so this \
                         directory does not get mode 0400. Programs that read released files \
                         without the mount get zeros or poison"
                    );
                    return Ok(());
                }
                written => written?,
            }
            *kept = Some(mode);
        }
        let below = self.below(kept.unwrap_or(attr.permissions));
        if attr.permissions != below {
            set_mode(lower, &request, below)?;
        }
        // Syncs even if nothing changed, because an earlier engine may have been killed before its
        // sync.
        sync_root(lower)
    }

    fn open(&self, lower: &dyn FileSystem) -> Result<()> {
        let (request, mut kept) = (own_request(), self.kept.lock());
        let Some(mode) = *kept else { return Ok(()) };
        set_mode(lower, &request, mode)?;
        sync_root(lower)?;
        *kept = None;
        self.marks.remove_mode(lower)?;
        sync_root(lower)
    }

    /// Closes the root directory of an ordinary user's tree after an engine has worked on the tree.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn leave(&self, lower: &dyn FileSystem) -> Result<()> {
        if self.marks == Marks::Trusted || self.kept.lock().is_none() {
            return Ok(());
        }
        close_to_owner(lower, self.marks)
    }

    /// Returns the attributes as the mount shows them.
    pub fn shown(&self, attr: Attr) -> Attr {
        match *self.kept.lock() {
            Some(mode) if attr.ino == Ino::ROOT => Attr { permissions: mode, ..attr },
            _ => attr,
        }
    }

    /// Returns the value of an xattr of the root directory as the mount shows it.
    pub fn xattr_shown(&self, name: &OsStr, value: Vec<u8>) -> Vec<u8> {
        match *self.kept.lock() {
            Some(mode) if name == acl::ACCESS => with_mode(&value, mode).unwrap_or(value),
            _ => value,
        }
    }

    /// Sets attributes of the root directory. If it is closed, a new mode changes the kept mode.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn set_attributes(
        &self,
        lower: &dyn FileSystem,
        request: &Request,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let mut kept = self.kept.lock();
        let mode = changes.permissions.filter(|_| kept.is_some());
        let Some(mode) = mode else {
            return lower.setattr(request, Ino::ROOT, handle, changes);
        };
        let below = SetAttr { permissions: Some(self.below(mode)), ..changes.clone() };
        let attr = lower.setattr(request, Ino::ROOT, handle, &below)?;
        // Omits special bits that the lower file system did not grant.
        let mode = with_special_bits(mode, attr.permissions);
        self.marks.write_mode(lower, request, mode)?;
        *kept = Some(mode);
        lower.getattr(request, Ino::ROOT, handle)
    }

    /// Sets an xattr of the root directory. If it is closed, an ACL changes the kept mode.
    ///
    /// # Errors
    /// `EINVAL` for a value that is not an ACL, and errors of the lower file system.
    pub fn set_xattr(
        &self,
        lower: &dyn FileSystem,
        request: &Request,
        name: &OsStr,
        value: &[u8],
        how: XattrMode,
    ) -> Result<()> {
        let mut kept = self.kept.lock();
        let before = kept.filter(|_| name == acl::ACCESS);
        let Some(before) = before else {
            return lower.setxattr(request, Ino::ROOT, name, value, how);
        };
        let (mode, list) = acl::set_access(before, value)?;
        self.set_list(lower, request, list, how)?;
        // Omits the set-group-ID bit if the lower file system cleared it.
        let attr = lower.getattr(request, Ino::ROOT, None)?;
        let mode = with_special_bits(mode, attr.permissions);
        self.marks.write_mode(lower, request, mode)?;
        *kept = Some(mode);
        Ok(())
    }

    /// Sets or removes the ACL of a closed root directory in the lower file system.
    fn set_list(
        &self,
        lower: &dyn FileSystem,
        request: &Request,
        list: Option<Vec<u8>>,
        how: XattrMode,
    ) -> Result<()> {
        let name = OsStr::new(acl::ACCESS);
        let attr = lower.getattr(request, Ino::ROOT, None)?;
        let below = self.below(attr.permissions);
        if let Some(list) = list {
            let list = with_mode(&list, below).ok_or(Errno::INVAL)?;
            return lower.setxattr(request, Ino::ROOT, name, &list, how);
        }
        match lower.removexattr(request, Ino::ROOT, name) {
            Err(error) if error.errno() != Errno::NODATA => return Err(error),
            _ => {}
        }
        let lost =
            if how.contains(XattrMode::KILL_SET_GROUP_ID) { Permissions::SET_GID } else { 0 };
        set_mode(lower, request, Permissions::new(below.bits() & !lost))
    }

    /// Returns the mode of a closed root directory in the lower file system. Keeps the set-id and
    /// sticky bits of `mode`, because they affect the files in the directory.
    fn below(&self, mode: Permissions) -> Permissions {
        let closed = if self.marks == Marks::Trusted { CLOSED } else { IN_USE };
        with_special_bits(Permissions::new(closed), mode)
    }
}

/// Opens the closed root directory of an ordinary user's tree to its owner before an engine works
/// on it.
///
/// # Errors
/// Errors of the lower file system.
pub fn open_to_owner(tree: &dyn FileSystem, marks: Marks) -> Result<()> {
    if !is_closed_to_owner(tree, marks)? {
        return Ok(());
    }
    let request = own_request();
    let attr = tree.getattr(&request, Ino::ROOT, None)?;
    let in_use = with_special_bits(Permissions::new(IN_USE), attr.permissions);
    set_mode(tree, &request, in_use)
}

/// Closes the root directory of an ordinary user's tree that [`open_to_owner`] opened.
///
/// # Errors
/// Errors of the lower file system.
pub fn close_to_owner(tree: &dyn FileSystem, marks: Marks) -> Result<()> {
    let request = own_request();
    let attr = tree.getattr(&request, Ino::ROOT, None)?;
    if marks == Marks::Trusted || kept(tree, marks, &attr)?.is_none() {
        return Ok(());
    }
    let closed = with_special_bits(Permissions::new(CLOSED), attr.permissions);
    set_mode(tree, &request, closed)?;
    sync_root(tree)
}

/// Returns whether an engine can work on a tree only after [`open_to_owner`].
///
/// # Errors
/// Errors of the lower file system.
pub fn is_closed_to_owner(tree: &dyn FileSystem, marks: Marks) -> Result<bool> {
    let attr = tree.getattr(&own_request(), Ino::ROOT, None)?;
    let is_closed = marks != Marks::Trusted && attr.permissions.bits() & CHANGED == CLOSED;
    Ok(is_closed && kept(tree, marks, &attr)?.is_some())
}

/// Returns the mode in the xattr, if the root directory is closed.
fn kept(tree: &dyn FileSystem, marks: Marks, attr: &Attr) -> Result<Option<Permissions>> {
    match attr.permissions.bits() & CHANGED {
        CLOSED | IN_USE => marks.read_mode(tree),
        _ => Ok(None),
    }
}

fn set_mode(tree: &dyn FileSystem, request: &Request, mode: Permissions) -> Result<()> {
    let changes = SetAttr { permissions: Some(mode), ..SetAttr::default() };
    tree.setattr(request, Ino::ROOT, None, &changes).map(drop)
}

/// Returns `mode` with the set-id and sticky bits of `special`.
fn with_special_bits(mode: Permissions, special: Permissions) -> Permissions {
    Permissions::new(mode.bits() & CHANGED | special.bits() & !CHANGED)
}

/// Returns an ACL adapted to a new mode.
fn with_mode(list: &[u8], mode: Permissions) -> Option<Vec<u8>> {
    Some(Acl::parse(list).ok()??.with_mode(mode).to_bytes())
}
