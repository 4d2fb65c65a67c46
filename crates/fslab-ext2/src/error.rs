//! The errors of an ext2 file system, and the errno that the caller of an operation gets.

use std::fmt;

use fslab_vfs::Errno;

use crate::flaw::Flaw;
use crate::types::{BlockNo, FileBlock, GroupNo, InodeNo};
use crate::unknown_features::ForeignFeatures;

/// The result of an operation on an image.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why an operation on an image failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The errno that POSIX names for this case, or an error of the device.
    #[error(transparent)]
    Vfs(#[from] fslab_vfs::Error),
    /// The image contradicts itself or its format.
    #[error("{0}")]
    Damaged(#[from] Damage),
    /// The device does not hold an ext2 file system.
    #[error("not an ext2 file system: {0}")]
    NotExt2(&'static str),
    /// The file system uses features that this crate does not know and that forbid the operation.
    #[error("{0}")]
    UnknownFeatures(ForeignFeatures),
    /// A file system with these parameters can't exist.
    #[error("no such file system can be made: {0}")]
    BadParameters(&'static str),
}

/// One flaw found in an image, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Damage {
    /// The place.
    pub place: Place,
    /// The flaw.
    pub what: Flaw,
}

/// A place within an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The superblock.
    Superblock,
    /// A group's descriptor or bitmaps.
    Group(GroupNo),
    /// An inode itself.
    Inode(InodeNo),
    /// A block that holds metadata of an inode: an indirect block, a directory, attributes.
    Block(InodeNo, BlockNo),
    /// A block of a directory, by its index in the directory.
    Directory(InodeNo, FileBlock),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => formatter.write_str("superblock"),
            Self::Group(group) => write!(formatter, "group {group}"),
            Self::Inode(inode) => write!(formatter, "inode {inode}"),
            Self::Block(inode, block) => write!(formatter, "inode {inode}, block {block}"),
            Self::Directory(inode, block) => {
                write!(formatter, "directory inode {inode}, its block {block}")
            }
        }
    }
}

impl Error {
    /// Makes an error of a flaw at a place.
    #[must_use]
    pub fn damaged(place: Place, what: Flaw) -> Self {
        Self::Damaged(Damage { place, what })
    }

    /// Whether the caller would see this errno, and the cause is not damage.
    #[must_use]
    pub fn is(&self, errno: Errno) -> bool {
        matches!(self, Self::Vfs(error) if error.errno() == errno)
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::Vfs(errno.into())
    }
}

/// Converts to the error that the caller of an operation gets. Damage is logged here, once, where
/// it leaves the crate: an errno does not identify the damaged place.
impl From<Error> for fslab_vfs::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Vfs(error) => error,
            Error::Damaged(damage) => {
                tracing::error!("damaged file system: {damage}");
                Errno::IO.into()
            }
            Error::NotExt2(_) | Error::UnknownFeatures(_) | Error::BadParameters(_) => {
                Errno::INVAL.into()
            }
        }
    }
}
