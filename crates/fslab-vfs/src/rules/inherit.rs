//! Properties that a new inode inherits from its directory and its creator: group, set-group-id
//! bit, default access control list, and the resulting mode bits.

use crate::types::{FileKind, Permissions, Request};

use super::acl::Acl;

/// The properties of a directory that affect new inodes in it.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    /// Permission bits of the directory.
    pub permissions: Permissions,
    /// Group of the directory.
    pub gid: u32,
    /// Default ACL of the directory, in the form of its xattr.
    pub default_acl: Option<&'a [u8]>,
}

/// The properties that a new inode gets from its directory and its creator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// Permission bits of the new inode.
    pub permissions: Permissions,
    /// Group of the new inode.
    pub gid: u32,
    /// Access ACL of the new inode, if the permission bits are not sufficient.
    pub access_acl: Option<Vec<u8>>,
    /// Default ACL of the new inode.
    pub default_acl: Option<Vec<u8>>,
}

impl Inherited {
    /// Computes ownership and permissions of a new inode in a directory. `mode` is before the
    /// umask.
    #[must_use]
    pub fn new(parent: &Parent<'_>, request: &Request, kind: FileKind, mode: u32) -> Self {
        let (gid, mode) = group_and_mode(parent, request, kind, mode);
        match default_acl(parent).filter(|_| kind != FileKind::Symlink) {
            Some(default) => Self::under_default_acl(&default, kind, mode, gid),
            None => Self {
                permissions: Permissions::new(mode).masked(umask_for(request, kind)),
                gid,
                access_acl: None,
                default_acl: None,
            },
        }
    }

    fn under_default_acl(default: &Acl, kind: FileKind, mode: u32, gid: u32) -> Self {
        let access = default.clone().for_new_file(mode);
        let permissions = Permissions::new((mode & !0o777) | access.mode_bits());
        let access_acl = (!access.is_plain_mode()).then(|| access.to_bytes());
        let default_acl = (kind == FileKind::Directory).then(|| default.to_bytes());
        Self { permissions, gid, access_acl, default_acl }
    }
}

/// The umask does not apply to symbolic links, whose mode has no meaning.
fn umask_for(request: &Request, kind: FileKind) -> u32 {
    if kind == FileKind::Symlink { 0 } else { request.umask }
}

fn group_and_mode(parent: &Parent<'_>, request: &Request, kind: FileKind, mode: u32) -> (u32, u32) {
    const EXECUTABLE_SET_GID: u32 = Permissions::SET_GID | Permissions::GROUP_EXECUTE;
    if parent.permissions.bits() & Permissions::SET_GID == 0 {
        return (request.credentials.gid, mode);
    }
    let mode = if kind == FileKind::Directory {
        mode | Permissions::SET_GID
    } else if mode & EXECUTABLE_SET_GID == EXECUTABLE_SET_GID && !may_keep_set_gid(parent, request)
    {
        mode & !Permissions::SET_GID
    } else {
        mode
    };
    (parent.gid, mode)
}

/// Whether the caller may keep a set-group-id bit on a new file in the directory. Only the groups
/// in the request are considered.
fn may_keep_set_gid(parent: &Parent<'_>, request: &Request) -> bool {
    let caller = &request.credentials;
    let named = request.creation.groups.as_deref().unwrap_or_default();
    caller.uid == 0 || caller.gid == parent.gid || named.contains(&parent.gid)
}

/// Parses the directory's default ACL. fslab stores only valid lists; an invalid one left by
/// another program is ignored.
fn default_acl(parent: &Parent<'_>) -> Option<Acl> {
    Acl::parse(parent.default_acl?).ok().flatten()
}
