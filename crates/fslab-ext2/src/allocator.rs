//! What the policy that places inodes and blocks sees of a volume, and what it remembers.
//!
//! The policy looks at bitmaps in a form of their own, made when a group is first looked at and
//! kept beside the cache's: [`Bitmaps`]. What is freed and waits to be usable counts as in use.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use crate::alloc::{Bitmap, Counts, FileState, Policy, Space as View};
use crate::cache::BlockCache;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::group::Group;
use crate::types::{BlockNo, GroupNo, InodeNo};

/// A policy, and what it remembers of open files.
pub(crate) struct Placement {
    pub policy: Box<dyn Policy>,
    pub bitmaps: Bitmaps,
    pub files: HashMap<InodeNo, FileState>,
}

/// Bitmaps that were looked at.
#[derive(Default)]
pub(crate) struct Bitmaps {
    pub blocks: GroupBitmaps,
    pub inodes: GroupBitmaps,
}

/// What a policy may see.
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

/// Bitmaps of blocks or of inodes.
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

    /// Bits were marked as in use; `false` where the bitmap of the group says they were.
    pub fn taken(&mut self, group: GroupNo, bits: Range<u32>) -> bool {
        self.0.get_mut(&group).is_none_or(|bitmap| bitmap.take(bits))
    }

    /// A bit was marked as free.
    pub fn released(&mut self, group: GroupNo, index: u32) {
        let is_right = |bitmap: &mut Bitmap| bitmap.release(index..index + 1);
        if !self.0.get_mut(&group).is_none_or(is_right) {
            // Read again when it is next looked at.
            self.0.remove(&group);
        }
    }
}
