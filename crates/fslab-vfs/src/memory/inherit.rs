//! What a new inode takes over from its directory and its creator: group, set-group-id bit,
//! default access control list, and the mode bits that follow.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::types::{FileKind, Permissions, Request};

use super::acl::{self, Acl};
use super::node::Node;

/// The inherited part of a new inode.
pub(super) struct Inherited {
    pub permissions: Permissions,
    pub gid: u32,
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
}

/// Computes ownership and permissions of an inode to be created in `directory`.
pub(super) fn from_directory(
    directory: &Node,
    request: &Request,
    kind: FileKind,
    mode: u32,
) -> Inherited {
    let (gid, mode) = group_and_mode(directory, request, kind, mode);
    match default_acl(directory).filter(|_| kind != FileKind::Symlink) {
        Some(default) => under_default_acl(&default, kind, mode, gid),
        None => Inherited {
            permissions: Permissions::new(mode).masked(umask_for(request, kind)),
            gid,
            xattrs: BTreeMap::new(),
        },
    }
}

/// The umask does not apply to symbolic links, whose mode means nothing.
fn umask_for(request: &Request, kind: FileKind) -> u32 {
    if kind == FileKind::Symlink { 0 } else { request.umask }
}

fn group_and_mode(directory: &Node, request: &Request, kind: FileKind, mode: u32) -> (u32, u32) {
    const EXECUTABLE_SET_GID: u32 = Permissions::SET_GID | Permissions::GROUP_EXECUTE;
    if directory.permissions.bits() & Permissions::SET_GID == 0 {
        return (request.credentials.gid, mode);
    }
    let mode = if kind == FileKind::Directory {
        mode | Permissions::SET_GID
    } else if mode & EXECUTABLE_SET_GID == EXECUTABLE_SET_GID
        && !directory.may_keep_set_gid(request)
    {
        mode & !Permissions::SET_GID
    } else {
        mode
    };
    (directory.gid, mode)
}

/// Only valid lists are ever stored, so that one that does not parse can't occur.
fn default_acl(directory: &Node) -> Option<Acl> {
    let bytes = directory.xattrs.get(OsStr::new(acl::DEFAULT))?;
    Acl::parse(bytes).ok().flatten()
}

fn under_default_acl(default: &Acl, kind: FileKind, mode: u32, gid: u32) -> Inherited {
    let access = default.clone().for_new_file(mode);
    let mut xattrs = BTreeMap::new();
    if !access.is_plain_mode() {
        xattrs.insert(acl::ACCESS.into(), access.to_bytes());
    }
    if kind == FileKind::Directory {
        xattrs.insert(acl::DEFAULT.into(), default.to_bytes());
    }
    let permissions = Permissions::new((mode & !0o777) | access.mode_bits());
    Inherited { permissions, gid, xattrs }
}
