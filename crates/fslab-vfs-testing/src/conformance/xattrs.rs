//! Extended attributes.

use fslab_vfs::Errno;
use fslab_vfs::{Ino, XattrMode};

use super::check::{Outcome, pattern, refused, refused_with_any};
use crate::client::Client;

cases! { "xattrs":
    value_is_kept, value_is_replaced, missing_attribute_has_no_value,
    removed_attribute_is_gone, names_are_listed, fresh_file_lists_none,
    creating_demands_a_free_name, replacing_demands_a_taken_name, unknown_flags_are_refused,
    empty_value_is_a_value, value_may_be_any_bytes, kilobyte_value_is_kept,
    longest_name_works, name_of_256_bytes_is_refused, value_above_64_kib_is_refused,
    refused_value_leaves_the_old_one, unknown_namespace_is_refused, bare_prefix_is_refused,
    directories_have_attributes, symlink_has_no_user_attributes,
    special_file_has_no_user_attributes,
    trusted_attributes_are_kept, security_attributes_are_kept, names_share_attributes,
    rename_keeps_attributes, attributes_work_on_open_unlinked_files, many_attributes_work,
    case_of_names_distinguishes,
}

fn value_is_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, "user.name", b"value")?;
    ensure_eq!(client.getxattr(ino, "user.name")?, b"value");
    Ok(())
}

fn value_is_replaced(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    for value in [b"first".as_slice(), b"a longer second", b"3"] {
        client.setxattr(ino, "user.name", value)?;
        ensure_eq!(client.getxattr(ino, "user.name")?, value);
    }
    ensure_eq!(client.listxattr(ino)?, ["user.name"]);
    Ok(())
}

fn missing_attribute_has_no_value(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    refused(client.getxattr(ino, "user.none"), Errno::NODATA)?;
    refused(client.removexattr(ino, "user.none"), Errno::NODATA)?;
    refused(client.getxattr(ino, "trusted.none"), Errno::NODATA)
}

fn removed_attribute_is_gone(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, "user.name", b"value")?;
    client.setxattr(ino, "user.other", b"kept")?;
    client.removexattr(ino, "user.name")?;
    refused(client.getxattr(ino, "user.name"), Errno::NODATA)?;
    refused(client.removexattr(ino, "user.name"), Errno::NODATA)?;
    ensure_eq!(client.listxattr(ino)?, ["user.other"]);
    Ok(())
}

fn names_are_listed(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    for name in ["user.b", "user.a", "trusted.c", "user.a.b"] {
        client.setxattr(ino, name, b"x")?;
    }
    ensure_eq!(client.listxattr(ino)?, ["trusted.c", "user.a", "user.a.b", "user.b"]);
    Ok(())
}

fn fresh_file_lists_none(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    ensure_eq!(client.listxattr(ino)?, Vec::<String>::new());
    Ok(())
}

fn creating_demands_a_free_name(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr_mode(ino, "user.name", b"first", XattrMode::CREATE)?;
    let answer = client.setxattr_mode(ino, "user.name", b"second", XattrMode::CREATE);
    refused(answer, Errno::EXIST)?;
    ensure_eq!(client.getxattr(ino, "user.name")?, b"first");
    Ok(())
}

fn replacing_demands_a_taken_name(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let answer = client.setxattr_mode(ino, "user.name", b"first", XattrMode::REPLACE);
    refused(answer, Errno::NODATA)?;
    ensure_eq!(client.listxattr(ino)?.len(), 0);
    client.setxattr(ino, "user.name", b"first")?;
    client.setxattr_mode(ino, "user.name", b"second", XattrMode::REPLACE)?;
    ensure_eq!(client.getxattr(ino, "user.name")?, b"second");
    Ok(())
}

fn unknown_flags_are_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let unknown = XattrMode::from_bits_retain(0x10);
    refused(client.setxattr_mode(ino, "user.name", b"x", unknown), Errno::INVAL)
}

fn empty_value_is_a_value(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, "user.empty", b"")?;
    ensure_eq!(client.getxattr(ino, "user.empty")?, b"");
    ensure_eq!(client.listxattr(ino)?, ["user.empty"]);
    Ok(())
}

fn value_may_be_any_bytes(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let value: Vec<u8> = (0..=255).collect();
    client.setxattr(ino, "user.bytes", &value)?;
    ensure_eq!(client.getxattr(ino, "user.bytes")?, value);
    Ok(())
}

fn kilobyte_value_is_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let value = pattern(1, 2000);
    client.setxattr(ino, "user.long", &value)?;
    ensure_bytes!(client.getxattr(ino, "user.long")?, value);
    Ok(())
}

fn longest_name_works(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let name = format!("user.{}", "n".repeat(250));
    client.setxattr(ino, &name, b"value")?;
    ensure_eq!(client.getxattr(ino, &name)?, b"value");
    ensure_eq!(client.listxattr(ino)?, [name.as_str()]);
    Ok(())
}

fn name_of_256_bytes_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    let name = format!("user.{}", "n".repeat(251));
    refused(client.setxattr(ino, &name, b"value"), Errno::RANGE)
}

fn value_above_64_kib_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    refused(client.setxattr(ino, "user.long", &vec![1; (64 << 10) + 1]), Errno::TOOBIG)
}

