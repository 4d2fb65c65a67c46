//! A file system in use: its superblock, caches and free space, and its inodes by number.
//!
//! Reading needs `&self`, changing needs `&mut self`; the owner of a shared volume locks it. Names
//! are in `namei`; handles and requests are handled in the module `fs`.

use std::sync::Arc;

use fslab_vfs::{AccessTimes, BlockDevice, Errno, FileKind, Request, Timestamp};
use parking_lot::Mutex;

use crate::alloc::{Clustering, InodeRequest, POLICIES, PolicySpec};
use crate::bits;
use crate::cache::{BlockCache, Role};
use crate::dir::{self, Form};
use crate::error::{Error, Place, Result};
use crate::error_state::ErrorState;
use crate::flaw::Flaw;
use crate::format::INODE_TOP_DIRECTORY;
use crate::free_space::{Reuse, Space};
use crate::geometry::Geometry;
use crate::group::Group;
use crate::inode::Inode;
use crate::inode_refs::Known;
use crate::kept_changes::state::KeptChanges;
use crate::orphans::Orphans;
use crate::superblock::Superblock;
use crate::types::{BlockNo, BlockSize, InodeNo};
use crate::write_order::order::Order;

/// Options for using a file system.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// Every change fails with `EROFS`, and nothing is written.
    pub read_only: bool,
    /// Determines which accesses update the access time.
    pub access_times: AccessTimes,
    /// Determines when freed blocks and inodes may be reused.
    pub reuse: Reuse,
    /// The form of directories larger than one block; `None` to follow the feature flags.
    pub form: Option<Form>,
    /// Whether directories free blocks that became empty.
    pub shrink_directories: bool,
    /// The allocation policy; one of [`crate::alloc::POLICIES`].
    pub policy: &'static PolicySpec,
    /// Whether scattered blocks of a file are moved together while it is written.
    pub clustering: Clustering,
    /// Seed for the random choices of the policy.
    pub seed: u64,
    /// Whether the entries of a directory are listed in the order of their inode numbers.
    pub list_by_inode: bool,
    /// Whether closing a file that was open for writing makes all earlier changes durable.
    pub sync_on_close: bool,
    /// Maximum number of bytes of changed metadata in memory; more triggers a flush.
    pub dirty_bytes_max: usize,
    /// Maximum number of bytes of unchanged metadata in the cache.
    pub clean_bytes_max: usize,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            access_times: AccessTimes::default(),
            reuse: Reuse::default(),
            form: None,
            shrink_directories: true,
            policy: &POLICIES[0],
            clustering: Clustering::Dumb,
            seed: 0,
            list_by_inode: false,
            sync_on_close: false,
            dirty_bytes_max: 32 << 20,
            clean_bytes_max: 32 << 20,
        }
    }
}

/// A file system in use.
pub(crate) struct Volume {
    pub(crate) superblock: Superblock,
    pub(crate) cache: BlockCache,
    pub(crate) space: Space,
    pub(crate) rules: dir::Rules,
    pub(crate) orphans: Orphans,
    pub(crate) known: Mutex<Known>,
    pub(crate) order: Order,
    /// The record of changes for the next daemon, on a mount with `-o keep`.
    pub(crate) kept: Option<KeptChanges>,
    pub(crate) options: VolumeOptions,
    /// The time of the request that is being served.
    pub(crate) now: Timestamp,
    /// Whether the caller of this request may use the blocks reserved for the superuser.
    pub(crate) privileged: bool,
    /// Whether the superblock on the device marks the file system as clean. `was_clean` has the
    /// value from the time when the volume was opened.
    pub(crate) says_clean: bool,
    pub(crate) was_clean: bool,
    /// Records errors that forbid marking the file system as clean again.
    pub(crate) trouble: ErrorState,
    /// Whether file content was written since the last barrier.
    pub(crate) data_written: bool,
    /// Whether blocks or inodes were marked as reusable although the device may still refer to
    /// them: the removal of the references is written, but not flushed.
    pub(crate) reuse_waits: bool,
}

impl Volume {
    /// Reads the metadata that is needed to use the file system on a device.
    ///
    /// # Errors
    /// Fails if the device has no ext2 file system, or if these options do not allow its use.
    pub fn open(device: Arc<dyn BlockDevice>, options: VolumeOptions) -> Result<Self> {
        let superblock = Superblock::read(&*device)?;
        if !options.read_only {
            superblock.check_writable()?;
        }
        let geometry = *superblock.geometry();
        let groups = Group::read_all(&*device, &geometry)?;
        let (clean, held) = (options.clean_bytes_max, options.dirty_bytes_max);
        let cache = BlockCache::new(device, geometry.block_size, clean, held);
        let reserved = superblock.reserved_blocks();
        let policy = (options.policy, options.seed);
        let space = Space::new(geometry, groups, reserved, options.reuse, policy);
        let is_clean = superblock.is_clean();
        Ok(Self {
            rules: rules(&superblock, &options),
            superblock,
            cache,
            space,
            orphans: Orphans::default(),
            known: Mutex::default(),
            order: Order::default(),
            kept: None,
            options,
            now: Timestamp::default(),
            privileged: false,
            says_clean: is_clean,
            was_clean: is_clean,
            trouble: ErrorState::default(),
            data_written: false,
            reuse_waits: false,
        })
    }

