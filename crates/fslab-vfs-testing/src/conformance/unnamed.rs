//! Files that are created without a name (`O_TMPFILE`).
//!
//! They are a separate area, because some leaves and mounts lack this operation.

use fslab_vfs::Errno;
use fslab_vfs::{FileKind, Ino, OpenMode};

use super::check::{Outcome, refused};
use crate::client::Client;

cases! { "unnamed":
    file_is_in_no_listing, file_can_be_named, exclusive_file_can_not_be_named,
    file_belongs_to_its_creator, default_list_is_inherited, looked_up_file_outlives_its_handle,
    umask_is_applied, set_gid_directory_gives_its_group, file_syncs,
}

fn file_is_in_no_listing(client: &Client<'_>, top: Ino) -> Outcome {
    let (attr, file) = client.tmpfile(top, 0o600, OpenMode::empty())?;
    ensure_eq!((attr.links, attr.kind), (0, FileKind::Regular));
    file.write_all(0, b"data")?;
    ensure_eq!(file.read(0, 10)?, b"data");
    ensure_eq!(client.list(top)?, vec![]);
    Ok(file.close()?)
}

fn file_can_be_named(client: &Client<'_>, top: Ino) -> Outcome {
    let (attr, file) = client.tmpfile(top, 0o600, OpenMode::empty())?;
    file.write_all(0, b"data")?;
    let named = client.link(attr.ino, top, "name")?;
    ensure_eq!((named.ino, named.links), (attr.ino, 1));
    file.close()?;
    ensure_eq!(client.contents(client.lookup(top, "name")?.ino)?, b"data");
    Ok(())
}

fn exclusive_file_can_not_be_named(client: &Client<'_>, top: Ino) -> Outcome {
    let (attr, _file) = client.tmpfile(top, 0o600, OpenMode::EXCLUSIVE)?;
    refused(client.link(attr.ino, top, "name"), Errno::NOENT)
}

fn file_belongs_to_its_creator(client: &Client<'_>, top: Ino) -> Outcome {
    let (attr, _file) = client
        .as_user(1000, 1001)
        .tmpfile(top, 0o640, OpenMode::empty())
        .map(|(attr, file)| (attr, file.ino))?;
    ensure_eq!((attr.uid, attr.gid, attr.permissions.bits()), (1000, 1001, 0o640));
    Ok(())
}

fn default_list_is_inherited(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    let default = super::acl::named(7);
    client.setxattr(directory, "system.posix_acl_default", &default)?;
    let (attr, _file) = client.tmpfile(directory, 0o777, OpenMode::empty())?;
    ensure_eq!(attr.permissions.bits(), 0o774);
    ensure_eq!(client.getxattr(attr.ino, "system.posix_acl_access")?, default);
    Ok(())
}

/// A program with an `O_PATH` descriptor keeps the file alive after the last handle is released.
fn looked_up_file_outlives_its_handle(client: &Client<'_>, top: Ino) -> Outcome {
    let (attr, file) = client.tmpfile(top, 0o600, OpenMode::empty())?;
    file.write_all(0, b"data")?;
    file.close()?;
    ensure_eq!(client.attr(attr.ino)?.size, 4);
    ensure_eq!(client.link(attr.ino, top, "name")?.links, 1);
    ensure_eq!(client.contents(attr.ino)?, b"data");
    Ok(())
}

fn umask_is_applied(client: &Client<'_>, top: Ino) -> Outcome {
    let strict = client.with_umask(0o027);
    let (attr, _file) = strict.tmpfile(top, 0o666, OpenMode::empty())?;
    ensure_eq!(attr.permissions.bits(), 0o640);
    Ok(())
}

fn set_gid_directory_gives_its_group(client: &Client<'_>, top: Ino) -> Outcome {
    let shared = super::ownership::shared(client, top)?;
    let user = client.as_user(1000, 1000);
    let (attr, _file) = user.tmpfile(shared, 0o600, OpenMode::empty())?;
    ensure_eq!((attr.uid, attr.gid), (1000, 77));
    Ok(())
}

fn file_syncs(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.tmpfile(top, 0o600, OpenMode::empty())?;
    file.write_all(0, b"data")?;
    file.fsync(true)?;
    file.fsync(false)?;
    Ok(file.close()?)
}
