//! Archives: the trait, and a file for each kind.
//!
//! Users refer to an archive by an `address`, a URL whose scheme is its `kind`; `registry` lists
//! the kinds. `directory` is the only kind in this crate; the program adds others. The folder
//! `directory` contains the lease and the file with the writer record. The record itself, which
//! keeps two trees from writing to one archive, is in `writer_record`.
//!
//! Three wrappers work with any archive: `encryption` encrypts with a `key`, `unavailable`
//! reconnects, and `call_timeout` limits the time of a call.
//!
//! An archive keeps *containers*, which are written once from beginning to end and never changed
//! afterwards. A container contains one object, or several in sequence.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::Id;

mod address;
mod call_threads;
mod call_timeout;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod description;
mod directory;
pub mod encryption;
pub mod key;
mod kind;
mod open;
mod registry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod unavailable;
mod writer;
mod writer_record;

pub use address::ArchiveAddress;
pub(crate) use call_timeout::TimeoutArchive;
pub(crate) use description::settings_text;
pub use description::{ArchiveDescription, Cipher, Encryption};
pub use directory::DirectoryArchive;
pub use encryption::EncryptedArchive;
pub use key::Key;
pub use kind::{ArchiveKindSpec, NewArchive, OpenArchive, Purpose};
pub(crate) use open::key_of;
pub use open::open;
pub use registry::{add_archive_kinds, archive_kinds};
pub use unavailable::ReconnectingArchive;
pub use writer::{Openings, Writer};
pub use writer_record::{FoundRecord, WriterRecord};

/// An archive of a tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveEntry {
    /// Its identity.
    pub id: Id,
    /// The address of the archive. Homes made before archives had URLs call it `path`.
    #[serde(alias = "path")]
    pub address: ArchiveAddress,
    /// The file with its key, if it is encrypted. The key itself is stored only in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// How the tier uses it.
    #[serde(default, skip_serializing_if = "ArchiveUsage::is_active")]
    pub usage: ArchiveUsage,
}

/// How a tier uses an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArchiveUsage {
    /// It accepts copies.
    #[default]
    Active,
    /// It accepts no new copies; its copies are still counted, read, repaired and expired.
    Retired,
    /// It is not opened. Its entry is kept, since files may refer to it as a holder of a copy.
    Detached,
}

impl ArchiveUsage {
    /// Returns whether the archive receives new copies.
    #[must_use]
    pub fn is_active(&self) -> bool {
        *self == Self::Active
    }
}

/// The kind of the objects in a container. Archives keep the kinds apart, so that trees are found
/// quickly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContainerKind {
    /// Files.
    Files,
    /// The names and attributes of a whole tree.
    Tree,
}

/// A container of an archive.
pub type Container = (ContainerKind, Id);

/// A store of containers.
///
/// Calls block until the archive responds, which takes minutes for a tape. So only dedicated
/// threads call them. Errors are those of the system; callers add the label of the archive.
pub trait Archive: Send + Sync {
    /// Returns the identity of the archive, which it keeps when it is moved.
    fn id(&self) -> Id;

    /// Returns its label for messages.
    fn label(&self) -> &str;

    /// If another tree writes to the archive, returns the reason why it is read-only, with a
    /// remedy. Then no container may be begun or deleted.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Returns whether all bytes that it returns were written by somebody with its key.
    fn is_authentic(&self) -> bool {
        false
    }

    /// Returns the reason why it is unavailable, or `None` if it is available. While it is
    /// unavailable, calls fail with `NotConnected`. Does not access the archive.
    fn why_unavailable(&self) -> Option<String> {
        None
    }

    /// Returns whether each of its calls ends by itself if no bytes move for a while. A limit on
    /// the total time of a call would then only break slow links.
    fn limits_its_calls(&self) -> bool {
        false
    }

    /// Returns whether a call has not returned yet; `false` if calls are not counted.
    fn is_busy(&self) -> bool {
        false
    }

    /// Checks that the archive is still at its location. If it is not, no container is reported as
    /// missing.
    ///
    /// # Errors
    /// The other contents that were found at its location.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// Tries from time to time to reach an unavailable archive. Returns `true` if it became
    /// available since the last call.
    fn look(&self) -> bool {
        false
    }

    /// Begins a container, which is invisible until it is finished.
    ///
    /// # Errors
    /// Errors of the system.
    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>>;

    /// Reads at an offset. Fewer bytes than requested are returned only at the end.
    ///
    /// # Errors
    /// `NotFound` if the container does not exist.
    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Returns the length of a container in bytes.
    ///
    /// # Errors
    /// `NotFound` if the container does not exist.
    fn length(&self, container: Container) -> io::Result<u64>;

    /// Calls `visit` with each container of a kind and its length.
    ///
    /// # Errors
    /// Errors of the system.
    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()>;

    /// Drops cached data of a container, so that the next read returns its present bytes.
    fn forget(&self, container: Container) {
        let _ = container;
    }

    /// Deletes a container; succeeds if it does not exist.
    ///
    /// # Errors
    /// Errors of the system.
    fn delete(&self, container: Container) -> io::Result<()>;

    /// Returns the number of bytes that its writer may still use, if that is known.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the position of a part of a container, to order recalls: the medium, and the offset
    /// on it.
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
    /// Errors of the system. Even then the container may exist, complete but possibly not durable:
    /// a failed sync or a late answer does not undo it. It is not deleted here, because it may have
    /// replaced a damaged copy with bytes that no other copy has.
    fn finish(self: Box<Self>) -> io::Result<()>;
}
