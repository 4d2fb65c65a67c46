//! Draws the blocks of an image as SVG: one row for each block group, one colour for each file.

use fslab_chart::{Stripe, stripes};
use fslab_ext2::{BlockNo, Ext2, Geometry, GroupNo};
use fslab_vfs::Extent;

const METADATA: &str = "#444";
const OTHER: &str = "#aaa";

/// Adjacent blocks that are drawn in one colour.
struct Run {
    start: u32,
    end: u32,
    colour: String,
}

/// The blocks of the files that were added.
#[derive(Default)]
pub(super) struct Map {
    runs: Vec<Run>,
    files: u32,
}

impl Map {
    /// Adds a file, in a colour of its own.
    pub(super) fn add(&mut self, extents: &[Extent], block: u64) {
        // Steps of the golden angle make the hues of successive files as different as possible.
        let hue = f64::from(self.files) * 137.508 % 360.0;
        self.files += 1;
        for extent in extents {
            let start = (extent.physical / block) as u32;
            let end = start + extent.length.div_ceil(block) as u32;
            self.runs.push(Run { start, end, colour: format!("hsl({hue:.0} 70% 55%)") });
        }
    }

    /// Returns the picture as an SVG.
    pub(super) fn picture(mut self, ext2: &Ext2) -> anyhow::Result<String> {
        self.runs.sort_by_key(|run| run.start);
        let geometry = *ext2.superblock().geometry();
        let title = format!(
            "{} groups of {} blocks; dark: metadata, grey: directories, indirect blocks and \
             attributes, white: free, one colour for each file",
            geometry.groups, geometry.blocks_per_group
        );
        let mut drawn = Vec::new();
        for group in geometry.all_groups() {
            let start = geometry.first_block(group).0;
            let end = start + geometry.blocks_in(group);
            drawn.extend(used(ext2, group)?.iter().map(|run| stripe(&geometry, group, run)));
            let first = self.runs.partition_point(|run| run.end <= start);
            let own = self.runs[first..].iter().take_while(|run| run.start < end);
            drawn.extend(own.map(|run| stripe(&geometry, group, run)));
        }
        Ok(stripes(&title, geometry.groups, &drawn))
    }
}

/// Returns the part of a run in one block group, as a stripe of the picture.
fn stripe(geometry: &Geometry, group: GroupNo, run: &Run) -> Stripe {
    let start = geometry.first_block(group).0;
    let share = |block: u32| f64::from(block - start) / f64::from(geometry.blocks_per_group);
    let end = run.end.clamp(start, start + geometry.blocks_in(group));
    let colour = run.colour.clone();
    Stripe { row: group.0, from: share(run.start.max(start)), to: share(end), colour }
}

/// Returns the runs of used blocks in a group. Metadata has one colour, and all other blocks have
/// another. The runs of files are drawn over them.
fn used(ext2: &Ext2, no: GroupNo) -> anyhow::Result<Vec<Run>> {
    let geometry = *ext2.superblock().geometry();
    let group = ext2.groups()[no.0 as usize];
    let start = geometry.first_block(no).0;
    let head = start + geometry.head_blocks(no);
    let mut runs: Vec<Run> = Vec::new();
    for block in start..start + geometry.blocks_in(no) {
        let metadata = block < head || group.keeps(&geometry, BlockNo(block));
        if !metadata && ext2.is_free(BlockNo(block))? {
            continue;
        }
        let colour = if metadata { METADATA } else { OTHER };
        match runs.last_mut() {
            Some(last) if last.end == block && last.colour == colour => last.end += 1,
            _ => runs.push(Run { start: block, end: block + 1, colour: colour.to_owned() }),
        }
    }
    Ok(runs)
}
