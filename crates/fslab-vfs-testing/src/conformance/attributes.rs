//! The attributes that `stat` shows and that can be set: permissions, owners, times, sizes.

use fslab_vfs::{FileKind, Ino, OpenMode, Permissions, SetAttr, SetTime, Timestamp};

use super::check::{Outcome, pattern};
use crate::client::Client;

cases! { "attributes":
    all_twelve_mode_bits_are_kept, owner_and_group_are_kept, largest_ids_are_kept,
    nanoseconds_are_kept, times_before_1970_are_kept, times_after_2038_are_kept,
    times_are_set_one_by_one, present_time_can_be_set, several_changes_at_once,
    no_change_changes_nothing, every_kind_has_attributes, symlink_has_an_owner_and_times,
    handle_and_inode_show_the_same, numbers_are_unique, numbers_are_stable,
    data_takes_space, block_size_is_sane, umask_takes_bits_away, umask_zero_takes_nothing,
    directory_mode_follows_the_umask, sticky_bit_of_directories_is_kept,
    size_is_changed_together_with_mode, lookup_and_getattr_agree,
}

fn all_twelve_mode_bits_are_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    for bit in 0..12 {
        ensure_eq!(client.chmod(ino, 1 << bit)?.permissions.bits(), 1 << bit);
        ensure_eq!(client.attr(ino)?.permissions.bits(), 1 << bit);
    }
    ensure_eq!(client.chmod(ino, 0o7777)?.permissions.bits(), 0o7777);
    ensure_eq!(client.lookup(top, "file")?.kind, FileKind::Regular);
    Ok(())
}

fn owner_and_group_are_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let changed = client.chown(ino, 1000, 2000)?;
    ensure_eq!((changed.uid, changed.gid), (1000, 2000));
    let owner_only = client.set(ino, &SetAttr { uid: Some(5), ..SetAttr::default() })?;
    ensure_eq!((owner_only.uid, owner_only.gid), (5, 2000));
    let group_only = client.set(ino, &SetAttr { gid: Some(6), ..SetAttr::default() })?;
    ensure_eq!((group_only.uid, group_only.gid), (5, 6));
    Ok(())
}

fn largest_ids_are_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let largest = u32::MAX - 1;
    let attr = client.chown(ino, largest, largest)?;
    ensure_eq!((attr.uid, attr.gid), (largest, largest));
    Ok(())
}

fn set_times(client: &Client<'_>, ino: Ino, accessed: Timestamp, modified: Timestamp) -> Outcome {
    let changes = SetAttr {
        accessed: Some(SetTime::To(accessed)),
        modified: Some(SetTime::To(modified)),
        ..SetAttr::default()
    };
    let answered = client.set(ino, &changes)?;
    ensure_eq!((answered.accessed, answered.modified), (accessed, modified));
    let attr = client.attr(ino)?;
    ensure_eq!((attr.accessed, attr.modified), (accessed, modified));
    Ok(())
}

fn at(seconds: i64, nanoseconds: u32) -> Timestamp {
    Timestamp { seconds, nanoseconds }
}

fn nanoseconds_are_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    set_times(client, ino, at(1_600_000_000, 1), at(1_500_000_000, 999_999_999))?;
    set_times(client, ino, at(0, 0), at(0, 123_456_789))
}

fn times_before_1970_are_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    set_times(client, ino, at(-1, 999_999_999), at(-1_000_000_000, 500_000_000))?;
    set_times(client, ino, at(-2_000_000_000, 0), at(-1, 0))
}

fn times_after_2038_are_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    set_times(client, ino, at(1 << 31, 7), at(4_102_444_800, 8))?;
    // The year 2400. Years after 2445 need more than the two extra bits of ext4.
    set_times(client, ino, at(13_569_465_600, 0), at(13_569_465_600, 1))
}

fn times_are_set_one_by_one(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    set_times(client, ino, at(100, 1), at(200, 2))?;
    let accessed = Some(SetTime::To(at(300, 3)));
    let attr = client.set(ino, &SetAttr { accessed, ..SetAttr::default() })?;
    ensure_eq!((attr.accessed, attr.modified), (at(300, 3), at(200, 2)));
    let modified = Some(SetTime::To(at(400, 4)));
    let attr = client.set(ino, &SetAttr { modified, ..SetAttr::default() })?;
    ensure_eq!((attr.accessed, attr.modified), (at(300, 3), at(400, 4)));
    Ok(())
}

fn present_time_can_be_set(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let created = client.attr(ino)?.modified;
    set_times(client, ino, at(100, 1), at(200, 2))?;
    let now = Some(SetTime::Now);
    let attr = client.set(ino, &SetAttr { modified: now, ..SetAttr::default() })?;
    ensure!(attr.modified >= created, "{:?} is before {created:?}", attr.modified);
    ensure_eq!(attr.accessed, at(100, 1));
    let attr = client.set(ino, &SetAttr { accessed: now, ..SetAttr::default() })?;
    ensure!(attr.accessed >= created, "{:?} is before {created:?}", attr.accessed);
    Ok(())
}

fn several_changes_at_once(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"0123456789")?;
    let changes = SetAttr {
        permissions: Some(Permissions::new(0o4711)),
        uid: Some(7),
        gid: Some(8),
        size: Some(3),
        accessed: Some(SetTime::To(at(10, 1))),
        modified: Some(SetTime::To(at(20, 2))),
        kill_set_id: false,
    };
    client.set(ino, &changes)?;
    let attr = client.attr(ino)?;
    ensure_eq!((attr.permissions.bits(), attr.uid, attr.gid, attr.size), (0o4711, 7, 8, 3));
    ensure_eq!((attr.accessed, attr.modified), (at(10, 1), at(20, 2)));
    Ok(())
}

