//! What can go wrong in an ext2 file system, and what the caller of an operation sees of it.

use std::fmt;

use fslab_vfs::Errno;

use crate::flaw::Flaw;
use crate::types::{BlockNo, FileBlock, GroupNo, InodeNo};
use crate::unknown_features::ForeignFeatures;

/// The result of whatever touches an image.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be done with an image.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The answer POSIX names for this case, or an error of the device.
    #[error(transparent)]
    Vfs(#[from] fslab_vfs::Error),
    /// The image contradicts itself or its format.
    #[error("{0}")]
    Damaged(#[from] Damage),
    /// The device holds something else.
    #[error("not an ext2 file system: {0}")]
    NotExt2(&'static str),
    /// The file system has features that this crate does not know and that forbid what was asked.
    #[error("{0}")]
    UnknownFeatures(ForeignFeatures),
    /// A file system of these parameters can't exist.
    #[error("no such file system can be made: {0}")]
    BadParameters(&'static str),
}

/// One contradiction found in an image: where, and what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Damage {
    /// Where it was found.
    pub place: Place,
    /// What is wrong.
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
    /// A block of a directory, counted within it.
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
    /// Damage at a place.
    #[must_use]
    pub fn damaged(place: Place, what: Flaw) -> Self {
        Self::Damaged(Damage { place, what })
    }

    /// Whether the caller of an operation would see this errno, and no damage is behind it.
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

/// What the caller of a file-system operation sees. Damage is logged here, once, where it leaves
/// the crate: an errno alone would not say where to look.
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
