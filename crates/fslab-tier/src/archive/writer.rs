//! Which tree writes to an archive.
//!
//! Trees of one tier, such as one that was made again of an archive beside the one that lives on,
//! must not write to it both: what only the other needs is unneeded to each. So the archive says in
//! `writer.toml` which of them writes, until somebody has another one take it over. Others read.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use fslab_vfs::{Errno, Timestamp};
use serde::{Deserialize, Serialize};

use super::directory::{read_settings, settings_text};
use crate::durable::write_durably;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::stored::WriterMark;

const RECORD: &str = "writer.toml";

/// A tree that opens archives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// What it is known by.
    pub mark: WriterMark,
    /// Its directory, for messages; nothing where it has none.
    pub tree: Option<PathBuf>,
    /// Now: since when it writes to what it begins to write to.
    pub since: Timestamp,
}

/// What an archive says of the tree that writes to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    writer: Id,
    tree: String,
    host: String,
    /// Seconds since 1970.
    since: i64,
}

impl Record {
    fn of(writer: &Writer) -> Self {
        let system = rustix::system::uname();
        Self {
            writer: writer.mark.id,
            tree: shown(writer.tree.as_deref()),
            host: system.nodename().to_string_lossy().into_owned(),
            since: writer.since.seconds,
        }
    }

    /// What another tree is told.
    fn told(&self) -> String {
        let since = jiff::Timestamp::from_second(self.since);
        let since = since.map_or_else(|_| self.since.to_string(), |since| since.to_string());
        format!("is written by another tree, {} on {}, since {since}", self.tree, self.host)
    }
}

fn shown(tree: Option<&Path>) -> String {
    tree.map_or_else(|| "TREE".to_owned(), |tree| tree.display().to_string())
}

/// Why a tree may only read an archive, and what to do about it; nothing where it may write. One
/// that can't tell who it is may write where no other does.
///
/// An archive that `is_fresh` was never written to. Where one says nothing else, an earlier version
/// wrote to it: not for a tree that was made of it since.
pub(super) fn refusal(
    archive: &Path,
    writer: Option<&Writer>,
    is_fresh: bool,
) -> Result<Option<String>> {
    let is_rebuilt = writer.is_some_and(|writer| writer.mark.is_rebuilt);
    let told = match read(archive)? {
        Known::Tree(known) if writer.is_some_and(|own| own.mark.id == known.writer) => {
            return Ok(None);
        }
        Known::Tree(known) => known.told(),
        Known::Damaged => format!("has a damaged {RECORD}, which tells the tree that writes to it"),
        Known::Nothing if is_rebuilt && !is_fresh => {
            "may be written by the tree that this one is made again of".to_owned()
        }
        Known::Nothing => return Ok(None),
    };
    let tree = shown(writer.and_then(|writer| writer.tree.as_deref()));
    let archive = archive.display();
    Ok(Some(format!(
        "{told}, and only read here; to have this tree write to it in the place of that one: \
         fslab tier attach --take-over {tree} {archive}"
    )))
}

enum Known {
    Nothing,
    Tree(Record),
    Damaged,
}

fn read(archive: &Path) -> Result<Known> {
    match read_settings(archive, RECORD) {
        Ok(text) => Ok(toml::from_str(&text).map_or(Known::Damaged, Known::Tree)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Known::Nothing),
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(Known::Damaged),
        Err(error) => Err(Error::File { path: archive.join(RECORD), source: error }),
    }
}

/// Has an archive say that a tree writes to it from now on. Whoever calls has its lease.
pub(super) fn record(archive: &Path, writer: &Writer) -> Result<()> {
    let path = archive.join(RECORD);
    let text = settings_text(&path, &Record::of(writer))?;
    write_durably(&path, text.as_bytes()).map_err(Error::file(&path))
}

/// The same where it says nothing yet. A full archive says so later: what expires makes room.
pub(super) fn record_first(archive: &Path, writer: &Writer) -> Result<()> {
    if !matches!(read(archive)?, Known::Nothing) {
        return Ok(());
    }
    match record(archive, writer) {
        Err(Error::File { source, .. }) if is_full(&source) => {
            tracing::warn!("{} can't say which tree writes to it: {source}", archive.display());
            Ok(())
        }
        recorded => recorded,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}
