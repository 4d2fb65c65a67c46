//! What a call does to a file system, taken apart into what survives a crash by itself.

use std::ffi::OsString;
use std::ops::Range;
use std::sync::Arc;

use fslab_vfs::{Ino, Permissions, Timestamp};

/// The unit in which data survives.
pub(super) const SECTOR_BYTES: u64 = 512;

/// The unit in which a file is emptied.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// How much order there is among effects that were not synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As little as any file system in use has.
    #[default]
    Independent,
    /// As ext4 has it, with `data=ordered`.
    Journal,
}

/// Something that survives a crash by itself.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub change: Change,
    /// The event it is a part of.
    pub event: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Names that change at once.
    Names(Vec<Binding>),
    /// The file has this size; what lies behind is gone. `written` where a write extended it.
    Resize { ino: Ino, size: u64, written: bool },
    /// Whole blocks are emptied.
    Clear { ino: Ino, range: Range<u64> },
    /// A sector holds this.
    Sector { ino: Ino, number: u64, bytes: Arc<[u8; SECTOR_BYTES as usize]> },
    /// Owner and permissions.
    Attributes { ino: Ino, permissions: Permissions, uid: u32, gid: u32 },
    /// When a file was last modified.
    Time { ino: Ino, modified: Timestamp },
    /// An xattr, set or removed.
    Xattr { ino: Ino, name: OsString, value: Option<Vec<u8>> },
}

/// What a name stands for from now on.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    pub directory: Ino,
    pub name: OsString,
    /// `None` where the name is gone.
    pub ino: Option<Ino>,
    /// The inode that loses the name.
    pub loses: Option<Ino>,
}

/// What a sync makes durable.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    File { ino: Ino, data_only: bool },
    Directory(Ino),
    Everything,
}

impl Change {
    /// The file whose contents or attributes change; none for names.
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

    /// Names, shapes, data, attributes: classes that tend to survive together.
    pub fn class(&self) -> usize {
        match self {
            Self::Names(_) => 0,
            Self::Resize { .. } | Self::Clear { .. } => 1,
            Self::Sector { .. } => 2,
            Self::Attributes { .. } | Self::Time { .. } | Self::Xattr { .. } => 3,
        }
    }

    /// Whether a journal of metadata holds it.
    pub fn is_journalled(&self) -> bool {
        !matches!(self, Self::Sector { .. } | Self::Resize { written: true, .. })
    }

    /// What the change empties of a file, if anything.
    pub fn emptied(&self) -> Option<(Ino, Range<u64>)> {
        match self {
            Self::Resize { ino, size, written: false } => Some((*ino, *size..u64::MAX)),
            Self::Clear { ino, range } => Some((*ino, range.clone())),
            _ => None,
        }
    }

    /// Whether a sync of this scope makes the change durable (with what it needs).
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
