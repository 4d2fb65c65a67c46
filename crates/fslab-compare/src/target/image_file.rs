//! Image files, to which loop devices are attached.
//!
//! All blocks of a writable image are allocated and written before the measurement. A sparse image
//! would make the lower file system allocate blocks during the measurement. In a sparse aged image,
//! blocks that are adjacent for its file system could also lie far apart on the disk.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use fiemap::{Fiemap, FiemapExtentFlags, FiemapFlags};
use fslab_sys::make_file_system::{self, Kind, one_line};
use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::work_directory::check_space;
use crate::error::{Error, Result};
use crate::host::Host;

/// The origin of an image.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The command that made it, or its source.
    pub how: String,
    /// Hash of the workload that aged the image, in hexadecimal; `None` if unknown.
    pub workload: Option<String>,
    /// The allocation policy under which the image was aged, followed by details; `None` if
    /// unknown.
    pub policy: Option<String>,
    /// Size of the copied image, in bytes; `None` if the file system is new.
    pub copied_bytes: Option<u64>,
}

impl Made {
    pub(super) fn by(how: String) -> Self {
        Self { how, ..Self::default() }
    }
}

/// Bytes written at a time.
const PIECE: usize = 1 << 20;

/// An image file.
pub(super) struct ImageFile {
    pub path: PathBuf,
    file: File,
    /// Whether the file is kept for the next target when this is dropped.
    is_kept: bool,
}

