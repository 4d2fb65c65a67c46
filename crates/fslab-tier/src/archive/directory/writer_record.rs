//! The record of the archive's writer: which tree writes to it.
//!
//! Two trees of one tier, such as a rebuilt one beside the original, must not both write to an
//! archive: each would delete what only the other needs. So `writer.toml` in the archive names the
//! writing tree, until a user has another one take over. Other trees only read.
//!
//! A copy of a tree has the same identity. So each opening for writing has a number, which both the
//! archive and the tree keep: a copy that did not open the archive last has another number, and
//! only reads.

use std::io::{self, ErrorKind};
use std::path::Path;

use fslab_vfs::Errno;
use serde::{Deserialize, Serialize};

use super::settings::{describe, read_settings};
use crate::archive::description::settings_text;
use crate::archive::writer::{Openings, Writer};
use crate::atomic_write::write_durably;
use crate::error::{Error, Result};
use crate::id::Id;

const RECORD: &str = "writer.toml";

/// What an archive says of the tree that writes to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WriterRecord {
    writer: Id,
    tree: String,
    host: String,
    /// Seconds since 1970.
    since: i64,
    /// The last opening of the archive to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opening: Option<Id>,
    /// When that was, in seconds since 1970.
    opened: i64,
}

impl WriterRecord {
    fn of(writer: &Writer) -> Self {
        let system = rustix::system::uname();
        Self {
            writer: writer.mark.id,
            tree: shown(writer.tree.as_deref()),
            host: system.nodename().to_string_lossy().into_owned(),
            since: writer.since.seconds,
            opening: None,
            opened: writer.since.seconds,
        }
    }

    /// What another tree is told.
    fn told(&self) -> String {
        let since = date(self.since);
        format!("is written by another tree, {} on {}, since {since}", self.tree, self.host)
    }

    /// What a copy of the tree is told.
    fn told_to_copy(&self) -> String {
        let opened = date(self.opened);
        format!(
            "was opened by another copy of this tree, {} on {}, at {opened}: one of them is a \
             clone, or an earlier snapshot",
            self.tree, self.host
        )
    }

    /// Who it is, since when, and when it opened the archive last.
    fn holder(&self) -> String {
        let Self { tree, host, since, opened, .. } = self;
        let [since, opened] = [*since, *opened].map(date);
        format!("is held by {tree} on {host} since {since}, opened last at {opened}")
    }
}

/// A date, of seconds since 1970.
pub(super) fn date(seconds: i64) -> String {
    let date = jiff::Timestamp::from_second(seconds);
    date.map_or_else(|_| seconds.to_string(), |date| date.to_string())
}

fn shown(tree: Option<&Path>) -> String {
    tree.map_or_else(|| "TREE".to_owned(), |tree| tree.display().to_string())
}

/// Why a tree may only read an archive, and what to do about it; none if it may write. One
/// that can't tell who it is may write where no other does.
///
/// An archive that `is_fresh` was never written to. Where another one names no tree, the tree that
/// wrote there could not record itself, and one that was made of the archive since only reads it.
pub(super) fn refusal(
    archive: &Path,
    writer: Option<&Writer>,
    is_fresh: bool,
) -> Result<Option<String>> {
    let is_rebuilt = writer.is_some_and(|writer| writer.mark.is_rebuilt);
    let told = match read(archive)? {
        FoundRecord::Tree(known) if writer.is_some_and(|own| own.mark.id == known.writer) => {
            if has_opened_last(archive, writer, &known)? {
                return Ok(None);
            }
            known.told_to_copy()
        }
        FoundRecord::Tree(known) => known.told(),
        FoundRecord::Damaged => {
            format!("has a damaged {RECORD}, which names the tree that writes to it")
        }
        FoundRecord::Nothing if is_rebuilt && !is_fresh => {
            "may be written by the tree that this one is made again of".to_owned()
        }
        FoundRecord::Nothing => return Ok(None),
    };
    let tree = shown(writer.and_then(|writer| writer.tree.as_deref()));
    let archive = archive.display();
    Ok(Some(format!(
        "{told}, and only read here; to have this tree write to it in the place of that one: \
         fslab tier attach --take-over {tree} {archive}"
    )))
}

