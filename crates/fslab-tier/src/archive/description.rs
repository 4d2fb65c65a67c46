//! What a directory says of itself as an archive, in `archive.toml`.

use std::io::{self, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ContainerKind;
use super::confined_dir::ConfinedDir;
use crate::error::{Error, Result};
use crate::id::Id;

pub(super) const SETTINGS: &str = "archive.toml";
pub(super) const VERSION: u32 = 1;

/// What an archive says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveDescription {
    /// Of the layout.
    pub version: u32,
    /// Its identity.
    pub id: Id,
    /// The tier that writes to it, and alone deletes from it.
    pub owner: Id,
    /// How what is in it is encrypted, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
}

/// What an archive says of its encryption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encryption {
    /// How.
    pub cipher: Cipher,
    /// What tells its key from another.
    pub key: Id,
}

/// How containers are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cipher {
    /// As [`super::EncryptedArchive`] does it.
    Chacha20Poly1305,
}

impl ArchiveDescription {
    /// Reads what a directory says of itself.
    ///
    /// # Errors
    /// Where it is no archive, or one of a later fslab.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join(SETTINGS);
        let no_archive = |what: String| Error::NoArchive { path: root.to_owned(), what };
        let text = read_settings(root, SETTINGS).map_err(|error| match error.kind() {
            ErrorKind::NotFound if !root.exists() => {
                no_archive("the archive is not there: is its disk mounted?".to_owned())
            }
            ErrorKind::NotFound => no_archive("is no archive: it has no archive.toml".to_owned()),
            _ => Error::File { path: path.clone(), source: error },
        })?;
        let description: Self = toml::from_str(&text)
            .map_err(|error| no_archive(format!("archive.toml: {}", error.message())))?;
        if description.version != VERSION {
            return Err(no_archive(format!("is of version {}", description.version)));
        }
        Ok(description)
    }
}

/// Reads a file with settings, or what a writer says of itself.
pub(super) fn read_settings(root: &Path, name: &str) -> io::Result<String> {
    ConfinedDir::at(root)?.text(name)
}

pub(super) fn directory_of(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Files => "files",
        ContainerKind::Tree => "trees",
    }
}

/// Settings as they stand in their file.
pub(crate) fn settings_text(path: &Path, settings: &impl Serialize) -> Result<String> {
    toml::to_string(settings)
        .map_err(|source| Error::Unwritable { path: path.to_owned(), source: Box::new(source) })
}
