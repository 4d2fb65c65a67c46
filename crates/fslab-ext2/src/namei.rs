//! Creates, links and removes names and their inodes.
//!
//! All checks come before the first change. If a step fails for lack of space, earlier steps are
//! undone.

pub(crate) mod rename;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::rules::inherit::{Inherited, Parent};
use fslab_vfs::rules::namespace::Namespace;
use fslab_vfs::rules::{self, acl};
use fslab_vfs::{Errno, FileKind, Name, Request, XattrMode};

use crate::cache::Role;
use crate::dir::{self, Found, Search, Vacancy};
use crate::error::{Error, Place, Result};
use crate::flaw::Flaw;
use crate::inode::{FAST_TARGET_MAX, Inode};
use crate::inode_flags::{self, check_changeable, check_gains_name};
use crate::types::{BlockNo, FileBlock, InodeNo};
use crate::volume::Volume;

#[derive(Clone, Copy)]
pub(crate) struct New<'a> {
    pub kind: FileKind,
    /// The mode before the umask is applied.
    pub mode: u32,
    pub device: u32,
    pub target: &'a OsStr,
}

impl New<'_> {
    pub fn of_kind(kind: FileKind, mode: u32) -> Self {
        Self { kind, mode, device: 0, target: OsStr::new("") }
    }
}

/// A name and its directory.
#[derive(Clone, Copy)]
pub(crate) struct NamePlace<'a> {
    pub parent: InodeNo,
    pub name: Name<'a>,
}

impl Volume {
    pub(crate) fn search(&self, at: NamePlace<'_>) -> Result<Search> {
        dir::find(&self.directory(at.parent)?, at.name.as_bytes())
    }

    fn found(&self, at: NamePlace<'_>) -> Result<Found> {
        match self.search(at)? {
            Search::Found(found) => Ok(found),
            Search::Absent(_) => Err(Errno::NOENT.into()),
        }
    }

    /// Returns the inode that a name refers to.
    pub(crate) fn child(&self, at: NamePlace<'_>) -> Result<InodeNo> {
        self.check_named(at.parent, self.found(at)?.inode())
    }

    pub(crate) fn check_named(&self, parent: InodeNo, no: InodeNo) -> Result<InodeNo> {
        if self.geometry().is_usable(no) {
            return Ok(no);
        }
        Err(Error::damaged(Place::Inode(parent), Flaw::NamesNoFile))
    }

    /// Returns the position for a name that does not exist yet.
    pub(crate) fn vacancy(&self, at: NamePlace<'_>) -> Result<Vacancy> {
        match self.search(at)? {
            Search::Found(_) => Err(Errno::EXIST.into()),
            Search::Absent(vacancy) => Ok(vacancy),
        }
    }

    /// Returns a directory after checking that a name may be added to it.
    fn gaining_directory(&self, no: InodeNo) -> Result<Inode> {
        let directory = self.directory(no)?.inode;
        if directory.links == 0 {
            return Err(Errno::NOENT.into());
        }
        check_gains_name(&directory)?;
        Ok(directory)
    }

    /// Creates an inode under a new name.
    pub(crate) fn create(
        &mut self,
        request: &Request,
        at: NamePlace<'_>,
        new: &New<'_>,
    ) -> Result<InodeNo> {
        self.begin(request)?;
        let vacancy = self.vacancy(at)?;
        self.create_at(request, at, new, &vacancy)
    }

    /// Creates an inode under a new name, at the position that a search returned. Call
    /// [`begin`](Self::begin) first.
    pub(crate) fn create_at(
        &mut self,
        request: &Request,
        at: NamePlace<'_>,
        new: &New<'_>,
        vacancy: &Vacancy,
    ) -> Result<InodeNo> {
        let is_directory = new.kind == FileKind::Directory;
        let directory = self.gaining_directory(at.parent)?;
        if is_directory && directory.links >= rules::LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        let links = if is_directory { 2 } else { 1 };
        let no = self.make_inode(request, at.parent, new, links)?;
        let named = self.add_name(at, vacancy, no, new.kind);
        named.inspect_err(|_| self.abandon(no))?;
        self.order.pending.named(no, at.parent, at.name.as_bytes());
        self.touch_directory(at.parent, i32::from(is_directory))?;
        if is_directory {
            self.order_new_directory(at)?;
        }
        Ok(no)
    }

    /// Creates an inode without a name.
    pub(crate) fn create_unnamed(
        &mut self,
        request: &Request,
        parent: InodeNo,
        mode: u32,
    ) -> Result<InodeNo> {
        self.begin(request)?;
        self.gaining_directory(parent)?;
        let no = self.make_inode(request, parent, &New::of_kind(FileKind::Regular, mode), 0)?;
        self.add_orphan(no)?;
        Ok(no)
    }

