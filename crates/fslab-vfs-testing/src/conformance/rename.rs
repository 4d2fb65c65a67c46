//! Renames: every pair of kinds, every mode, and the errors.

use fslab_vfs::Errno;
use fslab_vfs::{FileKind, Ino, OpenMode, RenameMode};

use super::check::{Outcome, refused, refused_with_any};
use crate::client::Client;

cases! { "rename":
    file_gets_a_new_name, file_keeps_its_inode, file_replaces_file, file_replaces_symlink,
    replaced_file_loses_a_name, file_does_not_replace_directory,
    directory_does_not_replace_file, directory_replaces_empty_directory,
    directory_does_not_replace_a_full_one, directory_moves_with_its_contents,
    directory_moves_between_directories, name_moves_onto_itself,
    renaming_between_names_of_one_inode_keeps_both, directory_does_not_move_below_itself,
    directory_does_not_replace_its_ancestor, symlink_moves_itself, special_file_moves,
    free_name_is_taken_without_replacing, taken_name_is_not_replaced_on_request,
    files_are_exchanged, file_and_directory_are_exchanged, full_directories_are_exchanged,
    exchange_demands_both_names, exchange_with_own_ancestor_is_refused,
    contradicting_modes_are_refused, open_file_survives_its_move,
    replaced_open_file_stays_readable, parent_counts_follow_directories,
    moving_back_and_forth_loses_nothing, missing_target_directory_is_refused,
}

fn file_gets_a_new_name(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "old", b"data")?;
    client.rename(top, "old", top, "new")?;
    ensure_eq!(client.names(top)?, ["new"]);
    ensure_eq!(client.contents(client.lookup(top, "new")?.ino)?, b"data");
    Ok(())
}

fn file_keeps_its_inode(client: &Client<'_>, top: Ino) -> Outcome {
    let (one, two) = (client.mkdir(top, "one")?, client.mkdir(top, "two")?);
    let ino = client.file(one, "old", b"data")?;
    client.rename(one, "old", two, "new")?;
    ensure_eq!(client.lookup(two, "new")?.ino, ino);
    ensure_eq!(client.attr(ino)?.links, 1);
    ensure_eq!(client.names(one)?.len(), 0);
    Ok(())
}

fn file_replaces_file(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "old", b"old data")?;
    client.file(top, "new", b"new data")?;
    client.rename(top, "old", top, "new")?;
    ensure_eq!(client.names(top)?, ["new"]);
    ensure_eq!(client.lookup(top, "new")?.ino, ino);
    ensure_eq!(client.contents(ino)?, b"old data");
    Ok(())
}

fn file_replaces_symlink(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "target", b"kept")?;
    client.symlink(top, "link", "target")?;
    client.file(top, "file", b"data")?;
    client.rename(top, "file", top, "link")?;
    ensure_eq!(client.lookup(top, "link")?.kind, FileKind::Regular);
    ensure_eq!(client.contents(client.lookup(top, "target")?.ino)?, b"kept");
    Ok(())
}

fn replaced_file_loses_a_name(client: &Client<'_>, top: Ino) -> Outcome {
    let replaced = client.file(top, "new", b"data")?;
    client.link(replaced, top, "other")?;
    client.file(top, "old", b"")?;
    client.rename(top, "old", top, "new")?;
    ensure_eq!(client.attr(replaced)?.links, 1);
    ensure_eq!(client.lookup(top, "other")?.ino, replaced);
    Ok(())
}

fn file_does_not_replace_directory(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "file", b"")?;
    client.mkdir(top, "directory")?;
    refused(client.rename(top, "file", top, "directory"), Errno::ISDIR)?;
    ensure_eq!(client.names(top)?, ["directory", "file"]);
    Ok(())
}

fn directory_does_not_replace_file(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "file", b"")?;
    client.mkdir(top, "directory")?;
    refused(client.rename(top, "directory", top, "file"), Errno::NOTDIR)?;
    ensure_eq!(client.names(top)?, ["directory", "file"]);
    Ok(())
}

fn directory_replaces_empty_directory(client: &Client<'_>, top: Ino) -> Outcome {
    let old = client.mkdir(top, "old")?;
    client.file(old, "inside", b"data")?;
    client.mkdir(top, "new")?;
    client.rename(top, "old", top, "new")?;
    ensure_eq!(client.names(top)?, ["new"]);
    ensure_eq!(client.lookup(top, "new")?.ino, old);
    ensure_eq!(client.names(old)?, ["inside"]);
    Ok(())
}

fn directory_does_not_replace_a_full_one(client: &Client<'_>, top: Ino) -> Outcome {
    client.mkdir(top, "old")?;
    let new = client.mkdir(top, "new")?;
    client.file(new, "inside", b"data")?;
    let answer = client.rename(top, "old", top, "new");
    refused_with_any(answer, &[Errno::NOTEMPTY, Errno::EXIST])?;
    ensure_eq!(client.names(top)?, ["new", "old"]);
    ensure_eq!(client.names(new)?, ["inside"]);
    Ok(())
}

