//! The Fast File System of 4.4BSD-Lite2, without fragments and rotational tables.
//!
//! A new directory is placed in the group with the fewest directories among those with enough free
//! inodes. A new file is placed in its directory's group. Blocks are placed contiguously. After its
//! twelve direct blocks, a file switches to a group with at least average free space. It switches
//! again after the blocks of each indirect block. This keeps a single file from filling a group.

use super::hash_search::hash_search;
use super::space::{Run, Space};
use super::{BlockRequest, DIRECT_BLOCKS, FileState, InodeRequest, Policy, PolicySpec, Preference};
use crate::error::Result;
use crate::geometry::Geometry;
use crate::types::{BlockNo, GroupNo, InodeNo};

pub(crate) const SPEC: PolicySpec = PolicySpec {
    name: "ffs",
    help: "4.4BSD: a file switches groups after 12 blocks and after each full indirect block",
    build: |geometry, _seed| Box::new(Ffs::new(geometry, true)),
};

/// The policy, with or without the switch to another group after the twelfth block.
pub(crate) struct Ffs {
    switch_at_12: bool,
    /// For each group, the position at which a search starts if no block is preferred.
    block_rotors: Vec<u32>,
    /// For each group, the position at which a search starts if no inode is preferred.
    inode_rotors: Vec<u32>,
}

impl Ffs {
    pub(crate) fn new(geometry: &Geometry, switch_at_12: bool) -> Self {
        let groups = geometry.groups as usize;
        Self { switch_at_12, block_rotors: vec![0; groups], inode_rotors: vec![0; groups] }
    }

    /// Returns the preferred group and block for the entry at `index` of a pointer array; `before`
    /// is the previous entry.
    fn wish(
        &self,
        space: &dyn Space,
        request: &BlockRequest,
        index: u32,
        before: Option<BlockNo>,
    ) -> Preference {
        let geometry = space.geometry();
        let per_map = geometry.block_size.pointers();
        if let Some(before) = before.filter(|_| !index.is_multiple_of(per_map)) {
            return Preference::behind(geometry, before, request.home);
        }
        if request.logical.0 < DIRECT_BLOCKS {
            return Preference { group: request.home, block: Some(start(geometry, request.home)) };
        }
        if !self.switch_at_12
            && request.logical.0 == DIRECT_BLOCKS
            && let Some(last) = request.last_direct
        {
            let before = request.first_indirect.unwrap_or(last);
            return Preference::behind(geometry, before, request.home);
        }
        let first = GroupNo((request.home.0 + request.logical.0 / per_map) % geometry.groups);
        let average = space.totals().blocks / geometry.groups;
        let roomy =
            geometry.groups_from(first).find(|group| space.counts(*group).blocks >= average);
        match roomy {
            Some(group) => Preference { group, block: Some(start(geometry, group)) },
            None => Preference { group: request.home, block: None },
        }
    }
}

/// Returns the first block of a group. It contains metadata, so the search finds the first free
/// block after it.
fn start(geometry: &Geometry, group: GroupNo) -> BlockNo {
    geometry.block_at(group, 0)
}

/// Returns the group with the fewest directories among those with at least average free inodes.
fn emptiest(space: &dyn Space) -> GroupNo {
    let geometry = space.geometry();
    let average = space.totals().inodes / geometry.groups;
    (0..geometry.groups)
        .map(|group| (space.counts(GroupNo(group)), GroupNo(group)))
        .filter(|(counts, _)| counts.inodes >= average)
        .min_by_key(|(counts, group)| (counts.directories, *group))
        .map_or(GroupNo(0), |(_, group)| group)
}

impl Policy for Ffs {
    fn place_inode(
        &mut self,
        space: &mut dyn Space,
        request: &InodeRequest,
    ) -> Result<Option<InodeNo>> {
        let (group, slot) = if request.directory {
            (emptiest(space), 0)
        } else {
            let geometry = space.geometry();
            (geometry.group_of_inode(request.parent), geometry.bit_of_inode(request.parent))
        };
        hash_search(space, group, |space, group, preferred| {
            if space.counts(group).inodes == 0 {
                return Ok(None);
            }
            let geometry = *space.geometry();
            let inodes = space.inodes(group)?;
            if preferred && inodes.is_free(slot) {
                return Ok(Some(geometry.inode_at(group, slot)));
            }
            let rotor = &mut self.inode_rotors[group.0 as usize];
            let Some(bit) = inodes.next_free(*rotor).or_else(|| inodes.next_free(0)) else {
                return Ok(None);
            };
            *rotor = bit;
            Ok(Some(geometry.inode_at(group, bit)))
        })
    }

    fn place_blocks(
        &mut self,
        space: &mut dyn Space,
        file: &mut FileState,
        request: &BlockRequest,
    ) -> Result<Option<Run>> {
        let wish = if request.missing > 0 {
            // All indirect blocks of a request get the preference of the first.
            let wish = match file.indirect {
                Some(wish) => wish,
                None => self.wish(space, request, 0, None),
            };
            file.indirect = (request.missing > 1).then_some(wish);
            wish
        } else {
            self.preference(space, request)
        };
        let per_map = space.geometry().block_size.pointers();
        let until_move = per_map - request.index % per_map;
        let wanted = if request.missing > 0 { 1 } else { request.wanted.min(until_move) };
        hash_search(space, wish.group, |space, group, preferred| {
            if space.counts(group).blocks == 0 {
                return Ok(None);
            }
            // Take the first free block, wrapping around. The search starts at the preferred block,
            // or at the group's rotor if no block is preferred.
            let geometry = *space.geometry();
            let wished = wish.block.filter(|_| preferred);
            let rotor = &mut self.block_rotors[group.0 as usize];
            let from = wished.map_or(*rotor, |block| geometry.bit_of(block));
            let bitmap = space.blocks(group)?;
            let exact = wished.is_some() && bitmap.is_free(from);
            let Some(bit) = bitmap.next_free(from).or_else(|| bitmap.next_free(0)) else {
                return Ok(None);
            };
            let end = bitmap.run_end(bit, bit + wanted);
            if !exact {
                *rotor = bit;
            }
            Ok(Some(Run { start: geometry.block_at(group, bit), length: end - bit }))
        })
    }

    fn preference(&self, space: &dyn Space, request: &BlockRequest) -> Preference {
        self.wish(space, request, request.index, request.before)
    }

    fn keeps_indirect_in_line(&self) -> bool {
        !self.switch_at_12
    }

    fn inode_freed(&mut self, geometry: &Geometry, inode: InodeNo) {
        let group = geometry.group_of_inode(inode).0 as usize;
        let bit = geometry.bit_of_inode(inode);
        if let Some(rotor) = self.inode_rotors.get_mut(group) {
            *rotor = (*rotor).min(bit);
        }
    }
}
