//! `fslab age score`: measures how contiguous the files of a directory or an image are.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use fslab_age::score::{FreeSpace, Rules, Score, score_directory, score_tree};
use fslab_ext2::{Ext2, VolumeOptions};
use fslab_layers::Leaf;
use fslab_vfs::{FileSystem, Ino, Request, Size};

use super::tables::{print_score, score_json, write_by_size};
use crate::exit::Code;
use crate::leaves;

/// The magic number of ext2, ext3 and ext4 in statfs(2).
const EXT_MAGIC: i64 = 0xef53;

/// Default number of threads that read a directory.
const THREADS: usize = 4;

const HELP: &str = "\
Figures:
  from blocks         files with at least this many blocks, up to the next row
  breaks              blocks that do not directly follow the previous block of their file
  split               files whose first block is in another group than their directory; such a
                      file may still be contiguous
  score               the layout score: 1 - breaks / (blocks - files), without files of one block.
                      It is 1 if no file is fragmented
  extents this large  contiguous pieces of files, by their number of blocks
  distance            from the end of a file to the beginning of the next file in its directory

Other file systems that are mounted in the directory are left out.";

/// Arguments of `fslab age score`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Size of a block group. A file whose first block is in another group than its directory
    /// counts as split [default on ext2, ext3 and ext4: their group size]
    #[arg(long, value_name = "SIZE")]
    group_size: Option<Size>,
    /// Threads that read a directory
    #[arg(long, default_value_t = THREADS)]
    threads: usize,
    /// Print figures as JSON
    #[arg(long)]
    json: bool,
    /// Write a chart of the scores by size to this file
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// Write a map of the volume to this file
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// A directory, or an ext2 image
    path: PathBuf,
}

impl Args {
    /// Prints the score.
    pub fn run(self) -> Result<()> {
        let group_bytes = self.group_size.map(|size| size.bytes());
        let status = std::fs::metadata(&self.path);
        let status = status.map_err(|error| {
            Code::of_io(&error).error(format!("{}: {error}", self.path.display()))
        })?;
        let name = self.path.display().to_string();
        let with_map = self.map.is_some();
        let score = if status.is_dir() {
            Directory { path: self.path, group_bytes, threads: self.threads, with_map }.score()?
        } else {
            score_image(&self.path, with_map)?
        };
        if let Some(path) = &self.chart {
            write_by_size(path, &name, &score)?;
        }
        if let (Some(path), Some(map)) = (&self.map, &score.map) {
            let written = std::fs::write(path, map.picture(&name));
            written.with_context(|| path.display().to_string())?;
        }
        if self.json {
            say!("{}", serde_json::to_string_pretty(&score_json(&score))?);
        } else {
            print_score(&score);
        }
        Ok(())
    }
}

/// A target whose layout can be scored.
#[derive(Clone)]
pub(super) enum Place {
    /// A directory of the host.
    Directory(Directory),
    /// A file system within this process.
    Here(Arc<dyn FileSystem>),
}

/// A directory of the host.
#[derive(Clone)]
pub(super) struct Directory {
    path: PathBuf,
    group_bytes: Option<u64>,
    threads: usize,
    /// Whether to make a map of the volume.
    with_map: bool,
}

impl Place {
    /// Returns the target for scoring the files of a leaf.
    pub fn of_leaf(leaf: &Leaf, file_system: &Arc<dyn FileSystem>) -> Self {
        match leaf {
            Leaf::Directory(path) => {
                let (path, group_bytes, with_map) = (path.clone(), None, false);
                Self::Directory(Directory { path, group_bytes, threads: THREADS, with_map })
            }
            _ => Self::Here(Arc::clone(file_system)),
        }
    }

    /// Measures the score.
    pub fn score(&self) -> fslab_age::Result<Score> {
        match self {
            Self::Directory(directory) => directory.score(),
            Self::Here(file_system) => {
                let told = file_system.statfs(&Request::default(), Ino::ROOT);
                let block_bytes = told.map_or(4096, |told| u64::from(told.block_size.max(512)));
                let rules = Rules { block_bytes, group_bytes: None, map_bytes: None };
                score_tree(&**file_system, rules)
            }
        }
    }
}

impl Directory {
    fn score(&self) -> fslab_age::Result<Score> {
        let path = &self.path;
        let told = rustix::fs::statfs(path).map_err(fslab_age::Error::file(path))?;
        let block_bytes = u64::try_from(told.f_bsize).unwrap_or(4096).max(512);
        let is_ext = told.f_type as i64 == EXT_MAGIC;
        // A group has as many blocks as one bitmap block has bits.
        let own = is_ext.then_some(8 * block_bytes * block_bytes);
        let map_bytes = self.with_map.then_some(told.f_blocks * block_bytes);
        let rules = Rules { block_bytes, group_bytes: self.group_bytes.or(own), map_bytes };
        let mut score = score_directory(path, rules, self.threads)?;
        score.free = free_space(path);
        Ok(score)
    }
}

/// Returns the free space of a mounted file system; `None` if the file system does not report it.
fn free_space(path: &Path) -> Option<FreeSpace> {
    let file = File::open(path).ok()?;
    let mut free = FreeSpace::default();
    let told = fslab_sys::fsmap::free_pieces(&file, &mut |_start, length| free.add(length));
    told.inspect_err(|error| tracing::debug!(%error, "can't get the free space")).ok()?;
    Some(free)
}

fn score_image(path: &Path, with_map: bool) -> Result<Score> {
    let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let ext2: Ext2 = leaves::open(path, &options)?;
    let geometry = *ext2.superblock().geometry();
    let block_bytes = u64::from(geometry.block_size.bytes_u32());
    let group_bytes = Some(u64::from(geometry.blocks_per_group) * block_bytes);
    let map_bytes = with_map.then_some(u64::from(geometry.blocks) * block_bytes);
    let mut score = score_tree(&ext2, Rules { block_bytes, group_bytes, map_bytes })?;
    let device = leaves::open_device(path, true)?;
    score.free = Some(FreeSpace::of_image(&device)?);
    Ok(score)
}
