//! Errors of tiering.

use std::io;
use std::path::{Path, PathBuf};
use std::str::Utf8Chunk;

use crate::archive::{Later, is_cold};
use crate::id::Id;

/// The reason why a stored record is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Corrupt(pub &'static str);

/// The result of the functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of tiering, displayed as one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lower file system failed.
    #[error("{path}: {source}")]
    Below {
        /// The path of the file from the root of the tree.
        path: String,
        /// The cause.
        source: fslab_vfs::Error,
    },
    /// A file of the tier's home, or another local file, could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Settings can't be written as TOML, because a path in them is not UTF-8.
    #[error("{}: can't be written: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<toml::ser::Error>,
    },
    /// An archive failed.
    #[error("archive {archive}, object {container}: {source}")]
    Archive {
        /// The archive.
        archive: String,
        /// The container that was read or written.
        container: Id,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Another tree of the tier writes to an archive.
    #[error("archive {archive}: {why}")]
    OthersArchive {
        /// The archive.
        archive: String,
        /// The tree that writes to the archive, and a remedy.
        why: String,
    },
    /// Data that was read from an archive differs from the data that was archived.
    #[error("archive {archive}, object {object}: {what}")]
    Damaged {
        /// The archive.
        archive: String,
        /// The object.
        object: Id,
        /// The damage found.
        what: Corrupt,
    },
    /// A directory is not an archive.
    #[error("{}: {what}", path.display())]
    NoArchive {
        /// The directory.
        path: PathBuf,
        /// The problem, and a remedy.
        what: String,
    },
    /// A location on another machine is not an archive, or can't be used as one.
    #[error("{archive}: {what}")]
    NoRemoteArchive {
        /// The address of the location.
        archive: String,
        /// The problem, and a remedy.
        what: String,
    },
    /// This machine lacks a prerequisite for using an archive, such as credentials.
    #[error("{archive}: {what}")]
    Missing {
        /// The address of the archive.
        archive: String,
        /// The missing prerequisite, and a remedy.
        what: String,
    },
    /// An archive on another machine does not respond as expected.
    #[error("{archive}: {source}")]
    Remote {
        /// The address of the archive.
        archive: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The key of an archive is missing, or the file given is not its key.
    #[error("{}: {what}", path.display())]
    Key {
        /// The archive, or the file with the key.
        path: PathBuf,
        /// The problem, and a remedy.
        what: String,
    },
    /// Not enough archives accept a copy.
    #[error(
        "archives needed: {wanted}, one for each copy; archives that accept a copy: {found}{}; \
         attach another archive first (`fslab tier attach`)",
        for_now(unavailable)
    )]
    TooFewArchives {
        /// The number of required copies.
        wanted: usize,
        /// The number of archives that accept a copy.
        found: usize,
        /// Other archives, which are unavailable.
        unavailable: Vec<String>,
    },
    /// The attached archives contain fewer copies than required.
    #[error(
        "{wanted} copies are required, but only {found} are in attached archives{}; make the \
         others with `fslab tier scrub`",
        besides(missing)
    )]
    TooFewCopies {
        /// The number of required copies.
        wanted: usize,
        /// The number of copies in attached archives.
        found: usize,
        /// Archives that contain copies but are not attached.
        missing: Vec<String>,
    },
    /// No attached archive contains the data.
    #[error("no attached archive contains this version{}", besides(missing))]
    NoCopy {
        /// Archives that contain the data but are not attached.
        missing: Vec<String>,
    },
    /// The catalogue failed.
    #[error("catalogue {}: {source}", path.display())]
    Catalogue {
        /// The catalogue's file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<redb::Error>,
    },
    /// The catalogue can't be read, because it is damaged or not a catalogue.
    #[error(
        "catalogue {}: is damaged; rename it, then run `fslab tier scan`, which makes a new one: \
         {source}",
        path.display()
    )]
    CatalogueUnreadable {
        /// The catalogue's file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<redb::Error>,
    },
    /// The catalogue contains an invalid record.
    #[error(
        "catalogue {}: {what}; rename it, then run `fslab tier scan`, which makes a new one",
        path.display()
    )]
    CatalogueDamaged {
        /// The catalogue's file.
        path: PathBuf,
        /// The problem.
        what: Corrupt,
    },
    /// A file is archived, but this could not be recorded in the catalogue.
    #[error(
        "{path}: was archived, but can't be recorded in the catalogue before the next start or \
         scan: {source}"
    )]
    Uncatalogued {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: Box<Error>,
    },
    /// A settings file has an invalid entry.
    #[error("{}, line {line}: {what}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem.
        what: String,
    },
    /// A home, an archive or a tree can't be used as requested.
    #[error("{what}")]
    Refused {
        /// The problem, and a remedy.
        what: String,
    },
    /// A dry run was requested of a command that has none.
    #[error("this command has no dry run")]
    NoDryRun,
    /// A file can't be archived, released or recalled now.
    #[error("{path}: {why}")]
    NotNow {
        /// The file.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// Another fslab process is using the tree.
    #[error(
        "the tree, or a directory above or below it, is in use by another fslab mount or command; \
         stop that process first, or give the mount point instead of the tree"
    )]
    InUse,
    /// A file can't be recalled before an archive has staged its data.
    #[error("{path}: {later}; recall the file again later")]
    Staging {
        /// The file.
        path: String,
        /// What the archive does, and until when.
        later: Later,
    },
    /// A file can't be archived, released or recalled now, because it is being used or changed. A
    /// later attempt may succeed.
    #[error("{path}: {why}")]
    Busy {
        /// The file.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// A file is skipped because it belongs to another user.
    #[error(
        "{path}: belongs to another user; only a tier of root can archive and release files of \
         other users"
    )]
    Foreign {
        /// The file.
        path: String,
    },
    /// The caller has ended or was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Returns a function that adds the archive and the container to the error of a failed access.
    pub(crate) fn archive(archive: &str, container: Id) -> impl FnOnce(io::Error) -> Self {
        let archive = archive.to_owned();
        move |source| Self::Archive { archive, container, source }
    }

    /// Returns the error of a damaged object.
    pub(crate) fn damaged(archive: &str, object: Id, what: Corrupt) -> Self {
        Self::Damaged { archive: archive.to_owned(), object, what }
    }

    /// Returns a function that adds the path to an error of the lower file system.
    pub(crate) fn below(path: &[u8]) -> impl FnOnce(fslab_vfs::Error) -> Self {
        let path = shown(path);
        move |source| Self::Below { path, source }
    }

    /// Returns the error of a file that can't be archived, released or recalled while it is in use.
    pub(crate) fn busy(path: &[u8], why: &'static str) -> Self {
        Self::Busy { path: shown(path), why }
    }

    /// Returns a function that adds the path of a local file to the error of a failed access.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    /// Returns whether an archive answered that it does not have an object.
    pub(crate) fn is_missing_object(&self) -> bool {
        match self {
            Self::Archive { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            Self::TooFewCopies { found, .. } => *found == 0,
            _ => false,
        }
    }

    /// Returns whether the error means that an archive, or one of its containers, can't be read
    /// now. Such an error shows nothing about the contents.
    pub(crate) fn is_unavailable(&self) -> bool {
        let is_gone = |source: &io::Error| source.kind() == io::ErrorKind::NotConnected;
        matches!(self, Self::Archive { source, .. } if is_gone(source) || is_cold(source))
    }

    /// Returns the container that must be staged before it can be read, if that is the cause.
    pub(crate) fn cold_container(&self) -> Option<Id> {
        match self {
            Self::Archive { source, container, .. } if is_cold(source) => Some(*container),
            _ => None,
        }
    }
}

