//! `fslab ext2 layout`: how contiguous the files of an image are, as one score and a table by size.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fslab_ext2::Ext2;
use fslab_vfs::{Extent, FileKind, FileSystem, Ino, Layout, Name};

use super::files::list;
use super::map::Map;
use super::walk::{Image, request};

/// Arguments of `fslab ext2 layout`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tell of every file that is not in one piece
    #[arg(long, short)]
    files: bool,
    /// Draw where files lie, into this file, which must not be there
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The image or device
    image: PathBuf,
}

impl Args {
    /// Prints the scores: the share of blocks, each file's first left out, that directly follow
    /// their predecessor. Files of one block have none.
    pub fn run(self) -> Result<()> {
        let image = Image::read(&self.image)?;
        let block = u64::from(image.ext2.superblock().geometry().block_size.bytes_u32());
        let mut by_size: BTreeMap<u32, Sum> = BTreeMap::new();
        let mut total = Sum::default();
        let mut map = Map::default();
        visit(&image.ext2, &mut |path, ino| {
            let extents = image.ext2.extents(ino).with_context(|| path.to_owned())?;
            let sum = Sum::of(&extents, block);
            map.add(&extents, block);
            if self.files && sum.breaks > 0 {
                println!(
                    "{:.4} {} breaks in {} blocks: {path}",
                    sum.score(),
                    sum.breaks,
                    sum.blocks
                );
            }
            by_size.entry(sum.blocks.max(1).ilog2()).or_default().add(&sum);
            total.add(&sum);
            Ok(())
        })?;
        println!(
            "{:>12} {:>10} {:>12} {:>10} {:>7}",
            "from blocks", "files", "blocks", "breaks", "score"
        );
        for (log, sum) in &by_size {
            sum.print(&(1_u64 << log).to_string());
        }
        total.print("all");
        self.svg.map_or(Ok(()), |path| {
            let shown = path.display().to_string();
            let file = File::create_new(&path).with_context(|| shown.clone())?;
            map.write(&image.ext2, &mut BufWriter::new(file)).context(shown)
        })
    }
}

/// Blocks and breaks of some files.
#[derive(Clone, Copy, Default)]
struct Sum {
    files: u64,
    blocks: u64,
    /// Blocks that have a predecessor in their file.
    pairs: u64,
    breaks: u64,
}

impl Sum {
    fn of(extents: &[Extent], block: u64) -> Self {
        let blocks: u64 = extents.iter().map(|extent| extent.length.div_ceil(block)).sum();
        let breaks = extents.windows(2).filter(|pair| {
            pair[0].physical + pair[0].length.next_multiple_of(block) != pair[1].physical
        });
        Self { files: 1, blocks, pairs: blocks.saturating_sub(1), breaks: breaks.count() as u64 }
    }

    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.blocks += other.blocks;
        self.pairs += other.pairs;
        self.breaks += other.breaks;
    }

    fn score(&self) -> f64 {
        1.0 - self.breaks as f64 / self.pairs.max(1) as f64
    }

    fn print(&self, label: &str) {
        let score = if self.pairs == 0 { "-".to_owned() } else { format!("{:.4}", self.score()) };
        let Self { files, blocks, breaks, .. } = self;
        println!("{label:>12} {files:>10} {blocks:>12} {breaks:>10} {score:>7}");
    }
}

/// Visits every regular file once, by the first path that leads to it.
fn visit(ext2: &Ext2, visit: &mut dyn FnMut(&str, Ino) -> Result<()>) -> Result<()> {
    let request = request();
    let mut seen = HashSet::new();
    let mut waiting = vec![(String::new(), Ino::ROOT)];
    while let Some((path, directory)) = waiting.pop() {
        for name in list(ext2, directory).with_context(|| path.clone())? {
            let os_name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&name);
            let entry = ext2.lookup(&request, directory, Name::new(os_name)?)?;
            let child = format!("{path}/{}", name.escape_ascii());
            match entry.attr.kind {
                FileKind::Directory => waiting.push((child, entry.attr.ino)),
                FileKind::Regular if seen.insert(entry.attr.ino) => visit(&child, entry.attr.ino)?,
                _ => {}
            }
            ext2.forget(entry.attr.ino, 1);
        }
    }
    Ok(())
}
