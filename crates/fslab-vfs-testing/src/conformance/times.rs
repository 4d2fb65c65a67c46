//! The times that each operation changes, and the times that it keeps. Times are compared only with
//! each other, because a mounted file system has its own clock.

use fslab_vfs::{Attr, Ino, OpenMode, SetAttr, SetTime, Timestamp};

use super::check::Outcome;
use crate::client::Client;

cases! { "times":
    creation_sets_all_three, creation_moves_the_directory, write_moves_contents_and_inode,
    truncation_moves_contents_and_inode, chmod_moves_the_inode_only,
    chown_moves_the_inode_only, link_moves_the_inode_and_directory,
    unlink_moves_the_inode_and_directory, rename_moves_both_directories,
    xattr_moves_the_inode_only, setting_times_moves_the_inode, read_moves_no_change_times,
    read_after_a_change_is_recorded, rmdir_moves_the_directory,
    opening_with_truncation_moves_contents, empty_write_moves_nothing,
    failed_creation_moves_nothing, punching_moves_contents,
}

/// The attributes before and after an action, with a clock tick in between.
fn around(
    client: &Client<'_>,
    ino: Ino,
    action: impl FnOnce() -> Outcome,
) -> Result<(Attr, Attr), super::Stop> {
    let before = client.attr(ino)?;
    client.tick();
    action()?;
    Ok((before, client.attr(ino)?))
}

/// Checks whether the modification time (`contents`) and the change time (`inode`) advanced.
fn ensure_moved((before, after): (Attr, Attr), contents: bool, inode: bool) -> Outcome {
    ensure_eq!(after.modified > before.modified, contents);
    ensure_eq!(after.changed > before.changed, inode);
    ensure!(after.modified >= before.modified && after.changed >= before.changed);
    Ok(())
}

fn creation_sets_all_three(client: &Client<'_>, top: Ino) -> Outcome {
    let old = client.attr(client.file(top, "old", b"")?)?.modified;
    client.tick();
    let attr = client.attr(client.mkdir(top, "new")?)?;
    ensure!(attr.accessed > old && attr.modified > old && attr.changed > old);
    ensure_eq!(attr.modified, attr.changed);
    Ok(())
}

fn creation_moves_the_directory(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    let moved = around(client, directory, || Ok(client.file(directory, "1", b"").map(|_| ())?))?;
    ensure_moved(moved, true, true)?;
    let moved = around(client, directory, || Ok(client.mkdir(directory, "2").map(|_| ())?))?;
    ensure_moved(moved, true, true)?;
    let moved =
        around(client, directory, || Ok(client.symlink(directory, "3", "x").map(|_| ())?))?;
    ensure_moved(moved, true, true)
}

fn write_moves_contents_and_inode(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let file = client.open(ino, OpenMode::WRITE_ONLY)?;
    let moved = around(client, ino, || Ok(file.write_all(0, b"x")?))?;
    ensure_moved(moved, true, true)
}

fn truncation_moves_contents_and_inode(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    for size in [2, 10] {
        let moved = around(client, ino, || Ok(client.truncate(ino, size).map(|_| ())?))?;
        ensure_moved(moved, true, true)?;
    }
    Ok(())
}

fn chmod_moves_the_inode_only(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let moved = around(client, ino, || Ok(client.chmod(ino, 0o600).map(|_| ())?))?;
    ensure_moved(moved, false, true)
}

fn chown_moves_the_inode_only(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let moved = around(client, ino, || Ok(client.chown(ino, 1, 1).map(|_| ())?))?;
    ensure_moved(moved, false, true)
}

fn link_moves_the_inode_and_directory(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let directory = client.mkdir(top, "directory")?;
    let directory_before = client.attr(directory)?;
    let moved = around(client, ino, || Ok(client.link(ino, directory, "l").map(|_| ())?))?;
    ensure_moved(moved, false, true)?;
    ensure_moved((directory_before, client.attr(directory)?), true, true)
}