fn directory_moves_with_its_contents(client: &Client<'_>, top: Ino) -> Outcome {
    let old = client.mkdir(top, "old")?;
    let inner = client.mkdir(old, "inner")?;
    let file = client.file(inner, "file", b"data")?;
    client.rename(top, "old", top, "new")?;
    let found = client.lookup(client.lookup(top, "new")?.ino, "inner")?.ino;
    ensure_eq!(found, inner);
    ensure_eq!(client.lookup(found, "file")?.ino, file);
    ensure_eq!(client.contents(file)?, b"data");
    Ok(())
}

fn directory_moves_between_directories(client: &Client<'_>, top: Ino) -> Outcome {
    let (one, two) = (client.mkdir(top, "one")?, client.mkdir(top, "two")?);
    let moved = client.mkdir(one, "moved")?;
    client.file(moved, "file", b"data")?;
    client.rename(one, "moved", two, "moved")?;
    client.rmdir(top, "one")?;
    ensure_eq!(client.lookup(two, "moved")?.ino, moved);
    client.rename(two, "moved", top, "moved")?;
    ensure_eq!(client.names(moved)?, ["file"]);
    Ok(client.rmdir(top, "two")?)
}

fn name_moves_onto_itself(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"data")?;
    client.rename(top, "file", top, "file")?;
    ensure_eq!((client.lookup(top, "file")?.ino, client.attr(ino)?.links), (ino, 1));
    let directory = client.mkdir(top, "directory")?;
    client.file(directory, "inside", b"")?;
    Ok(client.rename(top, "directory", top, "directory")?)
}

fn renaming_between_names_of_one_inode_keeps_both(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "one", b"data")?;
    client.link(ino, top, "two")?;
    client.rename(top, "one", top, "two")?;
    ensure_eq!(client.names(top)?, ["one", "two"]);
    ensure_eq!(client.attr(ino)?.links, 2);
    Ok(())
}

fn directory_does_not_move_below_itself(client: &Client<'_>, top: Ino) -> Outcome {
    let outer = client.mkdir(top, "outer")?;
    let inner = client.mkdir(outer, "inner")?;
    refused(client.rename(top, "outer", outer, "new"), Errno::INVAL)?;
    refused(client.rename(top, "outer", inner, "new"), Errno::INVAL)?;
    refused(client.rename(top, "outer", outer, "inner"), Errno::INVAL)?;
    ensure_eq!(client.names(outer)?, ["inner"]);
    Ok(())
}

fn directory_does_not_replace_its_ancestor(client: &Client<'_>, top: Ino) -> Outcome {
    let outer = client.mkdir(top, "outer")?;
    let inner = client.mkdir(outer, "inner")?;
    client.mkdir(inner, "innermost")?;
    let not_empty = [Errno::NOTEMPTY, Errno::EXIST];
    refused_with_any(client.rename(outer, "inner", top, "outer"), &not_empty)?;
    refused_with_any(client.rename(inner, "innermost", top, "outer"), &not_empty)
}

fn symlink_moves_itself(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "target", b"data")?;
    let link = client.symlink(top, "link", "target")?.ino;
    client.rename(top, "link", top, "moved")?;
    ensure_eq!(client.names(top)?, ["moved", "target"]);
    ensure_eq!(client.lookup(top, "moved")?.ino, link);
    ensure_eq!(client.readlink(link)?, "target");
    Ok(())
}

fn special_file_moves(client: &Client<'_>, top: Ino) -> Outcome {
    client.mknod(top, "fifo", 0o010_600, 0)?;
    client.rename(top, "fifo", top, "moved")?;
    ensure_eq!(client.lookup(top, "moved")?.kind, FileKind::Fifo);
    Ok(())
}

fn free_name_is_taken_without_replacing(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "old", b"data")?;
    client.rename_with(top, "old", top, "new", RenameMode::NO_REPLACE)?;
    ensure_eq!(client.names(top)?, ["new"]);
    Ok(())
}

fn taken_name_is_not_replaced_on_request(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "old", b"old")?;
    client.file(top, "new", b"new")?;
    client.mkdir(top, "directory")?;
    for target in ["new", "directory", "old"] {
        let answer = client.rename_with(top, "old", top, target, RenameMode::NO_REPLACE);
        refused(answer, Errno::EXIST)?;
    }
    ensure_eq!(client.contents(client.lookup(top, "new")?.ino)?, b"new");
    ensure_eq!(client.contents(client.lookup(top, "old")?.ino)?, b"old");
    Ok(())
}

fn files_are_exchanged(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    let one = client.file(top, "one", b"1")?;
    let two = client.file(directory, "two", b"2")?;
    client.rename_with(top, "one", directory, "two", RenameMode::EXCHANGE)?;
    ensure_eq!((client.lookup(top, "one")?.ino, client.lookup(directory, "two")?.ino), (two, one));
    ensure_eq!((client.attr(one)?.links, client.attr(two)?.links), (1, 1));
    Ok(())
}

