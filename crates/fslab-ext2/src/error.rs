//! The errors of an ext2 file system, and their errno for the caller of an operation.

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
    /// An errno that POSIX specifies for this case, or an error of the device.
    #[error(transparent)]
    Vfs(#[from] fslab_vfs::Error),
    /// The image is inconsistent or violates the format.
    #[error("{0}")]
    Damaged(#[from] Damage),
    /// The device does not contain an ext2 file system.
    #[error("not an ext2 file system: {0}")]
    NotExt2(&'static str),
    /// The file system uses features that this crate does not know and that forbid the operation.
    #[error("{0}")]
    UnknownFeatures(ForeignFeatures),
    /// The memory that the daemon of a mount with `-o keep` left contains no valid records of this
    /// file system.
    #[error("the earlier daemon left no valid record of its changes to this file system")]
    NotKept,
    /// The parameters are invalid, or not possible for this file system.
    #[error("can't make or change the file system: {0}")]
    BadParameters(&'static str),
}

/// One flaw in an image, with its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Damage {
    /// The location.
    pub place: Place,
    /// The flaw.
    pub what: Flaw,
}

/// A part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The superblock.
    Superblock,
    /// A group's descriptor or bitmaps.
    Group(GroupNo),
    /// An inode.
    Inode(InodeNo),
    /// A block that contains metadata of an inode: an indirect block, directory block or attribute
    /// block.
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
                write!(formatter, "directory inode {inode}, block {block} of the directory")
            }
        }
    }
}

impl Error {
    /// Makes an error from a flaw and its place.
    #[must_use]
    pub fn damaged(place: Place, what: Flaw) -> Self {
        Self::Damaged(Damage { place, what })
    }

    /// Whether the error has this errno and is not damage.
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

/// Converts to the error that is returned to the caller of an operation. Damage is logged here,
/// once, because an errno does not identify the damaged place.
impl From<Error> for fslab_vfs::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Vfs(error) => error,
            Error::Damaged(damage) => {
                tracing::error!("damaged file system: {damage}");
                Errno::IO.into()
            }
            Error::NotExt2(_)
            | Error::UnknownFeatures(_)
            | Error::NotKept
            | Error::BadParameters(_) => Errno::INVAL.into(),
        }
    }
}