fn unlink_moves_the_inode_and_directory(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let directory = client.mkdir(top, "directory")?;
    client.link(ino, directory, "link")?;
    let directory_before = client.attr(directory)?;
    let moved = around(client, ino, || Ok(client.unlink(directory, "link")?))?;
    ensure_moved(moved, false, true)?;
    ensure_moved((directory_before, client.attr(directory)?), true, true)
}

fn rename_moves_both_directories(client: &Client<'_>, top: Ino) -> Outcome {
    let (one, two) = (client.mkdir(top, "one")?, client.mkdir(top, "two")?);
    let ino = client.file(one, "file", b"data")?;
    let (before_one, before_two) = (client.attr(one)?, client.attr(two)?);
    let (before, after) = around(client, ino, || Ok(client.rename(one, "file", two, "file")?))?;
    ensure_moved((before_one, client.attr(one)?), true, true)?;
    ensure_moved((before_two, client.attr(two)?), true, true)?;
    // POSIX does not specify the moved inode's change time. Its modification time does not change.
    ensure_eq!(after.modified, before.modified);
    Ok(())
}

fn xattr_moves_the_inode_only(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let moved = around(client, ino, || Ok(client.setxattr(ino, "user.name", b"value")?))?;
    ensure_moved(moved, false, true)?;
    let moved = around(client, ino, || Ok(client.removexattr(ino, "user.name")?))?;
    ensure_moved(moved, false, true)
}

fn setting_times_moves_the_inode(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let accessed = Some(SetTime::To(Timestamp { seconds: 5, nanoseconds: 6 }));
    let changes = SetAttr { accessed, ..SetAttr::default() };
    let moved = around(client, ino, || Ok(client.set(ino, &changes).map(|_| ())?))?;
    ensure_moved(moved, false, true)
}

fn read_moves_no_change_times(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let moved = around(client, ino, || Ok(client.contents(ino).map(|_| ())?))?;
    ensure_moved(moved, false, false)?;
    let moved = around(client, top, || Ok(client.list(top).map(|_| ())?))?;
    ensure_moved(moved, false, false)
}

fn read_after_a_change_is_recorded(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let (before, after) = around(client, ino, || Ok(client.contents(ino).map(|_| ())?))?;
    ensure!(after.accessed > before.accessed, "the access time did not move");
    Ok(())
}

fn rmdir_moves_the_directory(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    client.mkdir(directory, "inner")?;
    let moved = around(client, directory, || Ok(client.rmdir(directory, "inner")?))?;
    ensure_moved(moved, true, true)
}

fn opening_with_truncation_moves_contents(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let moved = around(client, ino, || {
        let file = client.open(ino, OpenMode::WRITE_ONLY | OpenMode::TRUNCATE)?;
        Ok(file.close()?)
    })?;
    ensure_moved(moved, true, true)
}

fn empty_write_moves_nothing(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    let file = client.open(ino, OpenMode::WRITE_ONLY)?;
    let moved = around(client, ino, || Ok(file.write(0, b"").map(|_| ())?))?;
    ensure_moved(moved, false, false)
}

fn failed_creation_moves_nothing(client: &Client<'_>, top: Ino) -> Outcome {
    client.mkdir(top, "taken")?;
    let moved = around(client, top, || {
        super::check::refused(client.mkdir(top, "taken"), fslab_vfs::Errno::EXIST)
    })?;
    ensure_moved(moved, false, false)
}

fn punching_moves_contents(client: &Client<'_>, top: Ino) -> Outcome {
    use fslab_vfs::FallocateMode;
    let ino = client.file(top, "file", &[1; 10_000])?;
    let file = client.open(ino, OpenMode::WRITE_ONLY)?;
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    let moved = around(client, ino, || Ok(file.fallocate(0, 5000, punch)?))?;
    ensure_moved(moved, true, true)
}
