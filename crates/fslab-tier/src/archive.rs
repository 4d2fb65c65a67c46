//! Archives: the trait, and a file for each kind.
//!
//! `directory` is the archive that users have. Three kinds wrap any archive: `encryption` encrypts
//! with a `key`, `unavailable` reconnects, and `call_timeout` limits the time of a call. `lease`
//! and `writer_record` keep two trees from writing to one archive.
//!
//! An archive keeps *containers*, which are written once from beginning to end and then never
//! changed. A container holds one object, or several in a row.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::Id;
use crate::id::Identities;

mod call_threads;
mod call_timeout;
mod confined_dir;
pub mod directory;
pub mod encryption;
pub mod key;
mod lease;
pub mod memory;
pub mod unavailable;
mod writer_record;

pub(crate) use call_timeout::TimeoutArchive;
pub use directory::DirectoryArchive;
pub use encryption::EncryptedArchive;
pub use key::Key;
pub use unavailable::ReconnectingArchive;
pub use writer_record::{Openings, Writer};

/// An archive of a tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveEntry {
    /// Its identity.
    pub id: Id,
    /// Its directory.
    pub path: PathBuf,
    /// The file with its key, where it is encrypted. The key itself is nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// What a container is for; archives keep the kinds apart, so that trees are found quickly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContainerKind {
    /// Files.
    Files,
    /// The names and attributes of a whole tree.
    Tree,
}

/// Somewhere to keep containers.
///
/// Calls block for as long as the archive takes, which for a tape are minutes: only threads of
/// their own call them. Errors are the system's; whoever calls names the archive.
pub trait Archive: Send + Sync {
    /// Returns the identity of the archive, which it keeps when it is moved.
    fn id(&self) -> Id;

    /// Returns its name for messages.
    fn label(&self) -> &str;

    /// Returns why it is read only, and what to do about it, if another tree writes to it. Then no
    /// container may be begun or deleted.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Returns whether everything that it returns was written by a holder of its key.
    fn is_authentic(&self) -> bool {
        false
    }

    /// Why it is unavailable, where it is: then calls answer `NotConnected`. Asks nobody.
    fn why_unavailable(&self) -> Option<String> {
        None
    }

    /// Returns whether a call has not returned yet, as far as calls are counted.
    fn is_busy(&self) -> bool {
        false
    }

    /// Checks that it is where it was. If it is not, no container counts as missing.
    ///
    /// # Errors
    /// What is there instead.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// Looks for one that is unavailable, now and then; `true` where it came back since this was
    /// asked.
    fn look(&self) -> bool {
        false
    }

    /// Begins a container, which is invisible until it is finished.
    ///
    /// # Errors
    /// Errors of the system.
    fn begin(&self, kind: ContainerKind, container: Id) -> io::Result<Box<dyn Upload>>;

    /// Reads at an offset; fewer bytes than asked only at the end.
    ///
    /// # Errors
    /// `NotFound` where there is no such container.
    fn read(
        &self,
        kind: ContainerKind,
        container: Id,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize>;

    /// Bytes of a container.
    ///
    /// # Errors
    /// `NotFound` where there is no such container.
    fn length(&self, kind: ContainerKind, container: Id) -> io::Result<u64>;

    /// Calls `visit` with each container of a kind and its length.
    ///
    /// # Errors
    /// Errors of the system.
    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()>;

    /// Drops cached data of a container, so that the next read shows its present bytes.
    fn forget(&self, kind: ContainerKind, container: Id) {
        let _ = (kind, container);
    }

    /// Deletes a container; succeeds if there is none.
    ///
    /// # Errors
    /// Errors of the system.
    fn delete(&self, kind: ContainerKind, container: Id) -> io::Result<()>;

    /// Returns where a part of a container lies, for the order of recalls: medium, and place on it.
    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        let _ = container;
        (0, offset)
    }
}

/// A container that is being written. If it is dropped unfinished, no part of it is left.
pub trait Upload: Send {
    /// Adds bytes.
    ///
    /// # Errors
    /// Errors of the system.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes the container durable, then visible.
    ///
    /// # Errors
    /// Errors of the system; the container is then not there.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Opens a directory as an archive of a tier to write to it, with the key in a file where it is
/// encrypted. Where another tree than the one that asks writes to it, that is said, and it is only
/// read.
///
/// # Errors
/// Where it is none, is another tier's or in use, or the key is not the right one.
pub fn open(
    path: &Path,
    (owner, writer): (Id, Option<&Writer>),
    key: Option<&Path>,
    identities: &Arc<dyn Identities>,
) -> Result<Arc<dyn Archive>> {
    let key = key_of(&DirectoryArchive::describe(path)?, path, key)?;
    let archive: Arc<dyn Archive> = Arc::new(DirectoryArchive::open_for(path, owner, writer)?);
    if let Some(refusal) = archive.refusal() {
        tracing::warn!("archive {}: {refusal}", path.display());
    }
    Ok(sealed(archive, key, identities))
}

/// Opens a directory as an archive of a tier to read from it, while nobody writes to it: it may be
/// one that nobody can write to.
///
/// # Errors
/// As [`open`].
pub fn open_to_read(
    path: &Path,
    owner: Id,
    key: Option<&Path>,
    identities: &Arc<dyn Identities>,
) -> Result<Arc<dyn Archive>> {
    let key = key_of(&DirectoryArchive::describe(path)?, path, key)?;
    let archive: Arc<dyn Archive> = Arc::new(DirectoryArchive::open_to_read(path, owner)?);
    Ok(sealed(archive, key, identities))
}

fn sealed(
    archive: Arc<dyn Archive>,
    key: Option<Key>,
    identities: &Arc<dyn Identities>,
) -> Arc<dyn Archive> {
    match key {
        Some(key) => Arc::new(EncryptedArchive::new(archive, key, Arc::clone(identities))),
        None => archive,
    }
}

/// The key of an archive, which says whether it has one, and which.
///
/// # Errors
/// Where it is missing, or another one, or the archive has none.
pub(crate) fn key_of(
    description: &directory::ArchiveDescription,
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
