//! Owners of new files, and set-id bits: setting, inheriting and clearing them.
//!
//! The requests contain only the caller's primary group, so no case depends on other groups.

use fslab_vfs::{FallocateMode, Ino, OpenMode, SetAttr, WriteOptions};

use super::check::Outcome;
use crate::client::Client;

const KILL: WriteOptions = WriteOptions { kill_set_id: true, append: false };

cases! { "ownership":
    creator_owns_every_kind, set_gid_directory_gives_its_group,
    set_gid_directory_passes_the_bit_on, plain_directory_gives_no_group,
    outsider_gets_no_set_gid_file, member_gets_a_set_gid_file,
    change_of_owner_clears_set_id, change_of_owner_keeps_a_directories_bits,
    change_of_owner_keeps_set_gid_without_group_execution, unprivileged_write_clears_set_id,
    privileged_write_keeps_set_id, unprivileged_truncation_clears_set_id,
    privileged_truncation_keeps_set_id, empty_write_keeps_set_id,
    privileged_reservation_keeps_set_id,
}

fn creator_owns_every_kind(client: &Client<'_>, top: Ino) -> Outcome {
    let user = client.as_user(1234, 5678);
    let (file, _) = user.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    let attrs = [
        file,
        user.mkdir_mode(top, "directory", 0o755)?,
        user.symlink(top, "link", "x")?,
        user.mknod(top, "fifo", 0o010_600, 0)?,
        user.mknod(top, "socket", 0o140_600, 0)?,
    ];
    for attr in attrs {
        ensure_eq!((attr.kind, attr.uid, attr.gid), (attr.kind, 1234, 5678));
        ensure_eq!(client.attr(attr.ino)?.uid, 1234);
    }
    Ok(())
}

/// Makes a world-writable directory of group 77 with the set-group-id bit.
pub(super) fn shared(client: &Client<'_>, top: Ino) -> fslab_vfs::Result<Ino> {
    let directory = client.mkdir(top, "shared")?;
    client.chown(directory, 0, 77)?;
    client.chmod(directory, 0o2777)?;
    Ok(directory)
}

fn set_gid_directory_gives_its_group(client: &Client<'_>, top: Ino) -> Outcome {
    let shared = shared(client, top)?;
    let user = client.as_user(1000, 1000);
    let (file, _) = user.create(shared, "file", 0o644, OpenMode::EXCLUSIVE)?;
    ensure_eq!((file.uid, file.gid), (1000, 77));
    ensure_eq!(user.symlink(shared, "link", "x")?.gid, 77);
    ensure_eq!(user.mknod(shared, "fifo", 0o010_600, 0)?.gid, 77);
    Ok(())
}

fn set_gid_directory_passes_the_bit_on(client: &Client<'_>, top: Ino) -> Outcome {
    let shared = shared(client, top)?;
    let inner = client.as_user(1000, 1000).mkdir_mode(shared, "inner", 0o755)?;
    ensure_eq!((inner.gid, inner.permissions.bits()), (77, 0o2755));
    let innermost = client.as_user(1000, 1000).mkdir_mode(inner.ino, "innermost", 0o700)?;
    ensure_eq!((innermost.gid, innermost.permissions.bits()), (77, 0o2700));
    Ok(())
}

fn plain_directory_gives_no_group(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    client.chown(directory, 5, 77)?;
    client.chmod(directory, 0o777)?;
    let made = client.as_user(1000, 1001).mkdir_mode(directory, "inner", 0o755)?;
    ensure_eq!((made.uid, made.gid, made.permissions.bits()), (1000, 1001, 0o755));
    Ok(())
}

fn outsider_gets_no_set_gid_file(client: &Client<'_>, top: Ino) -> Outcome {
    let shared = shared(client, top)?;
    let user = client.as_user(1000, 1000).with_umask(0);
    let (file, _) = user.create(shared, "file", 0o2775, OpenMode::EXCLUSIVE)?;
    ensure_eq!((file.gid, file.permissions.bits()), (77, 0o775));
    Ok(())
}

fn member_gets_a_set_gid_file(client: &Client<'_>, top: Ino) -> Outcome {
    let shared = shared(client, top)?;
    let member = client.as_user(1000, 77).with_umask(0);
    let (file, _) = member.create(shared, "file", 0o2775, OpenMode::EXCLUSIVE)?;
    ensure_eq!((file.gid, file.permissions.bits()), (77, 0o2775));
    Ok(())
}

fn change_of_owner_clears_set_id(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.chmod(ino, 0o6755)?;
    ensure_eq!(client.chown(ino, 5, 5)?.permissions.bits(), 0o755);
    client.chmod(ino, 0o6755)?;
    let attr = client.set(ino, &SetAttr { gid: Some(6), ..SetAttr::default() })?;
    ensure_eq!(attr.permissions.bits(), 0o755);
    Ok(())
}

fn change_of_owner_keeps_a_directories_bits(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    client.chmod(directory, 0o6755)?;
    ensure_eq!(client.chown(directory, 5, 5)?.permissions.bits(), 0o6755);
    Ok(())
}

fn change_of_owner_keeps_set_gid_without_group_execution(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.chmod(ino, 0o6745)?;
    ensure_eq!(client.chown(ino, 5, 5)?.permissions.bits(), 0o2745);
    Ok(())
}

fn unprivileged_write_clears_set_id(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    for (mode, expected) in [(0o6755, 0o755), (0o4755, 0o755), (0o2755, 0o755), (0o1755, 0o1755)] {
        client.chmod(ino, mode)?;
        let file = client.open(ino, OpenMode::WRITE_ONLY)?;
        ensure_eq!(file.write_with(0, b"x", KILL)?, 1);
        ensure_eq!(file.attr()?.permissions.bits(), expected);
    }
    Ok(())
}

fn privileged_write_keeps_set_id(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    client.chmod(ino, 0o6755)?;
    client.open(ino, OpenMode::WRITE_ONLY)?.write_all(0, b"x")?;
    ensure_eq!(client.attr(ino)?.permissions.bits(), 0o6755);
    Ok(())
}

fn unprivileged_truncation_clears_set_id(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    client.chmod(ino, 0o6755)?;
    let changes = SetAttr { size: Some(1), kill_set_id: true, ..SetAttr::default() };
    ensure_eq!(client.set(ino, &changes)?.permissions.bits(), 0o755);
    Ok(())
}

fn privileged_truncation_keeps_set_id(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    client.chmod(ino, 0o6755)?;
    ensure_eq!(client.truncate(ino, 1)?.permissions.bits(), 0o6755);
    Ok(())
}

fn empty_write_keeps_set_id(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    client.chmod(ino, 0o6755)?;
    let file = client.open(ino, OpenMode::WRITE_ONLY)?;
    ensure_eq!(file.write(0, b"")?, 0);
    ensure_eq!(file.attr()?.permissions.bits(), 0o6755);
    Ok(())
}

fn privileged_reservation_keeps_set_id(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    client.chmod(ino, 0o6755)?;
    let file = client.open(ino, OpenMode::READ_WRITE)?;
    file.fallocate(0, 10_000, FallocateMode::empty())?;
    ensure_eq!(file.attr()?.permissions.bits(), 0o6755);
    Ok(())
}
