//! The closure of a file: the set of changed blocks that an fsync writes so that the file survives
//! a power cut under its name. Other changed blocks remain in memory.
//!
//! This implements soft updates in coarse steps (Ganger and Patt, "Metadata Update Performance in
//! File Systems", OSDI 1994). The closure contains the file's inode and indirect blocks. If the
//! file's name is not on the device yet, the closure also contains a part of its directory. That
//! part is the directory's inode, its new blocks, the block with the name, and the index blocks on
//! the path to it. The same is added for each parent directory, up to the first whose name is on
//! the device. A name that was removed and created again may be on the device in another block,
//! with its earlier inode. In that case the closure contains all changed blocks of the directory.
//!
//! A block that is shared with other files is written without their changes, which are *rolled
//! back*:
//!
//! - A block of the inode table is written as on the device, with only the closure's inodes
//!   replaced.
//! - A directory block is written as in memory, without names of inodes that are neither on the
//!   device nor in the closure. It remains marked as changed.
//!
//! Bitmaps and counts are not written, because a check can rebuild them. On the device, no block of
//! the closure belongs to another file, because freed blocks are not reused before a full flush.
//!
//! In these cases there is no closure, and the caller flushes everything:
//!
//! - Names or pointers were removed from a block of the closure, so other blocks must be written
//!   first.
//! - A name may have replaced another.
//! - The file is a directory, and a name was moved between directory blocks, but the device does
//!   not have the move yet. Writing only one of the blocks could leave the name twice.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fslab_vfs::FileKind;

use crate::cache::{Left, Role, Written};
use crate::dir::entry::Entries;
use crate::dir::{self, Search};
use crate::error::{Error, Result};
use crate::free_space::Reuse;
use crate::inode::Inode;
use crate::superblock::Superblock;
use crate::types::{BlockNo, InodeNo};
use crate::volume::Volume;

/// Maximum number of new names in the closure of a directory; beyond this, a full flush is as fast.
const NAMES_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Closure {
    /// Indirect blocks, extended attribute blocks and blocks of symbolic links.
    map: Vec<BlockNo>,
    /// Directory blocks that the device does not refer to yet.
    new_directories: Vec<BlockNo>,
    inodes: BTreeSet<InodeNo>,
    /// Directory blocks whose version on the device is older.
    directories: BTreeSet<BlockNo>,
}

/// A step of writing a closure. The device is flushed after each step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClosureStep {
    /// Marks the superblock as no longer clean.
    Begin,
    /// New blocks and pointers, which the device does not refer to yet.
    Map,
    /// The inodes that refer to the blocks of the previous step.
    Inodes,
    /// The directory blocks with the names of the inodes.
    Directories,
}

impl ClosureStep {
    pub const ALL: [Self; 4] = [Self::Begin, Self::Map, Self::Inodes, Self::Directories];
}

/// The writes of one step, before [`note_step`](Volume::note_step) records them.
#[derive(Default)]
pub(crate) struct StepWritten {
    /// The new superblock, which is no longer marked clean.
    superblock: Option<Superblock>,
    pub blocks: Written,
    /// Whether anything was written.
    pub is_any: bool,
}

