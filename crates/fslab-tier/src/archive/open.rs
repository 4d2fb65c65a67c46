//! Opens a directory as an archive, with its key where it is encrypted.

use std::path::Path;
use std::sync::Arc;

use super::{Archive, ArchiveDescription, DirectoryArchive, EncryptedArchive, Key, Writer};
use crate::error::{Error, Result};
use crate::id::{Id, Identities};

/// What an archive is opened for.
#[derive(Clone)]
pub enum Purpose {
    /// To write to it, for a tree as far as that can be told. Where another tree writes to it, that
    /// is said, and it is only read.
    Write(Option<Writer>),
    /// To read from it, while nobody writes to it: it may be one that nobody can write to.
    Read,
}

/// Opens a directory as an archive of a tier, with the key in a file where it is encrypted.
///
/// # Errors
/// Where it is none, is another tier's or in use, or the key is not the right one.
pub fn open(
    path: &Path,
    (owner, purpose): (Id, &Purpose),
    key: Option<&Path>,
    identities: &Arc<dyn Identities>,
) -> Result<Arc<dyn Archive>> {
    let key = key_of(&ArchiveDescription::read(path)?, path, key)?;
    let archive = match purpose {
        Purpose::Write(writer) => DirectoryArchive::open_for(path, owner, writer.as_ref())?,
        Purpose::Read => DirectoryArchive::open_to_read(path, owner)?,
    };
    if let Some(refusal) = archive.refusal() {
        tracing::warn!("archive {}: {refusal}", path.display());
    }
    Ok(match key {
        Some(key) => {
            Arc::new(EncryptedArchive::new(Arc::new(archive), key, Arc::clone(identities)))
        }
        None => Arc::new(archive),
    })
}

/// The key of an archive, which says whether it has one, and which.
///
/// # Errors
/// Where it is missing, or another one, or the archive has none.
pub(crate) fn key_of(
    description: &ArchiveDescription,
    archive: &Path,
    key: Option<&Path>,
) -> Result<Option<Key>> {
    let wrong = |path: &Path, what: String| Err(Error::Key { path: path.to_owned(), what });
    let (encryption, file) = match (&description.encryption, key) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            let what = "is not encrypted, though a key is named for it: is it the right directory?";
            return wrong(archive, what.to_owned());
        }
        (Some(_), None) => {
            let what = "is encrypted; name the file with its key: `--key FILE`, \
                        `-l tier:key=FILE`, or `key` in tier.toml";
            return wrong(archive, what.to_owned());
        }
        (Some(encryption), Some(file)) => (encryption, file),
    };
    let key = Key::read(file)?;
    if key.mark(description.id) != encryption.key {
        return wrong(file, format!("is not the key of the archive {}", archive.display()));
    }
    Ok(Some(key))
}
