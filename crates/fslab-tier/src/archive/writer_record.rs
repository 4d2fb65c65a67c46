//! The record of the tree that writes to an archive, for archives of any kind.
//!
//! Two trees of one tier, such as the original and a rebuilt tree, must not both write to an
//! archive. Each would delete data that the other still needs. So a record in the archive
//! identifies the writing tree. Other trees can only read, until a user makes one of them take
//! over.
//!
//! A copy of a tree has the same identity. So each opening for writing has an identifier, which
//! both the archive and the tree store. A copy that was not the last to open the archive has
//! another identifier, and can only read.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::writer::{Openings, Writer};
use crate::error::{Error, Result};
use crate::id::Id;

/// The record of the tree that writes to an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterRecord {
    writer: Id,
    tree: String,
    host: String,
    /// Seconds since 1970.
    since: i64,
    /// The identifier of the last opening of the archive for writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opening: Option<Id>,
    /// The time of the last opening, in seconds since 1970.
    opened: i64,
}

/// The record found in an archive.
pub enum FoundRecord {
    /// The archive has no record.
    Nothing,
    /// The record identifies a tree.
    Tree(WriterRecord),
    /// The record can't be read.
    Damaged,
}

impl WriterRecord {
    /// Returns the record of a tree that begins to write.
    #[must_use]
    pub fn of(writer: &Writer) -> Self {
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

    /// Returns the record of a tree that opens an archive for writing, based on the previous
    /// record. The opening is stored in the tree before the caller stores the record.
    #[must_use]
    pub fn of_opening(writer: &Writer, archive: Id, known: Option<&Self>) -> Self {
        let before = known.and_then(|known| known.opening);
        let begin = |openings: &Openings| match openings.begin(archive, before) {
            Ok(opening) => Some(opening),
            // A tree without space for the xattr may still write to the archive. Tree and archive
            // then both keep the identity of the previous opening.
            Err(error) => {
                tracing::warn!(
                    "can't store an xattr on the tree's root directory ({error}), so archives \
                     can't distinguish this tree from its copies"
                );
                None
            }
        };
        let opening = writer.openings.as_ref().and_then(begin);
        match (known, opening) {
            (Some(known), None) => known.clone(),
            (known, opening) => {
                let first = Self::of(writer);
                Self { since: known.map_or(first.since, |known| known.since), opening, ..first }
            }
        }
    }

    /// Returns the record of a tree that takes over an archive. The opening is stored in the tree
    /// before the caller stores the record.
    ///
    /// # Errors
    /// Fails if the tree can't store the opening.
    pub fn of_take_over(writer: &Writer, archive: Id) -> Result<Self> {
        let openings = writer.openings.as_ref();
        let opening = openings.map(|openings| openings.begin(archive, None)).transpose();
        Ok(Self { opening: opening.map_err(Error::below(b""))?, ..Self::of(writer) })
    }

    /// Returns the refusal for a tree that is not the writer.
    fn told(&self) -> String {
        let since = date(self.since);
        format!("is written by another tree, {} on {}, since {since}", self.tree, self.host)
    }

    /// Returns the refusal for a copy of the writing tree.
    fn told_to_copy(&self) -> String {
        let opened = date(self.opened);
        format!(
            "was opened by another copy of this tree, {} on {}, at {opened}: one of the two trees \
             is a clone or an earlier snapshot of the other",
            self.tree, self.host
        )
    }

    /// Describes the writing tree, with the time when it became the writer and the time of its last
    /// opening.
    #[must_use]
    pub fn holder(&self) -> String {
        let Self { tree, host, since, opened, .. } = self;
        let [since, opened] = [*since, *opened].map(date);
        format!("is held by {tree} on {host} since {since}, last opened at {opened}")
    }

    /// Returns whether this tree, rather than a copy of it, was the last to open an archive.
    /// Returns `true` if that is unknown.
    fn is_of_last_opening(&self, writer: Option<&Writer>, archive: Id) -> Result<bool> {
        let openings = writer.and_then(|writer| writer.openings.as_ref());
        match (openings, self.opening) {
            (Some(openings), Some(opening)) => openings.has_opened(archive, opening),
            _ => Ok(true),
        }
    }
}

impl FoundRecord {
    /// Returns the reason why a tree may only read an archive of this identity and name, with the
    /// remedy. Returns `None` if the tree may write. A tree without a known identity may write if
    /// no record names another tree.
    ///
    /// `is_fresh` means that the archive has no containers. If an archive with containers has no
    /// record, its writer could not record itself. A tree rebuilt from such an archive may only
    /// read it.
    ///
    /// # Errors
    /// Fails if the tree's openings can't be read.
    pub fn refusal(
        self,
        (id, name): (Id, &str),
        writer: Option<&Writer>,
        is_fresh: bool,
    ) -> Result<Option<String>> {
        let is_rebuilt = writer.is_some_and(|writer| writer.mark.is_rebuilt);
        let told = match self {
            Self::Tree(known) if writer.is_some_and(|own| own.mark.id == known.writer) => {
                if known.is_of_last_opening(writer, id)? {
                    return Ok(None);
                }
                known.told_to_copy()
            }
            Self::Tree(known) => known.told(),
            Self::Damaged => {
                "has a damaged writer.toml, which identifies the tree that writes to it".to_owned()
            }
            Self::Nothing if is_rebuilt && !is_fresh => {
                "may still be written by the tree from which this one was rebuilt".to_owned()
            }
            Self::Nothing => return Ok(None),
        };
        let tree = shown(writer.and_then(|writer| writer.tree.as_deref()));
        Ok(Some(format!(
            "{told}; so the archive is read-only for this tree. To let this tree write to the \
             archive instead: fslab tier attach --take-over {tree} {name}"
        )))
    }
}

/// Formats seconds since 1970 as a date.
pub(super) fn date(seconds: i64) -> String {
    let date = jiff::Timestamp::from_second(seconds);
    date.map_or_else(|_| seconds.to_string(), |date| date.to_string())
}

fn shown(tree: Option<&Path>) -> String {
    tree.map_or_else(|| "TREE".to_owned(), |tree| tree.display().to_string())
}
