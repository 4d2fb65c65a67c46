//! The description of an archive in a directory: `archive.toml`.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::confined_dir::ConfinedDir;
use crate::archive::{ArchiveDescription, ContainerKind};
use crate::error::{Error, Result};

pub(super) const SETTINGS: &str = "archive.toml";
pub(super) const VERSION: u32 = 1;

/// Reads the description of the archive in a directory.
///
/// # Errors
/// If there is no archive, or it was made by a later fslab.
pub(super) fn describe(root: &Path) -> Result<ArchiveDescription> {
    let path = root.join(SETTINGS);
    let no_archive = |what: String| Error::NoArchive { path: root.to_owned(), what };
    let text = read_settings(root, SETTINGS).map_err(|error| match error.kind() {
        ErrorKind::NotFound if !root.exists() => {
            no_archive("the archive is not there: is its disk mounted?".to_owned())
        }
        ErrorKind::NotFound => no_archive("is not an archive: it has no archive.toml".to_owned()),
        _ => Error::File { path: path.clone(), source: error },
    })?;
    let description: ArchiveDescription = toml::from_str(&text)
        .map_err(|error| no_archive(format!("archive.toml: {}", error.message())))?;
    if description.version != VERSION {
        return Err(no_archive(format!(
            "has version {}, which this fslab does not support",
            description.version
        )));
    }
    Ok(description)
}

/// Reads a settings file or the writer record.
pub(super) fn read_settings(root: &Path, name: &str) -> io::Result<String> {
    ConfinedDir::at(root)?.text(name)
}

pub(super) fn directory_of(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Files => "files",
        ContainerKind::Tree => "trees",
    }
}
