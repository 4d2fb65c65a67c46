//! POSIX ACLs, as xattrs in the kernel's format, and their effect on mode bits.

use fslab_vfs::Errno;
use fslab_vfs::{Ino, OpenMode};

use super::check::{Outcome, refused};
use crate::client::Client;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

const USER_OBJECT: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJECT: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

cases! { "acl":
    list_is_kept, list_shows_in_the_mode, plain_list_becomes_mode, chmod_changes_the_mask,
    removed_list_leaves_the_mode, empty_list_removes, malformed_lists_are_refused,
    default_list_is_for_directories, file_inherits_the_default_list,
    directory_inherits_both_lists, umask_is_not_applied_under_a_default_list,
    wanted_mode_restricts_the_inherited_list, plain_default_list_sets_the_mode,
    symlink_inherits_nothing, node_inherits, lists_are_listed,
    acl_with_named_ids_needs_a_mask,
}

fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Returns the ACL `user::rwx user:1000:rw- group::r-x mask::MASK other::r--`.
pub(super) fn named(mask: u16) -> Vec<u8> {
    list(&[
        (USER_OBJECT, 7, NO_ID),
        (USER, 6, 1000),
        (GROUP_OBJECT, 5, NO_ID),
        (MASK, mask, NO_ID),
        (OTHER, 4, NO_ID),
    ])
}

fn plain(user: u16, group: u16, other: u16) -> Vec<u8> {
    list(&[(USER_OBJECT, user, NO_ID), (GROUP_OBJECT, group, NO_ID), (OTHER, other, NO_ID)])
}

/// Makes a directory with a default ACL, which new entries inherit.
fn handing_down(client: &Client<'_>, top: Ino, default: &[u8]) -> fslab_vfs::Result<Ino> {
    let directory = client.mkdir(top, "directory")?;
    client.setxattr(directory, DEFAULT, default)?;
    Ok(directory)
}

fn list_is_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, ACCESS, &named(7))?;
    ensure_eq!(client.getxattr(ino, ACCESS)?, named(7));
    Ok(())
}

fn list_shows_in_the_mode(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, ACCESS, &named(3))?;
    ensure_eq!(client.attr(ino)?.permissions.bits(), 0o734);
    client.setxattr(ino, ACCESS, &named(6))?;
    ensure_eq!(client.attr(ino)?.permissions.bits(), 0o764);
    Ok(())
}

fn plain_list_becomes_mode(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, ACCESS, &named(7))?;
    client.setxattr(ino, ACCESS, &plain(6, 4, 0))?;
    ensure_eq!(client.attr(ino)?.permissions.bits(), 0o640);
    refused(client.getxattr(ino, ACCESS), Errno::NODATA)
}

fn chmod_changes_the_mask(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, ACCESS, &named(7))?;
    ensure_eq!(client.chmod(ino, 0o621)?.permissions.bits(), 0o621);
    let expected = list(&[
        (USER_OBJECT, 6, NO_ID),
        (USER, 6, 1000),
        (GROUP_OBJECT, 5, NO_ID),
        (MASK, 2, NO_ID),
        (OTHER, 1, NO_ID),
    ]);
    ensure_eq!(client.getxattr(ino, ACCESS)?, expected);
    Ok(())
}

fn removed_list_leaves_the_mode(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, ACCESS, &named(7))?;
    client.removexattr(ino, ACCESS)?;
    refused(client.getxattr(ino, ACCESS), Errno::NODATA)?;
    ensure_eq!(client.attr(ino)?.permissions.bits(), 0o774);
    Ok(())
}

fn empty_list_removes(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = handing_down(client, top, &named(7))?;
    client.setxattr(directory, DEFAULT, &list(&[]))?;
    refused(client.getxattr(directory, DEFAULT), Errno::NODATA)
}

fn malformed_lists_are_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let cut = &named(7)[..20 - 3];
    let twice = list(&[
        (USER_OBJECT, 7, NO_ID),
        (USER_OBJECT, 7, NO_ID),
        (GROUP_OBJECT, 5, NO_ID),
        (OTHER, 4, NO_ID),
    ]);
    let no_other = list(&[(USER_OBJECT, 7, NO_ID), (GROUP_OBJECT, 5, NO_ID)]);
    let unknown_tag = list(&[(USER_OBJECT, 7, NO_ID), (GROUP_OBJECT, 5, NO_ID), (64, 4, NO_ID)]);
    for malformed in [cut, &twice, &no_other, &unknown_tag, &plain(9, 4, 0)] {
        refused(client.setxattr(ino, ACCESS, malformed), Errno::INVAL)?;
    }
    ensure_eq!(client.attr(ino)?.permissions.bits(), 0o644);
    Ok(())
}

