//! The description of an archive, which is stored in the archive itself.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::Id;

/// The description of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveDescription {
    /// The version of the layout.
    pub version: u32,
    /// The identity of the archive.
    pub id: Id,
    /// The tier that the archive belongs to. No other tier writes to it or deletes from it.
    pub owner: Id,
    /// The encryption, if the archive is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
}

/// The encryption of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encryption {
    /// The cipher.
    pub cipher: Cipher,
    /// The mark of the archive's key, see [`super::Key::mark`].
    pub key: Id,
}

/// A cipher for containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cipher {
    /// ChaCha20-Poly1305, as in [`super::EncryptedArchive`].
    Chacha20Poly1305,
}

/// Formats settings as the text of their file.
pub(crate) fn settings_text(path: &Path, settings: &impl Serialize) -> Result<String> {
    toml::to_string(settings)
        .map_err(|source| Error::Unwritable { path: path.to_owned(), source: Box::new(source) })
}
