//! What an archive says of itself.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::Id;

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

/// Settings as they stand in their file.
pub(crate) fn settings_text(path: &Path, settings: &impl Serialize) -> Result<String> {
    toml::to_string(settings)
        .map_err(|source| Error::Unwritable { path: path.to_owned(), source: Box::new(source) })
}
