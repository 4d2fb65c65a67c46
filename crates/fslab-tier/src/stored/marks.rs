//! The names of a tier's xattrs, and the rules that decide whether a file's xattrs are trusted.
//!
//! A residency determines which bytes a reader of the file gets. Anyone who could forge one could
//! read any file of the tier.

use std::ffi::OsStr;

use fslab_vfs::{Attr, Errno, FileSystem, Ino, Request, XattrMode};

use super::bytes::Corrupt;
use super::compact::{ReadStored, StoredResidency};
use super::format::{
    MODE_NAMES, OPENINGS_NAMES, RESIDENCY_NAMES, TREE_NAMES, USES_NAMES, WRITER_NAMES,
};
use super::residency::{self, TreeMark, Unreadable};
use crate::lower::{own_request, with_leave};

mod mode;
mod openings;
mod writing;

pub use openings::Opening;
pub use writing::WriterMark;

/// The xattrs of a tier, by the owner of the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// The xattrs of root's tiers: `trusted.`, which nobody else can read or write.
    Trusted,
    /// The xattrs of an ordinary user's tiers: `user.`, which anyone who may write to a file can
    /// set. They are trusted only on this user's files, and files of other users are skipped.
    Own(u32),
}

impl Marks {
    /// Returns the xattrs for the user who runs this program.
    #[must_use]
    pub fn of_this_process() -> Self {
        let own = rustix::process::geteuid();
        if own.is_root() { Self::Trusted } else { Self::Own(own.as_raw()) }
    }

    fn choose(self, [trusted, user]: [&'static str; 2]) -> &'static str {
        match self {
            Self::Trusted => trusted,
            Self::Own(_) => user,
        }
    }

    /// Returns the name of the xattr that contains a file's residency.
    #[must_use]
    pub fn residency_name(self) -> &'static str {
        self.choose(RESIDENCY_NAMES)
    }

    /// Returns the name of the xattr on the root of a tree that identifies its tier.
    #[must_use]
    pub fn tree_name(self) -> &'static str {
        self.choose(TREE_NAMES)
    }

    /// Returns whether the marks on an inode are trusted.
    #[must_use]
    pub fn are_believed(self, attr: &Attr) -> bool {
        match self {
            Self::Trusted => true,
            Self::Own(owner) => attr.uid == owner,
        }
    }

    /// Returns the residency of a file; `None` for a file that was never archived.
    ///
    /// # Errors
    /// `EACCES` if the file belongs to this user, but its mode denies reading. Errors of the lower
    /// file system, or the reason why the value is invalid.
    pub fn read(self, fs: &dyn FileSystem, ino: Ino) -> ReadStored {
        let value = match get(fs, ino, self.residency_name()) {
            // A file that this user neither owns nor can read can't have been marked by this user's
            // tier.
            Err(error) if self.wants_leave(&error) => {
                let is_own = self.are_believed(&fs.getattr(&own_request(), ino, None)?);
                return if is_own { Err(error.into()) } else { Ok(None) };
            }
            value => value?,
        };
        let Some(value) = value else { return Ok(None) };
        self.check(
            fs,
            ino,
            "its residency is not trusted, because the file belongs to another user",
        )?;
        Ok(Some(StoredResidency::decode(&value)?))
    }

    /// Like [`Self::read`], for a caller that prevents other accesses to the file during this call.
    /// If the mode denies its owner access, the permission is granted temporarily.
    ///
    /// # Errors
    /// Errors of the lower file system, or the reason why the value is invalid.
    pub fn read_at_rest(self, fs: &dyn FileSystem, ino: Ino) -> ReadStored {
        let read = || self.read(fs, ino);
        match read() {
            Err(Unreadable::Below(error)) if self.wants_leave(&error) => {
                let (known, restored) = with_leave(fs, &own_request(), ino, || Ok(read()))?;
                restored?;
                known
            }
            known => known,
        }
    }

    /// Returns whether an error means that a permission is missing that the file's owner can grant.
    /// Access to `user.` xattrs needs the permissions to read and write the file.
    pub(crate) fn wants_leave(self, error: &fslab_vfs::Error) -> bool {
        matches!(self, Self::Own(_)) && error.errno() == Errno::ACCESS
    }