/// Lists the unattached archives that contain a copy, as the end of a message.
fn besides(missing: &[String]) -> String {
    match missing {
        [] => String::new(),
        [one] => format!(", because archive {one} is not attached"),
        several => format!(", because archives {} are not attached", several.join(" and ")),
    }
}

/// Lists the archives that are unavailable for now, as the end of a message.
fn for_now(unavailable: &[String]) -> String {
    match unavailable {
        [] => String::new(),
        archives => format!("; unavailable for now: {}", archives.join(", ")),
    }
}

/// Formats a path of the tree for messages. In a path that is not UTF-8, invalid bytes are shown as
/// `\xNN` and backslashes are doubled. A path that contains the text `\x` is escaped too, so that
/// different paths are never shown alike.
#[must_use]
pub fn shown(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok("") => ".".to_owned(),
        Ok(text) if !text.contains(r"\x") => text.to_owned(),
        _ => path.utf8_chunks().map(escaped).collect(),
    }
}

fn escaped(chunk: Utf8Chunk<'_>) -> String {
    let bytes = chunk.invalid().iter().map(|byte| format!(r"\x{byte:02x}"));
    std::iter::once(chunk.valid().replace('\\', r"\\")).chain(bytes).collect()
}

/// Returns the line, from 1, on which a span begins.
pub(crate) fn line_of(text: &str, span: Option<std::ops::Range<usize>>) -> usize {
    let start = span.map_or(0, |span| span.start);
    1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count()
}