    /// Allocates and fills an inode. On failure everything is freed again.
    pub(crate) fn make_inode(
        &mut self,
        request: &Request,
        parent: InodeNo,
        new: &New<'_>,
        links: u32,
    ) -> Result<InodeNo> {
        let inherited = self.inherited(request, parent, new)?;
        let flags = inode_flags::inherited(self.inode(parent)?.flags, new.kind);
        let (no, generation) = self.take_inode(parent, new.kind)?;
        let has_created = self.geometry().inode_size as usize > crate::format::INODE_BYTES;
        let owner = (request.credentials.uid, inherited.gid);
        let mut inode = Inode {
            flags,
            generation,
            created: has_created.then_some(request.now),
            ..Inode::new(no, new.kind, inherited.permissions, owner, links, request.now)
        };
        let answer = self.fill_inode(request, parent, &mut inode, new, &inherited);
        let stored = self.store_inode(&inode);
        self.order.pending.taken(no);
        answer.and(stored).inspect_err(|_| self.abandon(no))?;
        Ok(no)
    }

    fn inherited(&self, request: &Request, parent: InodeNo, new: &New<'_>) -> Result<Inherited> {
        let inode = self.inode(parent)?;
        let default = match self.may_have_xattrs(&inode)? {
            true => self.xattr(&inode, OsStr::new(acl::DEFAULT))?,
            false => None,
        };
        let directory = Parent {
            permissions: inode.permissions,
            gid: inode.gid,
            default_acl: default.as_deref(),
        };
        Ok(Inherited::new(&directory, request, new.kind, new.mode))
    }

    fn fill_inode(
        &mut self,
        request: &Request,
        parent: InodeNo,
        inode: &mut Inode,
        new: &New<'_>,
        inherited: &Inherited,
    ) -> Result<()> {
        inode.set_device(new.device);
        match new.kind {
            FileKind::Directory => {
                inode.size = self.block_size().bytes_u64();
                let (rules, no) = (self.rules, inode.no);
                self.fill_block(inode, 0, |bytes| dir::create(bytes, &rules, no, parent))?;
            }
            FileKind::Symlink => self.fill_symlink(inode, new.target.as_bytes())?,
            _ => {}
        }
        let lists = [(acl::ACCESS, &inherited.access_acl), (acl::DEFAULT, &inherited.default_acl)];
        for (name, value) in lists {
            if let Some(value) = value {
                self.set_xattr(inode, OsStr::new(name), value, XattrMode::empty())?;
            }
        }
        for (name, value) in &request.creation.labels {
            if Namespace::of(name)? != Namespace::Privileged {
                return Err(Errno::OPNOTSUPP.into());
            }
            self.set_xattr(inode, name, value, XattrMode::empty())?;
        }
        Ok(())
    }

    fn fill_symlink(&mut self, inode: &mut Inode, target: &[u8]) -> Result<()> {
        inode.size = target.len() as u64;
        if target.len() <= FAST_TARGET_MAX {
            inode.set_fast_target(target);
            return Ok(());
        }
        for (index, piece) in (0..).zip(target.chunks(self.block_size().bytes())) {
            self.fill_block(inode, index, |bytes| bytes[..piece.len()].copy_from_slice(piece))?;
        }
        Ok(())
    }

    /// Adds a block to a new inode, and fills the block through the cache.
    fn fill_block(
        &mut self,
        inode: &mut Inode,
        index: u32,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let block = self.map_for_writing(inode, FileBlock(index))?.block;
        self.cache.create(block);
        self.cache.modify(block, Role::Map, fill)
    }

    /// Frees an inode that was allocated but will not be used.
    pub(crate) fn abandon(&mut self, no: InodeNo) {
        let unnamed = self.inode(no).and_then(|mut inode| {
            inode.links = 0;
            self.store_inode(&inode)
        });
        if let Err(error) = unnamed.and_then(|()| self.delete_inode(no)) {
            // This error is only logged, because the caller returns the error for which the inode
            // was abandoned.
            self.trouble.log(&format!("inode {no} has no name and could not be freed"), &error);
        }
    }

    /// Adds a name at the position that a search returned.
    pub(crate) fn add_name(
        &mut self,
        at: NamePlace<'_>,
        vacancy: &Vacancy,
        no: InodeNo,
        kind: FileKind,
    ) -> Result<()> {
        let mut edit = self.directory_mut(at.parent)?;
        dir::insert(&mut edit, vacancy, at.name.as_bytes(), no, kind.into())
    }

    /// Removes a name. After an error, the name still exists. A failure to shrink the directory is
    /// not returned, but logged and recorded for a later check.
    pub(crate) fn remove_name(&mut self, at: NamePlace<'_>) -> Result<()> {
        let found = self.found(at)?;
        let mut edit = self.directory_mut(at.parent)?;
        let removed = dir::remove(&mut edit, &found)?;
        if let Err(error) = dir::give_back(&mut edit, &found, removed) {
            let what = format!("can't shrink directory {}", at.parent);
            self.trouble.log(&what, &error);
        }
        self.order.pending.name_removed(at.parent, at.name.as_bytes());
        Ok(())
    }

