//! Shrinks an unmounted file system.
//!
//! Shrinking uses the results of a check: the owner of each block and the inodes in use. First,
//! everything past the new end is copied to free space before it. Then pointers, inodes and names
//! are changed to refer to the copies. The superblock of the smaller file system is written last.
//! Until then no old data is overwritten. After a power cut, a checker finds every file, but some
//! blocks may be marked as in use without an owner.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fslab_vfs::{BlockDevice, FileKind};

use super::finding::FINDINGS_MAX;
use super::image::Image;
use super::repair::write_counts;
use crate::cache::Role;
use crate::dir::entry::{self, Entries, EntryKind};
use crate::error::{Error, Result};
use crate::format::{STATE_CLEAN, SUPERBLOCK_OFFSET, compat};
use crate::geometry::Geometry;
use crate::grow::Resized;
use crate::inode::Inode;
use crate::mkfs::cut_last_group;
use crate::pointer_tree::{Pointer, Slot, WHOLE_FILE, set_pointer, walk};
use crate::types::{BlockNo, GroupNo, InodeNo};

/// Maximum size of changed metadata in memory, in bytes. Beyond this, it is written to the device.
const DIRTY_MAX: usize = 16 << 20;

/// Shrinks a file system to at most `bytes` bytes. The size of the device does not change.
///
/// # Errors
/// - [`Error::BadParameters`] if the file system is not clean or is damaged.
/// - [`Error::BadParameters`] if its content does not fit.
/// - [`Error::BadParameters`] if it has the `resize_inode` feature, because the separate map of its
///   reserved blocks is not supported.
/// - Errors of the device. After any other error, the file system is unchanged.
pub fn shrink(device: &Arc<dyn BlockDevice>, bytes: u64) -> Result<Resized> {
    let (report, image) = super::examine(Arc::clone(device), FINDINGS_MAX)?;
    const DAMAGED: Error = Error::BadParameters("it is damaged; repair it first");
    let image = image.ok_or(DAMAGED)?;
    image.superblock.check_in_order()?;
    if !report.findings.is_empty() {
        return Err(DAMAGED);
    }
    if image.superblock.has_compat(compat::RESIZE_INODE) {
        return Err(Error::BadParameters(
            "it has blocks reserved for more group descriptors (resize_inode); use resize2fs",
        ));
    }
    let (before, after) = (*image.geometry(), smaller(image.geometry(), bytes)?);
    let resized = Resized { from: before.blocks, to: after.blocks.min(before.blocks) };
    if after.blocks < before.blocks {
        let (blocks, inodes) = (HashMap::new(), BTreeMap::new());
        let mut shrinking = Shrinking { image, before, after, blocks, inodes };
        shrinking.check_room()?;
        shrinking.say_in_use()?;
        shrinking.move_blocks()?;
        shrinking.move_inodes()?;
        shrinking.rename()?;
        shrinking.cut(device)?;
    }
    Ok(resized)
}

fn smaller(before: &Geometry, bytes: u64) -> Result<Geometry> {
    let blocks = (bytes / before.block_size.bytes_u64()).min(before.blocks.into()) as u32;
    let mut after = before.of_blocks(blocks);
    if after.groups == 0 || before.overhead(GroupNo(0)) >= after.blocks_in(GroupNo(0)) {
        return Err(Error::BadParameters("there would be no room for files"));
    }
    cut_last_group(&mut after);
    Ok(after)
}

struct Shrinking {
    image: Image,
    before: Geometry,
    after: Geometry,
    /// The new address of each block moved so far. Several inodes may share an attribute block,
    /// which is moved only once.
    blocks: HashMap<BlockNo, BlockNo>,
    inodes: BTreeMap<InodeNo, InodeNo>,
}

impl Shrinking {
    fn is_outside(&self, block: BlockNo) -> bool {
        block.0 >= self.after.blocks
    }

    fn is_metadata(&self, block: BlockNo) -> bool {
        let Some((no, index)) = self.before.place_of_block(block) else { return false };
        let group = &self.image.groups[no.0 as usize];
        index < self.before.head_blocks(no) || group.keeps(&self.before, block)
    }

