//! Scores a directory of the host with FIEMAP, using several threads.
//!
//! The file system is synced first, so that all written data is allocated. If an extent has no
//! usable address (stored inline in the inode, compressed by btrfs), the file is skipped and the
//! reason is recorded. Unwritten preallocated space is treated as allocated. Shared space is
//! counted for every file that shares it, and is also reported separately.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fiemap::{Fiemap, FiemapExtent, FiemapExtentFlags, FiemapFlags};
use fslab_vfs::Extent;
use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::Rules;
use super::extents::layout_of;
use super::tally::Score;
use crate::error::{Error, Result};
use crate::walk::{present, walk};

/// Scores every regular file in a directory tree, without leaving its file system.
///
/// # Errors
/// Fails on I/O errors.
pub fn score_directory(root: &Path, rules: Rules, threads: usize) -> Result<Score> {
    let top = File::open(root).map_err(Error::file(root))?;
    rustix::fs::syncfs(&top).map_err(Error::file(root))?;
    let device = top.metadata().map_err(Error::file(root))?.dev();
    let scorer = Scorer { rules, device, seen: Mutex::default() };
    let empty = || Score::by(rules);
    let scores = walk(root, threads, empty, |path, score| scorer.directory(path, score))?;
    let mut total = empty();
    scores.into_iter().for_each(|score| total.merge(score));
    Ok(total)
}

struct Scorer {
    rules: Rules,
    device: u64,
    /// Inodes of files with several names that have already been scored.
    seen: Mutex<HashSet<u64>>,
}

impl Scorer {
    /// Scores the files of a directory and returns its subdirectories.
    fn directory(&self, path: &Path, score: &mut Score) -> Result<Vec<PathBuf>> {
        let mut directories = Vec::new();
        let home = self.group_of_directory(path);
        let mut last = None;
        for entry in std::fs::read_dir(path).map_err(Error::file(path))? {
            let entry = entry.map_err(Error::file(path))?;
            let child = entry.path();
            let Some(status) = present(entry.metadata()).map_err(Error::file(&child))? else {
                continue;
            };
            if status.dev() != self.device {
                continue;
            }
            if status.is_dir() {
                directories.push(child);
            } else if status.is_file() && self.is_first(&status) {
                self.file(&child, status.len(), home, &mut last, score)?;
            }
        }
        Ok(directories)
    }

    fn is_first(&self, status: &std::fs::Metadata) -> bool {
        status.nlink() == 1 || self.seen.lock().insert(status.ino())
    }

    fn file(
        &self,
        path: &Path,
        size: u64,
        home: Option<u64>,
        last: &mut Option<u64>,
        score: &mut Score,
    ) -> Result<()> {
        let Some(told) = present(extents_of(path)).map_err(Error::extents(path))? else {
            return Ok(());
        };
        if let Some(reason) = told.left_out {
            score.leave_out(reason);
            return Ok(());
        }
        let layout = layout_of(&told.extents, size, self.rules.block_bytes);
        let group = |at: u64| self.rules.group_bytes.map(|bytes| at / bytes);
        let split =
            home.is_some() && layout.first.and_then(group).is_some_and(|at| Some(at) != home);
        score.add(&layout, split);
        score.shared_bytes += told.shared_bytes;
        score.add_extents(&told.extents, size);
        if let (Some(from), Some(to)) = (*last, layout.first) {
            score.distances.add(from, to);
        }
        *last = layout.end.or(*last);
        Ok(())
    }

    /// Returns the group of a directory's first block, if the file system reports it.
    fn group_of_directory(&self, path: &Path) -> Option<u64> {
        let group = self.rules.group_bytes?;
        let told = extents_of(path).ok()?;
        told.extents.first().map(|extent| extent.physical / group)
    }
}

/// The data that FIEMAP returns for a file.
pub(crate) struct Told {
    /// The extents of the file.
    pub extents: Vec<Extent>,
    /// The FIEMAP flags of each extent.
    pub flags: Vec<u32>,
    /// The reason why the file has no usable layout.
    pub left_out: Option<&'static str>,
    /// Number of bytes shared with other files.
    pub shared_bytes: u64,
}

fn extents_of(path: &Path) -> std::io::Result<Told> {
    extents_of_file(&open_itself(path)?)
}

/// Opens a file without following a symbolic link and without blocking on a pipe.
pub(crate) fn open_itself(path: &Path) -> std::io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    File::options().read(true).custom_flags(flags).open(path)
}

pub(crate) fn extents_of_file(file: &File) -> std::io::Result<Told> {
    let (extents, flags) = (Vec::new(), Vec::new());
    let mut told = Told { extents, flags, left_out: None, shared_bytes: 0 };
    for extent in Fiemap::with_flags(file, FiemapFlags::SYNC) {
        let extent = extent?;
        told.left_out = told.left_out.or(reason_against(&extent));
        if extent.fe_flags.contains(FiemapExtentFlags::SHARED) {
            told.shared_bytes += extent.fe_length;
        }
        told.flags.push(extent.fe_flags.bits());
        told.extents.push(Extent {
            logical: extent.fe_logical,
            physical: extent.fe_physical,
            length: extent.fe_length,
        });
    }
    Ok(told)
}

fn reason_against(extent: &FiemapExtent) -> Option<&'static str> {
    let reasons = [
        (FiemapExtentFlags::DATA_INLINE, "inline in the inode"),
        (FiemapExtentFlags::ENCODED, "compressed or encrypted"),
        (FiemapExtentFlags::DELALLOC, "not yet allocated"),
        (FiemapExtentFlags::UNKNOWN, "not yet allocated"),
    ];
    let reason = reasons.into_iter().find(|(flag, _)| extent.fe_flags.contains(*flag));
    reason.map(|(_, reason)| reason)
}
