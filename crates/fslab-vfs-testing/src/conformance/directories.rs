//! Making, listing and removing directories.

use std::collections::{BTreeMap, BTreeSet};

use fslab_vfs::Errno;
use fslab_vfs::{FileKind, Ino};

use super::check::{Outcome, refused, refused_with_any};
use crate::client::{Client, Listed, Listing};

cases! { "directories":
    new_directory_is_empty, dots_are_listed_once, listing_names_every_entry,
    listing_tells_kinds, listing_shows_inodes, full_directory_is_not_removed,
    file_is_not_removed_as_directory, removed_directory_is_gone, only_directories_are_opened,
    thousands_of_entries_through_small_sinks, refused_entry_is_listed_again,
    listing_starts_again_at_zero, listing_continues_in_another_handle,
    entries_that_stay_are_listed_once_under_removal,
    entries_that_stay_are_listed_once_under_creation, removing_while_listing_empties,
    renaming_while_listing_ends, new_entry_is_seen_after_a_rewind, deep_trees_work,
    nothing_is_made_in_a_removed_directory, removed_directory_lists_nothing,
    emptied_directory_is_removed, two_listings_do_not_disturb_each_other,
}

fn new_directory_is_empty(client: &Client<'_>, top: Ino) -> Outcome {
    let attr = client.mkdir_mode(top, "directory", 0o750)?;
    ensure_eq!((attr.kind, attr.permissions.bits()), (FileKind::Directory, 0o750));
    ensure!(attr.links == 2 || attr.links == 1, "{} links", attr.links);
    ensure_eq!(client.list(attr.ino)?, vec![]);
    Ok(())
}

fn dots_are_listed_once(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    client.file(directory, "file", b"")?;
    let names: Vec<_> = client.list_all(directory)?.into_iter().map(|entry| entry.name).collect();
    for dot in [".", ".."] {
        ensure_eq!(names.iter().filter(|name| *name == dot).count(), 1);
    }
    ensure_eq!(names.len(), 3);
    Ok(())
}

fn listing_names_every_entry(client: &Client<'_>, top: Ino) -> Outcome {
    let mut expected = Vec::new();
    for index in 0..300 {
        let name = format!("name{index:03}");
        client.file(top, &name, b"")?;
        expected.push(name);
    }
    ensure_eq!(client.names(top)?, expected);
    Ok(())
}

fn listing_tells_kinds(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "file", b"")?;
    client.mkdir(top, "directory")?;
    client.symlink(top, "link", "x")?;
    client.mknod(top, "fifo", 0o010_600, 0)?;
    for entry in client.list(top)? {
        let kind = client.lookup(top, &entry.name)?.kind;
        ensure!(
            entry.kind.is_none_or(|listed| listed == kind),
            "{:?} is listed as {:?}, and is {kind:?}",
            entry.name,
            entry.kind
        );
    }
    Ok(())
}

fn listing_shows_inodes(client: &Client<'_>, top: Ino) -> Outcome {
    let file = client.file(top, "file", b"")?;
    client.link(file, top, "link")?;
    let inodes: BTreeSet<Ino> = client.list(top)?.iter().map(|entry| entry.ino).collect();
    ensure_eq!(inodes.len(), 1);
    Ok(())
}

fn full_directory_is_not_removed(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    client.file(directory, "file", b"data")?;
    refused_with_any(client.rmdir(top, "directory"), &[Errno::NOTEMPTY, Errno::EXIST])?;
    ensure_eq!(client.names(directory)?, ["file"]);
    Ok(())
}

fn file_is_not_removed_as_directory(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "file", b"data")?;
    client.symlink(top, "link", "file")?;
    refused(client.rmdir(top, "file"), Errno::NOTDIR)?;
    refused(client.rmdir(top, "link"), Errno::NOTDIR)
}

fn removed_directory_is_gone(client: &Client<'_>, top: Ino) -> Outcome {
    client.mkdir(top, "directory")?;
    client.rmdir(top, "directory")?;
    refused(client.lookup(top, "directory"), Errno::NOENT)?;
    refused(client.rmdir(top, "directory"), Errno::NOENT)
}

fn only_directories_are_opened(client: &Client<'_>, top: Ino) -> Outcome {
    let file = client.file(top, "file", b"data")?;
    refused(client.opendir(file).map(|_| ()), Errno::NOTDIR)
}

