//! Opens an archive of any kind, with its key if it is encrypted.

use std::path::Path;
use std::sync::Arc;

use super::{Archive, ArchiveAddress, ArchiveDescription, EncryptedArchive, Key, Purpose};
use crate::error::{Error, Result};
use crate::id::{Id, Identities};

/// Opens an archive of a tier. If the archive is encrypted, `key` is the file with its key.
///
/// # Errors
/// If there is no archive, it belongs to another tier, it is in use, or the key is wrong.
pub fn open(
    address: &ArchiveAddress,
    (owner, purpose): (Id, &Purpose),
    key: Option<&Path>,
    identities: &Arc<dyn Identities>,
) -> Result<Arc<dyn Archive>> {
    let key = key_of(&address.describe()?, address, key)?;
    let archive = address.open(owner, purpose)?;
    if let Some(refusal) = archive.refusal() {
        tracing::warn!("archive {}: {refusal}", address.label());
    }
    Ok(match key {
        Some(key) => Arc::new(EncryptedArchive::new(archive, key, Arc::clone(identities))),
        None => archive,
    })
}

/// Returns the key of an archive, or `None` if it is not encrypted. The key must have the mark in
/// the description.
///
/// # Errors
/// If a key is missing or wrong, or a key is given but the archive is not encrypted.
pub(crate) fn key_of(
    description: &ArchiveDescription,
    archive: &ArchiveAddress,
    key: Option<&Path>,
) -> Result<Option<Key>> {
    let wrong = |path: &Path, what: String| Err(Error::Key { path: path.to_owned(), what });
    let (encryption, file) = match (&description.encryption, key) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            let what = "is not encrypted, although a key is given for it: is it the right \
                directory?";
            return wrong(Path::new(&archive.label()), what.to_owned());
        }
        (Some(_), None) => {
            let what = "is encrypted; give the file with its key: `--key FILE`, `-l \
                tier:key=FILE`, or `key` in tier.toml";
            return wrong(Path::new(&archive.label()), what.to_owned());
        }
        (Some(encryption), Some(file)) => (encryption, file),
    };
    let key = Key::read(file)?;
    if key.mark(description.id) != encryption.key {
        return wrong(file, format!("is not the key of the archive {}", archive.label()));
    }
    Ok(Some(key))
}
