//! Valid and invalid names, and the comparison of names byte by byte.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::Errno;
use fslab_vfs::{FileKind, Ino, Name, OpenMode};

use super::check::{Outcome, refused};
use crate::client::Client;

cases! { "names":
    longest_name_works, name_of_256_bytes_is_refused, bytes_need_no_encoding,
    dots_and_slashes_are_refused, case_distinguishes, odd_names_work, missing_name_is_not_found,
    nothing_is_below_a_file, taken_name_is_refused_to_every_kind, longest_names_can_be_listed,
    longest_name_can_be_renamed,
}

fn longest_name_works(client: &Client<'_>, top: Ino) -> Outcome {
    let name = "n".repeat(Name::MAX_LEN);
    let ino = client.file(top, &name, b"x")?;
    ensure_eq!(client.lookup(top, &name)?.ino, ino);
    Ok(client.unlink(top, &name)?)
}

fn name_of_256_bytes_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let name = "n".repeat(Name::MAX_LEN + 1);
    refused(client.lookup(top, &name), Errno::NAMETOOLONG)?;
    refused(client.mkdir(top, &name), Errno::NAMETOOLONG)?;
    refused(client.symlink(top, &name, "x"), Errno::NAMETOOLONG)
}

fn bytes_need_no_encoding(client: &Client<'_>, top: Ino) -> Outcome {
    let bytes: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let name = OsStr::from_bytes(&bytes);
    let ino = client.file(top, name, b"x")?;
    ensure_eq!(client.lookup(top, name)?.ino, ino);
    ensure_eq!(client.list(top)?[0].name, name);
    Ok(())
}

fn dots_and_slashes_are_refused(client: &Client<'_>, top: Ino) -> Outcome {
    for name in ["", ".", "..", "a/b", "/", "a\0b"] {
        refused(client.mkdir(top, name), Errno::INVAL)?;
    }
    Ok(())
}

fn case_distinguishes(client: &Client<'_>, top: Ino) -> Outcome {
    let small = client.file(top, "name", b"small")?;
    let large = client.file(top, "NAME", b"LARGE")?;
    ensure!(small != large);
    // The same character, composed and decomposed: names are bytes, so they differ.
    let composed = client.file(top, "\u{e9}", b"1")?;
    let decomposed = client.file(top, "e\u{301}", b"2")?;
    ensure!(composed != decomposed);
    ensure_eq!(client.names(top)?.len(), 4);
    Ok(())
}

fn odd_names_work(client: &Client<'_>, top: Ino) -> Outcome {
    let names = [" ", "\n", "-", "...", ".hidden", "~", "*", "a\tb", "\\", "'\""];
    for name in names {
        client.file(top, name, name.as_bytes())?;
    }
    for name in names {
        ensure_eq!(client.contents(client.lookup(top, name)?.ino)?, name.as_bytes());
    }
    ensure_eq!(client.list(top)?.len(), names.len());
    Ok(())
}

fn missing_name_is_not_found(client: &Client<'_>, top: Ino) -> Outcome {
    refused(client.lookup(top, "none"), Errno::NOENT)?;
    refused(client.unlink(top, "none"), Errno::NOENT)?;
    refused(client.rmdir(top, "none"), Errno::NOENT)?;
    refused(client.rename(top, "none", top, "other"), Errno::NOENT)
}

fn nothing_is_below_a_file(client: &Client<'_>, top: Ino) -> Outcome {
    let file = client.file(top, "file", b"x")?;
    refused(client.lookup(file, "name"), Errno::NOTDIR)?;
    refused(client.mkdir(file, "name"), Errno::NOTDIR)?;
    refused(client.unlink(file, "name"), Errno::NOTDIR)?;
    client.file(top, "other", b"x")?;
    refused(client.rename(top, "other", file, "name"), Errno::NOTDIR)
}

fn taken_name_is_refused_to_every_kind(client: &Client<'_>, top: Ino) -> Outcome {
    let file = client.file(top, "file", b"x")?;
    client.mkdir(top, "directory")?;
    client.symlink(top, "link", "nowhere")?;
    for name in ["file", "directory", "link"] {
        refused(client.mkdir(top, name), Errno::EXIST)?;
        refused(client.symlink(top, name, "x"), Errno::EXIST)?;
        refused(client.mknod(top, name, 0o010_644, 0), Errno::EXIST)?;
        refused(client.link(file, top, name), Errno::EXIST)?;
        let answer = client.create(top, name, 0o644, OpenMode::EXCLUSIVE).map(|(attr, _)| attr);
        refused(answer, Errno::EXIST)?;
    }
    Ok(())
}

fn longest_names_can_be_listed(client: &Client<'_>, top: Ino) -> Outcome {
    for index in 0..100 {
        client.file(top, format!("{index:0255}"), b"")?;
    }
    let names = client.names(top)?;
    ensure_eq!(names.len(), 100);
    ensure_eq!(names[99], format!("{:0255}", 99));
    Ok(())
}

fn longest_name_can_be_renamed(client: &Client<'_>, top: Ino) -> Outcome {
    let (name, new_name) = ("a".repeat(Name::MAX_LEN), "b".repeat(Name::MAX_LEN));
    client.mkdir(top, &name)?;
    client.rename(top, &name, top, &new_name)?;
    ensure!(!client.exists(top, &name)?);
    ensure_eq!(client.lookup(top, &new_name)?.kind, FileKind::Directory);
    Ok(())
}
