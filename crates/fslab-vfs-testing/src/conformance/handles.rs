//! Open files and directories: they outlive their names, and every kind can be synced.

use std::time::{Duration, Instant};

use fslab_vfs::Errno;
use fslab_vfs::{FileKind, Ino, OpenMode};

use super::check::{Outcome, pattern};
use crate::client::Client;

cases! { "handles":
    unlinked_file_stays_readable, unlinked_file_stays_writable, unlinked_file_shows_no_links,
    unlinked_file_can_be_truncated, looked_up_file_outlives_its_name,
    unlinked_file_can_be_opened_again, removed_directory_keeps_its_attributes,
    name_can_be_used_again_while_the_old_file_is_open, every_kind_of_handle_syncs,
    directories_sync, whole_file_system_syncs, hundreds_of_handles_work,
    closing_one_handle_keeps_the_other, released_handle_is_not_reused_wrongly,
    handle_sees_a_new_size, writes_before_unlink_are_seen_after,
    unlinked_symlink_keeps_its_target, flush_can_be_repeated,
    held_inode_outlives_its_name_and_its_lookups,
}

fn unlinked_file_stays_readable(client: &Client<'_>, top: Ino) -> Outcome {
    let data = pattern(1, 100_000);
    let ino = client.file(top, "file", &data)?;
    let file = client.open(ino, OpenMode::empty())?;
    client.unlink(top, "file")?;
    ensure!(!client.exists(top, "file")?);
    ensure_bytes!(file.read(0, 200_000)?, data);
    Ok(file.close()?)
}

fn unlinked_file_stays_writable(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    file.write_all(0, b"before")?;
    client.unlink(top, "file")?;
    file.write_all(6, b" after")?;
    ensure_eq!(file.read(0, 100)?, b"before after");
    file.fsync(false)?;
    Ok(file.close()?)
}

fn unlinked_file_shows_no_links(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    client.unlink(top, "file")?;
    let attr = file.attr()?;
    ensure_eq!((attr.ino, attr.links, attr.kind), (file.ino, 0, FileKind::Regular));
    Ok(())
}

fn unlinked_file_can_be_truncated(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    file.write_all(0, b"0123456789")?;
    client.unlink(top, "file")?;
    ensure_eq!(file.truncate(4)?.size, 4);
    ensure_eq!(file.read(0, 100)?, b"0123");
    Ok(())
}

fn looked_up_file_outlives_its_name(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    client.unlink(top, "file")?;
    let attr = client.attr(ino)?;
    ensure_eq!((attr.ino, attr.links, attr.size), (ino, 0, 4));
    ensure_eq!(client.chmod(ino, 0o600)?.permissions.bits(), 0o600);
    Ok(())
}

fn unlinked_file_can_be_opened_again(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    file.write_all(0, b"data")?;
    client.unlink(top, "file")?;
    let again = client.open(file.ino, OpenMode::empty())?;
    file.close()?;
    ensure_eq!(again.read(0, 10)?, b"data");
    Ok(())
}

fn removed_directory_keeps_its_attributes(client: &Client<'_>, top: Ino) -> Outcome {
    let gone = client.mkdir(top, "gone")?;
    let listing = client.opendir(gone)?;
    client.rmdir(top, "gone")?;
    let attr = client.attr(gone)?;
    ensure_eq!((attr.ino, attr.kind, attr.links), (gone, FileKind::Directory, 0));
    Ok(listing.close()?)
}

fn name_can_be_used_again_while_the_old_file_is_open(client: &Client<'_>, top: Ino) -> Outcome {
    let old = client.file(top, "file", b"old")?;
    let file = client.open(old, OpenMode::empty())?;
    client.unlink(top, "file")?;
    let new = client.file(top, "file", b"new")?;
    ensure!(new != old, "the number of an open file was used again");
    ensure_eq!(file.read(0, 10)?, b"old");
    ensure_eq!(client.contents(new)?, b"new");
    Ok(())
}

fn every_kind_of_handle_syncs(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let modes = [
        OpenMode::empty(),
        OpenMode::WRITE_ONLY,
        OpenMode::READ_WRITE,
        OpenMode::WRITE_ONLY | OpenMode::APPEND,
        OpenMode::READ_WRITE | OpenMode::DATA_SYNC,
    ];
    for mode in modes {
        let file = client.open(ino, mode)?;
        file.fsync(true)?;
        file.fsync(false)?;
        file.close()?;
    }
    Ok(())
}

