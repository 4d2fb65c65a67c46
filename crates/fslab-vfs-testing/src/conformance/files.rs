//! Creating, opening and removing files other than directories.

use std::ffi::OsString;

use fslab_vfs::Errno;
use fslab_vfs::{FileKind, Ino, OpenMode};

use super::check::{Outcome, refused, refused_with_any};
use crate::client::Client;

cases! { "files":
    new_file_is_empty, exclusive_creation_demands_a_free_name, creation_opens_what_exists,
    creation_with_truncation_empties, creation_does_not_open_a_directory,
    directory_is_not_opened_for_writing, opening_with_truncation_empties,
    contents_survive_close_and_open, removed_name_is_free_again, directory_is_not_unlinked,
    node_of_regular_kind_is_a_file, fifo_and_socket_keep_their_kind,
    device_numbers_are_kept, unknown_node_kinds_are_refused, symlink_keeps_its_target,
    symlink_of_4095_bytes_works, symlink_of_4096_bytes_is_refused, empty_symlink_is_refused,
    symlink_target_is_not_interpreted, only_symlinks_have_targets, mode_of_creation_is_set,
    read_only_creation_mode_does_not_bind_the_creator,
}

fn new_file_is_empty(client: &Client<'_>, top: Ino) -> Outcome {
    let (attr, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    ensure_eq!((attr.kind, attr.size, attr.links), (FileKind::Regular, 0, 1));
    ensure_eq!(file.read(0, 100)?, b"");
    ensure_eq!(client.lookup(top, "file")?.ino, attr.ino);
    Ok(file.close()?)
}

fn exclusive_creation_demands_a_free_name(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "file", b"kept")?;
    let answer = client.create(top, "file", 0o600, OpenMode::EXCLUSIVE).map(|(attr, _)| attr);
    refused(answer, Errno::EXIST)?;
    ensure_eq!(client.contents(client.lookup(top, "file")?.ino)?, b"kept");
    Ok(())
}

fn creation_opens_what_exists(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"kept")?;
    let (attr, file) = client.create(top, "file", 0o600, OpenMode::empty())?;
    ensure_eq!(attr.ino, ino);
    ensure_eq!(attr.permissions.bits(), 0o644);
    ensure_eq!(file.read(0, 100)?, b"kept");
    Ok(file.close()?)
}

fn creation_with_truncation_empties(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"gone")?;
    let (attr, file) = client.create(top, "file", 0o600, OpenMode::TRUNCATE)?;
    ensure_eq!((attr.ino, attr.size), (ino, 0));
    ensure_eq!(file.read(0, 100)?, b"");
    Ok(())
}

fn creation_does_not_open_a_directory(client: &Client<'_>, top: Ino) -> Outcome {
    client.mkdir(top, "directory")?;
    let answer = client.create(top, "directory", 0o644, OpenMode::empty()).map(|(attr, _)| attr);
    refused(answer, Errno::ISDIR)
}

fn directory_is_not_opened_for_writing(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    refused(client.open(directory, OpenMode::READ_WRITE).map(|file| file.ino), Errno::ISDIR)
}

fn opening_with_truncation_empties(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"gone")?;
    let file = client.open(ino, OpenMode::WRITE_ONLY | OpenMode::TRUNCATE)?;
    ensure_eq!(file.attr()?.size, 0);
    file.write_all(0, b"new")?;
    file.close()?;
    ensure_eq!(client.contents(ino)?, b"new");
    Ok(())
}

fn contents_survive_close_and_open(client: &Client<'_>, top: Ino) -> Outcome {
    let data = super::check::pattern(1, 100_000);
    let ino = client.file(top, "file", &data)?;
    ensure_eq!(client.lookup(top, "file")?.size, 100_000);
    ensure_bytes!(client.contents(ino)?, data);
    Ok(())
}

fn removed_name_is_free_again(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "name", b"first")?;
    client.unlink(top, "name")?;
    ensure!(!client.exists(top, "name")?);
    refused(client.unlink(top, "name"), Errno::NOENT)?;
    client.mkdir(top, "name")?;
    client.rmdir(top, "name")?;
    let ino = client.file(top, "name", b"second")?;
    ensure_eq!(client.contents(ino)?, b"second");
    Ok(())
}

fn directory_is_not_unlinked(client: &Client<'_>, top: Ino) -> Outcome {
    client.mkdir(top, "directory")?;
    refused(client.unlink(top, "directory"), Errno::ISDIR)?;
    ensure!(client.exists(top, "directory")?);
    Ok(())
}

fn node_of_regular_kind_is_a_file(client: &Client<'_>, top: Ino) -> Outcome {
    let attr = client.mknod(top, "file", 0o100_640, 0)?;
    ensure_eq!((attr.kind, attr.permissions.bits()), (FileKind::Regular, 0o640));
    client.open(attr.ino, OpenMode::WRITE_ONLY)?.write_all(0, b"data")?;
    ensure_eq!(client.contents(attr.ino)?, b"data");
    Ok(())
}