    /// Makes a name refer to another inode.
    pub(crate) fn replace_name(
        &mut self,
        at: NamePlace<'_>,
        no: InodeNo,
        kind: FileKind,
    ) -> Result<()> {
        let found = self.found(at)?;
        dir::replace(&mut self.directory_mut(at.parent)?, &found, no, kind.into())
    }

    /// Returns the device block that contains a name.
    pub(crate) fn block_of_name(&self, at: NamePlace<'_>) -> Result<Option<BlockNo>> {
        let Search::Found(found) = self.search(at)? else { return Ok(None) };
        self.directory(at.parent)?.physical(found.block).map(Some)
    }

    /// Updates a directory's times after a change of its names, and adds `subdirectories` to its
    /// link count.
    pub(crate) fn touch_directory(&mut self, no: InodeNo, subdirectories: i32) -> Result<()> {
        let mut inode = self.inode(no)?;
        inode.links = inode.links.saturating_add_signed(subdirectories);
        inode.modified = self.now;
        inode.changed = self.now;
        self.store_inode(&inode)
    }

    pub(crate) fn link(&mut self, request: &Request, no: InodeNo, at: NamePlace<'_>) -> Result<()> {
        self.begin(request)?;
        let vacancy = self.vacancy(at)?;
        let mut inode = self.inode(no)?;
        self.gaining_directory(at.parent)?;
        check_changeable(&inode)?;
        match inode.kind {
            FileKind::Directory => return Err(Errno::PERM.into()),
            _ if inode.links == 0 && !self.known.lock().is_linkable(no) => {
                return Err(Errno::NOENT.into());
            }
            _ if inode.links >= rules::LINKS_MAX => return Err(Errno::MLINK.into()),
            _ => {}
        }
        // The new name must not reach the device while the device has an older state of the inode.
        self.make_early(no)?;
        self.add_name(at, &vacancy, no, inode.kind)?;
        self.order.pending.renamed(no);
        let counted = self.count_link(&mut inode, at.parent);
        counted.inspect_err(|error| {
            self.trouble.log("can't increase the link count for a new name", error)
        })?;
        self.order_link(no, at)
    }

    /// Increments the link count of an inode for a new name.
    fn count_link(&mut self, inode: &mut Inode, parent: InodeNo) -> Result<()> {
        self.remove_orphan(inode.no)?;
        self.known.lock().named(inode.no);
        inode.deleted = 0;
        inode.links += 1;
        inode.changed = self.now;
        self.store_inode(inode)?;
        self.touch_directory(parent, 0)
    }

    /// Removes a name of an inode that is not a directory.
    pub(crate) fn unlink(&mut self, request: &Request, at: NamePlace<'_>) -> Result<()> {
        self.begin(request)?;
        let no = self.child(at)?;
        self.check_loses_name(at.parent, no)?;
        if self.named_inode(no)?.kind == FileKind::Directory {
            return Err(Errno::ISDIR.into());
        }
        self.order_unlink(no, at)?;
        self.lose_name(no, at, 0)
    }

    pub(crate) fn rmdir(&mut self, request: &Request, at: NamePlace<'_>) -> Result<()> {
        self.begin(request)?;
        let no = self.child(at)?;
        self.check_loses_name(at.parent, no)?;
        self.check_empty(no)?;
        self.order_removal(no)?;
        self.lose_name(no, at, -1)
    }

    fn lose_name(&mut self, no: InodeNo, at: NamePlace<'_>, subdirectories: i32) -> Result<()> {
        self.remove_name(at)?;
        let touched = self.touch_directory(at.parent, subdirectories);
        let answer = touched.and_then(|()| self.drop_link(no));
        answer.inspect_err(|error| {
            self.trouble.log(&format!("can't complete the removal of a name of inode {no}"), error)
        })
    }

    /// Fails with `ENOTDIR` unless the inode is a directory, and with `ENOTEMPTY` if it has names.
    pub(crate) fn check_empty(&self, no: InodeNo) -> Result<()> {
        self.named_inode(no)?;
        if dir::is_empty(&self.directory(no)?)? { Ok(()) } else { Err(Errno::NOTEMPTY.into()) }
    }

    /// Decrements the link count for a removed name; a directory has only one name. An inode
    /// without names is deleted, or put on the orphan list while it is in use.
    pub(crate) fn drop_link(&mut self, no: InodeNo) -> Result<()> {
        let mut inode = self.inode(no)?;
        let is_directory = inode.kind == FileKind::Directory;
        if is_directory || inode.links <= 1 {
            self.make_late(no)?;
        }
        inode.links = if is_directory { 0 } else { inode.links.saturating_sub(1) };
        inode.changed = self.now;
        self.store_inode(&inode)?;
        if inode.links > 0 {
            return Ok(());
        }
        let is_used = self.known.lock().lost_name(no);
        if is_used { self.add_orphan(no) } else { self.delete_inode(no) }
    }
}
