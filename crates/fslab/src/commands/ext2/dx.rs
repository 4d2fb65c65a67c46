//! `fslab ext2 dx`: shows the HTree index of a directory as a tree, and how full its blocks are.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fslab_ext2::dir::outline::Branch;

use super::walk::Image;
use crate::output::output;

/// Arguments of `fslab ext2 dx`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show only the index blocks, without the leaves
    #[arg(long, short_alias = 'n')]
    nodes: bool,
    /// The image or device
    image: PathBuf,
    /// The directory
    #[arg(default_value = "/")]
    path: PathBuf,
}

/// Number of characters in a bar.
const CELLS: usize = 20;

impl Args {
    /// Draws the tree and prints a summary.
    pub fn run(self) -> Result<()> {
        let image = Image::read(&self.image)?;
        let directory = image.find(&self.path)?;
        let mut out = output();
        let mut sums = Sums::default();
        let mut written = Ok(());
        let is_indexed = image.ext2.index_of(directory.ino, &mut |branch| {
            sums.add(&branch);
            if written.is_ok() && !(self.nodes && branch.is_leaf) {
                written = draw(&mut out, &branch);
            }
        });
        let is_indexed = is_indexed.with_context(|| self.path.display().to_string())?;
        written?;
        if is_indexed {
            sums.write(&mut out)?;
        } else {
            writeln!(out, "{} has no index", self.path.display())?;
        }
        Ok(())
    }
}

fn draw(out: &mut impl Write, branch: &Branch) -> std::io::Result<()> {
    let what = match (branch.level, branch.is_leaf) {
        (0, _) => "root",
        (_, true) => "leaf",
        _ => "node",
    };
    let filled = (branch.used * CELLS).div_ceil(branch.limit.max(1)).min(CELLS);
    let bar = "#".repeat(filled) + &".".repeat(CELLS - filled);
    let unit = if branch.is_leaf { "bytes" } else { "entries" };
    let continued = if branch.continued { ", continued" } else { "" };
    writeln!(
        out,
        "{:indent$}{what} {:<6} from {:08x} [{bar}] {}/{} {unit}{continued}",
        "",
        branch.block.0,
        branch.from,
        branch.used,
        branch.limit,
        indent = 2 * branch.level,
    )
}

/// Totals of index blocks and of leaves: number of blocks, used and available space.
#[derive(Default)]
struct Sums {
    levels: usize,
    index: (usize, usize, usize),
    leaves: (usize, usize, usize),
}

impl Sums {
    fn add(&mut self, branch: &Branch) {
        let (count, used, limit) = if branch.is_leaf { &mut self.leaves } else { &mut self.index };
        *count += 1;
        *used += branch.used;
        *limit += branch.limit;
        self.levels = self.levels.max(branch.level);
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let percent = |used: usize, limit: usize| used * 100 / limit.max(1);
        let ((nodes, used, limit), (leaves, bytes, room)) = (self.index, self.leaves);
        writeln!(
            out,
            "{} index levels, {nodes} index blocks ({} % full), {leaves} leaves ({} % full)",
            self.levels,
            percent(used, limit),
            percent(bytes, room),
        )
    }
}