    fn check_room(&self) -> Result<()> {
        let last = GroupNo(self.after.groups - 1);
        let outside = self.after.blocks..self.before.blocks;
        let of_last =
            |block: &BlockNo| self.image.groups[last.0 as usize].keeps(&self.before, *block);
        if outside.clone().map(BlockNo).any(|block| of_last(&block)) {
            return Err(Error::BadParameters("the bitmaps of the last group would be cut off"));
        }
        if self.image.bad_end > self.after.blocks {
            return Err(Error::BadParameters("bad blocks would be cut off; use resize2fs"));
        }
        let claimed = |block: &BlockNo| self.image.is_claimed(*block);
        let moving = outside.map(BlockNo).filter(claimed).filter(|block| !self.is_metadata(*block));
        let kept = self.before.first_data_block..self.after.blocks;
        let free = kept.map(BlockNo).filter(|block| !claimed(block));
        if moving.count() > free.count() {
            return Err(Error::BadParameters("its files need more blocks"));
        }
        let used = |no: &InodeNo| self.image.kind(*no).is_some();
        let moving = self.inodes_outside().filter(used).count();
        if moving > self.inodes_inside().filter(|no| !used(no)).count() {
            return Err(Error::BadParameters("its files need more inodes"));
        }
        Ok(())
    }

    fn inodes_outside(&self) -> impl Iterator<Item = InodeNo> + use<> {
        (self.after.inodes() + 1..=self.before.inodes()).map(InodeNo)
    }

    fn inodes_inside(&self) -> impl Iterator<Item = InodeNo> + use<> {
        (self.after.first_inode.0..=self.after.inodes()).map(InodeNo)
    }

    fn say_in_use(&mut self) -> Result<()> {
        let raw = self.image.superblock.raw_mut();
        raw.s_state = (raw.s_state.get() & !STATE_CLEAN).into();
        let device = self.image.cache.device();
        device.write_at(SUPERBLOCK_OFFSET, self.image.superblock.as_bytes())?;
        Ok(device.flush()?)
    }

    /// Writes all changes; blocks are written before the pointers to them.
    fn settle(&mut self) -> Result<()> {
        for role in [Role::Map, Role::Inodes, Role::Directory] {
            self.image.cache.device().flush()?;
            self.image.cache.write_out(role)?;
        }
        Ok(self.image.cache.device().flush()?)
    }

    fn move_blocks(&mut self) -> Result<()> {
        for no in (1..=self.before.inodes()).map(InodeNo) {
            if let Some(kind) = self.image.kind(no) {
                self.move_blocks_of(no, kind)?;
            }
            if self.image.cache.dirty_bytes() > DIRTY_MAX {
                self.settle()?;
            }
        }
        self.settle()
    }

    fn move_blocks_of(&mut self, no: InodeNo, kind: FileKind) -> Result<()> {
        let Some((block, offset)) = self.image.place_of_inode(no) else { return Ok(()) };
        let end = offset + self.before.inode_size as usize;
        let inode =
            self.image.cache.look(block, |bytes| Inode::parse(no, &bytes[offset..end]))??;
        let Some(inode) = inode else { return Ok(()) };
        let (mut map, block_size) = (inode.map, self.before.block_size);
        if inode.has_map(block_size.sectors()) {
            // The closure moves the block that a pointer refers to and changes the pointer. It
            // returns the bytes of an indirect block.
            walk(&inode.map, block_size, WHOLE_FILE, &mut |at: &Pointer| {
                let is_data = at.level == 0 && kind == FileKind::Regular;
                let new = self.move_block(at.block, |shrinking, to| match is_data {
                    true => shrinking.copy_data(at.block, to),
                    false => shrinking.copy_metadata(at.block, to),
                })?;
                match at.slot {
                    _ if new == at.block => {}
                    Slot::Inode(index) => map[index as usize] = new.0,
                    Slot::Indirect(table, index) => {
                        // The indirect block itself may have been moved.
                        let table = self.blocks.get(&table).copied().unwrap_or(table);
                        let change = |bytes: &mut [u8]| set_pointer(bytes, index, new.0);
                        self.image.cache.modify(table, Role::Map, change)?;
                    }
                }
                if at.level > 0 { self.image.cache.read(new).map(Some) } else { Ok(None) }
            })?;
        }
        let attributes = inode.xattr_block.map(|block| {
            self.move_block(block, |shrinking, to| shrinking.copy_metadata(block, to))
        });
        let attributes = attributes.transpose()?;
        if map == inode.map && attributes == inode.xattr_block {
            return Ok(());
        }
        self.image.cache.modify(block, Role::Inodes, |bytes| {
            Inode { map, xattr_block: attributes, ..inode }.store(&mut bytes[offset..end]);
        })
    }