impl ImageFile {
    /// Opens an image of a given size for a new file system. An image left by an earlier target is
    /// reused, so that its blocks are allocated only once. A reused image still contains the data
    /// of that target.
    pub fn fresh(path: &Path, size: u64) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(Error::file(path))?;
        let image = Self { path: path.to_owned(), file, is_kept: true };
        let found = image.file.metadata().map_err(Error::file(path))?;
        let directory = path.parent().unwrap_or(path);
        check_space(directory, size.saturating_sub(found.blocks() * 512))?;
        image.file.set_len(size).map_err(Error::file(path))?;
        match rustix::fs::fallocate(&image.file, FallocateFlags::empty(), 0, size) {
            // On a file system without fallocate(2), writing allocates the blocks.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(image),
            Err(errno) => Err(image.failed(errno)),
        }
    }

    fn new(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(path).map_err(Error::file(path))?;
        Ok(Self { path: path.to_owned(), file, is_kept: false })
    }

    /// Makes an image from a directory with the tool of a read-only file system.
    pub fn pack(
        kind: Kind,
        source: &Path,
        path: &Path,
        options: &[String],
    ) -> Result<(Self, String)> {
        // If the tool fails, dropping this removes a partial image.
        let image = Self::new(path)?;
        let how = make_file_system::pack(kind, path, source, options)?;
        Ok((image, how))
    }

    /// Makes an image from a recorded one: unpacks it if it is packed, otherwise copies it.
    pub fn recorded(recorded: &Path, path: &Path, host: &dyn Host) -> Result<(Self, Made)> {
        let mut image = Self::new(path)?;
        let failed = |source| Error::Host { what: recorded.display().to_string(), source };
        let mut made = match host.unpack(recorded, path).map_err(failed)? {
            Some(unpacked) => Made {
                how: format!("unpacked from {}, {}", recorded.display(), unpacked.description),
                workload: Some(unpacked.workload),
                policy: unpacked.policy,
                copied_bytes: None,
            },
            None => Made { how: copy(recorded, path)?, ..Made::default() },
        };
        // Unpacking and copying may have replaced the file that was created above.
        let file = OpenOptions::new().read(true).write(true).open(path);
        image.file = file.map_err(Error::file(path))?;
        made.copied_bytes = Some(image.file.metadata().map_err(Error::file(path))?.len());
        image.fill_gaps()?;
        Ok((image, made))
    }

    /// Writes zeros into holes and unwritten extents, which does not change the content. The image
    /// must not be in use.
    pub fn fill_gaps(&self) -> Result<()> {
        let size = self.file.metadata().map_err(Error::file(&self.path))?.len();
        let gaps = match self.unwritten(size) {
            Ok(gaps) => gaps,
            // Not every file system reports extents; all report holes.
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                self.holes(size)?
            }
            Err(error) => return Err(Error::file(&self.path)(error)),
        };
        let allocated = self.file.metadata().map_err(Error::file(&self.path))?.blocks() * 512;
        let directory = self.path.parent().unwrap_or(&self.path);
        check_space(directory, size.saturating_sub(allocated))?;
        let zeros = vec![0; PIECE];
        for gap in gaps {
            let mut at = gap.start;
            while at < gap.end {
                let length = (gap.end - at).min(PIECE as u64);
                let piece = zeros.get(..length as usize).unwrap_or(&zeros);
                self.file.write_all_at(piece, at).map_err(Error::file(&self.path))?;
                at += length;
            }
        }
        Ok(())
    }

    /// Returns the ranges without written data: holes, and extents that are allocated but
    /// unwritten.
    fn unwritten(&self, size: u64) -> std::io::Result<Vec<Range<u64>>> {
        let (mut gaps, mut end) = (Vec::new(), 0);
        for extent in Fiemap::with_flags(&self.file, FiemapFlags::SYNC) {
            let extent = extent?;
            gaps.push(end..extent.fe_logical);
            end = extent.fe_logical + extent.fe_length;
            if extent.fe_flags.contains(FiemapExtentFlags::UNWRITTEN) {
                gaps.push(extent.fe_logical..end.min(size));
            }
        }
        gaps.push(end..size);
        gaps.retain(|gap| !gap.is_empty());
        Ok(gaps)
    }

    fn holes(&self, size: u64) -> Result<Vec<Range<u64>>> {
        let (mut holes, mut at) = (Vec::new(), 0);
        while at < size {
            let hole = self.seek(SeekFrom::Hole(at))?.unwrap_or(size);
            let data = self.seek(SeekFrom::Data(hole))?.unwrap_or(size);
            holes.push(hole..data);
            at = data;
        }
        holes.retain(|hole| !hole.is_empty());
        Ok(holes)
    }

    /// Seeks to the next hole or data; returns `None` if there is none.
    fn seek(&self, to: SeekFrom) -> Result<Option<u64>> {
        match rustix::fs::seek(&self.file, to) {
            Ok(position) => Ok(Some(position)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Drops the cached pages of the image file. Without direct I/O of the loop device, these
    /// contain all accessed data.
    pub fn drop_cache(&self) -> Result<()> {
        rustix::fs::fdatasync(&self.file).map_err(|errno| self.failed(errno))?;
        rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)
            .map_err(|errno| self.failed(errno))
    }

    fn failed(&self, errno: Errno) -> Error {
        Error::file(&self.path)(errno.into())
    }
}

/// Copies an image with cp, which shares blocks if possible. Returns a description.
fn copy(recorded: &Path, path: &Path) -> Result<String> {
    File::open(recorded).map_err(Error::file(recorded))?;
    let mut command = Command::new("cp");
    command.args(["--sparse=always", "--reflink=auto"]).arg(recorded).arg(path);
    let output =
        command.output().map_err(|source| Error::Start { program: "cp".to_owned(), source })?;
    if output.status.success() {
        return Ok(format!("copied from {}", recorded.display()));
    }
    let (status, message) = (output.status, one_line(&output.stderr));
    Err(Error::Command { command: format!("cp {}", recorded.display()), status, message })
}

impl Drop for ImageFile {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("can't remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocated(image: &ImageFile) -> u64 {
        image.file.sync_all().unwrap();
        image.file.metadata().unwrap().blocks() * 512
    }

    #[test]
    fn new_image_is_fully_allocated_and_reused() {
        const SIZE: u64 = 5 << 20;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        for byte in 1..=2_u8 {
            let image = ImageFile::fresh(&path, SIZE).unwrap();
            image.file.write_all_at(&[byte; 100], 1 << 20).unwrap();
            image.fill_gaps().unwrap();
            assert_eq!(image.unwritten(SIZE).unwrap_or_default(), []);
            assert!(allocated(&image) >= SIZE);
        }
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, SIZE);
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 100);
        assert_eq!(bytes[1 << 20], 2);
    }

    #[test]
    fn filling_holes_of_an_image_keeps_its_content() {
        const SIZE: u64 = 3 << 20;
        let directory = tempfile::tempdir().unwrap();
        let image = ImageFile::new(&directory.path().join("image")).unwrap();
        image.file.set_len(SIZE).unwrap();
        image.file.write_all_at(b"bytes", (1 << 20) + 7).unwrap();
        assert!(allocated(&image) < SIZE);
        let before = fs::read(&image.path).unwrap();
        let mut holes = image.holes(SIZE).unwrap();
        holes.extend(image.unwritten(SIZE).unwrap_or_default());
        assert!(holes.iter().all(|hole| !hole.contains(&((1 << 20) + 7))), "{holes:?}");
        image.fill_gaps().unwrap();
        assert!(allocated(&image) >= SIZE);
        assert_eq!(image.holes(SIZE).unwrap(), []);
        assert_eq!(fs::read(&image.path).unwrap(), before);
        let path = image.path.clone();
        drop(image);
        assert!(!path.exists());
    }
}