/// Reads a whole listing with sinks for `room` entries.
fn in_pieces(listing: &Listing<'_>, room: usize) -> fslab_vfs::Result<Vec<Listed>> {
    let mut entries: Vec<Listed> = Vec::new();
    loop {
        let offset = entries.last().map_or(0, |entry| entry.next_offset);
        let piece = listing.next(offset, room)?;
        if piece.is_empty() {
            entries.retain(|entry| entry.name != "." && entry.name != "..");
            return Ok(entries);
        }
        entries.extend(piece);
    }
}

fn counted(entries: &[Listed]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for entry in entries {
        *counts.entry(entry.name.to_string_lossy().into_owned()).or_default() += 1;
    }
    counts
}

fn make_files(client: &Client<'_>, directory: Ino, count: usize) -> Outcome {
    for index in 0..count {
        let attr = client.mknod(directory, format!("{index:05}"), 0o100_644, 0)?;
        client.forget(attr.ino);
    }
    Ok(())
}

/// Lists several times more entries than fit into any buffer.
fn thousands_of_entries_through_small_sinks(client: &Client<'_>, top: Ino) -> Outcome {
    const FILES: usize = 2500;
    make_files(client, top, FILES)?;
    for room in [3, 101] {
        let listing = client.opendir(top)?;
        let counts = counted(&in_pieces(&listing, room)?);
        ensure_eq!(counts.len(), FILES);
        ensure!(counts.values().all(|count| *count == 1), "an entry was listed twice");
        listing.close()?;
    }
    Ok(())
}

fn refused_entry_is_listed_again(client: &Client<'_>, top: Ino) -> Outcome {
    make_files(client, top, 5)?;
    let listing = client.opendir(top)?;
    ensure_eq!(listing.next(0, 0)?, vec![]);
    let whole = listing.next(0, 100)?;
    let first = listing.next(0, 3)?;
    ensure_eq!(first.as_slice(), &whole[..3]);
    ensure_eq!(listing.next(first[2].next_offset, 100)?.as_slice(), &whole[3..]);
    Ok(())
}

fn listing_starts_again_at_zero(client: &Client<'_>, top: Ino) -> Outcome {
    make_files(client, top, 50)?;
    let listing = client.opendir(top)?;
    let first = in_pieces(&listing, 7)?;
    ensure_eq!(in_pieces(&listing, 11)?, first);
    Ok(())
}

fn listing_continues_in_another_handle(client: &Client<'_>, top: Ino) -> Outcome {
    make_files(client, top, 50)?;
    let first = client.opendir(top)?.next(0, 20)?;
    let rest = client.opendir(top)?.next(first[19].next_offset, usize::MAX)?;
    let all: Vec<Listed> = first.into_iter().chain(rest).collect();
    ensure_eq!(counted(&all).len(), 52);
    ensure_eq!(all.len(), 52);
    Ok(())
}

fn entries_that_stay_are_listed_once_under_removal(client: &Client<'_>, top: Ino) -> Outcome {
    make_files(client, top, 400)?;
    let listing = client.opendir(top)?;
    let mut entries = listing.next(0, 100)?;
    // Removes every entry with an odd number, listed or not.
    for index in (1..400).step_by(2) {
        client.unlink(top, format!("{index:05}"))?;
    }
    loop {
        let piece = listing.next(entries[entries.len() - 1].next_offset, 10)?;
        if piece.is_empty() {
            break;
        }
        entries.extend(piece);
    }
    let counts = counted(&entries);
    ensure!(counts.values().all(|count| *count == 1), "an entry was listed twice");
    for index in (0..400).step_by(2) {
        ensure!(counts.contains_key(&format!("{index:05}")), "{index:05} was not listed");
    }
    Ok(())
}

fn entries_that_stay_are_listed_once_under_creation(client: &Client<'_>, top: Ino) -> Outcome {
    make_files(client, top, 300)?;
    let listing = client.opendir(top)?;
    let mut entries = listing.next(0, 10)?;
    let mut made = 0;
    loop {
        // Creates fewer entries than one step lists, so that a listing that shows them still ends.
        for _ in 0..3 {
            client.mknod(top, format!("new{made}"), 0o100_644, 0)?;
            made += 1;
        }
        let piece = listing.next(entries[entries.len() - 1].next_offset, 10)?;
        if piece.is_empty() {
            break;
        }
        entries.extend(piece);
    }
    let counts = counted(&entries);
    ensure!(counts.values().all(|count| *count == 1), "an entry was listed twice");
    for index in 0..300 {
        ensure!(counts.contains_key(&format!("{index:05}")), "{index:05} was not listed");
    }
    Ok(())
}

