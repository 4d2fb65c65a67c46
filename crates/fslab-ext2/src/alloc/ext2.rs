//! The policy of Linux ext2: goal blocks, reservation windows, and Orlov's rules for directories.
//!
//! While there is room, a file's blocks are contiguous, with each indirect block just before the
//! data that it maps. Each top-level directory goes to a group with the fewest directories; ties
//! are broken at random. A deeper directory goes to its parent's group, or to the next group if
//! that one has too many directories.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::hash_search::at_doubling_distances;
use super::reservation::{Windows, ends};
use super::space::{Counts, Run, Space};
use super::{BlockRequest, FileState, InodeRequest, Policy, PolicySpec, Preference};
use crate::error::Result;
use crate::geometry::Geometry;
use crate::types::{BlockNo, FileBlock, GroupNo, InodeNo};

pub(crate) const SPEC: PolicySpec = PolicySpec {
    name: "ext2",
    help: "Linux ext2: goal blocks, reservation windows, Orlov's rules for directories",
    build: |geometry, seed| Box::new(Ext2::new(geometry, seed)),
};

struct Ext2 {
    windows: Windows,
    /// For each group, the number of directories placed there. It decreases by one for each file
    /// placed there later, but not below zero.
    debts: Vec<u8>,
    full: FullGroups,
    random: Pcg64,
}

/// Consecutive groups that had no free inode at the last search; valid until an inode is freed. A
/// directory with millions of names fills hundreds of groups, and the search for the next inode
/// skips them.
#[derive(Clone, Copy, Default)]
struct FullGroups {
    first: u32,
    count: u32,
}

impl Ext2 {
    fn new(geometry: &Geometry, seed: u64) -> Self {
        Self {
            windows: Windows::default(),
            debts: vec![0; geometry.groups as usize],
            full: FullGroups::default(),
            random: Pcg64::seed_from_u64(seed),
        }
    }

    fn goal(geometry: &Geometry, file: &FileState, request: &BlockRequest) -> BlockNo {
        if let Some((logical, block)) = file.last
            && FileBlock(logical.0 + 1) == request.logical
        {
            return BlockNo(block.0 + 1);
        }
        let near = request.nearest.or(request.holder);
        near.unwrap_or_else(|| geometry.block_at(request.home, 0))
    }

    /// Chooses blocks in one group. With `file`, only the file's window is searched. If the window
    /// does not cover the goal or has no free block, a new window is chosen. Without `file`, the
    /// whole group is searched.
    fn in_group(
        &mut self,
        space: &mut dyn Space,
        file: Option<&mut FileState>,
        group: GroupNo,
        mut goal: Option<BlockNo>,
        count: u32,
    ) -> Result<Option<Run>> {
        let geometry = *space.geometry();
        let Some(file) = file else {
            return scan(space, group, ends(&geometry, group), goal, count, true);
        };
        let window = &mut file.window;
        let mut failed = false;
        loop {
            if failed || !window.covers(&geometry, group, goal) {
                window.want(count);
                if !self.windows.renew(space, window, group, goal)? {
                    return Ok(None);
                }
                goal = goal.filter(|_| window.covers(&geometry, group, goal));
            } else if let (Some(goal), Some(blocks)) = (goal, window.blocks()) {
                let left = blocks.end() - goal.0 + 1;
                self.windows.extend(window, count.saturating_sub(left));
            }
            let Some(blocks) = window.blocks() else { return Ok(None) };
            let (first, last) = ends(&geometry, group);
            let range = ((*blocks.start()).max(first), (*blocks.end()).min(last));
            if let Some(run) = scan(space, group, range, goal, count, false)? {
                window.took(run.length);
                return Ok(Some(run));
            }
            failed = true;
        }
    }

    /// Searches the goal's group, then the other groups with more than half a window of free
    /// blocks, wrapping around. If that fails, searches all groups and ignores the window.
    fn search(
        &mut self,
        space: &mut dyn Space,
        file: &mut FileState,
        goal: BlockNo,
        count: u32,
        regular: bool,
    ) -> Result<Option<Run>> {
        let geometry = *space.geometry();
        let first = geometry.group_of(goal);
        let free = |space: &dyn Space, group| space.counts(group).blocks;
        let mut windowed = regular;
        // Other groups must have more than half a window of free blocks. Without a window, one free
        // block is enough.
        let mut wanted = if regular { file.window.size() } else { 0 };
        if windowed && file.window.blocks().is_none() && free(space, first) < wanted {
            windowed = false;
        }
        loop {
            for (step, group) in geometry.groups_from(first).chain([first]).enumerate() {
                let enough = if step == 0 { 0 } else { wanted / 2 };
                if free(space, group) <= enough {
                    continue;
                }
                let goal = (step == 0).then_some(goal);
                let state = if windowed { Some(&mut *file) } else { None };
                if let Some(run) = self.in_group(space, state, group, goal, count)? {
                    return Ok(Some(run));
                }
            }
            if !windowed && wanted == 0 {
                return Ok(None);
            }
            (windowed, wanted) = (false, 0);
        }
    }
}

