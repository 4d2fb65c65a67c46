//! Implements the `FileSystem` trait for an ext2 volume: [`Ext2`].
//!
//! One lock protects the volume: reading operations share it, changing operations hold it
//! exclusively. Inode numbers are those of the image, except for the root, which is 1 in the trait
//! and 2 in ext2.

use std::ffi::{OsStr, OsString};
use std::ops::{Deref, DerefMut};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use fslab_sys::shared_memory::SharedMemory;
use fslab_vfs::rules::namespace::Namespace;
use fslab_vfs::rules::{self};
use fslab_vfs::{
    Attr, BlockDevice, DirectorySink, Entry, Errno, Extent, FallocateMode, FileAttr, FileAttrForm,
    FileKind, FileSystem, Handle, Ino, Layout, LockMode, Name, OpenMode, Opened, RenameMode,
    Request, SeekTo, SetAttr, StatFs, WriteOptions, XattrMode,
};
use parking_lot::{Mutex, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};

use crate::dir::{self, InodeOrder};
use crate::error::Result;
use crate::error_state::ErrorState;
use crate::inode::Inode;
use crate::kept_changes;
use crate::namei::{NamePlace, New};
use crate::superblock::Superblock;
use crate::types::{FileBlock, InodeNo};
use crate::volume::{Volume, VolumeOptions};
use crate::write_order::closure::{ClosureStep, StepWritten};

mod files;
mod handles;
mod listing;
#[cfg(test)]
mod tests;

use handles::{Handles, Open};

type VfsResult<T> = fslab_vfs::Result<T>;

/// A volume that other threads may read but not change.
type Shared<'a> = RwLockUpgradableReadGuard<'a, Volume>;

/// Maximum number of blocks or inodes that an fsync marks as written before it releases the
/// exclusive lock.
const MARKS_PER_HOLD: usize = 64;

/// Changes a volume exclusively, then lets other threads read it again.
fn change_alone<'a>(volume: Shared<'a>, change: impl FnOnce(&mut Volume)) -> Shared<'a> {
    #[cfg(test)]
    let change = tests::counted(change);
    let mut volume = RwLockUpgradableReadGuard::upgrade(volume);
    change(&mut volume);
    volume.commit();
    RwLockWriteGuard::downgrade_to_upgradable(volume)
}

/// Marks any number of blocks or inodes as written. Readers wait for at most [`MARKS_PER_HOLD`]
/// marks at a time.
fn mark_in_pieces<'a, T>(
    mut volume: Shared<'a>,
    items: &[T],
    mark: impl Fn(&mut Volume, &[T]),
) -> Shared<'a> {
    for piece in items.chunks(MARKS_PER_HOLD) {
        volume = change_alone(volume, |volume| mark(volume, piece));
    }
    volume
}

/// Flushes the device of a volume if it was written since the last flush. Meanwhile other threads
/// may read the volume but not change it.
fn flush_device(volume: RwLockWriteGuard<'_, Volume>) -> Result<RwLockWriteGuard<'_, Volume>> {
    let Some(device) = volume.device_to_flush() else { return Ok(volume) };
    let shared = RwLockWriteGuard::downgrade_to_upgradable(volume);
    let answer = device.flush();
    let mut volume = RwLockUpgradableReadGuard::upgrade(shared);
    volume.flushed(answer)?;
    Ok(volume)
}

/// Exclusive access to a volume for one operation. Dropping it commits the operation's changes
/// ([`crate::kept_changes`]).
struct Changing<'a>(RwLockWriteGuard<'a, Volume>);

impl Deref for Changing<'_> {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.0
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Volume {
        &mut self.0
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.commit();
    }
}

/// An ext2 file system on a device.
///
/// File content is written to the device immediately. Metadata is written by [`sync`](Self::sync),
/// `fsync`, `syncfs` and `shutdown`, and when too much changed metadata is in memory. With
/// [`VolumeOptions::sync_on_close`], closing a file that is open for writing writes metadata, too.
/// To write metadata earlier, call `sync` at intervals. Between these writes the image on the
/// device is consistent.
///
/// Reserving space past the end of a file without extending the file fails with `EOPNOTSUPP`,
/// because a checker could not distinguish such blocks from damage.
pub struct Ext2 {
    volume: RwLock<Volume>,
    handles: RwLock<Handles>,
    sync_on_close: bool,
    /// The volume's error state. It is outside the lock because readers may find damage too.
    trouble: ErrorState,
}