fn fifo_and_socket_keep_their_kind(client: &Client<'_>, top: Ino) -> Outcome {
    for (name, kind) in [("fifo", FileKind::Fifo), ("socket", FileKind::Socket)] {
        let made = client.mknod(top, name, kind.mode_bits() | 0o600, 0)?;
        let found = client.lookup(top, name)?;
        ensure_eq!((made.kind, found.kind, found.ino), (kind, kind, made.ino));
        ensure_eq!((found.permissions.bits(), found.size), (0o600, 0));
        client.unlink(top, name)?;
    }
    Ok(())
}

fn device_numbers_are_kept(client: &Client<'_>, top: Ino) -> Outcome {
    // Major 7 and minor 0x12345 in the kernel's 32-bit encoding.
    let device = 0x45 | 7 << 8 | 0x123 << 20;
    for (name, kind) in [("char", FileKind::CharDevice), ("block", FileKind::BlockDevice)] {
        client.mknod(top, name, kind.mode_bits() | 0o600, device)?;
        let found = client.lookup(top, name)?;
        ensure_eq!((found.kind, found.device), (kind, device));
    }
    Ok(())
}

fn unknown_node_kinds_are_refused(client: &Client<'_>, top: Ino) -> Outcome {
    refused(client.mknod(top, "link", 0o120_777, 0), Errno::INVAL)?;
    refused(client.mknod(top, "unknown", 0o030_644, 0), Errno::INVAL)?;
    refused_with_any(client.mknod(top, "directory", 0o040_755, 0), &[Errno::PERM, Errno::INVAL])
}

fn symlink_keeps_its_target(client: &Client<'_>, top: Ino) -> Outcome {
    let attr = client.symlink(top, "link", "some/../target")?;
    ensure_eq!((attr.kind, attr.size), (FileKind::Symlink, 14));
    ensure_eq!(client.readlink(attr.ino)?, OsString::from("some/../target"));
    ensure_eq!(client.lookup(top, "link")?.ino, attr.ino);
    Ok(())
}

fn symlink_of_4095_bytes_works(client: &Client<'_>, top: Ino) -> Outcome {
    let target = "t/".repeat(2047) + "t";
    match client.symlink(top, "link", &target) {
        Ok(attr) => {
            ensure_eq!(attr.size, 4095);
            ensure_eq!(client.readlink(attr.ino)?, OsString::from(target));
            Ok(())
        }
        // XFS allows 1023 bytes at most.
        Err(error) => {
            refused::<()>(Err(error), Errno::NAMETOOLONG)?;
            let attr = client.symlink(top, "link", &target[..1023])?;
            ensure_eq!(client.readlink(attr.ino)?, OsString::from(&target[..1023]));
            Ok(())
        }
    }
}

fn symlink_of_4096_bytes_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    refused(client.symlink(top, "link", "t".repeat(4096)), Errno::NAMETOOLONG)
}

fn empty_symlink_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    refused(client.symlink(top, "link", ""), Errno::NOENT)
}

fn symlink_target_is_not_interpreted(client: &Client<'_>, top: Ino) -> Outcome {
    for (name, target) in [("loop", "loop"), ("far", "/no/such/place"), ("odd", "\u{fffd}\n ")] {
        let attr = client.symlink(top, name, target)?;
        ensure_eq!(client.readlink(attr.ino)?, OsString::from(target));
    }
    Ok(())
}

fn only_symlinks_have_targets(client: &Client<'_>, top: Ino) -> Outcome {
    let file = client.file(top, "file", b"x")?;
    refused(client.readlink(file), Errno::INVAL)?;
    let directory = client.mkdir(top, "directory")?;
    refused(client.readlink(directory), Errno::INVAL)
}

fn mode_of_creation_is_set(client: &Client<'_>, top: Ino) -> Outcome {
    let client = client.with_umask(0);
    for mode in [0o777, 0o000, 0o640, 0o4755, 0o2755, 0o1666] {
        let (attr, file) = client.create(top, format!("{mode:o}"), mode, OpenMode::EXCLUSIVE)?;
        ensure_eq!(attr.permissions.bits(), mode);
        file.close()?;
    }
    Ok(())
}

fn read_only_creation_mode_does_not_bind_the_creator(client: &Client<'_>, top: Ino) -> Outcome {
    let user = client.as_user(1000, 1000);
    let (attr, file) = user.create(top, "file", 0o400, OpenMode::EXCLUSIVE)?;
    file.write_all(0, b"written")?;
    file.close()?;
    ensure_eq!(client.contents(attr.ino)?, b"written");
    Ok(())
}