    /// Returns whether a file is a stub according to an untrusted mark. The bytes of such a file
    /// are not in this tree.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn is_unbelieved_stub(self, fs: &dyn FileSystem, ino: Ino) -> fslab_vfs::Result<bool> {
        if self != Self::Trusted {
            return Ok(false);
        }
        let value = get(fs, ino, RESIDENCY_NAMES[1])?;
        let known = value.and_then(|value| StoredResidency::decode(&value).ok());
        Ok(known.is_some_and(|known| known.is_stub()))
    }

    /// Writes the residency of a file without a sync. The caller prevents other accesses to the
    /// file during this call, as for [`Self::read_at_rest`].
    ///
    /// # Errors
    /// `E2BIG` if it has too many runs; errors of the lower file system.
    pub fn write(
        self,
        fs: &dyn FileSystem,
        request: &Request,
        ino: Ino,
        residency: &StoredResidency,
    ) -> fslab_vfs::Result<()> {
        let value = match residency {
            StoredResidency::Full(full) => full.encode().ok_or(Errno::TOOBIG)?,
            StoredResidency::Compact(compact) => compact.encode(),
        };
        let name = OsStr::new(self.residency_name());
        let set = || fs.setxattr(request, ino, name, &value, XattrMode::empty());
        match set() {
            Err(error) if self.wants_leave(&error) => with_leave(fs, request, ino, set)?.1,
            done => done,
        }
    }

    /// Returns the mark on the root of a tree; `None` if the tree belongs to no tier of this user.
    ///
    /// # Errors
    /// Errors of the lower file system, or the reason why the mark is invalid.
    pub fn read_tree(self, fs: &dyn FileSystem) -> Result<Option<TreeMark>, Unreadable> {
        let Some(value) = get(fs, Ino::ROOT, self.tree_name())? else {
            // The root user gets an error for an untrusted mark. Otherwise root could make the tree
            // part of a second tier.
            let has_other = self == Self::Trusted && get(fs, Ino::ROOT, TREE_NAMES[1])?.is_some();
            return if has_other { Err(Corrupt(UNTRUSTED).into()) } else { Ok(None) };
        };
        self.check(
            fs,
            Ino::ROOT,
            "the xattr that assigns the tree to a tier can be set by another user, so this \
             xattr is not trusted",
        )?;
        Ok(Some(residency::decode_tree(&value)?))
    }

    /// Marks a tree durably as belonging to a tier.
    ///
    /// # Errors
    /// `EPERM` if the tree belongs to another user; errors of the lower file system.
    pub fn write_tree(self, fs: &dyn FileSystem, mark: &TreeMark) -> fslab_vfs::Result<()> {
        if !self.are_believed(&fs.getattr(&own_request(), Ino::ROOT, None)?) {
            return Err(Errno::PERM.into());
        }
        write_durably(fs, self.tree_name(), &residency::encode_tree(mark))
    }

    /// Returns the open epoch of a tree (a count of openings and scans); `None` without a valid
    /// xattr.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn read_open_epoch(self, fs: &dyn FileSystem) -> fslab_vfs::Result<Option<u64>> {
        let value = get(fs, Ino::ROOT, self.choose(USES_NAMES))?;
        Ok(value.and_then(|value| value.try_into().ok()).map(u64::from_le_bytes))
    }

    /// Records the open epoch of a tree durably.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn write_open_epoch(self, fs: &dyn FileSystem, uses: u64) -> fslab_vfs::Result<()> {
        write_durably(fs, self.choose(USES_NAMES), &uses.to_le_bytes())
    }

    fn check(self, fs: &dyn FileSystem, ino: Ino, what: &'static str) -> Result<(), Unreadable> {
        match self {
            Self::Trusted => Ok(()),
            Self::Own(_) if self.are_believed(&fs.getattr(&own_request(), ino, None)?) => Ok(()),
            Self::Own(_) => Err(Corrupt(what).into()),
        }
    }
}

const UNTRUSTED: &str = "the xattr that assigns the tree to a tier can be set by ordinary users, \
                         so root does not trust this xattr; run the command as the tier's owner";

/// The computed xattr of a regular file that contains its summary.
pub const STATE_NAME: &str = "user.fslab.state";

/// The computed xattr of the tree's root that contains the calling user's recalls.
pub const QUEUE_NAME: &str = "user.fslab.queue";

/// Returns whether an xattr of this name is used by tiers. The mount does not list such an xattr,
/// and does not let programs set it.
#[must_use]
pub fn is_ours(name: &OsStr) -> bool {
    let stored =
        [MODE_NAMES, OPENINGS_NAMES, RESIDENCY_NAMES, TREE_NAMES, USES_NAMES, WRITER_NAMES];
    let computed = [STATE_NAME, QUEUE_NAME];
    stored.iter().chain([&computed]).flatten().any(|own| name == *own)
}

/// Sets an xattr of the root of a tree durably.
fn write_durably(fs: &dyn FileSystem, name: &str, value: &[u8]) -> fslab_vfs::Result<()> {
    set(fs, &own_request(), name, value)?;
    sync_root(fs)
}

fn set(fs: &dyn FileSystem, request: &Request, name: &str, value: &[u8]) -> fslab_vfs::Result<()> {
    fs.setxattr(request, Ino::ROOT, OsStr::new(name), value, XattrMode::empty())
}

/// Makes the attributes and xattrs of the root of a tree durable.
pub(crate) fn sync_root(fs: &dyn FileSystem) -> fslab_vfs::Result<()> {
    let request = own_request();
    let root = fs.opendir(&request, Ino::ROOT)?;
    let synced = fs.fsyncdir(&request, Ino::ROOT, root, false);
    fs.releasedir(&request, Ino::ROOT, root)?;
    synced
}

/// Returns whether an error means that the root does not accept an xattr. Reasons are lack of
/// space, a read-only root, a root of another user, and missing support for xattrs.
pub(crate) fn takes_no_xattr(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ROFS | Errno::NOSPC | Errno::DQUOT | Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP
    )
}

/// Returns the value of an xattr; `None` if there is none.
pub(crate) fn get(fs: &dyn FileSystem, ino: Ino, name: &str) -> fslab_vfs::Result<Option<Vec<u8>>> {
    match fs.getxattr(&own_request(), ino, OsStr::new(name)) {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.errno() {
            Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS => Ok(None),
            _ => Err(error),
        },
    }
}