fn acl_with_named_ids_needs_a_mask(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let entries =
        [(USER_OBJECT, 7, NO_ID), (USER, 6, 5), (GROUP_OBJECT, 5, NO_ID), (OTHER, 4, NO_ID)];
    refused(client.setxattr(ino, ACCESS, &list(&entries)), Errno::INVAL)
}

fn default_list_is_for_directories(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    refused(client.setxattr(ino, DEFAULT, &named(7)), Errno::ACCESS)?;
    refused(client.getxattr(ino, DEFAULT), Errno::NODATA)
}

fn file_inherits_the_default_list(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = handing_down(client, top, &named(7))?;
    let (attr, _file) = client.create(directory, "file", 0o777, OpenMode::EXCLUSIVE)?;
    ensure_eq!(attr.permissions.bits(), 0o774);
    ensure_eq!(client.getxattr(attr.ino, ACCESS)?, named(7));
    refused(client.getxattr(attr.ino, DEFAULT), Errno::NODATA)
}

fn directory_inherits_both_lists(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = handing_down(client, top, &named(7))?;
    let inner = client.mkdir_mode(directory, "inner", 0o777)?;
    ensure_eq!(inner.permissions.bits(), 0o774);
    ensure_eq!(client.getxattr(inner.ino, ACCESS)?, named(7));
    ensure_eq!(client.getxattr(inner.ino, DEFAULT)?, named(7));
    Ok(())
}

fn umask_is_not_applied_under_a_default_list(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = handing_down(client, top, &named(7))?;
    let strict = client.with_umask(0o077);
    let (attr, _file) = strict
        .create(directory, "file", 0o666, OpenMode::EXCLUSIVE)
        .map(|(attr, file)| (attr, file.ino))?;
    ensure_eq!(attr.permissions.bits(), 0o664);
    Ok(())
}

fn wanted_mode_restricts_the_inherited_list(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = handing_down(client, top, &named(7))?;
    let (attr, _file) = client.create(directory, "file", 0o640, OpenMode::EXCLUSIVE)?;
    ensure_eq!(attr.permissions.bits(), 0o640);
    let expected = list(&[
        (USER_OBJECT, 6, NO_ID),
        (USER, 6, 1000),
        (GROUP_OBJECT, 5, NO_ID),
        (MASK, 4, NO_ID),
        (OTHER, 0, NO_ID),
    ]);
    ensure_eq!(client.getxattr(attr.ino, ACCESS)?, expected);
    Ok(())
}

fn plain_default_list_sets_the_mode(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = handing_down(client, top, &plain(7, 7, 0))?;
    let (attr, _file) = client.create(directory, "file", 0o666, OpenMode::EXCLUSIVE)?;
    ensure_eq!(attr.permissions.bits(), 0o660);
    refused(client.getxattr(attr.ino, ACCESS), Errno::NODATA)?;
    let inner = client.mkdir_mode(directory, "inner", 0o777)?;
    ensure_eq!(inner.permissions.bits(), 0o770);
    ensure_eq!(client.getxattr(inner.ino, DEFAULT)?, plain(7, 7, 0));
    Ok(())
}

fn symlink_inherits_nothing(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = handing_down(client, top, &named(7))?;
    let link = client.symlink(directory, "link", "x")?;
    ensure_eq!(client.listxattr(link.ino)?, Vec::<String>::new());
    Ok(())
}

fn node_inherits(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = handing_down(client, top, &named(7))?;
    let fifo = client.mknod(directory, "fifo", 0o010_777, 0)?;
    ensure_eq!(fifo.permissions.bits(), 0o774);
    ensure_eq!(client.getxattr(fifo.ino, ACCESS)?, named(7));
    Ok(())
}

fn lists_are_listed(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = handing_down(client, top, &named(7))?;
    client.setxattr(directory, ACCESS, &named(5))?;
    ensure_eq!(client.listxattr(directory)?, [ACCESS, DEFAULT]);
    Ok(())
}