/// Whether a tree, and no copy of it, opened an archive last, as far as that can be told.
fn has_opened_last(archive: &Path, writer: Option<&Writer>, known: &WriterRecord) -> Result<bool> {
    let openings = writer.and_then(|writer| writer.openings.as_ref());
    match (openings, known.opening) {
        (Some(openings), Some(opening)) => openings.has_opened(describe(archive)?.id, opening),
        _ => Ok(true),
    }
}

enum FoundRecord {
    Nothing,
    Tree(WriterRecord),
    Damaged,
}

fn read(archive: &Path) -> Result<FoundRecord> {
    match read_settings(archive, RECORD) {
        Ok(text) => Ok(toml::from_str(&text).map_or(FoundRecord::Damaged, FoundRecord::Tree)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(FoundRecord::Nothing),
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(FoundRecord::Damaged),
        Err(error) => Err(Error::File { path: archive.join(RECORD), source: error }),
    }
}

/// Who writes to an archive, since when, and when it was opened last; none if it says nothing
/// that can be read.
pub(super) fn holder(archive: &Path) -> Result<Option<String>> {
    match read(archive)? {
        FoundRecord::Tree(known) => Ok(Some(known.holder())),
        FoundRecord::Nothing | FoundRecord::Damaged => Ok(None),
    }
}

/// Has an archive say that a tree writes to it from now on. The caller has its lease.
pub(super) fn take_over(archive: &Path, writer: &Writer) -> Result<()> {
    let opening = match &writer.openings {
        None => None,
        Some(openings) => {
            let id = describe(archive)?.id;
            Some(openings.begin(id, None).map_err(Error::below(b""))?)
        }
    };
    write(archive, &WriterRecord { opening, ..WriterRecord::of(writer) })
}

/// Has an archive say that its tree has opened it. A full archive says so later: what expires makes
/// room.
pub(super) fn record_opening(archive: &Path, writer: &Writer) -> Result<()> {
    let known = match read(archive)? {
        FoundRecord::Tree(known) => Some(known),
        FoundRecord::Nothing | FoundRecord::Damaged => None,
    };
    let before = known.as_ref().and_then(|known| known.opening);
    let begin = |openings: &Openings| -> Result<Option<Id>> {
        let id = describe(archive)?.id;
        match openings.begin(id, before) {
            Ok(opening) => Ok(Some(opening)),
            // Whoever has no room may write all the same: both keep what they said before.
            Err(error) => {
                tracing::warn!(
                    "the tree's root takes no xattr ({error}): the tree can't be told from a copy \
                     of it"
                );
                Ok(None)
            }
        }
    };
    let opening = writer.openings.as_ref().map(begin).transpose()?.flatten();
    if known.is_some() && opening.is_none() {
        return Ok(());
    }
    let first = WriterRecord::of(writer);
    let (is_known, since) = (known.is_some(), known.map_or(first.since, |known| known.since));
    match write(archive, &WriterRecord { since, opening, ..first }) {
        // What it said before still names this tree, which knows that opening, too.
        Err(Error::File { source, .. }) if is_known => {
            tracing::info!("{} can't say that it was opened: {source}", archive.display());
            Ok(())
        }
        Err(Error::File { source, .. }) if is_full(&source) => {
            tracing::warn!("{} can't say which tree writes to it: {source}", archive.display());
            Ok(())
        }
        recorded => recorded,
    }
}

fn write(archive: &Path, record: &WriterRecord) -> Result<()> {
    let path = archive.join(RECORD);
    let text = settings_text(&path, record)?;
    write_durably(&path, text.as_bytes()).map_err(Error::file(&path))
}

fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}