impl Ext2 {
    /// Opens the file system on a device.
    ///
    /// # Errors
    /// Fails if the device has no ext2 file system, or if these options do not allow its use.
    pub fn open(device: Arc<dyn BlockDevice>, options: VolumeOptions) -> Result<Self> {
        let mut volume = Volume::open(device, options)?;
        if !volume.options.read_only {
            volume.release_orphans();
        }
        Ok(Self::of(volume))
    }

    /// Opens the file system on a device for a mount that outlives its daemon. All changes are
    /// recorded in `memory`, which has [`KEPT_WORDS`](crate::KEPT_WORDS) words. If the memory
    /// contains changes of an earlier daemon, they are restored and made durable first.
    ///
    /// # Errors
    /// The same as [`open`](Self::open), and [`Error::NotKept`](crate::Error::NotKept) if the
    /// memory contains no valid records of this file system.
    pub fn open_kept(
        device: Arc<dyn BlockDevice>,
        mut options: VolumeOptions,
        memory: Arc<SharedMemory>,
    ) -> Result<Self> {
        options.dirty_bytes_max = options.dirty_bytes_max.min(kept_changes::DIRTY_BYTES_MAX);
        let mut volume = Volume::open(device, options)?;
        volume.keep_changes(memory)?;
        Ok(Self::of(volume))
    }

    fn of(volume: Volume) -> Self {
        let sync_on_close = volume.options.sync_on_close;
        let trouble = volume.trouble.clone();
        let volume = RwLock::new(volume);
        Self { volume, handles: RwLock::default(), sync_on_close, trouble }
    }

    /// Locks the volume for reading.
    pub(crate) fn volume(&self) -> parking_lot::RwLockReadGuard<'_, Volume> {
        self.volume.read()
    }

    /// Locks the volume for a change.
    fn change(&self) -> Changing<'_> {
        Changing(self.volume.write())
    }

    /// Makes durable all changes that were completed before this call. Afterwards the image is
    /// marked clean, unless removed files are still open.
    ///
    /// # Errors
    /// Errors of the device. The next call retries blocks that could not be written.
    pub fn sync(&self) -> Result<()> {
        self.see(self.flush_beside_readers(self.volume.write()))
    }

    /// Makes a file or directory durable, together with its name.
    fn sync_file(&self, no: InodeNo) -> Result<()> {
        self.see(self.write_closure_beside_readers(no))
    }

    fn write_closure_beside_readers(&self, no: InodeNo) -> Result<()> {
        // Readers wait only while the blocks are marked as written.
        let mut volume = self.volume.upgradable_read();
        if volume.options.read_only {
            return Ok(());
        }
        let Some(closure) = volume.closure(no)? else {
            return self.flush_beside_readers(RwLockUpgradableReadGuard::upgrade(volume));
        };
        for step in ClosureStep::ALL {
            let mut written = StepWritten::default();
            let answer = volume.put_step(&closure, step, &mut written);
            if volume.has_to_note(&written) {
                volume = change_alone(volume, |volume| volume.note_step(&mut written));
            }
            let mark = |volume: &mut Volume, piece: &[_]| volume.cache.note(piece);
            volume = mark_in_pieces(volume, &written.blocks, mark);
            answer?;
            if let Some(device) = volume.device_to_flush() {
                let (flushed, mut noted) = (device.flush(), Ok(()));
                volume = change_alone(volume, |volume| noted = volume.flushed(flushed));
                noted?;
            }
        }
        let inodes = volume.pending_of(&closure);
        drop(mark_in_pieces(volume, &inodes, Volume::note_durable));
        Ok(())
    }

    /// Does the same as [`Volume::flush`], but lets readers continue while the device is flushed.
    fn flush_beside_readers(&self, mut volume: RwLockWriteGuard<'_, Volume>) -> Result<()> {
        for step in volume.flush_steps() {
            volume.flush_step(step)?;
            volume = flush_device(volume)?;
        }
        volume = flush_device(volume)?;
        volume.say_in_order()?;
        // If the superblock was just marked as not clean, this mark must be durable, because a
        // checker skips an image that is marked clean.
        if volume.says_clean { Ok(()) } else { flush_device(volume).map(drop) }
    }

    /// Returns the superblock as read when the file system was opened, with current counts.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        self.volume.read().superblock.clone()
    }

    /// Returns the current group descriptors.
    #[must_use]
    pub fn groups(&self) -> Vec<crate::group::Group> {
        self.volume.read().space.groups().to_vec()
    }

    /// Returns the number of inodes that are referenced or open, and the number of open handles.
    #[must_use]
    pub fn uses(&self) -> (usize, usize) {
        (self.volume.read().known.lock().len(), self.handles.read().len())
    }

    /// Returns the result unchanged. If it reports damage, the image is no longer marked clean.
    fn see<T>(&self, answer: Result<T>) -> Result<T> {
        self.trouble.see(answer)
    }

    fn inode(&self, volume: &Volume, ino: Ino) -> VfsResult<Inode> {
        Ok(self.see(volume.inode(to_no(ino)?))?)
    }

    /// Builds the entry of an inode and counts a lookup.
    fn enter(&self, volume: &Volume, no: InodeNo) -> Result<Entry> {
        let inode = self.see(volume.inode(no))?;
        volume.known.lock().remember(no);
        let generation = u64::from(inode.generation ^ volume.superblock.uuid_tag());
        Ok(Entry { attr: volume.attr(to_ino(no), &inode), generation })
    }

    /// Builds the entry of an inode found by number instead of by name, and counts a lookup. A free
    /// inode is not damage here, because the number may be stale.
    fn enter_found(&self, no: InodeNo) -> VfsResult<Entry> {
        let volume = self.volume.read();
        let is_file = volume.geometry().is_usable(no)
            && self.see(volume.is_taken(no))?
            && volume.inode(no).is_ok_and(|inode| inode.links > 0);
        if !is_file {
            return Err(Errno::STALE.into());
        }
        let entry = self.enter(&volume, no)?;
        // The kernel expects generation 0 for the root.
        let generation = if no == InodeNo::ROOT { 0 } else { entry.generation };
        Ok(Entry { generation, ..entry })
    }

    fn create_entry(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        new: &New<'_>,
    ) -> VfsResult<Entry> {
        let mut volume = self.change();
        let no = self.see(volume.create(request, place(parent, name)?, new))?;
        Ok(self.enter(&volume, no)?)
    }

    fn opened(&self, handle: Handle) -> Opened {
        Opened { keep_cache: true, no_flush: !self.sync_on_close, ..Opened::new(handle) }
    }

    fn delete_if(&self, is_unused: bool, no: InodeNo) -> Result<()> {
        if !is_unused {
            return Ok(());
        }
        self.see(self.change().delete_inode(no))
    }
}

