//! The block map of an image as a picture: a row a group, a colour a file, so that what lies
//! together looks so.

use std::io::Write;

use fslab_ext2::{BlockNo, Ext2, GroupNo};
use fslab_vfs::Extent;

/// Width of a row and height of a line, in pixels.
const WIDTH: f64 = 1024.0;
const HEIGHT: u32 = 12;
/// Above the rows.
const HEAD: u32 = 20;

const METADATA: &str = "#444";
const OTHER: &str = "#aaa";

/// Blocks side by side in one colour.
struct Stripe {
    start: u32,
    end: u32,
    colour: String,
}

/// What lies where, as far as it was told.
#[derive(Default)]
pub(super) struct Map {
    stripes: Vec<Stripe>,
    files: u32,
}

impl Map {
    /// Adds a file, in a colour of its own.
    pub(super) fn add(&mut self, extents: &[Extent], block: u64) {
        // Neighbours differ most by the golden angle.
        let hue = f64::from(self.files) * 137.508 % 360.0;
        self.files += 1;
        for extent in extents {
            let start = (extent.physical / block) as u32;
            let end = start + extent.length.div_ceil(block) as u32;
            self.stripes.push(Stripe { start, end, colour: format!("hsl({hue:.0} 70% 55%)") });
        }
    }

    /// Writes the picture.
    pub(super) fn write(mut self, ext2: &Ext2, out: &mut impl Write) -> anyhow::Result<()> {
        self.stripes.sort_by_key(|stripe| stripe.start);
        let geometry = *ext2.superblock().geometry();
        let height = HEAD + geometry.groups * HEIGHT;
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"12\">"
        )?;
        writeln!(
            out,
            "<text x=\"0\" y=\"14\">{} groups of {} blocks; dark: metadata, grey: directories, \
             indirect blocks and attributes, white: free, a colour a file</text>",
            geometry.groups, geometry.blocks_per_group
        )?;
        for group in geometry.all_groups() {
            self.write_group(ext2, group, out)?;
        }
        writeln!(out, "</svg>")?;
        Ok(out.flush()?)
    }

    fn write_group(&self, ext2: &Ext2, no: GroupNo, out: &mut impl Write) -> anyhow::Result<()> {
        let geometry = *ext2.superblock().geometry();
        let start = geometry.first_block(no).0;
        let end = start + geometry.blocks_in(no);
        for stripe in used(ext2, no, start, end)? {
            self.draw(&geometry, no, &stripe, out)?;
        }
        let first = self.stripes.partition_point(|stripe| stripe.end <= start);
        for stripe in self.stripes[first..].iter().take_while(|stripe| stripe.start < end) {
            self.draw(&geometry, no, stripe, out)?;
        }
        Ok(())
    }

    fn draw(
        &self,
        geometry: &fslab_ext2::Geometry,
        no: GroupNo,
        stripe: &Stripe,
        out: &mut impl Write,
    ) -> std::io::Result<()> {
        let start = geometry.first_block(no).0;
        let per_block = WIDTH / f64::from(geometry.blocks_per_group);
        let from = f64::from(stripe.start.max(start) - start) * per_block;
        let last = stripe.end.min(start + geometry.blocks_in(no));
        let to = f64::from(last.saturating_sub(start)) * per_block;
        writeln!(
            out,
            "<rect x=\"{from:.2}\" y=\"{}\" width=\"{:.2}\" height=\"{}\" fill=\"{}\"/>",
            HEAD + no.0 * HEIGHT,
            (to - from).max(0.0),
            HEIGHT - 2,
            stripe.colour
        )
    }
}

/// Runs of blocks in use, in the colours of what is no file.
fn used(ext2: &Ext2, no: GroupNo, start: u32, end: u32) -> anyhow::Result<Vec<Stripe>> {
    let geometry = *ext2.superblock().geometry();
    let group = ext2.groups()[no.0 as usize];
    let head = start + geometry.head_blocks(no);
    let mut stripes: Vec<Stripe> = Vec::new();
    for block in start..end {
        let metadata = block < head || group.keeps(&geometry, BlockNo(block));
        if !metadata && ext2.is_free(BlockNo(block))? {
            continue;
        }
        let colour = if metadata { METADATA } else { OTHER };
        match stripes.last_mut() {
            Some(last) if last.end == block && last.colour == colour => last.end += 1,
            _ => stripes.push(Stripe { start: block, end: block + 1, colour: colour.to_owned() }),
        }
    }
    Ok(stripes)
}
