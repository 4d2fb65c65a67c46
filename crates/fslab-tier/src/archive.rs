//! The trait of archives, their addresses and kinds, and wrappers that work with every kind.
//!
//! Users refer to an archive by an `address`, a URL whose scheme is its `kind`; `registry` lists
//! the kinds. `directory` is the only kind in this crate; the `fslab` program registers others.
//! `writer_record` defines the writer record, which keeps two trees from writing to one archive.
//! The submodules of `directory` implement the lease of a directory archive and store its writer
//! record.
//!
//! Three wrappers work with any archive: `encryption` encrypts containers with a `key`,
//! `unavailable` reopens an archive that could not be reached, and `call_timeout` limits the time
//! of a call. `traffic` counts the requests and bytes of each archive. `staging` defines how a
//! container in cold storage becomes readable.
//!
//! An archive keeps *containers*, which are written once from beginning to end and never changed
//! afterwards. A container contains one object, or several in sequence.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

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
mod outcome;
mod registry;
mod staging;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod traffic;
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
pub use outcome::{Deletion, Proof, Retained};
pub use registry::{add_archive_kinds, archive_kinds};
pub use staging::{Later, Staged, cold_error, is_cold};
pub(crate) use traffic::Direction;
pub use traffic::{Meter, RequestKind, Traffic, Usage};
pub use unavailable::ReconnectingArchive;
pub use writer::{Openings, Writer};
pub use writer_record::{FoundRecord, WriterRecord};

/// A tier's entry for one of its archives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveEntry {
    /// The identity of the archive.
    pub id: Id,
    /// The address of the archive. Homes made before archives had URLs call it `path`.
    #[serde(alias = "path")]
    pub address: ArchiveAddress,
    /// The file with the archive's key, if the archive is encrypted. The key itself is stored only
    /// in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// How the tier uses the archive.
    #[serde(default, skip_serializing_if = "ArchiveUsage::is_active")]
    pub usage: ArchiveUsage,
}

/// How a tier uses an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArchiveUsage {
    /// The archive receives new copies.
    #[default]
    Active,
    /// The archive receives no new copies; its copies are still counted, read, repaired and
    /// expired.
    Retired,
    /// The archive is not opened. Its entry is kept, because files may still list it among their
    /// copies.
    Detached,
}

impl ArchiveUsage {
    /// Returns whether the archive receives new copies.
    #[must_use]
    pub fn is_active(&self) -> bool {
        *self == Self::Active
    }
}

/// The kind of the objects in a container. Archives keep the kinds apart, so that archived trees
/// are found quickly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContainerKind {
    /// Files.
    Files,
    /// The names and attributes of a whole tree.
    Tree,
}

/// The name of a container in an archive: its kind and its identity.
pub type Container = (ContainerKind, Id);

/// A store of containers.
///
/// Calls block until the archive responds, which may take minutes for a tape. So only dedicated
/// threads call them. Errors are plain system errors; callers add the label of the archive.
pub trait Archive: Send + Sync {
    /// Returns the identity of the archive, which it keeps when it is moved.
    fn id(&self) -> Id;

    /// Returns the archive's label for messages.
    fn label(&self) -> &str;

    /// Returns why the archive is read-only, with a remedy, if another tree writes to it. The
    /// caller then must not begin or delete containers.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Returns whether reads return only bytes that were written with the archive's key.
    fn is_authentic(&self) -> bool {
        false
    }

    /// Returns the reason why the archive is unavailable, or `None` if it is available. While it is
    /// unavailable, calls fail with `NotConnected`. Does not access the archive.
    fn why_unavailable(&self) -> Option<String> {
        None
    }

    /// Returns whether the archive itself aborts calls that make no progress. If so, the caller
    /// does not limit the total time of a call. Such a limit would abort calls over slow
    /// connections.
    fn limits_its_calls(&self) -> bool {
        false
    }

    /// Returns whether a call is still in progress; `false` if calls are not counted.
    fn is_busy(&self) -> bool {
        false
    }

    /// Checks that the archive is still at its location. Callers use this to distinguish a missing
    /// container from a missing archive.
    ///
    /// # Errors
    /// `NotConnected` if the archive is missing, or another archive is at its location. Also errors
    /// of the system.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// Starts an attempt to reach an unavailable archive, if one is due. Returns whether the
    /// archive became available again since the last call.
    fn look(&self) -> bool {
        false
    }

    /// Begins a container, which is invisible until it is finished.
    ///
    /// # Errors
    /// Errors of the system.
    fn begin(&self, container: Container) -> io::Result<Box<dyn Upload>>;

    /// Reads bytes of a container at an offset. Returns fewer bytes than requested only at the end
    /// of the container.
    ///
    /// # Errors
    /// `NotFound` if the container does not exist. [`is_cold`] holds for the error if the container
    /// must be staged first.
    fn read(&self, container: Container, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Starts to stage a container in cold storage, so that it can be read later. While it is being
    /// staged, further calls only return the state.
    ///
    /// # Errors
    /// `PermissionDenied` or `Unsupported` if the archive will never stage it; also errors of the
    /// system.
    fn stage(&self, container: Container) -> io::Result<Staged> {
        let _ = container;
        Ok(Staged::Ready)
    }

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
    fn delete(&self, container: Container) -> io::Result<Deletion>;

    /// Returns the deleted containers whose bytes the store keeps, and the reason. `None` if the
    /// store frees the space of every deleted container. Does not access the archive.
    fn retained(&self) -> Option<Retained> {
        None
    }

    /// Tries again to delete the containers that the store keeps, and counts those that it still
    /// keeps.
    ///
    /// # Errors
    /// Errors of the system.
    fn retry_deletions(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the proof that [`Upload::finish`] normally returns, for users. Does not access the
    /// archive.
    fn proof(&self) -> Proof {
        Proof::ReadBack
    }

    /// Returns the free space for new containers in bytes, if it is known.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the physical position of a byte of a container: the number of the medium, such as a
    /// tape, and the offset on it. The recall queue can sort recalls by position.
    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        let _ = container;
        (0, offset)
    }

    /// Returns the meter that counts the archive's requests and bytes; `None` if they are not
    /// counted.
    fn meter(&self) -> Option<Arc<Meter>> {
        None
    }

    /// Returns whether the archive has cached where a container is. Otherwise the next read of the
    /// container first causes requests to find it.
    fn is_located(&self, container: Container) -> bool {
        let _ = container;
        true
    }

    /// Returns the requests and bytes that writing a container of this length causes, if no
    /// container has its name yet. The bytes are an upper bound. Sends no request.
    fn traffic_of_writing(&self, bytes: u64) -> Traffic {
        Traffic::put(bytes)
    }

    /// Returns the requests and bytes that reading a range of a container causes. `length` is the
    /// length of the container. `is_located` is [`Self::is_located`] at the time of the read. The
    /// bytes are an upper bound. Sends no request.
    fn traffic_of_reading(&self, range: Range<u64>, length: u64, is_located: bool) -> Traffic {
        let _ = (length, is_located);
        Traffic::get(range.end.saturating_sub(range.start))
    }
}

/// A container that is being written. If it is dropped unfinished, its bytes are removed.
pub trait Upload: Send {
    /// Appends bytes to the container.
    ///
    /// # Errors
    /// Errors of the system.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes the container durable, then visible. Returns whether the caller must read it back.
    ///
    /// # Errors
    /// Errors of the system. After an error the container may exist, complete but possibly not
    /// durable. It is not deleted, because it may have replaced a damaged container and may be the
    /// only intact copy.
    fn finish(self: Box<Self>) -> io::Result<Proof>;
}