    /// Moves a block that is past the new end; returns its new address.
    fn move_block(
        &mut self,
        old: BlockNo,
        copy: impl FnOnce(&mut Self, BlockNo) -> Result<()>,
    ) -> Result<BlockNo> {
        if !self.is_outside(old) {
            return Ok(old);
        }
        if let Some(new) = self.blocks.get(&old) {
            return Ok(*new);
        }
        let new = self.image.take_unclaimed().filter(|block| !self.is_outside(*block));
        // The number of free blocks was checked before.
        let new = new.ok_or(fslab_vfs::Errno::NOSPC)?;
        copy(self, new)?;
        self.blocks.insert(old, new);
        Ok(new)
    }

    fn copy_metadata(&mut self, from: BlockNo, to: BlockNo) -> Result<()> {
        let bytes = self.image.cache.read(from)?;
        self.image.cache.create(to);
        self.image.cache.modify(to, Role::Map, |target| target.copy_from_slice(&bytes))
    }

    fn copy_data(&mut self, from: BlockNo, to: BlockNo) -> Result<()> {
        let mut bytes = vec![0; self.before.block_size.bytes()];
        let device = self.image.cache.device();
        device.read_data_at(self.before.offset_of(from), &mut bytes)?;
        Ok(device.write_data_at(self.before.offset_of(to), &bytes)?)
    }

    /// Copies inodes from dropped groups to free inodes. Both copies are in use until the smaller
    /// superblock is written.
    fn move_inodes(&mut self) -> Result<()> {
        let size = self.before.inode_size as usize;
        let mut free = self.inodes_inside();
        for old in self.inodes_outside() {
            if self.image.kind(old).is_none() {
                continue;
            }
            let new = free.find(|no| self.image.kind(*no).is_none());
            let new = new.ok_or(fslab_vfs::Errno::NOSPC)?;
            let places = (self.image.place_of_inode(old), self.image.place_of_inode(new));
            let (Some((from, at)), Some((to, start))) = places else { continue };
            let bytes = self.image.cache.look(from, |bytes| bytes[at..at + size].to_vec())?;
            self.image.cache.modify(to, Role::Inodes, |target| {
                target[start..start + size].copy_from_slice(&bytes);
            })?;
            self.inodes.insert(old, new);
        }
        self.settle()
    }

    /// Replaces the numbers of moved inodes in all directory entries, including `.` and `..`.
    fn rename(&mut self) -> Result<()> {
        if self.inodes.is_empty() {
            return Ok(());
        }
        let directories = std::mem::take(&mut self.image.directories);
        for block in directories.values().flat_map(|directory| &directory.blocks) {
            let block = self.blocks.get(block).copied().unwrap_or(*block);
            self.rename_in(block)?;
        }
        self.settle()
    }

    fn rename_in(&mut self, block: BlockNo) -> Result<()> {
        let changes: Vec<(usize, InodeNo, EntryKind)> = self.image.cache.look(block, |bytes| {
            let entries = Entries::of(bytes).flatten();
            let moved = entries.filter_map(|entry| {
                let new = self.inodes.get(&entry.inode?)?;
                Some((entry.offset, *new, entry.kind))
            });
            moved.collect()
        })?;
        if changes.is_empty() {
            return Ok(());
        }
        self.image.cache.modify(block, Role::Directory, |bytes| {
            for (offset, new, kind) in changes {
                entry::set_inode(bytes, offset, new, kind);
            }
        })
    }

    /// Completes the change by writing the smaller superblock. Then bitmaps and counts are rebuilt
    /// from a check.
    fn cut(mut self, device: &Arc<dyn BlockDevice>) -> Result<()> {
        let mut groups = std::mem::take(&mut self.image.groups);
        groups.truncate(self.after.groups as usize);
        if let Some(last) = groups.last_mut() {
            let length = self.after.blocks_in(GroupNo(self.after.groups - 1));
            last.free_blocks = last.free_blocks.min(length);
        }
        self.image.superblock.set_sizes(&self.after);
        self.image.superblock.write_first(&**device, &groups)?;
        let (_, image) = super::examine(Arc::clone(device), FINDINGS_MAX)?;
        let mut image =
            image.ok_or(Error::BadParameters("the smaller file system can't be read"))?;
        let state = image.superblock.raw().s_state.get() | STATE_CLEAN;
        image.superblock.raw_mut().s_state = state.into();
        // The backup copies are written before the counts are rebuilt. The copies are only for
        // repair, so their counts need not be up to date.
        let geometry = *image.geometry();
        let device = image.cache.shared_device();
        image.superblock.write_copies(&*device, &geometry, &image.groups)?;
        device.flush()?;
        write_counts(&mut image)
    }
}