impl Volume {
    /// Returns the closure of an inode for an fsync, or `None` if everything must be flushed.
    pub(crate) fn closure(&self, no: InodeNo) -> Result<Option<Closure>> {
        if self.order.pending.is_unordered || self.options.reuse != Reuse::AfterFlush {
            return Ok(None);
        }
        let mut builder = Builder { volume: self, closure: Closure::default() };
        match builder.build(no) {
            Ok(is_whole) => Ok(is_whole.then_some(builder.closure)),
            // Damage in a block that the fsync need not write must not make the fsync fail.
            Err(Error::Damaged(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes one step of a closure. The volume must not change between two steps. Each step needs
    /// only a shared borrow of the volume, so other threads may read it. `written` lists the
    /// written blocks, even after an error.
    pub(crate) fn put_step(
        &self,
        closure: &Closure,
        step: ClosureStep,
        written: &mut StepWritten,
    ) -> Result<()> {
        match step {
            ClosureStep::Begin => {
                if self.says_clean {
                    let head = self.orphans.settled_head();
                    written.superblock = Some(self.put_superblock(false, head)?);
                }
                Ok(())
            }
            ClosureStep::Map => {
                written.is_any |= !closure.map.is_empty();
                self.cache.put_blocks(closure.map.clone(), &mut written.blocks)?;
                let mut blocks = closure.new_directories.iter();
                blocks.try_for_each(|it| self.put_names(closure, *it, written))
            }
            ClosureStep::Inodes => self.put_inodes_of(closure, written),
            ClosureStep::Directories => {
                let mut blocks = closure.directories.iter();
                blocks.try_for_each(|it| self.put_names(closure, *it, written))
            }
        }
    }

    /// Whether [`note_step`](Self::note_step) would change anything.
    pub(crate) fn has_to_note(&self, written: &StepWritten) -> bool {
        written.superblock.is_some() || (written.is_any && !self.data_written)
    }

    /// Records the effects of a step on the volume, except for the written blocks.
    pub(crate) fn note_step(&mut self, written: &mut StepWritten) {
        self.data_written |= written.is_any;
        if let Some(superblock) = written.superblock.take() {
            self.says(superblock, false);
        }
    }

    /// Returns the inodes of a closure that are recorded as not yet on the device.
    pub(crate) fn pending_of(&self, closure: &Closure) -> Vec<InodeNo> {
        let is_pending = |no: &InodeNo| self.order.pending.inodes.contains_key(no);
        closure.inodes.iter().copied().filter(is_pending).collect()
    }

    /// Records that these inodes of a closure, with their names, are durable.
    pub(crate) fn note_durable(&mut self, inodes: &[InodeNo]) {
        inodes.iter().for_each(|no| self.order.pending.deleted(*no));
    }

    /// Writes the closure's inodes. Other inodes in the same blocks keep the bytes that they have
    /// on the device.
    fn put_inodes_of(&self, closure: &Closure, written: &mut StepWritten) -> Result<()> {
        let size = self.geometry().inode_size as usize;
        let mut by_block: BTreeMap<BlockNo, Vec<Range<usize>>> = BTreeMap::new();
        for no in &closure.inodes {
            let (block, offset) = self.place_of_bytes(*no)?;
            by_block.entry(block).or_default().push(offset..offset + size);
        }
        for (block, ranges) in by_block {
            written.is_any |= self.cache.put_ranges(block, &ranges, &mut written.blocks)?;
        }
        Ok(())
    }

    /// Writes a directory block without names of inodes that are neither on the device nor in the
    /// closure.
    fn put_names(
        &self,
        closure: &Closure,
        block: BlockNo,
        written: &mut StepWritten,
    ) -> Result<()> {
        let others = self.cache.look(block, |bytes| names_of_others(self, closure, bytes))?;
        written.is_any = true;
        let left: Left = self.cache.put_changed(block, |bytes| {
            for record in others.into_iter().flatten() {
                dir::entry::put_free(bytes, record.start, record.len());
            }
        })?;
        written.blocks.push((block, left));
        Ok(())
    }
}

/// Returns the records in a directory block that refer to inodes neither on the device nor in the
/// closure. Returns `None` if the block cannot be written without them.
fn names_of_others(volume: &Volume, closure: &Closure, bytes: &[u8]) -> Option<Vec<Range<usize>>> {
    let mut others = Vec::new();
    for entry in Entries::of(bytes) {
        let entry = entry.ok()?;
        let Some(no) = entry.inode else { continue };
        let Some(pending) = volume.order.pending.inodes.get(&no) else { continue };
        if closure.inodes.contains(&no) {
            continue;
        }
        if !pending.is_new {
            // The device has this inode, but if the name is an additional link, the link count on
            // the device is too low.
            if volume.order.linked.contains_key(&no) {
                return None;
            }
            continue;
        }
        // The name of a renamed inode cannot be left out, because it may have replaced a name that
        // is on the device.
        pending.name.as_ref()?;
        if matches!(entry.name, b"." | b"..") {
            return None;
        }
        others.push(entry.offset..entry.offset + entry.length);
    }
    Some(others)
}

struct Builder<'a> {
    volume: &'a Volume,
    closure: Closure,
}

/// Each method returns `false` if there is no closure.
impl Builder<'_> {
    fn build(&mut self, no: InodeNo) -> Result<bool> {
        let is_directory = self.volume.inode(no)?.kind == FileKind::Directory;
        Ok(self.add(no)?
            && (!is_directory || self.add_names_in(no)?)
            && self.can_be_written_apart()?)
    }

    /// Adds an inode and its blocks. If its name is not on the device, also adds the name, and
    /// continues with the parent directory.
    fn add(&mut self, no: InodeNo) -> Result<bool> {
        let mut at = no;
        loop {
            if self.closure.inodes.contains(&at) {
                return Ok(true);
            }
            if !self.add_inode(at)? {
                return Ok(false);
            }
            let Some(pending) = self.volume.order.pending.inodes.get(&at) else { return Ok(true) };
            let Some((parent, name)) = &pending.name else { return Ok(false) };
            if !self.add_name(*parent, name, at)? {
                return Ok(false);
            }
            at = *parent;
        }
    }

    fn add_inode(&mut self, no: InodeNo) -> Result<bool> {
        let inode = self.volume.inode(no)?;
        if inode.links == 0 || self.volume.order.late_inodes.contains_key(&no) {
            return Ok(false);
        }
        self.closure.inodes.insert(no);
        let roles = &self.volume.cache;
        let attributes = inode.xattr_block.filter(|it| roles.role(*it) == Some(Role::Map));
        self.closure.map.extend(attributes);
        if self.volume.has_map(&inode) { self.add_map(&inode) } else { Ok(true) }
    }

    fn add_map(&mut self, inode: &Inode) -> Result<bool> {
        let is_directory = inode.kind == FileKind::Directory;
        // Data blocks of a regular file are already on the device, so only its indirect blocks are
        // examined.
        let lowest = if inode.kind == FileKind::Regular { 1 } else { 0 };
        let (volume, closure) = (self.volume, &mut self.closure);
        let mut is_whole = true;
        volume.walk_to(inode, lowest, &mut |block, place| match volume.cache.role(block) {
            Some(Role::Map) if is_directory && place.is_some() => {
                closure.new_directories.push(block);
            }
            Some(Role::Map) => closure.map.push(block),
            Some(Role::MapLate) => is_whole = false,
            _ => {}
        })?;
        Ok(is_whole)
    }

    /// Adds the block of a name and the index blocks on the path to it.
    fn add_name(&mut self, parent: InodeNo, name: &[u8], no: InodeNo) -> Result<bool> {
        let view = self.volume.directory(parent)?;
        let Search::Found(found) = dir::find(&view, name)? else {
            return Ok(false);
        };
        let mut is_whole = found.inode() == no;
        for block in found.blocks() {
            is_whole &= self.add_directory_block(view.physical(block)?);
        }
        if self.volume.order.pending.was_removed(parent, name) {
            for block in self.changed_blocks(&view.inode)? {
                is_whole &= self.add_directory_block(block);
            }
        }
        Ok(is_whole)
    }

    /// Returns the blocks of a directory that the device lacks or has only in an older version.
    fn changed_blocks(&self, inode: &Inode) -> Result<Vec<BlockNo>> {
        let mut blocks = Vec::new();
        self.volume.walk(inode, &mut |block, place| {
            if place.is_some() && self.volume.cache.role(block).is_some() {
                blocks.push(block);
            }
        })?;
        Ok(blocks)
    }

    fn add_directory_block(&mut self, block: BlockNo) -> bool {
        match self.volume.cache.role(block) {
            // A block with the role `Map` is added with its directory's inode.
            None | Some(Role::Map) => true,
            Some(Role::Directory) => {
                self.closure.directories.insert(block);
                true
            }
            Some(_) => false,
        }
    }

    /// Adds all changed blocks of a directory, and the new inodes that they refer to.
    fn add_names_in(&mut self, no: InodeNo) -> Result<bool> {
        let volume = self.volume;
        if !volume.order.left.is_empty() {
            return Ok(false);
        }
        let mut named = Vec::new();
        for block in self.changed_blocks(&volume.inode(no)?)? {
            if !self.add_directory_block(block) {
                return Ok(false);
            }
            volume.cache.look(block, |bytes| {
                let inodes = Entries::of(bytes).filter_map(|entry| entry.ok()?.inode);
                named.extend(inodes.filter(|no| volume.order.pending.is_new(*no)));
            })?;
            if named.len() > NAMES_MAX {
                return Ok(false);
            }
        }
        for no in named {
            if !self.add(no)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether every directory block can be written without changes that are outside the closure.
    fn can_be_written_apart(&self) -> Result<bool> {
        for block in self.closure.new_directories.iter().chain(&self.closure.directories) {
            let names = |bytes: &[u8]| names_of_others(self.volume, &self.closure, bytes);
            if self.volume.cache.look(*block, names)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
