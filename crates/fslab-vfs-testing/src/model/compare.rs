//! What of an answer must agree, in a form that can be compared.

use std::ffi::OsString;

use fslab_vfs::{Attr, FileKind, Timestamp};
use fslab_vfs::{Errno, Error, Result};

/// An answer without what file systems may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    Attr(SeenAttr),
    Bytes(Vec<u8>),
    Text(OsString),
    Number(u64),
    Names(Vec<String>),
    /// The times that were given.
    Times(Timestamp, Timestamp),
}

/// The attributes that must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenAttr {
    kind: FileKind,
    permissions: u32,
    uid: u32,
    gid: u32,
    /// Not of directories: how they are counted is the file system's choice.
    links_and_size: Option<(u32, u64)>,
    device: u32,
}

impl From<&Attr> for SeenAttr {
    fn from(attr: &Attr) -> Self {
        Self {
            kind: attr.kind,
            permissions: attr.permissions.bits(),
            uid: attr.uid,
            gid: attr.gid,
            links_and_size: (attr.kind != FileKind::Directory).then_some((attr.links, attr.size)),
            device: attr.device,
        }
    }
}

/// The answer to an operation whose value is compared by `see`.
pub(super) fn seen<T>(answer: Result<T>, see: impl FnOnce(T) -> Seen) -> Answer {
    answer.map(see)
}

pub(super) type Answer = Result<Seen>;

/// Demands that two answers agree.
pub(super) fn same(subject: &Answer, model: &Answer) -> std::result::Result<(), String> {
    let agree = match (subject, model) {
        (Ok(subject), Ok(model)) => subject == model,
        (Err(subject), Err(model)) => posix(subject) == posix(model),
        _ => false,
    };
    if agree {
        Ok(())
    } else {
        Err(format!("subject: {}, model: {}", shown(subject), shown(model)))
    }
}

/// The errno, with one name for what POSIX lets a file system name either way: a directory that is
/// not empty (xfs says `EEXIST` where it is to be replaced).
fn posix(error: &Error) -> Errno {
    match error.errno() {
        Errno::EXIST => Errno::NOTEMPTY,
        errno => errno,
    }
}

fn shown(answer: &Answer) -> String {
    match answer {
        Ok(Seen::Bytes(bytes)) => shown_bytes(bytes),
        Ok(value) => format!("{value:?}"),
        Err(Error::Errno(errno)) => format!("{errno:?}"),
        Err(error) => error.to_string(),
    }
}

/// Runs of equal bytes, of which files here are made.
fn shown_bytes(bytes: &[u8]) -> String {
    let runs: Vec<String> = bytes
        .chunk_by(|a, b| a == b)
        .take(20)
        .map(|run| format!("{}x{:#04x}", run.len(), run[0]))
        .collect();
    format!("{} bytes: {}", bytes.len(), runs.join(" "))
}