    pub fn geometry(&self) -> &Geometry {
        self.superblock.geometry()
    }

    pub fn block_size(&self) -> BlockSize {
        self.geometry().block_size
    }

    /// Returns the number of 512-byte sectors in a block.
    pub fn block_sectors(&self) -> u32 {
        self.block_size().sectors()
    }

    /// Begins a change: records the time and privileges of its caller. Fails on a read-only volume.
    /// Flushes first if too much changed metadata is in memory, or if the last flush within an
    /// operation failed.
    pub fn begin(&mut self, request: &Request) -> Result<()> {
        if self.options.read_only {
            return Err(Errno::ROFS.into());
        }
        (self.now, self.privileged) = (request.now, request.credentials.uid == 0);
        let late = self.order.late_inodes.len() * self.geometry().inode_size as usize;
        let waiting = self.cache.dirty_bytes() + late + self.order.pending.bytes();
        if self.order.must_flush || waiting > self.options.dirty_bytes_max {
            self.flush()?;
        }
        Ok(())
    }

    /// Ensures that `blocks` blocks can be allocated, with a flush if necessary. Otherwise fails
    /// with `ENOSPC`.
    pub fn reserve(&mut self, blocks: u64, privileged: bool) -> Result<()> {
        self.confirm_freed()?;
        if !self.space.has_blocks(blocks, privileged) {
            return Err(Errno::NOSPC.into());
        }
        if !self.space.has_blocks_now(blocks) {
            self.flush_within_operation()?;
        }
        Ok(())
    }

    /// Returns the block of the inode table that contains an inode, and the inode's offset in that
    /// block.
    pub(crate) fn place_of_bytes(&self, no: InodeNo) -> Result<(BlockNo, usize)> {
        let geometry = self.geometry();
        let usable = Some(no).filter(|no| geometry.is_usable(*no));
        usable
            .and_then(|no| Group::place_of_inode(self.space.groups(), geometry, no))
            .ok_or_else(|| Error::damaged(Place::Inode(no), Flaw::NotForFiles))
    }

    /// Passes an inode's bytes to `look`.
    pub fn inode_bytes<R>(&self, no: InodeNo, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let (block, offset) = self.place_of_bytes(no)?;
        let end = offset + self.geometry().inode_size as usize;
        self.cache.look(block, |bytes| look(&bytes[offset..end]))
    }

    /// Passes an inode's bytes to `change`, which may modify them.
    pub fn change_inode<R>(
        &mut self,
        no: InodeNo,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let (block, offset) = self.place_of_bytes(no)?;
        let end = offset + self.geometry().inode_size as usize;
        self.cache.modify(block, Role::Inodes, |bytes| change(&mut bytes[offset..end]))
    }

    /// Returns the inode with this number.
    ///
    /// # Errors
    /// `ESTALE` for an inode that is not in use.
    pub fn inode(&self, no: InodeNo) -> Result<Inode> {
        let inode = self.inode_bytes(no, |bytes| Inode::parse(no, bytes))??;
        Ok(inode.ok_or(Errno::STALE)?)
    }

    /// Whether the inode bitmap marks an inode as in use.
    pub fn is_taken(&self, no: InodeNo) -> Result<bool> {
        let Some((group, index)) = self.geometry().place_of_inode(no) else { return Ok(false) };
        let bitmap = self.space.groups()[group.0 as usize].inode_bitmap;
        self.cache.look(bitmap, |bits| bits::is_set(bits, index))
    }

    /// Returns the inode that a directory entry refers to.
    ///
    /// # Errors
    /// Damage if that inode is not in use.
    pub fn named_inode(&self, no: InodeNo) -> Result<Inode> {
        let inode = self.inode_bytes(no, |bytes| Inode::parse(no, bytes))??;
        let inode = inode.filter(|inode| inode.links > 0);
        inode.ok_or_else(|| Error::damaged(Place::Inode(no), Flaw::NamedUnused))
    }

    pub fn store_inode(&mut self, inode: &Inode) -> Result<()> {
        self.name_features_of(inode)?;
        self.change_inode(inode.no, |bytes| inode.store(bytes))
    }

