//! Asking the policy where inodes and blocks go, on behalf of the volume.
//!
//! The policy looks at bitmaps in a form of their own, made when a group is first looked at and
//! kept beside the cache's: [`Bitmaps`]. What is freed and waits to be usable counts as in use.

use std::collections::HashMap;

use crate::alloc::cluster::Cluster;
use crate::alloc::{
    Bitmap, BlockRequest, Counts, FileState, InodeRequest, Policy, PolicySpec, Run, Space as View,
    place_cluster,
};
use crate::cache::BlockCache;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::group::Group;
use crate::types::{BlockNo, GroupNo, InodeNo};

/// A policy, and what it remembers of open files.
pub(crate) struct Placement {
    policy: Box<dyn Policy>,
    bitmaps: Bitmaps,
    files: HashMap<InodeNo, FileState>,
}

/// Bitmaps that were looked at.
#[derive(Default)]
struct Bitmaps {
    blocks: HashMap<GroupNo, Bitmap>,
    inodes: HashMap<GroupNo, Bitmap>,
}

/// What a policy may see.
pub(crate) struct Sight<'a> {
    pub geometry: &'a Geometry,
    pub groups: &'a [Group],
    pub cache: &'a BlockCache,
    pub totals: Counts,
}

struct Seen<'a> {
    sight: Sight<'a>,
    bitmaps: &'a mut Bitmaps,
}

impl View for Seen<'_> {
    fn geometry(&self) -> &Geometry {
        self.sight.geometry
    }

    fn counts(&self, group: GroupNo) -> Counts {
        let group = &self.sight.groups[group.0 as usize];
        Counts {
            blocks: group.free_blocks,
            inodes: group.free_inodes,
            directories: group.directories,
        }
    }

    fn totals(&self) -> Counts {
        self.sight.totals
    }

    fn blocks(&mut self, group: GroupNo) -> Result<&Bitmap> {
        let at = self.sight.groups[group.0 as usize].block_bitmap;
        let length = self.sight.geometry.blocks_in(group);
        look(&mut self.bitmaps.blocks, self.sight.cache, group, at, length)
    }

    fn inodes(&mut self, group: GroupNo) -> Result<&Bitmap> {
        let at = self.sight.groups[group.0 as usize].inode_bitmap;
        let length = self.sight.geometry.inodes_per_group;
        look(&mut self.bitmaps.inodes, self.sight.cache, group, at, length)
    }
}

fn look<'a>(
    bitmaps: &'a mut HashMap<GroupNo, Bitmap>,
    cache: &BlockCache,
    group: GroupNo,
    at: BlockNo,
    length: u32,
) -> Result<&'a Bitmap> {
    use std::collections::hash_map::Entry;
    match bitmaps.entry(group) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => {
            let bytes = cache.read(at)?;
            Ok(entry.insert(Bitmap::from_bytes(&bytes, length)))
        }
    }
}

impl Placement {
    pub fn new(spec: &PolicySpec, geometry: &Geometry, seed: u64) -> Self {
        let policy = (spec.build)(geometry, seed);
        Self { policy, bitmaps: Bitmaps::default(), files: HashMap::new() }
    }

    /// A free inode for a new file; `None` where there is none.
    pub fn inode(&mut self, sight: Sight<'_>, request: &InodeRequest) -> Result<Option<InodeNo>> {
        let mut seen = Seen { sight, bitmaps: &mut self.bitmaps };
        self.policy.place_inode(&mut seen, request)
    }

    /// Free blocks for a file; `None` where there are none.
    pub fn blocks(
        &mut self,
        sight: Sight<'_>,
        no: InodeNo,
        request: &BlockRequest,
    ) -> Result<Option<Run>> {
        let mut seen = Seen { sight, bitmaps: &mut self.bitmaps };
        let mut passing = FileState::default();
        let state = match request.regular {
            true => self.files.entry(no).or_default(),
            // Only files are written through handles, whose end says when to forget.
            false => &mut passing,
        };
        self.policy.place_blocks(&mut seen, state, request)
    }

    /// A place for blocks of a file that are to lie together; `None` where they have to stay.
    pub fn cluster_place(
        &mut self,
        sight: Sight<'_>,
        no: InodeNo,
        request: &BlockRequest,
        old: (BlockNo, BlockNo),
    ) -> Result<Option<Run>> {
        let mut seen = Seen { sight, bitmaps: &mut self.bitmaps };
        let state = self.files.entry(no).or_default();
        place_cluster(self.policy.as_mut(), &mut seen, state, request, old)
    }

    /// The cluster a file is being written in, taken out.
    pub fn cluster(&mut self, no: InodeNo) -> Cluster {
        std::mem::take(&mut self.files.entry(no).or_default().cluster)
    }

    /// Puts a cluster back.
    pub fn set_cluster(&mut self, no: InodeNo, cluster: Cluster) {
        self.files.entry(no).or_default().cluster = cluster;
    }

    #[cfg(test)]
    pub fn files_known(&self) -> usize {
        self.files.len()
    }

    /// Nobody has the file open any more, or it was cut.
    pub fn closed(&mut self, no: InodeNo) {
        if let Some(mut state) = self.files.remove(&no) {
            self.policy.file_closed(&mut state);
        }
    }

    /// An inode became free.
    pub fn inode_freed(&mut self, geometry: &Geometry, no: InodeNo) {
        self.policy.inode_freed(geometry, no);
    }

    /// Blocks were marked as in use; `false` where the bitmap of the group says they were.
    pub fn blocks_taken(&mut self, group: GroupNo, index: u32, length: u32) -> bool {
        let bitmap = self.bitmaps.blocks.get_mut(&group);
        bitmap.is_none_or(|bitmap| bitmap.take(index..index + length))
    }

    /// An inode was marked as in use; `false` where the bitmap of the group says it was.
    pub fn inode_taken(&mut self, group: GroupNo, index: u32) -> bool {
        let bitmap = self.bitmaps.inodes.get_mut(&group);
        bitmap.is_none_or(|bitmap| bitmap.take(index..index + 1))
    }

    /// A block was marked as free.
    pub fn block_released(&mut self, group: GroupNo, index: u32) {
        release(&mut self.bitmaps.blocks, group, index);
    }

    /// An inode was marked as free.
    pub fn inode_released(&mut self, group: GroupNo, index: u32) {
        release(&mut self.bitmaps.inodes, group, index);
    }
}

fn release(bitmaps: &mut HashMap<GroupNo, Bitmap>, group: GroupNo, index: u32) {
    if let Some(bitmap) = bitmaps.get_mut(&group)
        && !bitmap.release(index..index + 1)
    {
        // Read again when it is next looked at.
        bitmaps.remove(&group);
    }
}
