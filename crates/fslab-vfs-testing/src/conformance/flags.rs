//! Inode flags: a file system supports them, or it rejects both reading and setting them.

use fslab_vfs::Ino;
use fslab_vfs::{Errno, Result};
use fslab_vfs::{FileAttr, FileAttrForm};

use super::check::{Outcome, Stop, refused_with_any};
use crate::client::Client;

cases! { "flags":
    flags_are_kept_or_refused, flags_of_both_forms_agree, links_and_special_files_have_no_flags,
}

/// `FS_NODUMP_FL`, which every file system with inode flags supports.
const NO_DUMP: u32 = 0x40;
/// The errors of a file system without inode flags.
const NONE: &[Errno] = &[Errno::NOTTY, Errno::OPNOTSUPP, Errno::NOSYS];

/// The flags of an inode; `None` if they are not supported. Other errors are failures.
fn flags(client: &Client<'_>, ino: Ino, form: FileAttrForm) -> Result<Option<u32>> {
    match client.fileattr(ino, form) {
        Ok(attr) => Ok(Some(attr.flags())),
        Err(error) if NONE.contains(&error.errno()) => Ok(None),
        Err(error) => Err(error),
    }
}

fn flags_are_kept_or_refused(client: &Client<'_>, top: Ino) -> Outcome {
    let file = client.file(top, "file", b"content")?;
    let directory = client.mkdir(top, "directory")?;
    for ino in [file, directory] {
        let Some(before) = flags(client, ino, FileAttrForm::Flags)? else {
            refused_with_any(client.set_fileattr(ino, &FileAttr::Flags(NO_DUMP)), NONE)?;
            continue;
        };
        for flags_now in [before | NO_DUMP, before & !NO_DUMP] {
            client.set_fileattr(ino, &FileAttr::Flags(flags_now))?;
            ensure_eq!(flags(client, ino, FileAttrForm::Flags)?, Some(flags_now));
        }
    }
    ensure_eq!(client.contents(file)?, b"content");
    Ok(())
}

fn flags_of_both_forms_agree(client: &Client<'_>, top: Ino) -> Outcome {
    let file = client.file(top, "file", b"")?;
    let Some(before) = flags(client, file, FileAttrForm::Extended)? else {
        let none = FileAttr::from_flags(NO_DUMP, FileAttrForm::Extended);
        return refused_with_any(client.set_fileattr(file, &none), NONE);
    };
    ensure_eq!(before & NO_DUMP, 0);
    let forms = [
        client.fileattr(file, FileAttrForm::Extended)?,
        FileAttr::from_flags(NO_DUMP, FileAttrForm::Extended),
    ];
    let [FileAttr::Extended(mut attr), FileAttr::Extended(no_dump)] = forms else {
        return Err(Stop::failed(format!("another form was asked for: {forms:?}")));
    };
    attr.xflags |= no_dump.xflags;
    client.set_fileattr(file, &FileAttr::Extended(attr))?;
    for form in [FileAttrForm::Flags, FileAttrForm::Extended] {
        ensure_eq!(flags(client, file, form)?.map(|flags| flags & NO_DUMP), Some(NO_DUMP));
    }
    Ok(())
}

fn links_and_special_files_have_no_flags(client: &Client<'_>, top: Ino) -> Outcome {
    let link = client.symlink(top, "link", "target")?.ino;
    let pipe = client.mknod(top, "pipe", 0o010_644, 0)?.ino;
    for ino in [link, pipe] {
        let refusals = [NONE, &[Errno::LOOP, Errno::NXIO]].concat();
        refused_with_any(client.fileattr(ino, FileAttrForm::Flags), &refusals)?;
    }
    Ok(())
}
