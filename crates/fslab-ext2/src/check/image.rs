//! The state shared by all passes of a check: the image and the results of earlier passes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use fslab_vfs::{BlockDevice, FileKind};
use zerocopy::FromBytes;

use super::finding::{Problem, Report, Subject};
use crate::alloc::Bitmap;
use crate::cache::{BlockCache, Role};
use crate::dir::{DirectoryBlocks, Rules};
use crate::error::Result;
use crate::format::{RawInode, compat};
use crate::geometry::Geometry;
use crate::group::Group;
use crate::inode::Inode;
use crate::lazy_features::Feature;
use crate::superblock::Superblock;
use crate::types::{BlockNo, BlockSize, FileBlock, GroupNo, InodeNo};

/// Maximum size of the cache of unchanged blocks, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// An image that is being checked, with the results so far.
pub(super) struct Image {
    pub(super) superblock: Superblock,
    pub(super) groups: Vec<Group>,
    pub(super) cache: BlockCache,
    pub(super) report: Report,
    /// The blocks in use by metadata or by an inode that has been checked.
    claimed: Bitmap,
    /// The results for each inode, by inode number; index 0 is unused.
    pub(super) inodes: Vec<Known>,
    pub(super) directories: BTreeMap<InodeNo, Directory>,
    /// For each attribute block, its stored owner count and the number of inodes that use it.
    pub(super) attributes: HashMap<BlockNo, (u32, u32)>,
    /// Indirect blocks, each with the inode that it belongs to.
    pub(super) tables: HashMap<BlockNo, InodeNo>,
    /// The address after the last block of the bad-blocks inode; 0 if it has none.
    pub(super) bad_end: u32,
    /// The features used by inodes.
    pub(super) used: HashSet<Feature>,
}

/// The results for one inode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// `None` for an inode that is not in use.
    pub(super) kind: Option<FileKind>,
    /// The link count stored in the inode.
    pub(super) stored: u32,
    /// The number of names found.
    pub(super) counted: u32,
}

/// A directory's blocks and its position in the tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) blocks: Vec<BlockNo>,
    pub(super) indexed: bool,
    /// The inode that `..` refers to.
    pub(super) dotdot: Option<InodeNo>,
    /// The parent: the directory that contains an entry for this directory.
    pub(super) parent: Option<InodeNo>,
}

impl Image {
    /// Reads the superblock and group descriptors; fails if a feature is unknown.
    pub(super) fn open(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let superblock = Superblock::read(&*device)?;
        // Structures of an unknown feature would look like damage.
        superblock.check_writable()?;
        let geometry = *superblock.geometry();
        let groups = Group::read_all(&*device, &geometry)?;
        let cache = BlockCache::new(device, geometry.block_size, CACHE_BYTES, 0);
        let mut image = Self {
            superblock,
            groups,
            cache,
            report: Report::default(),
            claimed: Bitmap::new(geometry.blocks),
            inodes: vec![Known::default(); geometry.inodes() as usize + 1],
            directories: BTreeMap::new(),
            attributes: HashMap::new(),
            tables: HashMap::new(),
            bad_end: 0,
            used: HashSet::new(),
        };
        image.claim_metadata();
        Ok(image)
    }

    pub(super) fn geometry(&self) -> &Geometry {
        self.superblock.geometry()
    }

    fn claim_metadata(&mut self) {
        let geometry = *self.geometry();
        for no in geometry.all_groups() {
            let group = self.groups[no.0 as usize];
            let pieces = [
                (geometry.first_block(no), geometry.head_blocks(no)),
                (group.inode_table, geometry.inode_table_blocks()),
                (group.block_bitmap, 1),
                (group.inode_bitmap, 1),
            ];
            for (start, length) in pieces {
                // The metadata blocks of a group do not overlap; otherwise reading the groups would
                // have failed.
                let _taken = self.claimed.take(start.0..start.0 + length);
            }
        }
        // The blocks before the first group are never allocated.
        let _taken = self.claimed.take(0..geometry.first_data_block);
    }

    pub(super) fn is_claimed(&self, block: BlockNo) -> bool {
        !self.claimed.is_free(block.0)
    }