/// Finds a free run of up to `count` blocks in a range of a group, at or after the goal. Without a
/// goal, the run may start anywhere in the range. If `step_back` is set as well, the run starts up
/// to seven blocks before the block found first, as far as those blocks are free.
fn scan(
    space: &mut dyn Space,
    group: GroupNo,
    (first, last): (u32, u32),
    goal: Option<BlockNo>,
    count: u32,
    step_back: bool,
) -> Result<Option<Run>> {
    let geometry = *space.geometry();
    let origin = geometry.block_at(group, 0).0;
    let (start, end) = (first - origin, last - origin + 1);
    let goal = goal.map(|goal| goal.0.wrapping_sub(origin)).filter(|at| (start..end).contains(at));
    let bitmap = space.blocks(group)?;
    let found = match goal {
        Some(goal) => bitmap.next_free(goal),
        None => anywhere(bitmap, start, end).map(|at| {
            let back = if step_back { 7.min(at - start) } else { 0 };
            (at - back..at).rev().take_while(|&at| bitmap.is_free(at)).last().unwrap_or(at)
        }),
    };
    Ok(found.filter(|at| *at < end).map(|at| Run {
        start: BlockNo(origin + at),
        length: bitmap.run_end(at, end.min(at + count)) - at,
    }))
}

/// Finds a free bit before the next multiple of 64, else the start of an entirely free byte, else
/// the first free bit.
fn anywhere(bitmap: &super::Bitmap, start: u32, end: u32) -> Option<u32> {
    let near = start.next_multiple_of(64).min(end);
    bitmap
        .next_free(start)
        .filter(|at| start > 0 && *at < near)
        .or_else(|| bitmap.next_free_byte(start).filter(|at| (start..end).contains(at)))
        .or_else(|| bitmap.next_free(start))
        .filter(|at| *at < end)
}

/// The averages with which Orlov's rules compare each group.
struct Averages {
    groups: u32,
    all: Counts,
    inodes: u32,
    blocks: u32,
}

impl Averages {
    fn of(space: &dyn Space) -> Self {
        let (groups, all) = (space.geometry().groups, space.totals());
        Self { groups, all, inodes: all.inodes / groups, blocks: all.blocks / groups }
    }
}

impl Ext2 {
    /// Chooses the parent directory's group if it has free blocks and inodes. Otherwise tries
    /// groups at doubling distances, starting at a group that depends on the parent. Finally takes
    /// the next group with a free inode.
    fn group_for_file(&mut self, space: &dyn Space, parent: InodeNo) -> Option<GroupNo> {
        let geometry = space.geometry();
        let groups = geometry.groups;
        let home = geometry.group_of_inode(parent);
        let roomy = |group: &GroupNo| {
            let counts = space.counts(*group);
            counts.inodes > 0 && counts.blocks > 0
        };
        if roomy(&home) {
            return Some(home);
        }
        let first = (home.0 + parent.0 % groups) % groups;
        let far = at_doubling_distances(groups, first).find(roomy);
        far.or_else(|| self.next_group(space, (home.0 + 1) % groups))
    }

    /// Returns the next group with a free inode, from `first` on, wrapping around.
    fn next_group(&mut self, space: &dyn Space, first: u32) -> Option<GroupNo> {
        let known = if self.full.first == first { self.full.count } else { 0 };
        let groups = space.geometry().groups_from(GroupNo(first)).skip(known as usize);
        let found = (known..).zip(groups).find(|(_, group)| space.counts(*group).inodes > 0);
        let (count, group) = found?;
        self.full = FullGroups { first, count };
        Some(group)
    }