fn refused_value_leaves_the_old_one(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, "user.name", b"old")?;
    let value = pattern(1, 64 << 10);
    // The maximum size is the file system's choice, but it must not store half a value.
    match client.setxattr(ino, "user.name", &value) {
        Ok(()) => ensure_bytes!(client.getxattr(ino, "user.name")?, value),
        Err(error) => {
            let full = [Errno::NOSPC, Errno::TOOBIG, Errno::RANGE];
            refused_with_any::<()>(Err(error), &full)?;
            ensure_eq!(client.getxattr(ino, "user.name")?, b"old");
        }
    }
    Ok(())
}

fn unknown_namespace_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    for name in ["nothing.name", "name", "system.name"] {
        refused(client.setxattr(ino, name, b"x"), Errno::OPNOTSUPP)?;
        refused(client.getxattr(ino, name), Errno::OPNOTSUPP)?;
    }
    Ok(())
}

fn bare_prefix_is_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    refused_with_any(client.setxattr(ino, "user.", b"x"), &[Errno::INVAL, Errno::OPNOTSUPP])
}

fn directories_have_attributes(client: &Client<'_>, top: Ino) -> Outcome {
    let directory = client.mkdir(top, "directory")?;
    client.setxattr(directory, "user.name", b"value")?;
    ensure_eq!(client.getxattr(directory, "user.name")?, b"value");
    client.file(directory, "file", b"")?;
    ensure_eq!(client.listxattr(client.lookup(directory, "file")?.ino)?.len(), 0);
    Ok(())
}

fn symlink_has_no_user_attributes(client: &Client<'_>, top: Ino) -> Outcome {
    client.file(top, "target", b"")?;
    let link = client.symlink(top, "link", "target")?.ino;
    refused(client.setxattr(link, "user.name", b"x"), Errno::PERM)?;
    ensure_eq!(client.listxattr(client.lookup(top, "target")?.ino)?.len(), 0);
    Ok(())
}

fn special_file_has_no_user_attributes(client: &Client<'_>, top: Ino) -> Outcome {
    let fifo = client.mknod(top, "fifo", 0o010_600, 0)?.ino;
    refused(client.setxattr(fifo, "user.name", b"x"), Errno::PERM)?;
    client.setxattr(fifo, "trusted.name", b"value")?;
    ensure_eq!(client.getxattr(fifo, "trusted.name")?, b"value");
    Ok(())
}

fn trusted_attributes_are_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, "trusted.name", b"value")?;
    ensure_eq!(client.getxattr(ino, "trusted.name")?, b"value");
    let link = client.symlink(top, "link", "x")?.ino;
    client.setxattr(link, "trusted.name", b"of the link")?;
    ensure_eq!(client.getxattr(link, "trusted.name")?, b"of the link");
    Ok(())
}

fn security_attributes_are_kept(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, "security.fslab-test", b"value")?;
    ensure_eq!(client.getxattr(ino, "security.fslab-test")?, b"value");
    Ok(())
}

fn names_share_attributes(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "one", b"")?;
    let other = client.link(ino, top, "two")?.ino;
    client.setxattr(ino, "user.name", b"value")?;
    ensure_eq!(client.getxattr(other, "user.name")?, b"value");
    Ok(())
}

fn rename_keeps_attributes(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "old", b"")?;
    client.setxattr(ino, "user.name", b"value")?;
    let replaced = client.file(top, "new", b"")?;
    client.setxattr(replaced, "user.other", b"gone")?;
    client.rename(top, "old", top, "new")?;
    ensure_eq!(client.listxattr(client.lookup(top, "new")?.ino)?, ["user.name"]);
    Ok(())
}

fn attributes_work_on_open_unlinked_files(client: &Client<'_>, top: Ino) -> Outcome {
    let (_, file) = client.create(top, "file", 0o644, fslab_vfs::OpenMode::EXCLUSIVE)?;
    client.setxattr(file.ino, "user.before", b"1")?;
    client.unlink(top, "file")?;
    ensure_eq!(client.getxattr(file.ino, "user.before")?, b"1");
    client.setxattr(file.ino, "user.after", b"2")?;
    ensure_eq!(client.listxattr(file.ino)?, ["user.after", "user.before"]);
    Ok(())
}

fn many_attributes_work(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    for index in 0..40 {
        client.setxattr(ino, &format!("user.name{index}"), format!("{index}").as_bytes())?;
    }
    ensure_eq!(client.listxattr(ino)?.len(), 40);
    for index in (0..40).step_by(2) {
        client.removexattr(ino, &format!("user.name{index}"))?;
    }
    for index in (1..40).step_by(2) {
        let value = client.getxattr(ino, &format!("user.name{index}"))?;
        ensure_eq!(value, format!("{index}").as_bytes());
    }
    ensure_eq!(client.listxattr(ino)?.len(), 20);
    Ok(())
}

fn case_of_names_distinguishes(client: &Client<'_>, top: Ino) -> Outcome {
    let ino = client.file(top, "file", b"")?;
    client.setxattr(ino, "user.name", b"small")?;
    client.setxattr(ino, "user.NAME", b"LARGE")?;
    ensure_eq!(client.getxattr(ino, "user.name")?, b"small");
    ensure_eq!(client.listxattr(ino)?.len(), 2);
    Ok(())
}
