//! Where files go: a trait for archives, and one file a kind of them.
//!
//! An archive keeps *containers*, which are written once from beginning to end and then never
//! changed. A container holds one object or several, one behind the other.

use std::io;

use crate::id::Id;

pub mod directory;
pub mod memory;

pub use directory::DirectoryArchive;

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
    /// Its identity, which it keeps when it is moved.
    fn id(&self) -> Id;

    /// What to call it in messages.
    fn label(&self) -> &str;

    /// Begins a container. Nothing is to be seen of it until it is finished.
    ///
    /// # Errors
    /// What the system answers.
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

    /// Calls `visit` with every container of a kind and its length.
    ///
    /// # Errors
    /// What the system answers.
    fn list(&self, kind: ContainerKind, visit: &mut dyn FnMut(Id, u64)) -> io::Result<()>;

    /// Removes a container; one that is not there is removed.
    ///
    /// # Errors
    /// What the system answers.
    fn delete(&self, kind: ContainerKind, container: Id) -> io::Result<()>;

    /// Where something lies, for whoever orders requests: medium, and place on it.
    fn position(&self, container: Id, offset: u64) -> (u64, u64) {
        let _ = container;
        (0, offset)
    }
}

/// A container that is being written. Dropped without being finished, nothing is left of it.
pub trait Upload: Send {
    /// Adds bytes.
    ///
    /// # Errors
    /// What the system answers.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes the container durable, then to be seen.
    ///
    /// # Errors
    /// What the system answers; the container is then not there.
    fn finish(self: Box<Self>) -> io::Result<()>;
}
