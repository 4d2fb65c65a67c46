//! Replaces names by keyed hashes. With the same key, equal names have equal hashes.

use std::path::Path;

use crate::error::{Error, Result};

/// Minimum length of a key in bytes.
const KEY_BYTES_MIN: usize = 16;

/// The context string for deriving name keys.
const CONTEXT: &str = "fslab 2026-11 names in snapshots";

/// A key for anonymising names.
pub struct NameKey([u8; blake3::KEY_LEN]);

impl NameKey {
    /// Reads the key from a file; all bytes of the file are used.
    ///
    /// # Errors
    /// Fails if the key is too short to be secure, and on I/O errors.
    pub fn read(path: &Path) -> Result<Self> {
        let secret = std::fs::read(path).map_err(Error::file(path))?;
        if secret.len() < KEY_BYTES_MIN {
            let message = format!(
                "key {}: {} bytes; a key must have at least {KEY_BYTES_MIN}",
                path.display(),
                secret.len()
            );
            return Err(Error::parameter(message));
        }
        Ok(Self(blake3::derive_key(CONTEXT, &secret)))
    }

    /// Returns the replacement of a name: the first 12 bytes of its keyed hash, in hexadecimal.
    #[must_use]
    pub fn hide(&self, name: &[u8]) -> Vec<u8> {
        let hash = blake3::keyed_hash(&self.0, name).to_hex();
        hash.as_bytes()[..24].to_vec()
    }
}
