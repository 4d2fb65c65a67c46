//! What all passes of a check look at, and what they note for the next.

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

/// Unchanged blocks that are kept, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// An image that is checked, and what is known of it so far.
pub(super) struct Image {
    pub(super) superblock: Superblock,
    pub(super) groups: Vec<Group>,
    pub(super) cache: BlockCache,
    pub(super) report: Report,
    /// The blocks in use.
    claimed: Bitmap,
    /// By inode number, from 0.
    pub(super) inodes: Vec<Known>,
    pub(super) directories: BTreeMap<InodeNo, Directory>,
    /// Blocks of attributes: what they say, how many inodes have them.
    pub(super) attributes: HashMap<BlockNo, (u32, u32)>,
    /// Indirect blocks, and the inode that each belongs to.
    pub(super) tables: HashMap<BlockNo, InodeNo>,
    /// Behind the last block that is of the inode of bad blocks; 0 without any.
    pub(super) bad_end: u32,
    /// Features that inodes use.
    pub(super) used: HashSet<Feature>,
}

/// What is known of an inode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// `None` for one that is not in use.
    pub(super) kind: Option<FileKind>,
    /// Names, as the inode counts them.
    pub(super) stored: u32,
    /// Names that were found.
    pub(super) counted: u32,
}

/// A directory: its blocks, and where it hangs.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) blocks: Vec<BlockNo>,
    pub(super) indexed: bool,
    /// What `..` says.
    pub(super) dotdot: Option<InodeNo>,
    /// The directory that has an entry for it.
    pub(super) parent: Option<InodeNo>,
}

impl Image {
    /// Reads superblock and descriptors, where all features are known.
    pub(super) fn open(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let superblock = Superblock::read(&*device)?;
        // What an unknown feature stores looks like damage.
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
                // They don't overlap, or the group could not have been read.
                let _taken = self.claimed.take(start.0..start.0 + length);
            }
        }
        // Nothing is ever put before the first group.
        let _taken = self.claimed.take(0..geometry.first_data_block);
    }

    pub(super) fn is_claimed(&self, block: BlockNo) -> bool {
        !self.claimed.is_free(block.0)
    }

    /// Notes that an inode has a block; `false` where it can't have it.
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

    /// Takes the first block that nobody has; `None` where there is none.
    pub(super) fn take_unclaimed(&mut self) -> Option<BlockNo> {
        let block = self.claimed.next_free(0)?;
        self.claimed.take(block..block + 1).then_some(BlockNo(block))
    }

    /// Where an inode's bytes are: block and offset.
    pub(super) fn place_of_inode(&self, no: InodeNo) -> Option<(BlockNo, usize)> {
        Group::place_of_inode(&self.groups, self.geometry(), no)
    }

    /// An inode's fields; `None` for an inode that does not exist.
    pub(super) fn raw_inode(&self, no: InodeNo) -> Result<Option<RawInode>> {
        let Some((block, offset)) = self.place_of_inode(no) else { return Ok(None) };
        let bytes = self.cache.read(block)?;
        Ok(RawInode::read_from_prefix(&bytes[offset..]).ok().map(|(raw, _)| raw))
    }

    /// Changes an inode's fields; `false` for an inode that does not exist.
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

    /// Makes an inode's bytes those of a new file.
    pub(super) fn store_inode(&mut self, new: &Inode) -> Result<()> {
        let Some((block, offset)) = self.place_of_inode(new.no) else { return Ok(()) };
        let end = offset + self.geometry().inode_size as usize;
        self.cache.modify(block, Role::Inodes, |bytes| {
            Inode::clear(&mut bytes[offset..end]);
            new.store(&mut bytes[offset..end]);
        })
    }

    /// What an inode is; `None` for one that is not in use or does not exist.
    pub(super) fn kind(&self, no: InodeNo) -> Option<FileKind> {
        self.inodes.get(no.0 as usize).and_then(|known| known.kind)
    }

    /// Whether an inode is in use, or one of the file system's own.
    pub(super) fn is_inode_used(&self, no: InodeNo) -> bool {
        self.kind(no).is_some() || self.is_reserved(no)
    }

    /// Whether an inode is one of the file system's own.
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

/// A directory's blocks, for reading its index.
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