/// Converts to the inode number of the image. The number 2 is stale, because the trait uses 1 for
/// the root.
pub(crate) fn to_no(ino: Ino) -> VfsResult<InodeNo> {
    if ino == Ino::ROOT {
        return Ok(InodeNo::ROOT);
    }
    let no = u32::try_from(ino.0).ok().map(InodeNo).filter(|no| *no != InodeNo::ROOT);
    no.ok_or(fslab_vfs::Error::Stale { ino })
}

fn place(parent: Ino, name: Name<'_>) -> VfsResult<NamePlace<'_>> {
    Ok(NamePlace { parent: to_no(parent)?, name })
}

fn to_ino(no: InodeNo) -> Ino {
    if no == InodeNo::ROOT { Ino::ROOT } else { Ino(no.0.into()) }
}

impl FileSystem for Ext2 {
    fn layout(&self) -> Option<&dyn Layout> {
        Some(self)
    }

    fn shutdown(&self) -> VfsResult<()> {
        let mut volume = self.change();
        let mut unnamed = volume.known.lock().all_unnamed();
        unnamed.retain(|_| !volume.options.read_only);
        let deleted: Vec<_> =
            unnamed.into_iter().map(|no| self.see(volume.delete_inode(no))).collect();
        volume.commit();
        // If a file cannot be deleted, everything else is still written.
        self.see(volume.flush())?;
        Ok(deleted.into_iter().collect::<Result<()>>()?)
    }

    /// An inode is found by its number in the inode table, so no lookup is needed first.
    fn can_resolve(&self) -> bool {
        true
    }

    fn resolve(&self, _: &Request, ino: Ino) -> VfsResult<Entry> {
        self.enter_found(to_no(ino)?)
    }

    fn parent_of(&self, _: &Request, ino: Ino) -> VfsResult<Entry> {
        let no = to_no(ino)?;
        if no == InodeNo::ROOT {
            return Err(Errno::STALE.into());
        }
        let parent = {
            let volume = self.volume.read();
            self.see(volume.directory(no).and_then(|directory| dir::parent(&directory)))?
        };
        self.enter_found(parent)
    }

    fn lookup(&self, _: &Request, parent: Ino, name: Name<'_>) -> VfsResult<Entry> {
        let volume = self.volume.read();
        let no = self.see(volume.child(place(parent, name)?))?;
        self.see(volume.named_inode(no))?;
        Ok(self.enter(&volume, no)?)
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        let Ok(no) = to_no(ino) else { return };
        let is_unused = self.volume.read().known.lock().forget(no, lookups);
        if let Err(error) = self.delete_if(is_unused, no) {
            // No caller waits for this error; the need for a check has already been recorded.
            tracing::error!("inode {no} could not be deleted: {error}");
        }
    }

    /// Does nothing, because only this volume uses the device.
    fn lock_tree(&self, _: LockMode) -> VfsResult<()> {
        Ok(())
    }

    fn take_lease(&self, _: Ino, _: Handle) -> VfsResult<()> {
        Ok(())
    }

    fn hold(&self, ino: Ino) -> VfsResult<()> {
        let is_held = ino == Ino::ROOT || self.volume.read().known.lock().hold(to_no(ino)?);
        if is_held { Ok(()) } else { Err(fslab_vfs::Error::Stale { ino }) }
    }

    fn let_go(&self, ino: Ino) {
        if ino != Ino::ROOT {
            self.forget(ino, 1);
        }
    }

    fn getattr(&self, _: &Request, ino: Ino, _: Option<Handle>) -> VfsResult<Attr> {
        let volume = self.volume.read();
        let inode = self.inode(&volume, ino)?;
        Ok(volume.attr(ino, &inode))
    }

    fn setattr(
        &self,
        request: &Request,
        ino: Ino,
        _: Option<Handle>,
        changes: &SetAttr,
    ) -> VfsResult<Attr> {
        let mut volume = self.change();
        self.see(volume.set_attributes(request, to_no(ino)?, changes))?;
        let inode = self.inode(&volume, ino)?;
        Ok(volume.attr(ino, &inode))
    }

    fn readlink(&self, request: &Request, ino: Ino) -> VfsResult<OsString> {
        let no = to_no(ino)?;
        let (target, is_due) = {
            let volume = self.volume.read();
            let inode = self.inode(&volume, ino)?;
            (self.see(volume.target(&inode))?, volume.access_is_due(&inode, request.now))
        };
        if is_due {
            self.change().touch_access(no, request);
        }
        Ok(OsString::from_vec(target))
    }

    fn mknod(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        device: u32,
    ) -> VfsResult<Entry> {
        let kind = rules::special_kind(mode)?;
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let device = if is_device { device } else { 0 };
        let new = New { device, ..New::of_kind(kind, mode) };
        self.create_entry(request, parent, name, &new)
    }

    fn mkdir(&self, request: &Request, parent: Ino, name: Name<'_>, mode: u32) -> VfsResult<Entry> {
        // For a new directory, Linux uses the caller's sticky bit but not its set-id bits, which
        // are only inherited.
        let new = New::of_kind(FileKind::Directory, mode & 0o1777);
        self.create_entry(request, parent, name, &new)
    }

    fn symlink(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        target: &OsStr,
    ) -> VfsResult<Entry> {
        rules::check_target(target)?;
        let new = New { target, ..New::of_kind(FileKind::Symlink, 0o777) };
        self.create_entry(request, parent, name, &new)
    }

    fn unlink(&self, request: &Request, parent: Ino, name: Name<'_>) -> VfsResult<()> {
        Ok(self.see(self.change().unlink(request, place(parent, name)?))?)
    }

    fn rmdir(&self, request: &Request, parent: Ino, name: Name<'_>) -> VfsResult<()> {
        Ok(self.see(self.change().rmdir(request, place(parent, name)?))?)
    }

    fn rename(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> VfsResult<()> {
        let (from, to) = (place(parent, name)?, place(new_parent, new_name)?);
        Ok(self.see(self.change().rename(request, from, to, mode))?)
    }

    fn link(
        &self,
        request: &Request,
        ino: Ino,
        new_parent: Ino,
        new_name: Name<'_>,
    ) -> VfsResult<Entry> {
        let mut volume = self.change();
        let no = to_no(ino)?;
        self.see(volume.link(request, no, place(new_parent, new_name)?))?;
        Ok(self.enter(&volume, no)?)
    }

    fn open(&self, request: &Request, ino: Ino, mode: OpenMode) -> VfsResult<Opened> {
        let mut volume = self.change();
        Ok(self.opened(self.see(self.open_in(&mut volume, request, to_no(ino)?, mode))?))
    }

    fn create(
        &self,
        request: &Request,
        parent: Ino,
        name: Name<'_>,
        mode: u32,
        flags: OpenMode,
    ) -> VfsResult<(Entry, Opened)> {
        let (entry, handle) = self.create_file(request, place(parent, name)?, mode, flags)?;
        Ok((entry, self.opened(handle)))
    }

    fn tmpfile(
        &self,
        request: &Request,
        parent: Ino,
        mode: u32,
        flags: OpenMode,
    ) -> VfsResult<(Entry, Opened)> {
        let (entry, handle) = self.create_tmpfile(request, to_no(parent)?, mode, flags)?;
        Ok((entry, self.opened(handle)))
    }

    fn read(
        &self,
        request: &Request,
        _: Ino,
        handle: Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> VfsResult<usize> {
        Ok(self.see(self.read_file(request, handle, offset, buffer))?)
    }

    fn write(
        &self,
        request: &Request,
        _: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> VfsResult<usize> {
        Ok(self.see(self.write_file(request, handle, offset, data, options))?)
    }

    fn flush(&self, _: &Request, _: Ino, handle: Handle) -> VfsResult<()> {
        let open = self.handles.read().get(handle)?;
        let wrote = matches!(open, Open::File { mode, .. } if mode.writes());
        if wrote && self.sync_on_close { Ok(self.sync()?) } else { Ok(()) }
    }

    fn release(&self, _: &Request, _: Ino, handle: Handle) -> VfsResult<()> {
        Ok(self.close(handle)?)
    }

    fn fsync(&self, _: &Request, _: Ino, handle: Handle, _: bool) -> VfsResult<()> {
        let open = self.handles.read().get(handle)?;
        Ok(self.sync_file(open.no())?)
    }

    fn opendir(&self, _: &Request, ino: Ino) -> VfsResult<Handle> {
        let no = to_no(ino)?;
        let volume = self.volume.read();
        if self.see(volume.inode(no))?.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let by_inode = || Arc::new(Mutex::new(InodeOrder::new(InodeOrder::BATCH)));
        let listing = volume.options.list_by_inode.then(by_inode);
        Ok(self.add_handle(&volume, Open::Directory { no, listing }))
    }

    fn readdir(
        &self,
        request: &Request,
        _: Ino,
        handle: Handle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> VfsResult<()> {
        let open = self.handles.read().directory(handle)?;
        Ok(self.see(self.list(request, open, offset, sink))?)
    }

    fn releasedir(&self, _: &Request, _: Ino, handle: Handle) -> VfsResult<()> {
        Ok(self.close(handle)?)
    }

    fn fsyncdir(&self, _: &Request, _: Ino, handle: Handle, _: bool) -> VfsResult<()> {
        let open = self.handles.read().get(handle)?;
        Ok(self.sync_file(open.no())?)
    }

    fn syncfs(&self, _: &Request, _: Ino) -> VfsResult<()> {
        Ok(self.sync()?)
    }

    fn statfs(&self, _: &Request, _: Ino) -> VfsResult<StatFs> {
        let volume = self.volume.read();
        let totals = volume.space.totals();
        let geometry = volume.geometry();
        let overhead: u64 =
            geometry.all_groups().map(|group| u64::from(geometry.overhead(group))).sum();
        let overhead = overhead + u64::from(geometry.first_data_block);
        Ok(StatFs {
            blocks: u64::from(geometry.blocks).saturating_sub(overhead),
            blocks_free: totals.free_blocks,
            blocks_available: totals.free_blocks.saturating_sub(totals.reserved_blocks),
            files: geometry.inodes().into(),
            files_free: totals.free_inodes,
            block_size: geometry.block_size.bytes_u32(),
            fragment_size: geometry.block_size.bytes_u32(),
            name_max: Name::MAX_LEN as u32,
        })
    }

    fn getxattr(&self, _: &Request, ino: Ino, name: &OsStr) -> VfsResult<Vec<u8>> {
        let namespace = Namespace::of(name)?;
        let volume = self.volume.read();
        let inode = self.inode(&volume, ino)?;
        if namespace.is_acl() {
            namespace.check_kind(inode.kind)?;
        }
        self.see(volume.xattr(&inode, name))?.ok_or_else(|| Errno::NODATA.into())
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> VfsResult<()> {
        let mut volume = self.change();
        Ok(self.see(volume.change_xattr(request, to_no(ino)?, name, value, mode))?)
    }

    fn listxattr(&self, _: &Request, ino: Ino) -> VfsResult<Vec<u8>> {
        let volume = self.volume.read();
        let inode = self.inode(&volume, ino)?;
        Ok(self.see(volume.xattr_names(&inode))?)
    }

    fn removexattr(&self, request: &Request, ino: Ino, name: &OsStr) -> VfsResult<()> {
        Ok(self.see(self.change().drop_xattr(request, to_no(ino)?, name))?)
    }

    fn fileattr_get(&self, _: &Request, ino: Ino, form: FileAttrForm) -> VfsResult<FileAttr> {
        Ok(self.see(self.volume.read().file_attr(to_no(ino)?, form))?)
    }

    fn fileattr_set(&self, request: &Request, ino: Ino, attr: &FileAttr) -> VfsResult<()> {
        Ok(self.see(self.change().set_file_attr(request, to_no(ino)?, attr))?)
    }

    fn fallocate(
        &self,
        request: &Request,
        _: Ino,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    ) -> VfsResult<()> {
        Ok(self.see(self.allocate(request, handle, offset, length, mode))?)
    }

    fn lseek(
        &self,
        _: &Request,
        _: Ino,
        handle: Handle,
        offset: u64,
        to: SeekTo,
    ) -> VfsResult<u64> {
        let no = self.handles.read().get(handle)?.no();
        let volume = self.volume.read();
        let inode = self.see(volume.inode(no))?;
        crate::attributes::check_regular(&inode)?;
        Ok(self.see(volume.seek(&inode, offset, to))?)
    }

    fn copy_file_range(
        &self,
        request: &Request,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        length: u64,
    ) -> VfsResult<u64> {
        let (source, target) = ((source.1, source.2), (target.1, target.2));
        Ok(self.see(self.copy(request, source, target, length))?)
    }
}

impl Layout for Ext2 {
    fn extents(&self, ino: Ino) -> VfsResult<Vec<Extent>> {
        let volume = self.volume.read();
        let inode = self.inode(&volume, ino)?;
        Ok(self.see(volume.extents(&inode))?)
    }
}

impl Volume {
    fn target(&self, inode: &Inode) -> Result<Vec<u8>> {
        if inode.kind != FileKind::Symlink {
            return Err(Errno::INVAL.into());
        }
        if let Some(target) = inode.fast_target(self.block_sectors()) {
            return Ok(target);
        }
        let length = inode.size.min(rules::TARGET_BYTES_MAX as u64) as usize;
        let mut target = Vec::with_capacity(length);
        for index in 0..length.div_ceil(self.block_size().bytes()) {
            let block = self.map(inode, FileBlock(index as u32))?.ok_or(Errno::IO)?;
            target.extend_from_slice(&self.cache.read(block)?);
        }
        target.truncate(length);
        Ok(target)
    }

    /// Returns the extents of a file, in bytes.
    fn extents(&self, inode: &Inode) -> Result<Vec<Extent>> {
        let mut extents: Vec<Extent> = Vec::new();
        if !self.has_map(inode) {
            return Ok(extents);
        }
        let bytes = self.block_size().bytes_u64();
        self.walk(inode, &mut |block, place| {
            let Some(place) = place else { return };
            let (logical, physical) = (place * bytes, self.geometry().offset_of(block));
            match extents.last_mut() {
                Some(last)
                    if last.logical + last.length == logical
                        && last.physical + last.length == physical =>
                {
                    last.length += bytes;
                }
                _ => extents.push(Extent { logical, physical, length: bytes }),
            }
        })?;
        Ok(extents)
    }
}
