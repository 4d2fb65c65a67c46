//! What an archive of any kind says of the tree that writes to it.
//!
//! Two trees of one tier, such as a rebuilt one beside the original, must not both write to an
//! archive: each would delete what only the other needs. So a record in the archive names the
//! writing tree, until a user has another one take over. Other trees only read.
//!
//! A copy of a tree has the same identity. So each opening for writing has a number, which both the
//! archive and the tree keep: a copy that did not open the archive last has another number, and
//! only reads.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::writer::{Openings, Writer};
use crate::error::{Error, Result};
use crate::id::Id;

/// What an archive says of the tree that writes to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterRecord {
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

/// The record of an archive, as it was found.
pub enum FoundRecord {
    /// There is none.
    Nothing,
    /// It names a tree.
    Tree(WriterRecord),
    /// It can't be read.
    Damaged,
}

impl WriterRecord {
    /// The record of a tree that begins to write.
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

    /// The record of a tree that opens an archive to write, after the one that was there. The tree
    /// notes the opening first.
    #[must_use]
    pub fn of_opening(writer: &Writer, archive: Id, known: Option<&Self>) -> Self {
        let before = known.and_then(|known| known.opening);
        let begin = |openings: &Openings| match openings.begin(archive, before) {
            Ok(opening) => Some(opening),
            // Whoever has no room may write all the same: both keep what they said before.
            Err(error) => {
                tracing::warn!(
                    "the tree's root takes no xattr ({error}): the tree can't be told from a copy \
                     of it"
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

    /// The record of a tree that takes an archive over. The tree notes the opening first.
    ///
    /// # Errors
    /// Errors of the tree.
    pub fn of_take_over(writer: &Writer, archive: Id) -> Result<Self> {
        let openings = writer.openings.as_ref();
        let opening = openings.map(|openings| openings.begin(archive, None)).transpose();
        Ok(Self { opening: opening.map_err(Error::below(b""))?, ..Self::of(writer) })
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
    #[must_use]
    pub fn holder(&self) -> String {
        let Self { tree, host, since, opened, .. } = self;
        let [since, opened] = [*since, *opened].map(date);
        format!("is held by {tree} on {host} since {since}, opened last at {opened}")
    }

    /// Whether a tree, and no copy of it, opened an archive last, as far as that can be told.
    fn is_of_last_opening(&self, writer: Option<&Writer>, archive: Id) -> Result<bool> {
        let openings = writer.and_then(|writer| writer.openings.as_ref());
        match (openings, self.opening) {
            (Some(openings), Some(opening)) => openings.has_opened(archive, opening),
            _ => Ok(true),
        }
    }
}

impl FoundRecord {
    /// Why a tree may only read an archive of this identity and name, and what to do about it; none
    /// if it may write. One that can't tell who it is may write where no other does.
    ///
    /// An archive that `is_fresh` was never written to. Where another one names no tree, the tree
    /// that wrote there could not record itself, and one that was made of the archive since only
    /// reads it.
    ///
    /// # Errors
    /// Errors of the tree.
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
                "has a damaged writer.toml, which names the tree that writes to it".to_owned()
            }
            Self::Nothing if is_rebuilt && !is_fresh => {
                "may be written by the tree that this one is made again of".to_owned()
            }
            Self::Nothing => return Ok(None),
        };
        let tree = shown(writer.and_then(|writer| writer.tree.as_deref()));
        Ok(Some(format!(
            "{told}, and only read here; to have this tree write to it in the place of that one: \
             fslab tier attach --take-over {tree} {name}"
        )))
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
