//! Draws the block map of an aged volume: one row per group; light cells are free.

use std::ops::Range;

use fslab_chart::{COLUMNS, heat_map};
use fslab_ext2::GroupNo;

use super::volume::Simulator;

/// Returns an SVG of the volume. Each cell is a run of blocks; fuller cells are darker.
#[must_use]
pub fn picture(simulator: &Simulator, title: &str) -> String {
    let geometry = &simulator.geometry;
    let free: Vec<Vec<Range<u32>>> =
        geometry.all_groups().map(|group| simulator.free_runs(group)).collect();
    let filled = |row: u32, column: u32| {
        let blocks = geometry.blocks_in(GroupNo(row)).max(1);
        let part = |index: u32| (u64::from(index) * u64::from(blocks) / u64::from(COLUMNS)) as u32;
        let (from, to) = (part(column), part(column + 1).max(part(column) + 1));
        let overlap = |run: &Range<u32>| run.end.min(to).saturating_sub(run.start.max(from));
        let empty: u32 = free[row as usize].iter().map(overlap).sum();
        1.0 - f64::from(empty.min(to - from)) / f64::from(to - from)
    };
    heat_map(title, "one row per group; dark cells are in use", geometry.groups, &filled)
}
