//! The declaration of a kind of archive.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use super::{Archive, ArchiveDescription, Key, Writer};
use crate::cleanup::Cleanup;
use crate::error::Result;
use crate::id::Id;

/// The declaration of a kind of archive. Its functions get the location of an archive, which is the
/// decoded text after the scheme of its URL. [`super::ArchiveAddress`] has a method for each
/// function, and describes its errors.
///
/// The methods of an open archive are in [`Archive`].
#[derive(Debug)]
pub struct ArchiveKindSpec {
    /// The name of the kind, which is the scheme of its URLs.
    pub name: &'static str,
    /// A one-line description for help texts.
    pub help: &'static str,
    /// Returns the directory of a local archive; `None` for other archives.
    pub local_path: fn(&OsStr) -> Option<PathBuf>,
    /// Returns the file that a writer keeps locked.
    pub lock_file: fn(&OsStr) -> Option<PathBuf>,
    /// Resolves symbolic links.
    pub canonical: fn(&OsStr) -> Result<OsString>,
    /// Returns whether an archive exists at the location.
    pub is_made: fn(&OsStr) -> bool,
    /// Checks that an archive can be made at the location.
    pub check_place: fn(&OsStr) -> Result<()>,
    /// Makes an empty archive.
    pub make: fn(&OsStr, &NewArchive<'_>) -> Result<Cleanup>,
    /// Reads the description of an archive.
    pub describe: fn(&OsStr) -> Result<ArchiveDescription>,
    /// Opens an archive for its owner. Takes the lease if it is opened for writing.
    pub open: OpenArchive,
    /// Makes a tree the writer of an archive.
    pub take_over: fn(&OsStr, Id, &Writer) -> Result<()>,
    /// Describes the writer of an archive.
    pub holder: fn(&OsStr) -> Result<String>,
    /// Returns the reason why the place retains deleted containers; `None` if it frees their space.
    pub retention: fn(&OsStr) -> Result<Option<String>>,
    /// Returns the reason why a tree may only read the archive; `None` if it may write.
    pub refusal: fn(&OsStr, Option<&Writer>) -> Result<Option<String>>,
}

/// Opens an archive of a tier.
pub type OpenArchive = fn(&OsStr, Id, &Purpose) -> Result<Arc<dyn Archive>>;

/// An archive that is to be made.
#[derive(Clone, Copy)]
pub struct NewArchive<'a> {
    /// The identity of the archive.
    pub id: Id,
    /// The tier that the archive belongs to.
    pub owner: Id,
    /// The key, if the archive is encrypted.
    pub key: Option<&'a Key>,
}

/// The purpose of opening an archive.
#[derive(Clone)]
pub enum Purpose {
    /// Writes to the archive. The writer is `None` if the identity of the tree is unknown. If
    /// another tree writes to the archive, the archive is opened read-only and reports the reason.
    Write(Option<Writer>),
    /// Reads from the archive while no process writes to it. The archive may be write-protected.
    Read,
}
