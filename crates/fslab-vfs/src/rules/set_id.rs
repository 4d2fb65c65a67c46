//! The effect of file changes on set-id bits: the rule of Linux 6.2 and later
//! (`setattr_should_drop_suidgid`), shared by all leaves.
//!
//! A caller with CAP_FSETID keeps both bits. For all others, the set-user-id bit is cleared. The
//! set-group-id bit is cleared if the group may execute the file, or if the caller does not belong
//! to the file's group.

use fslab_sys::credentials::{belongs_to_group, has_capability};
use rustix::thread::CapabilitySet;

use crate::types::{Permissions, Request};

/// Whether the caller has CAP_FSETID. A request made by this process itself has no thread id. Such
/// a request has the capability if its user is root.
#[must_use]
pub fn may_keep(request: &Request) -> bool {
    match request.pid {
        0 => request.credentials.uid == 0,
        pid => has_capability(pid, CapabilitySet::FSETID),
    }
}

/// Returns the permissions of a regular file after a caller without CAP_FSETID has changed its
/// contents. `gid` is the file's group.
#[must_use]
pub fn after_change(before: Permissions, gid: u32, request: &Request) -> Permissions {
    without(before, || is_member(request, gid))
}

/// Returns the permissions of anything except a directory after a change of owner or group by any
/// caller. `gid` is the earlier group.
#[must_use]
pub fn after_change_of_owner(before: Permissions, gid: u32, request: &Request) -> Permissions {
    without(before, || is_member(request, gid) || may_keep(request))
}

fn without(before: Permissions, may_keep_group: impl FnOnce() -> bool) -> Permissions {
    if !before.has_set_id() {
        return before;
    }
    let bits = before.bits() & !Permissions::SET_UID;
    let is_executable = bits & Permissions::GROUP_EXECUTE != 0;
    let goes = bits & Permissions::SET_GID != 0 && (is_executable || !may_keep_group());
    Permissions::new(if goes { bits & !Permissions::SET_GID } else { bits })
}

/// Whether the caller belongs to a group, according to the request or to the kernel.
fn is_member(request: &Request, gid: u32) -> bool {
    let named = request.creation.groups.as_deref().unwrap_or_default();
    request.credentials.gid == gid
        || named.contains(&gid)
        || request.pid != 0 && belongs_to_group(request.pid, gid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Credentials;

    #[test]
    fn set_id_bits_are_cleared_as_on_ext4() {
        let of = |uid, gid| Request { credentials: Credentials { uid, gid }, ..Request::default() };
        let (root, member, other) = (of(0, 0), of(1000, 77), of(1000, 1000));
        // Each row contains the initial bits, and the bits after three changes: by a member of the
        // group, by another user, and of the owner by root.
        for (before, by_member, by_other, of_owner) in [
            (0o2666, 0o2666, 0o666, 0o2666),
            (0o2676, 0o676, 0o676, 0o676),
            (0o6666, 0o2666, 0o666, 0o2666),
            (0o4666, 0o666, 0o666, 0o666),
            (0o1777, 0o1777, 0o1777, 0o1777),
        ] {
            let before = Permissions::new(before);
            let changed = |request| after_change(before, 77, request).bits();
            assert_eq!((changed(&member), changed(&other)), (by_member, by_other), "{before:?}");
            let owner = |request| after_change_of_owner(before, 77, request).bits();
            assert_eq!((owner(&root), owner(&other)), (of_owner, by_other), "{before:?}");
        }
        assert!(may_keep(&root) && !may_keep(&member));
    }
}