    /// Allocates an inode for a new file and resets its bytes. Returns its number and generation.
    pub fn take_inode(&mut self, parent: InodeNo, kind: FileKind) -> Result<(InodeNo, u32)> {
        self.confirm_freed()?;
        if self.space.must_settle_for_inode() {
            self.flush_within_operation()?;
        }
        let directory = kind == FileKind::Directory;
        let spread = self.inode(parent)?.flags & INODE_TOP_DIRECTORY != 0;
        let top_level = parent == InodeNo::ROOT || spread;
        let request = InodeRequest { parent, directory, top_level };
        let no = self.space.take_inode(&mut self.cache, &request)?;
        let last = self.change_inode(no, |bytes| {
            let last = Inode::last_generation(bytes);
            Inode::clear(bytes);
            last
        })?;
        Ok((no, last.wrapping_add(1)))
    }

    /// Frees an inode without names or open handles, with all its blocks. A failure is recorded for
    /// a later check, because the inode may then have blocks although no name and no orphan list
    /// refers to it.
    pub fn delete_inode(&mut self, no: InodeNo) -> Result<()> {
        let answer = self.free_with_blocks(no);
        answer.inspect_err(|error| self.trouble.log(&format!("can't free inode {no}"), error))
    }

    fn free_with_blocks(&mut self, no: InodeNo) -> Result<()> {
        let mut inode = self.inode(no)?;
        self.make_late(no)?;
        self.remove_orphan(no)?;
        self.drop_xattr_block(&mut inode)?;
        let was = Some(inode.clone());
        if self.has_map(&inode) {
            let answer = self.unmap(&mut inode, 0..u64::MAX);
            // Store the inode even after a failure, because it no longer owns the blocks freed
            // until then.
            self.store_inode(&inode)?;
            answer?;
        }
        self.space.closed(no);
        self.order.pending.deleted(no);
        let (now, was) = (self.now, was.filter(|_| inode.kind == FileKind::Regular));
        self.change_inode(no, |bytes| Inode::bury(bytes, now, was.as_ref()))?;
        self.space.free_inode(&mut self.cache, no, inode.kind)
    }

    pub fn has_map(&self, inode: &Inode) -> bool {
        inode.has_map(self.block_sectors())
    }
}

impl Volume {
    /// Adds an inode to the orphan list, which contains inodes without a name that are still open.
    pub(crate) fn add_orphan(&mut self, no: InodeNo) -> Result<()> {
        if self.orphans.contains(no) {
            return Ok(());
        }
        self.lead_orphan(no, self.orphans.head())?;
        self.orphans.add(no);
        self.space.changed = true;
        Ok(())
    }

    /// Removes an inode from the orphan list, if it is there.
    pub(crate) fn remove_orphan(&mut self, no: InodeNo) -> Result<()> {
        let Some((before, after)) = self.orphans.around(no) else { return Ok(()) };
        if let Some(after) = after {
            self.lead_orphan(after, before)?;
        }
        self.lead_orphan(no, 0)?;
        self.orphans.remove(no);
        self.space.changed = true;
        Ok(())
    }

    /// Links an orphan to the one before it in the list.
    fn lead_orphan(&mut self, no: InodeNo, before: u32) -> Result<()> {
        let mut inode = self.inode(no)?;
        inode.deleted = before;
        self.store_inode(&inode)
    }

    /// Frees the orphans that a crash left in the list. Orphans that cannot be freed are skipped,
    /// because a check will find them and all other files are usable.
    pub(crate) fn release_orphans(&mut self) {
        let mut next = InodeNo(self.superblock.raw().s_last_orphan.get());
        if next.0 == 0 {
            return;
        }
        self.now.seconds = i64::from(self.superblock.raw().s_wtime.get());
        // Ensures that the superblock is written with an empty list.
        self.space.changed = true;
        for _ in 0..self.geometry().inodes() {
            if next.0 == 0 {
                return;
            }
            next = self.release_orphan(next);
        }
        let endless = Error::damaged(Place::Inode(next), Flaw::EndlessOrphans);
        self.trouble.log("some orphans could not be freed", &endless);
    }

    /// Frees one orphan. Returns the next one, or 0 if the list cannot be followed.
    fn release_orphan(&mut self, no: InodeNo) -> InodeNo {
        let inode = match self.inode(no) {
            Ok(inode) => inode,
            Err(error) => {
                self.trouble.log(&format!("can't read the orphan {no}"), &error);
                return InodeNo(0);
            }
        };
        if inode.links == 0
            && let Err(error) = self.delete_inode(no)
        {
            self.trouble.log(&format!("can't free the orphan {no}"), &error);
        }
        InodeNo(inode.deleted)
    }
}

fn rules(superblock: &Superblock, options: &VolumeOptions) -> dir::Rules {
    let by_features = superblock.directory_rules();
    // Without the feature flag, other implementations would not keep an index consistent.
    let form = options.form.filter(|_| by_features.form == Form::Indexed);
    let form = form.unwrap_or(by_features.form);
    dir::Rules { form, shrink: options.shrink_directories, ..by_features }
}