fn directories_sync(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "file", b"data")?;
    let listing = client.opendir(top)?;
    listing.fsync(true)?;
    listing.fsync(false)?;
    Ok(listing.close()?)
}

fn whole_file_system_syncs(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "file", b"data")?;
    Ok(client.subject().syncfs(&client.request(), top)?)
}

fn hundreds_of_handles_work(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let files: Vec<_> =
        (0..300).map(|_| client.open(ino, OpenMode::READ_WRITE)).collect::<Result<_, _>>()?;
    for (index, file) in files.iter().enumerate() {
        file.write_all(index as u64, &[index as u8])?;
    }
    let expected: Vec<u8> = (0..300).map(|index| index as u8).collect();
    ensure_bytes!(files[150].read(0, 1000)?, expected);
    files.into_iter().try_for_each(|file| Ok(file.close()?))
}

fn closing_one_handle_keeps_the_other(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let (one, two) = (client.open(ino, OpenMode::empty())?, client.open(ino, OpenMode::empty())?);
    ensure!(one.handle != two.handle);
    one.close()?;
    ensure_eq!(two.read(0, 10)?, b"data");
    Ok(())
}

fn released_handle_is_not_reused_wrongly(client: &Client<'_>, top: Ino) -> Outcome {
    let one = client.file(top, "one", b"one")?;
    let two = client.file(top, "two", b"two")?;
    for _ in 0..50 {
        let file = client.open(one, OpenMode::empty())?;
        ensure_eq!(file.read(0, 10)?, b"one");
        file.close()?;
        let file = client.open(two, OpenMode::empty())?;
        ensure_eq!(file.read(0, 10)?, b"two");
        file.close()?;
    }
    Ok(())
}

fn handle_sees_a_new_size(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"0123456789")?;
    let file = client.open(ino, OpenMode::empty())?;
    client.truncate(ino, 5)?;
    ensure_eq!(file.read(0, 100)?, b"01234");
    client.truncate(ino, 7)?;
    ensure_eq!(file.read(0, 100)?, b"01234\0\0");
    Ok(())
}

fn writes_before_unlink_are_seen_after(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "one", b"")?;
    client.link(ino, top, "two")?;
    let file = client.open(ino, OpenMode::WRITE_ONLY)?;
    file.write_all(0, b"data")?;
    client.unlink(top, "one")?;
    ensure_eq!(client.contents(client.lookup(top, "two")?.ino)?, b"data");
    Ok(())
}

fn unlinked_symlink_keeps_its_target(client: &Client<'_>, top: Ino) -> Outcome {
    let link = client.symlink(top, "link", "target")?.ino;
    client.unlink(top, "link")?;
    match client.readlink(link) {
        Ok(target) => ensure_eq!(target, "target"),
        Err(error) => ensure_eq!(error.errno(), Errno::STALE),
    }
    Ok(())
}

fn flush_can_be_repeated(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    // The kernel sends one flush for each close of a duplicated descriptor.
    for _ in 0..3 {
        client.subject().flush(&client.request(), file.ino, file.handle)?;
        file.write_all(0, b"still open")?;
    }
    Ok(file.close()?)
}

fn held_inode_outlives_its_name_and_its_lookups(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"held")?;
    client.subject().hold(ino)?;
    client.unlink(top, "file")?;
    client.forget(ino);
    let next = client.file(top, "file", b"next")?;
    let (held, links) = (client.contents(ino), client.attr(ino).map(|attr| attr.links));
    client.subject().let_go(ino);
    ensure!(next != ino, "{ino:?} was reused while it was held");
    ensure_eq!(held?, b"held");
    ensure_eq!(links?, 0);
    ensure!(is_gone_soon(client, ino), "{ino:?} is still held");
    Ok(())
}

/// Whether `hold` fails for an inode within 20 seconds. A background reader may hold it a little
/// longer than the caller.
fn is_gone_soon(client: &Client<'_>, ino: Ino) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.subject().hold(ino).is_ok() {
        client.subject().let_go(ino);
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
