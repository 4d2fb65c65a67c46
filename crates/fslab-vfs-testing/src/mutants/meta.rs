//! Planted bugs in names, attributes and listings.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::time::Duration;

use parking_lot::Mutex;

use super::data::{altered, mutant};
use super::{CaughtBy, Mutant};
use fslab_vfs::{
    Attr, Call, DirectorySink, Entry, Errno, FileSystem, Handle, Ino, Name, OpenMode, Opened,
    Permissions, RenameMode, Request, Result, SetAttr, XattrMode,
};

altered! { RENAME_REPLACES_ALWAYS, "NO_REPLACE is dropped",
Call::Rename { mode, .. } => *mode -= RenameMode::NO_REPLACE }

altered! { EXCHANGE_REPLACES, "EXCHANGE replaces the target",
Call::Rename { mode, .. } => *mode -= RenameMode::EXCHANGE }

altered! { SETXATTR_OVERWRITES_ALWAYS, "XATTR_CREATE is ignored",
Call::Setxattr { mode, .. } => *mode -= XattrMode::CREATE }

mutant! { CHMOD_FORGETS_SET_ID, ChmodForgets, "chmod uses only the lower nine bits",
CaughtBy::Model, {
    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let permissions =
            changes.permissions.map(|permissions| Permissions::new(permissions.bits() & 0o777));
        let changes = SetAttr { permissions, ..changes.clone() };
        self.0.setattr(request, ino, handle, &changes)
    }
} }

mutant! { MKDIR_FORGETS_SET_GID, MkdirForgets, "a new directory does not inherit the set-gid bit",
CaughtBy::Model, {
    fn mkdir(&self, request: &Request, parent: Ino, name: Name<'_>, mode: u32) -> Result<Entry> {
        let mut entry = self.0.mkdir(request, parent, name, mode)?;
        let bits = entry.attr.permissions.bits() & !Permissions::SET_GID;
        let permissions = Some(Permissions::new(bits));
        let changes = SetAttr { permissions, ..SetAttr::default() };
        entry.attr = self.0.setattr(request, entry.attr.ino, None, &changes)?;
        Ok(entry)
    }
} }

mutant! { RENAMED_FILE_GETS_XATTRS_LOST, RenameLosesXattrs, "a rename loses user.a",
CaughtBy::Model, {
    fn rename(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        self.0.rename(request, parent, name, new_parent, new_name, mode)?;
        let moved = self.0.lookup(request, new_parent, new_name)?.attr.ino;
        let answer = self.0.removexattr(request, moved, OsStr::new("user.a"));
        self.0.forget(moved, 1);
        match answer {
            Err(error) if !matches!(error.errno(), Errno::NODATA | Errno::PERM) => Err(error),
            _ => Ok(()),
        }
    }
} }

mutant! { EXCLUSIVE_CREATION_RACES, CreationRaces, "O_EXCL checks the name first and creates later",
CaughtBy::Case("concurrency/exclusive_creation_has_one_winner"), {
    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> Result<(Entry, Opened)> {
        if flags.contains(OpenMode::EXCLUSIVE)
            && let Ok(entry) = self.0.lookup(request, parent, name)
        {
            self.0.forget(entry.attr.ino, 1);
            return Err(Errno::EXIST.into());
        }
        std::thread::sleep(Duration::from_millis(1));
        self.0.create(request, parent, name, mode, flags - OpenMode::EXCLUSIVE)
    }
} }

mutant! { LISTING_LOSES_AN_ENTRY, ListingLoses, "a continued listing loses an entry",
CaughtBy::Model, {
    fn readdir(
        &self,
        request: &Request,
        ino: Ino,
        handle: Handle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let mut skip = offset > 2;
        self.0.readdir(request, ino, handle, offset, &mut |entry| {
            std::mem::take(&mut skip) || sink(entry)
        })
    }
} }

pub(super) const UNLINK_LEAVES_COUNT: Mutant = Mutant {
    bug: "unlink does not decrease the link count",
    caught_by: CaughtBy::Model,
    plant: |inner| Box::new(UnlinkLeavesCount { inner, more: Mutex::default() }),
};

struct UnlinkLeavesCount {
    inner: Box<dyn FileSystem>,
    /// The number of removed names that are still counted.
    more: Mutex<HashMap<Ino, u32>>,
}

impl UnlinkLeavesCount {
    fn miscount(&self, mut attr: Attr) -> Attr {
        attr.links += self.more.lock().get(&attr.ino).copied().unwrap_or_default();
        attr
    }
}

impl FileSystem for UnlinkLeavesCount {
    fn fallback(&self) -> Option<&dyn FileSystem> {
        Some(&*self.inner)
    }

    fn getattr(&self, request: &Request, ino: Ino, handle: Option<Handle>) -> Result<Attr> {
        self.inner.getattr(request, ino, handle).map(|attr| self.miscount(attr))
    }

    fn lookup(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<Entry> {
        let mut entry = self.inner.lookup(request, parent, name)?;
        entry.attr = self.miscount(entry.attr);
        Ok(entry)
    }

    fn unlink(&self, request: &Request, parent: Ino, name: Name<'_>) -> Result<()> {
        let ino = self.inner.lookup(request, parent, name)?.attr.ino;
        self.inner.forget(ino, 1);
        self.inner.unlink(request, parent, name)?;
        *self.more.lock().entry(ino).or_default() += 1;
        Ok(())
    }
}
