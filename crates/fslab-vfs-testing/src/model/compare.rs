//! The parts of a result that must agree, in a comparable form.

use std::ffi::OsString;

use fslab_vfs::{Attr, FileKind, Timestamp};
use fslab_vfs::{Errno, Error, Result};

/// A result without the parts that a file system may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    Attr(SeenAttr),
    Bytes(Vec<u8>),
    Text(OsString),
    Number(u64),
    Names(Vec<String>),
    /// The times that the caller set.
    Times(Timestamp, Timestamp),
}

/// The attributes that must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenAttr {
    kind: FileKind,
    permissions: u32,
    uid: u32,
    gid: u32,
    /// `None` for directories, because each file system counts their links and sizes in its own
    /// way.
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

/// The result of an operation, with its value converted by `see`.
pub(super) fn seen<T>(answer: Result<T>, see: impl FnOnce(T) -> Seen) -> Answer {
    answer.map(see)
}

pub(super) type Answer = Result<Seen>;

/// Checks that two results agree.
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

/// Returns the errno, with `ENOTEMPTY` in place of `EEXIST`: POSIX allows both for a directory that
/// is not empty. XFS returns `EEXIST` for a rename onto such a directory.
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

/// Formats bytes as runs of equal bytes, because the test files consist of such runs.
fn shown_bytes(bytes: &[u8]) -> String {
    let runs: Vec<String> = bytes
        .chunk_by(|a, b| a == b)
        .take(20)
        .map(|run| format!("{}x{:#04x}", run.len(), run[0]))
        .collect();
    format!("{} bytes: {}", bytes.len(), runs.join(" "))
}