fn no_change_changes_nothing(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let before = client.attr(ino)?;
    client.tick();
    let after = client.set(ino, &SetAttr::default())?;
    ensure_eq!(after.changed, before.changed);
    ensure_eq!((after.size, after.permissions), (before.size, before.permissions));
    Ok(())
}

fn every_kind_has_attributes(client: &Client<'_>, top: Ino) -> Outcome {
    let inodes = [
        client.file(top, "file", b"")?,
        client.mkdir(top, "directory")?,
        client.mknod(top, "fifo", 0o010_600, 0)?.ino,
        client.mknod(top, "socket", 0o140_600, 0)?.ino,
        client.mknod(top, "device", 0o020_600, 0x103)?.ino,
    ];
    for ino in inodes {
        let attr = client.chmod(ino, 0o711)?;
        ensure_eq!((attr.ino, attr.permissions.bits()), (ino, 0o711));
        ensure_eq!(client.chown(ino, 1, 2)?.uid, 1);
        set_times(client, ino, at(1, 2), at(3, 4))?;
    }
    Ok(())
}

fn symlink_has_an_owner_and_times(client: &Client<'_>, top: Ino) -> Outcome {
    let target = client.file(top, "target", b"")?;
    let link = client.symlink(top, "link", "target")?.ino;
    let attr = client.chown(link, 5, 6)?;
    ensure_eq!((attr.kind, attr.uid, attr.gid), (FileKind::Symlink, 5, 6));
    set_times(client, link, at(1, 2), at(3, 4))?;
    let target = client.attr(target)?;
    ensure_eq!((target.uid, target.gid), (0, 0));
    ensure!(target.modified > at(3, 4));
    Ok(())
}

fn handle_and_inode_show_the_same(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o640, OpenMode::EXCLUSIVE)?;
    file.write_all(0, b"data")?;
    ensure_eq!(file.attr()?, client.attr(file.ino)?);
    let permissions = Some(Permissions::new(0o604));
    let attr = file.set(&SetAttr { permissions, ..SetAttr::default() })?;
    ensure_eq!(attr.permissions.bits(), 0o604);
    ensure_eq!(client.attr(file.ino)?.permissions.bits(), 0o604);
    Ok(())
}

fn numbers_are_unique(client: &Client<'_>, top: Ino) -> Outcome {
    let mut inodes = std::collections::BTreeSet::from([top]);
    for index in 0..100 {
        inodes.insert(client.file(top, format!("file{index}"), b"")?);
        inodes.insert(client.mkdir(top, format!("directory{index}"))?);
    }
    ensure_eq!(inodes.len(), 201);
    ensure!(!inodes.contains(&Ino(0)));
    Ok(())
}

fn numbers_are_stable(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    for _ in 0..3 {
        ensure_eq!(client.lookup(top, "file")?.ino, ino);
        ensure_eq!(client.attr(ino)?.ino, ino);
        ensure_eq!(client.chmod(ino, 0o600)?.ino, ino);
    }
    Ok(())
}

fn data_takes_space(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    ensure_eq!(file.attr()?.blocks, 0);
    file.write_all(0, &pattern(1, 1 << 20))?;
    file.fsync(false)?;
    ensure!(file.attr()?.blocks > 0, "1 MiB of data takes no space");
    Ok(())
}

fn block_size_is_sane(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let size = client.attr(ino)?.block_size;
    ensure!(size >= 512 && size.is_power_of_two(), "a block size of {size} bytes");
    Ok(())
}

fn umask_takes_bits_away(client: &Client<'_>, top: Ino) -> Outcome {
    let client = client.with_umask(0o027);
    let (attr, _file) = client.create(top, "file", 0o777, OpenMode::EXCLUSIVE)?;
    ensure_eq!(attr.permissions.bits(), 0o750);
    ensure_eq!(client.mknod(top, "fifo", 0o010_666, 0)?.permissions.bits(), 0o640);
    Ok(())
}

fn umask_zero_takes_nothing(client: &Client<'_>, top: Ino) -> Outcome {
    let client = client.with_umask(0);
    let (attr, _file) = client.create(top, "file", 0o666, OpenMode::EXCLUSIVE)?;
    ensure_eq!(attr.permissions.bits(), 0o666);
    Ok(())
}

fn directory_mode_follows_the_umask(client: &Client<'_>, top: Ino) -> Outcome {
    let attr = client.with_umask(0o077).mkdir_mode(top, "directory", 0o777)?;
    ensure_eq!(attr.permissions.bits(), 0o700);
    Ok(())
}

fn sticky_bit_of_directories_is_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let attr = client.with_umask(0).mkdir_mode(top, "directory", 0o1777)?;
    ensure_eq!(attr.permissions.bits(), 0o1777);
    Ok(())
}

fn size_is_changed_together_with_mode(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"0123456789")?;
    let permissions = Some(Permissions::new(0o6755));
    let attr = client.set(ino, &SetAttr { size: Some(2), permissions, ..SetAttr::default() })?;
    ensure_eq!((attr.size, attr.permissions.bits()), (2, 0o6755));
    Ok(())
}

fn lookup_and_getattr_agree(client: &Client<'_>, top: Ino) -> Outcome {
    let file = client.file(top, "file", b"data")?;
    let directory = client.mkdir(top, "directory")?;
    ensure_eq!(client.lookup(top, "file")?, client.attr(file)?);
    ensure_eq!(client.lookup(top, "directory")?, client.attr(directory)?);
    Ok(())
}
