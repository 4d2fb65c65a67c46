//! Errors of tiering.

use std::io;
use std::path::{Path, PathBuf};
use std::str::Utf8Chunk;

use crate::id::Id;

/// What is stored is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Corrupt(pub &'static str);

/// The result of anything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why tiering can't go on, in one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system below answered this.
    #[error("{path}: {source}")]
    Below {
        /// The file, from the root of the tree.
        path: String,
        /// Why.
        source: fslab_vfs::Error,
    },
    /// A file of the tier's home could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// Settings can't be written as TOML: a path in them is no UTF-8.
    #[error("{}: can't be written: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<toml::ser::Error>,
    },
    /// An archive failed.
    #[error("archive {archive}, object {container}: {source}")]
    Archive {
        /// The archive.
        archive: String,
        /// What was read or written there.
        container: Id,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// Another tree of the tier writes to an archive.
    #[error("archive {archive}: {why}")]
    OthersArchive {
        /// The archive.
        archive: String,
        /// Which tree, and what to do.
        why: String,
    },
    /// What an archive holds is not what was put there.
    #[error("archive {archive}, object {object}: {what}")]
    Damaged {
        /// The archive.
        archive: String,
        /// The object.
        object: Id,
        /// What was found wrong.
        what: Corrupt,
    },
    /// A directory is no archive.
    #[error("{}: {what}", path.display())]
    NoArchive {
        /// The directory.
        path: PathBuf,
        /// What was found instead, and what to do.
        what: String,
    },
    /// A place on another machine is no archive, or can't be used as one.
    #[error("{archive}: {what}")]
    NoRemoteArchive {
        /// Its address.
        archive: String,
        /// What was found instead, and what to do.
        what: String,
    },
    /// The machine lacks what an archive needs, such as credentials.
    #[error("{archive}: {what}")]
    Missing {
        /// The address of the archive.
        archive: String,
        /// What is lacking, and what to do.
        what: String,
    },
    /// An archive on another machine does not answer as it should.
    #[error("{archive}: {source}")]
    Remote {
        /// The address of the archive.
        archive: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The key of an archive is missing, or is none.
    #[error("{}: {what}", path.display())]
    Key {
        /// The archive, or the file with the key.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Not enough archives can take a copy.
    #[error(
        "archives needed: {wanted}, one for each copy; archives that can take one: \
         {found}{}; attach another archive first (`fslab tier attach`)",
        for_now(unavailable)
    )]
    TooFewArchives {
        /// Copies asked for.
        wanted: usize,
        /// Archives there are.
        found: usize,
        /// Others that are unavailable.
        unavailable: Vec<String>,
    },
    /// Archives that are attached hold fewer copies than are asked for.
    #[error(
        "{wanted} copies are asked for, and it has {found} in archives that are attached{}; \
             `fslab tier scrub` makes others",
        besides(missing)
    )]
    TooFewCopies {
        /// Copies asked for.
        wanted: usize,
        /// Copies there are.
        found: usize,
        /// Archives with copies that are not attached.
        missing: Vec<String>,
    },
    /// No archive that holds something is attached.
    #[error("no archive that holds it is attached{}", besides(missing))]
    NoCopy {
        /// Archives that hold it.
        missing: Vec<String>,
    },
    /// The catalogue failed.
    #[error("catalogue {}: {source}", path.display())]
    Catalogue {
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// The catalogue can't be read, as it is damaged or something else.
    #[error(
        "catalogue {}: is damaged; move it away and run `fslab tier scan`: {source}",
        path.display()
    )]
    CatalogueUnreadable {
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// The catalogue holds something that is none of its own.
    #[error("catalogue {}: {what}; move it away and run `fslab tier scan`", path.display())]
    CatalogueDamaged {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        what: Corrupt,
    },
    /// A file is archived, and the catalogue could not be told.
    #[error(
        "{path}: is archived, but the catalogue does not say so before the next start or scan: \
         {source}"
    )]
    Uncatalogued {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: Box<Error>,
    },
    /// A file of settings is wrong.
    #[error("{}, line {line}: {what}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// A home or a tree can't be used as asked.
    #[error("{what}")]
    Refused {
        /// What, and what to do.
        what: String,
    },
    /// A command was asked what it would do, and can't tell.
    #[error("this command has no dry run")]
    NoDryRun,
    /// A file can't be archived, released or recalled now.
    #[error("{path}: {why}")]
    NotNow {
        /// The file.
        path: String,
        /// Why.
        why: &'static str,
    },
    /// Another program moves the files of the tree.
    #[error(
        "the tree, or a directory above or below it, is in use by another fslab mount or command; \
         end that first, or use the mount point"
    )]
    InUse,
    /// The same, and the next time it may be otherwise: somebody uses or changes the file.
    #[error("{path}: {why}")]
    Busy {
        /// The file.
        path: String,
        /// Why.
        why: &'static str,
    },
    /// A file is left alone because of whose it is.
    #[error("{path}: belongs to another user; only root's tiers move others' files")]
    Foreign {
        /// The file.
        path: String,
    },
    /// Whoever asked is gone.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Returns a function that names the archive and the container whose access failed.
    pub(crate) fn archive(archive: &str, container: Id) -> impl FnOnce(io::Error) -> Self {
        let archive = archive.to_owned();
        move |source| Self::Archive { archive, container, source }
    }

    /// Returns the error of a damaged object.
    pub(crate) fn damaged(archive: &str, object: Id, what: Corrupt) -> Self {
        Self::Damaged { archive: archive.to_owned(), object, what }
    }

    /// A failure of the file system below at a file.
    pub(crate) fn below(path: &[u8]) -> impl FnOnce(fslab_vfs::Error) -> Self {
        let path = shown(path);
        move |source| Self::Below { path, source }
    }

    /// A file can't be archived, released or recalled before somebody is done with it.
    pub(crate) fn busy(path: &[u8], why: &'static str) -> Self {
        Self::Busy { path: shown(path), why }
    }

    /// A failure at a file of the home.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    /// Whether an archive is unavailable, which says nothing of what it holds.
    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(self, Self::Archive { source, .. } if source.kind() == io::ErrorKind::NotConnected)
    }
}

/// Archives that would have been of use.
fn besides(missing: &[String]) -> String {
    match missing {
        [] => String::new(),
        [one] => format!(", as archive {one} is not"),
        several => format!(", as archives {} are not", several.join(" and ")),
    }
}

/// Archives that would be of use if they were there.
fn for_now(unavailable: &[String]) -> String {
    match unavailable {
        [] => String::new(),
        archives => format!("; unavailable for now: {}", archives.join(", ")),
    }
}

/// A path of the tree for messages. One that is no UTF-8 has its other bytes as `\xNN` and each
/// backslash twice; so has one in which `\x` stands, that no two paths are shown alike.
pub(crate) fn shown(path: &[u8]) -> String {
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

/// The line, from 1, on which something begins.
pub(crate) fn line_of(text: &str, span: Option<std::ops::Range<usize>>) -> usize {
    let start = span.map_or(0, |span| span.start);
    1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count()
}