    fn group_for_directory(
        &mut self,
        space: &dyn Space,
        request: &InodeRequest,
    ) -> Option<GroupNo> {
        let home = space.geometry().group_of_inode(request.parent);
        let averages = Averages::of(space);
        if averages.all.inodes == 0 {
            return None;
        }
        let (from, chosen) = if request.top_level {
            let from = GroupNo(self.random.random_range(0..averages.groups));
            (from, least_used(space, &averages, from))
        } else {
            // Starting with the parent's group, choose the first group that has enough free space
            // and not too many directories.
            let geometry = space.geometry();
            let (blocks, inodes) = (geometry.blocks_per_group, geometry.inodes_per_group);
            let most_directories = averages.all.directories / averages.groups + inodes / 16;
            let least_inodes = averages.inodes.saturating_sub(inodes / 4);
            let least_blocks = averages.blocks.saturating_sub(blocks / 4);
            let most_debt = most_debt(geometry, &averages.all);
            let near_parent = geometry.groups_from(home).find(|group| {
                let counts = space.counts(*group);
                self.debts[group.0 as usize] < most_debt
                    && counts.inodes > 0
                    && counts.directories < most_directories
                    && counts.inodes >= least_inodes
                    && counts.blocks >= least_blocks
            });
            (home, near_parent)
        };
        let groups = || space.geometry().groups_from(from);
        chosen
            .or_else(|| {
                groups().find(|group| space.counts(*group).inodes >= averages.inodes.max(1))
            })
            .or_else(|| groups().find(|group| space.counts(*group).inodes > 0))
    }
}

/// Returns the group with the fewest directories among those with at least average free space.
fn least_used(space: &dyn Space, averages: &Averages, from: GroupNo) -> Option<GroupNo> {
    let geometry = space.geometry();
    geometry
        .groups_from(from)
        .map(|group| (group, space.counts(group)))
        .filter(|(_, counts)| {
            counts.inodes > 0
                && counts.directories < geometry.inodes_per_group
                && counts.inodes >= averages.inodes
                && counts.blocks >= averages.blocks
        })
        .min_by_key(|(_, counts)| counts.directories)
        .map(|(group, _)| group)
}

/// Returns the maximum value of an entry of `debts`: by how much the directories placed in a group
/// may outnumber the other inodes placed there.
fn most_debt(geometry: &Geometry, all: &Counts) -> u8 {
    const BLOCK_COST: u32 = 256;
    const INODE_COST: u32 = 64;
    let used = (geometry.blocks - geometry.first_data_block).saturating_sub(all.blocks);
    let a_directory = used / all.directories.max(1);
    let debt = geometry.blocks_per_group / a_directory.max(BLOCK_COST);
    let debt = debt.min(geometry.inodes_per_group / INODE_COST);
    debt.clamp(1, 255) as u8
}

impl Policy for Ext2 {
    fn place_inode(
        &mut self,
        space: &mut dyn Space,
        request: &InodeRequest,
    ) -> Result<Option<InodeNo>> {
        let group = if request.directory {
            self.group_for_directory(space, request)
        } else {
            self.group_for_file(space, request.parent)
        };
        let Some(group) = group else { return Ok(None) };
        let geometry = *space.geometry();
        let debt = &mut self.debts[group.0 as usize];
        *debt = if request.directory { debt.saturating_add(1) } else { debt.saturating_sub(1) };
        Ok(space.inodes(group)?.next_free(0).map(|bit| geometry.inode_at(group, bit)))
    }

    fn place_blocks(
        &mut self,
        space: &mut dyn Space,
        file: &mut FileState,
        request: &BlockRequest,
    ) -> Result<Option<Run>> {
        let geometry = *space.geometry();
        let goal = Self::goal(&geometry, file, request);
        let outside = goal.0 < geometry.first_data_block || goal.0 >= geometry.blocks;
        let goal = if outside { BlockNo(geometry.first_data_block) } else { goal };
        let count = request.missing + request.wanted;
        let run = self.search(space, file, goal, count, request.regular)?;
        if let Some(run) = run.filter(|run| run.length > request.missing) {
            let last = run.length - request.missing - 1;
            let block = BlockNo(run.start.0 + run.length - 1);
            file.last = Some((FileBlock(request.logical.0 + last), block));
        }
        Ok(run)
    }

    fn preference(&self, space: &dyn Space, request: &BlockRequest) -> Preference {
        match request.nearest.or(request.holder) {
            Some(near) => Preference::behind(space.geometry(), near, request.home),
            None => Preference { group: request.home, block: None },
        }
    }

    fn inode_freed(&mut self, _geometry: &Geometry, _inode: InodeNo) {
        self.full = FullGroups::default();
    }

    fn file_closed(&mut self, file: &mut FileState) {
        self.windows.discard(&mut file.window);
        file.last = None;
    }
}
