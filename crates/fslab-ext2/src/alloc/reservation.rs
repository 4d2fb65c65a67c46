//! Reservation windows: a window is a range of blocks in which only one file allocates. Windows
//! keep the blocks of concurrently written files from interleaving. They exist only in memory. A
//! window may contain used blocks, because it only restricts who may allocate there.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::space::Space;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::types::{BlockNo, GroupNo};

/// Default window size in blocks.
const SIZE_DEFAULT: u32 = 8;
/// Maximum window size in blocks.
const SIZE_MAX: u32 = 1027;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    range: Option<(u32, u32)>,
    /// Number of blocks wanted for the next window, if larger than the default.
    size: u32,
    /// Number of blocks allocated from the current window.
    hits: u32,
}

impl Window {
    /// Returns the blocks of the window; `None` if the file has no window.
    pub(crate) fn blocks(&self) -> Option<RangeInclusive<u32>> {
        self.range.map(|(start, end)| start..=end)
    }

    pub(crate) fn size(&self) -> u32 {
        self.size.max(SIZE_DEFAULT)
    }

    /// Makes the next window at least this large.
    pub(crate) fn want(&mut self, blocks: u32) {
        self.size = self.size().max(blocks);
    }

    pub(crate) fn took(&mut self, blocks: u32) {
        self.hits += blocks;
    }

    /// Whether a search in `group` may use this window: the window overlaps the group and contains
    /// the goal, if there is one.
    pub(crate) fn covers(
        &self,
        geometry: &Geometry,
        group: GroupNo,
        goal: Option<BlockNo>,
    ) -> bool {
        self.range.is_some_and(|(start, end)| {
            let (first, last) = ends(geometry, group);
            start <= last && end >= first && goal.is_none_or(|goal| (start..=end).contains(&goal.0))
        })
    }
}

/// Returns the first and last block of a group.
pub(crate) fn ends(geometry: &Geometry, group: GroupNo) -> (u32, u32) {
    let first = geometry.block_at(group, 0).0;
    (first, first + geometry.blocks_in(group) - 1)
}

#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// Maps the first block of each window to its last; windows do not overlap.
    by_start: BTreeMap<u32, u32>,
}

impl Windows {
    pub(crate) fn discard(&mut self, window: &mut Window) {
        if let Some((start, _)) = window.range.take() {
            self.by_start.remove(&start);
        }
        window.hits = 0;
    }

    /// Extends a window by up to `more` blocks, but not into the next window.
    pub(crate) fn extend(&mut self, window: &mut Window, more: u32) {
        let Some((start, end)) = window.range else { return };
        let next = self.by_start.range(end + 1..).next().map_or(u32::MAX, |(start, _)| *start);
        let end = (end.saturating_add(more)).min(next - 1);
        self.by_start.insert(start, end);
        window.range = Some((start, end));
    }

    /// Gives a file a new window, which begins in the group, at or after the goal, and contains a
    /// free block. Returns `false` if there is no such window. In this case the file has no window,
    /// or keeps its old window if that window continues in the next group.
    pub(crate) fn renew(
        &mut self,
        space: &mut dyn Space,
        window: &mut Window,
        group: GroupNo,
        goal: Option<BlockNo>,
    ) -> Result<bool> {
        let geometry = *space.geometry();
        let (first, last) = ends(&geometry, group);
        let mut from = goal.map_or(first, |goal| goal.0);
        if let Some((start, end)) = window.range {
            // Keep a window that continues in the next group; the search will reach that group.
            if start <= last && end > last && from >= start {
                return Ok(false);
            }
            if window.hits > (end - start).div_ceil(2) {
                window.size = (window.size() * 2).min(SIZE_MAX);
            }
        }
        self.discard(window);
        loop {
            let Some(start) = self.gap(from, last, window.size()) else { return Ok(false) };
            let free = space.blocks(group)?.next_free(start - first);
            let Some(free) = free.map(|bit| first + bit) else { return Ok(false) };
            let end = start + window.size() - 1;
            if free <= end {
                self.by_start.insert(start, end);
                window.range = Some((start, end));
                return Ok(true);
            }
            from = free;
        }
    }

    /// Returns the first block, from `from` to `last`, at which a window of `size` blocks overlaps
    /// no other window.
    fn gap(&self, from: u32, last: u32, size: u32) -> Option<u32> {
        let mut at = match self.by_start.range(..=from).next_back() {
            Some((_, end)) if *end >= from => end + 1,
            _ => from,
        };
        while at <= last {
            match self.by_start.range(at..).next() {
                Some((start, end)) if start - at < size => at = end + 1,
                _ => return Some(at),
            }
        }
        None
    }
}