fn removing_while_listing_empties(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    make_files(client, directory, 500)?;
    let listing = client.opendir(directory)?;
    let mut offset = 0;
    loop {
        let piece = listing.next(offset, 9)?;
        let Some(last) = piece.last() else { break };
        offset = last.next_offset;
        for entry in piece.iter().filter(|entry| entry.name != "." && entry.name != "..") {
            client.unlink(directory, &entry.name)?;
        }
    }
    listing.close()?;
    Ok(client.rmdir(top, "directory")?)
}

fn renaming_while_listing_ends(client: &Client<'_>, top: Ino) -> Outcome {
    make_files(client, top, 100)?;
    let listing = client.opendir(top)?;
    let (mut offset, mut steps) = (0, 0);
    loop {
        let piece = listing.next(offset, 1)?;
        let Some(entry) = piece.first() else { return Ok(()) };
        offset = entry.next_offset;
        steps += 1;
        ensure!(steps < 10_000, "the listing does not end while its entries are renamed");
        let name = entry.name.to_string_lossy();
        if name != "." && name != ".." {
            client.rename(top, &name, top, &format!("{steps}"))?;
        }
    }
}

fn new_entry_is_seen_after_a_rewind(client: &Client<'_>, top: Ino) -> Outcome {
    make_files(client, top, 3)?;
    let listing = client.opendir(top)?;
    ensure_eq!(in_pieces(&listing, 100)?.len(), 3);
    client.file(top, "new", b"")?;
    ensure_eq!(in_pieces(&listing, 100)?.len(), 4);
    Ok(())
}

fn deep_trees_work(client: &Client<'_>, top: Ino) -> Outcome {
    let mut directories = vec![top];
    for depth in 0..200 {
        directories.push(client.mkdir(directories[depth], "directory")?);
    }
    client.file(directories[200], "file", b"deep")?;
    let mut at = top;
    for _ in 0..200 {
        at = client.lookup(at, "directory")?.ino;
    }
    ensure_eq!(client.contents(client.lookup(at, "file")?.ino)?, b"deep");
    Ok(())
}

fn nothing_is_made_in_a_removed_directory(client: &Client<'_>, top: Ino) -> Outcome {
    let gone = client.mkdir(top, "gone")?;
    let listing = client.opendir(gone)?;
    client.rmdir(top, "gone")?;
    let not_there = [Errno::NOENT, Errno::STALE];
    refused_with_any(client.mkdir(gone, "name"), &not_there)?;
    refused_with_any(client.mknod(gone, "name", 0o100_644, 0), &not_there)?;
    refused_with_any(client.symlink(gone, "name", "x"), &not_there)?;
    refused_with_any(client.lookup(gone, "name"), &not_there)?;
    Ok(listing.close()?)
}

fn removed_directory_lists_nothing(client: &Client<'_>, top: Ino) -> Outcome {
    let gone = client.mkdir(top, "gone")?;
    let listing = client.opendir(gone)?;
    client.rmdir(top, "gone")?;
    match listing.next(0, 100) {
        Ok(entries) => {
            let real = entries.iter().filter(|entry| entry.name != "." && entry.name != "..");
            ensure_eq!(real.count(), 0);
        }
        Err(error) => ensure_eq!(error.errno(), Errno::NOENT),
    }
    Ok(listing.close()?)
}

fn emptied_directory_is_removed(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    make_files(client, directory, 200)?;
    client.mkdir(directory, "inner")?;
    refused_with_any(client.rmdir(top, "directory"), &[Errno::NOTEMPTY, Errno::EXIST])?;
    client.clear(directory)?;
    ensure_eq!(client.list(directory)?, vec![]);
    Ok(client.rmdir(top, "directory")?)
}

fn two_listings_do_not_disturb_each_other(client: &Client<'_>, top: Ino) -> Outcome {
    make_files(client, top, 60)?;
    let (one, two) = (client.opendir(top)?, client.opendir(top)?);
    let mut seen = (one.next(0, 5)?, two.next(0, 17)?);
    loop {
        let more = (
            one.next(seen.0[seen.0.len() - 1].next_offset, 5)?,
            two.next(seen.1[seen.1.len() - 1].next_offset, 17)?,
        );
        if more.0.is_empty() && more.1.is_empty() {
            break;
        }
        seen.0.extend(more.0);
        seen.1.extend(more.1);
    }
    ensure_eq!(seen.0, seen.1);
    ensure_eq!(seen.0.len(), 62);
    Ok(())
}