    /// Records that an inode owns a block. Reports a problem and returns `false` if the block can't
    /// belong to a file or already has an owner.
    pub(super) fn claim(&mut self, no: InodeNo, pointer: u32) -> bool {
        let subject = Subject::Inode(no);
        let block = BlockNo(pointer);
        if self.geometry().place_of_block(block).is_none() {
            self.report.add(subject, None, Problem::BadPointer(pointer));
            return false;
        }
        let is_free = self.claimed.take(pointer..pointer + 1);
        if !is_free {
            self.report.add(subject, Some(block), Problem::SharedBlock(pointer));
        }
        is_free
    }

    /// Claims the first block that is not in use; `None` if all blocks are in use.
    pub(super) fn take_unclaimed(&mut self) -> Option<BlockNo> {
        let block = self.claimed.next_free(0)?;
        self.claimed.take(block..block + 1).then_some(BlockNo(block))
    }

    /// Returns the block of the inode table that contains an inode, and the inode's offset in that
    /// block.
    pub(super) fn place_of_inode(&self, no: InodeNo) -> Option<(BlockNo, usize)> {
        Group::place_of_inode(&self.groups, self.geometry(), no)
    }

    /// Returns an inode's fields; `None` for an inode that does not exist.
    pub(super) fn raw_inode(&self, no: InodeNo) -> Result<Option<RawInode>> {
        let Some((block, offset)) = self.place_of_inode(no) else { return Ok(None) };
        let bytes = self.cache.read(block)?;
        Ok(RawInode::read_from_prefix(&bytes[offset..]).ok().map(|(raw, _)| raw))
    }

    /// Changes an inode's fields; returns `false` for an inode that does not exist.
    pub(super) fn change_inode(
        &mut self,
        no: InodeNo,
        change: impl FnOnce(&mut RawInode),
    ) -> Result<bool> {
        let Some((block, offset)) = self.place_of_inode(no) else { return Ok(false) };
        self.cache.modify(block, Role::Inodes, |bytes| {
            let raw = RawInode::mut_from_prefix(&mut bytes[offset..]);
            raw.map(|(raw, _)| change(raw)).is_ok()
        })
    }

    /// Replaces an inode by a new one.
    pub(super) fn store_inode(&mut self, new: &Inode) -> Result<()> {
        let Some((block, offset)) = self.place_of_inode(new.no) else { return Ok(()) };
        let end = offset + self.geometry().inode_size as usize;
        self.cache.modify(block, Role::Inodes, |bytes| {
            Inode::clear(&mut bytes[offset..end]);
            new.store(&mut bytes[offset..end]);
        })
    }

    /// Returns the kind of an inode; `None` if it is not in use or does not exist.
    pub(super) fn kind(&self, no: InodeNo) -> Option<FileKind> {
        self.inodes.get(no.0 as usize).and_then(|known| known.kind)
    }

    /// Whether an inode is in use or reserved for the file system.
    pub(super) fn is_inode_used(&self, no: InodeNo) -> bool {
        self.kind(no).is_some() || self.is_reserved(no)
    }

    /// Whether an inode is reserved for the file system.
    pub(super) fn is_reserved(&self, no: InodeNo) -> bool {
        no != InodeNo::ROOT && no < self.geometry().first_inode
    }

    pub(super) fn rules(&self) -> Rules {
        self.superblock.directory_rules()
    }

    pub(super) fn has_index(&self) -> bool {
        self.superblock.has_compat(compat::DIR_INDEX)
    }

    pub(super) fn all_groups(&self) -> impl Iterator<Item = GroupNo> + use<> {
        self.geometry().all_groups()
    }
}

/// Read access to a directory's blocks, for checking its index.
pub(super) struct Blocks<'a> {
    pub(super) image: &'a Image,
    pub(super) no: InodeNo,
    pub(super) directory: &'a Directory,
}

impl DirectoryBlocks for Blocks<'_> {
    fn inode(&self) -> InodeNo {
        self.no
    }

    fn rules(&self) -> Rules {
        self.image.rules()
    }

    fn block_size(&self) -> BlockSize {
        self.image.geometry().block_size
    }

    fn count(&self) -> u32 {
        self.directory.blocks.len() as u32
    }

    fn is_indexed(&self) -> bool {
        self.directory.indexed
    }

    fn read<R>(&self, block: FileBlock, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        Ok(look(&self.image.cache.read(self.directory.blocks[block.0 as usize])?))
    }
}
