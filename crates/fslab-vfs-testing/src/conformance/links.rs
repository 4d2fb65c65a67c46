//! Hard links: several names of one inode.

use fslab_vfs::Errno;
use fslab_vfs::{FileKind, Ino, OpenMode};

use super::check::{Outcome, refused};
use crate::client::Client;

cases! { "links":
    names_share_one_inode, names_are_counted, one_of_two_names_can_be_removed,
    name_can_be_in_another_directory, directory_has_one_name, symlink_itself_is_linked,
    special_file_can_be_linked, attributes_are_shared, bytes_are_shared, hundreds_of_names_work,
    file_without_names_gets_none, link_can_be_made_again,
}

fn names_share_one_inode(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "one", b"data")?;
    ensure_eq!(client.link(ino, top, "two")?.ino, ino);
    ensure_eq!(client.lookup(top, "one")?.ino, client.lookup(top, "two")?.ino);
    let listed = client.list(top)?;
    ensure_eq!(listed[0].ino, listed[1].ino);
    Ok(())
}

fn names_are_counted(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "0", b"")?;
    for count in 1..5 {
        ensure_eq!(client.attr(ino)?.links, count);
        ensure_eq!(client.link(ino, top, format!("{count}"))?.links, count + 1);
    }
    for count in (1..5).rev() {
        client.unlink(top, format!("{count}"))?;
        ensure_eq!(client.attr(ino)?.links, count);
    }
    Ok(())
}

fn one_of_two_names_can_be_removed(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "one", b"data")?;
    client.link(ino, top, "two")?;
    client.unlink(top, "one")?;
    ensure!(!client.exists(top, "one")?);
    ensure_eq!(client.contents(client.lookup(top, "two")?.ino)?, b"data");
    Ok(())
}

fn name_can_be_in_another_directory(client: &Client<'_>, top: Ino) -> Outcome {
    let (one, two) = (client.mkdir(top, "one")?, client.mkdir(top, "two")?);
    let ino = client.file(one, "name", b"data")?;
    client.link(ino, two, "name")?;
    client.unlink(one, "name")?;
    client.rmdir(top, "one")?;
    ensure_eq!(client.contents(client.lookup(two, "name")?.ino)?, b"data");
    Ok(())
}

fn directory_has_one_name(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    refused(client.link(directory, top, "other"), Errno::PERM)
}

fn symlink_itself_is_linked(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "target", b"data")?;
    let symlink = client.symlink(top, "symlink", "target")?;
    let linked = client.link(symlink.ino, top, "other")?;
    ensure_eq!((linked.kind, linked.ino, linked.links), (FileKind::Symlink, symlink.ino, 2));
    ensure_eq!(client.readlink(client.lookup(top, "other")?.ino)?, "target");
    Ok(())
}

fn special_file_can_be_linked(client: &Client<'_>, top: Ino) -> Outcome {
    let fifo = client.mknod(top, "fifo", 0o010_600, 0)?;
    ensure_eq!(client.link(fifo.ino, top, "other")?.links, 2);
    ensure_eq!(client.lookup(top, "other")?.kind, FileKind::Fifo);
    Ok(())
}

fn attributes_are_shared(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "one", b"data")?;
    client.link(ino, top, "two")?;
    client.chmod(client.lookup(top, "one")?.ino, 0o604)?;
    ensure_eq!(client.lookup(top, "two")?.permissions.bits(), 0o604);
    Ok(())
}

fn bytes_are_shared(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "one", b"data")?;
    let other = client.link(ino, top, "two")?.ino;
    let reader = client.open(ino, OpenMode::empty())?;
    client.open(other, OpenMode::WRITE_ONLY)?.write_all(2, b"xx")?;
    ensure_eq!(reader.read(0, 10)?, b"daxx");
    Ok(())
}

fn hundreds_of_names_work(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "name", b"data")?;
    for index in 0..500 {
        client.link(ino, top, format!("name{index}"))?;
    }
    ensure_eq!(client.attr(ino)?.links, 501);
    for index in 0..500 {
        client.unlink(top, format!("name{index}"))?;
    }
    ensure_eq!(client.attr(ino)?.links, 1);
    Ok(())
}

fn file_without_names_gets_none(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "name", b"data")?;
    let file = client.open(ino, OpenMode::empty())?;
    client.unlink(top, "name")?;
    refused(client.link(ino, top, "again"), Errno::NOENT)?;
    ensure_eq!(file.read(0, 10)?, b"data");
    Ok(())
}

fn link_can_be_made_again(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "one", b"data")?;
    for _ in 0..3 {
        client.link(ino, top, "two")?;
        client.unlink(top, "one")?;
        client.link(ino, top, "one")?;
        client.unlink(top, "two")?;
    }
    ensure_eq!(client.attr(ino)?.links, 1);
    Ok(())
}