fn file_and_directory_are_exchanged(client: &Client<'_>, top: Ino) -> Outcome {
    let outer = client.mkdir(top, "outer")?;
    let directory = client.mkdir(outer, "directory")?;
    let inside = client.file(directory, "inside", b"data")?;
    let file = client.file(top, "file", b"data")?;
    client.rename_with(top, "file", outer, "directory", RenameMode::EXCHANGE)?;
    ensure_eq!(client.lookup(top, "file")?.ino, directory);
    ensure_eq!(client.lookup(outer, "directory")?.ino, file);
    ensure_eq!(client.lookup(directory, "inside")?.ino, inside);
    Ok(())
}

fn full_directories_are_exchanged(client: &Client<'_>, top: Ino) -> Outcome {
    let (one, two) = (client.mkdir(top, "one")?, client.mkdir(top, "two")?);
    client.file(one, "in-one", b"")?;
    client.file(two, "in-two", b"")?;
    client.rename_with(top, "one", top, "two", RenameMode::EXCHANGE)?;
    ensure_eq!(client.names(client.lookup(top, "one")?.ino)?, ["in-two"]);
    ensure_eq!(client.names(client.lookup(top, "two")?.ino)?, ["in-one"]);
    Ok(())
}

fn exchange_demands_both_names(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "file", b"")?;
    refused(client.rename_with(top, "file", top, "none", RenameMode::EXCHANGE), Errno::NOENT)?;
    refused(client.rename_with(top, "none", top, "file", RenameMode::EXCHANGE), Errno::NOENT)
}

fn exchange_with_own_ancestor_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let outer = client.mkdir(top, "outer")?;
    client.mkdir(outer, "inner")?;
    let exchange = RenameMode::EXCHANGE;
    refused(client.rename_with(top, "outer", outer, "inner", exchange), Errno::INVAL)?;
    refused(client.rename_with(outer, "inner", top, "outer", exchange), Errno::INVAL)
}

fn contradicting_modes_are_refused(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "one", b"")?;
    client.file(top, "two", b"")?;
    let both = RenameMode::NO_REPLACE | RenameMode::EXCHANGE;
    refused(client.rename_with(top, "one", top, "two", both), Errno::INVAL)?;
    let unknown = RenameMode::from_bits_retain(0x100);
    refused(client.rename_with(top, "one", top, "free", unknown), Errno::INVAL)
}

fn open_file_survives_its_move(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    let (_, file) = client.create(top, "file", 0o644, OpenMode::EXCLUSIVE)?;
    file.write_all(0, b"before ")?;
    client.rename(top, "file", directory, "moved")?;
    file.write_all(7, b"after")?;
    file.close()?;
    ensure_eq!(client.contents(client.lookup(directory, "moved")?.ino)?, b"before after");
    Ok(())
}

fn replaced_open_file_stays_readable(client: &Client<'_>, top: Ino) -> Outcome {
    let replaced = client.file(top, "new", b"replaced")?;
    let file = client.open(replaced, OpenMode::empty())?;
    client.file(top, "old", b"replacing")?;
    client.rename(top, "old", top, "new")?;
    ensure_eq!(file.read(0, 100)?, b"replaced");
    ensure_eq!(file.attr()?.links, 0);
    Ok(())
}

/// Some file systems (Btrfs) do not count subdirectories and always report 1 link.
fn parent_counts_follow_directories(client: &Client<'_>, top: Ino) -> Outcome {
    let (one, two) = (client.mkdir(top, "one")?, client.mkdir(top, "two")?);
    client.mkdir(one, "moved")?;
    let links = |ino| client.attr(ino).map(|attr| attr.links);
    if links(one)? < 3 {
        ensure_eq!(links(one)?, 1);
        return Ok(());
    }
    client.rename(one, "moved", two, "moved")?;
    ensure_eq!((links(one)?, links(two)?), (2, 3));
    client.mkdir(one, "replaced")?;
    client.rename(two, "moved", one, "replaced")?;
    ensure_eq!((links(one)?, links(two)?), (3, 2));
    client.file(two, "file", b"")?;
    client.rename_with(one, "replaced", two, "file", RenameMode::EXCHANGE)?;
    ensure_eq!((links(one)?, links(two)?), (2, 3));
    Ok(())
}

fn moving_back_and_forth_loses_nothing(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    let ino = client.file(top, "a", b"data")?;
    for _ in 0..50 {
        client.rename(top, "a", directory, "b")?;
        client.rename(directory, "b", top, "a")?;
    }
    ensure_eq!(client.names(top)?, ["a", "directory"]);
    ensure_eq!(client.contents(ino)?, b"data");
    Ok(client.rmdir(top, "directory")?)
}

fn missing_target_directory_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let gone = client.mkdir(top, "gone")?;
    client.rmdir(top, "gone")?;
    client.file(top, "file", b"")?;
    let answer = client.rename(top, "file", gone, "file");
    refused_with_any(answer, &[Errno::NOENT, Errno::STALE])?;
    ensure_eq!(client.names(top)?, ["file"]);
    Ok(())
}
