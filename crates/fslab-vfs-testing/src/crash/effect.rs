//! The effects of a call: the parts of it that survive a crash independently.

use std::ffi::OsString;
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{Ino, Permissions, Timestamp};

/// Size of the unit of data that survives or is lost as a whole, in bytes.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Size of the unit in which ranges of a file are emptied, in bytes.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// The order in which unsynced effects become durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The weakest order of all common file systems.
    #[default]
    Independent,
    /// The order of ext4 with `data=ordered`.
    Journal,
}

/// A part of a call that survives a crash independently.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub change: Change,
    /// The number of the event to which the effect belongs.
    pub event: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Names that change atomically.
    Names(Vec<Binding>),
    /// The file gets this size, and everything past it is removed. `written` is set if a write
    /// extended the file.
    Resize { ino: Ino, size: u64, written: bool },
    /// Whole blocks become empty.
    Clear { ino: Ino, range: Range<u64> },
    /// A sector gets these bytes.
    Sector { ino: Ino, number: u64, bytes: Arc<[u8; SECTOR_BYTES as usize]> },
    /// Owner and permissions.
    Attributes { ino: Ino, permissions: Permissions, uid: u32, gid: u32 },
    /// The modification time of a file.
    Time { ino: Ino, modified: Timestamp },
    /// An xattr, set or removed.
    Xattr { ino: Ino, name: OsString, value: Option<Vec<u8>> },
}

/// A change of a name.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    pub directory: Ino,
    pub name: OsString,
    /// The new inode; `None` if the name is removed.
    pub ino: Option<Ino>,
    /// The inode that loses the name.
    pub loses: Option<Ino>,
}

/// The scope of a sync: the state that it makes durable.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    File { ino: Ino, data_only: bool },
    Directory(Ino),
    Everything,
}

impl Change {
    /// The file whose contents or attributes change; `None` for names.
    pub fn ino(&self) -> Option<Ino> {
        match self {
            Self::Names(_) => None,
            Self::Resize { ino, .. }
            | Self::Clear { ino, .. }
            | Self::Sector { ino, .. }
            | Self::Attributes { ino, .. }
            | Self::Time { ino, .. }
            | Self::Xattr { ino, .. } => Some(*ino),
        }
    }

    /// The class of effects that tend to survive together: names, sizes and emptied blocks, data,
    /// or attributes.
    pub fn class(&self) -> usize {
        match self {
            Self::Names(_) => 0,
            Self::Resize { .. } | Self::Clear { .. } => 1,
            Self::Sector { .. } => 2,
            Self::Attributes { .. } | Self::Time { .. } | Self::Xattr { .. } => 3,
        }
    }

    /// Whether a metadata journal contains the change.
    pub fn is_journalled(&self) -> bool {
        !matches!(self, Self::Sector { .. } | Self::Resize { written: true, .. })
    }

    /// The range of a file that the change empties, if any.
    pub fn emptied(&self) -> Option<(Ino, Range<u64>)> {
        match self {
            Self::Resize { ino, size, written: false } => Some((*ino, *size..u64::MAX)),
            Self::Clear { ino, range } => Some((*ino, range.clone())),
            _ => None,
        }
    }

    /// Whether a sync of this scope makes the change durable, together with the effects that it
    /// needs.
    pub fn is_synced_by(&self, scope: Scope, order: Order) -> bool {
        match (scope, self) {
            (Scope::Everything, _) => true,
            (Scope::Directory(synced), Self::Names(bindings)) => {
                bindings.iter().any(|binding| binding.directory == synced)
            }
            (Scope::File { ino, .. }, Self::Names(bindings)) => {
                order == Order::Journal && bindings.iter().any(|binding| binding.concerns(ino))
            }
            (Scope::Directory(synced), _) => self.ino() == Some(synced),
            (
                Scope::File { ino, data_only: true },
                Self::Attributes { .. } | Self::Time { .. } | Self::Xattr { .. },
            ) => order == Order::Journal && self.ino() == Some(ino),
            (Scope::File { ino, .. }, _) => self.ino() == Some(ino),
        }
    }
}

impl Binding {
    pub fn concerns(&self, ino: Ino) -> bool {
        self.ino == Some(ino) || self.loses == Some(ino)
    }
}
