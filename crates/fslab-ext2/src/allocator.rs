//! The allocation policy of a volume, its view of the volume, and its state for each file.
//!
//! The policy searches its own bitmaps ([`Bitmaps`]), not the bitmap blocks in the cache. A group's
//! bitmap is built at its first use. In that bitmap, freed blocks that cannot be reused yet are
//! still marked as in use.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use crate::alloc::{Bitmap, Counts, FileState, Policy, Space as View};
use crate::cache::BlockCache;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::group::Group;
use crate::types::{BlockNo, GroupNo, InodeNo};

/// A policy and its state for open files.
pub(crate) struct Placement {
    pub policy: Box<dyn Policy>,
    pub bitmaps: Bitmaps,
    pub files: HashMap<InodeNo, FileState>,
}

/// The policy's bitmaps of all groups that have been used so far.
#[derive(Default)]
pub(crate) struct Bitmaps {
    pub blocks: GroupBitmaps,
    pub inodes: GroupBitmaps,
}

/// The policy's view of a volume.
pub(crate) struct Seen<'a> {
    pub geometry: &'a Geometry,
    pub groups: &'a [Group],
    pub cache: &'a BlockCache,
    pub totals: Counts,
    pub bitmaps: &'a mut Bitmaps,
}

impl View for Seen<'_> {
    fn geometry(&self) -> &Geometry {
        self.geometry
    }

    fn counts(&self, group: GroupNo) -> Counts {
        let group = &self.groups[group.0 as usize];
        Counts {
            blocks: group.free_blocks,
            inodes: group.free_inodes,
            directories: group.directories,
        }
    }

    fn totals(&self) -> Counts {
        self.totals
    }

    fn blocks(&mut self, group: GroupNo) -> Result<&Bitmap> {
        let at = self.groups[group.0 as usize].block_bitmap;
        self.bitmaps.blocks.look(self.cache, group, at, self.geometry.blocks_in(group))
    }

    fn inodes(&mut self, group: GroupNo) -> Result<&Bitmap> {
        let at = self.groups[group.0 as usize].inode_bitmap;
        self.bitmaps.inodes.look(self.cache, group, at, self.geometry.inodes_per_group)
    }
}

/// Bitmaps of blocks or of inodes, by group.
#[derive(Default)]
pub(crate) struct GroupBitmaps(HashMap<GroupNo, Bitmap>);

impl GroupBitmaps {
    fn look(
        &mut self,
        cache: &BlockCache,
        group: GroupNo,
        at: BlockNo,
        length: u32,
    ) -> Result<&Bitmap> {
        match self.0.entry(group) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(Bitmap::from_bytes(&cache.read(at)?, length))),
        }
    }

    /// Records that bits were marked as in use; returns `false` if one of them already was.
    pub fn taken(&mut self, group: GroupNo, bits: Range<u32>) -> bool {
        self.0.get_mut(&group).is_none_or(|bitmap| bitmap.take(bits))
    }

    /// Records that a bit was marked as free.
    pub fn released(&mut self, group: GroupNo, index: u32) {
        let is_right = |bitmap: &mut Bitmap| bitmap.release(index..index + 1);
        if !self.0.get_mut(&group).is_none_or(is_right) {
            // The bit was already free, so this bitmap is wrong. It is read again at the next use.
            self.0.remove(&group);
        }
    }
}
