//! The temporary directory on the probed file system, and the files that the prober makes in it.

use std::cell::{Cell, OnceCell};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fiemap::{Fiemap, FiemapExtent, FiemapFlags};
use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::mounts;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::fs::{Advice, OFlags, SeekFrom, fadvise};
use tempfile::TempDir;

use fslab_compare::{Error, Result};

/// The unit of `st_blocks` in bytes, independent of the block size.
pub(super) const SECTOR: u64 = 512;

/// Number of bytes written or read at a time.
pub(super) const PIECE: u64 = 1 << 20;

/// Limits and permissions of the prober.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Maximum number of bytes that the prober's files may use at one time.
    pub budget: u64,
    /// Whether to skip attributes that need many files, many writes or many device flushes.
    pub gentle: bool,
    /// Whether the prober may temporarily move this process into a memory control group. All memory
    /// use of the process is then charged to the group.
    pub bound_memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { budget: 128 << 20, gentle: false, bound_memory: false }
    }
}

/// A temporary directory on the probed file system. Dropping it removes the directory with its
/// content.
#[derive(Debug)]
pub struct Ground {
    directory: TempDir,
    pub(super) options: Options,
    file_system: String,
    /// The block device below the file system, if there is exactly one that counts its requests.
    pub(super) device: Option<DeviceNumber>,
    names: Cell<u64>,
    pub(super) allocation_unit: OnceCell<Option<u64>>,
}

impl Ground {
    /// Makes the temporary directory in `path`, a directory on the file system to probe.
    ///
    /// Fails if nothing can be created there.
    pub fn prepare(path: &Path, options: Options) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix(".fslab-probe-")
            .tempdir_in(path)
            .map_err(Error::file(path))?;
        let (file_system, device) = what_is_mounted(directory.path()).map_err(Error::file(path))?;
        Ok(Self {
            directory,
            options,
            file_system,
            device,
            names: Cell::new(0),
            allocation_unit: OnceCell::new(),
        })
    }

    /// Returns the kernel's name of the file system.
    #[must_use]
    pub fn file_system(&self) -> &str {
        &self.file_system
    }

    /// Returns the temporary directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Removes the directory with its content. Unlike a drop, it reports errors.
    ///
    /// # Errors
    /// Fails if the directory can't be removed.
    pub fn clear(self) -> Result<()> {
        let path = self.directory.path().to_owned();
        self.directory.close().map_err(Error::file(&path))
    }

    /// Returns an unused path in the directory.
    pub(super) fn fresh_path(&self) -> PathBuf {
        let number = self.names.get();
        self.names.set(number + 1);
        self.directory.path().join(format!("probe-{number}"))
    }

    /// Makes an empty file.
    pub(super) fn fresh(&self) -> io::Result<Scratch> {
        let path = self.fresh_path();
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok(Scratch { file, path })
    }

    /// Returns the allocated size of a new file of `length` bytes after it was synced and closed.
    pub(super) fn stored_size(&self, length: u64) -> io::Result<u64> {
        self.stored(length)?.taken()
    }

    /// Makes a file of `length` bytes and syncs it.
    pub(super) fn stored(&self, length: u64) -> io::Result<Scratch> {
        let scratch = self.fresh()?;
        scratch.fill(0, length)?;
        scratch.settle()
    }

    /// Makes and syncs a sparse file of `2 * place` bytes, with one byte in the middle.
    pub(super) fn one_byte(&self, place: u64) -> io::Result<Scratch> {
        let scratch = self.fresh()?;
        scratch.file.set_len(2 * place)?;
        scratch.file.write_all_at(b"x", place)?;
        scratch.settle()
    }
}

/// Returns the type of a path's file system, and its block device.
fn what_is_mounted(path: &Path) -> io::Result<(String, Option<DeviceNumber>)> {
    let number = |device: u64| DeviceNumber {
        major: rustix::fs::major(device),
        minor: rustix::fs::minor(device),
    };
    let device = number(fs::metadata(path)?.dev());
    // The device numbers of files on Btrfs have no counters; the mount's source is used instead.
    let Some(entry) = mount_of(path)? else { return Ok(("unknown".to_owned(), None)) };
    let by_source = fs::metadata(&entry.source).ok().map(|source| number(source.rdev()));
    let counts = |number: &DeviceNumber| number.sysfs("stat").exists();
    let device = [Some(device), by_source].into_iter().flatten().find(counts);
    Ok((entry.file_system, device))
}

/// Returns the mount of a path: the one with the longest mount point above it.
pub(super) fn mount_of(path: &Path) -> io::Result<Option<mounts::MountEntry>> {
    let path = fs::canonicalize(path)?;
    let above = mounts::list()?.into_iter().filter(|entry| path.starts_with(&entry.target));
    Ok(above.max_by_key(|entry| entry.target.as_os_str().len()))
}

/// A temporary file; removed on drop.
#[derive(Debug)]
pub(super) struct Scratch {
    pub file: File,
    path: PathBuf,
}

impl Scratch {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes incompressible bytes.
    pub fn fill(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut random = Pcg64::seed_from_u64(offset ^ length);
        let mut piece = vec![0; usize::try_from(length.min(PIECE)).map_err(io::Error::other)?];
        let mut done = 0;
        while done < length {
            random.fill(&mut piece[..]);
            let now = usize::try_from((length - done).min(PIECE)).map_err(io::Error::other)?;
            self.file.write_all_at(&piece[..now], offset + done)?;
            done += now as u64;
        }
        Ok(())
    }

    /// Syncs and reopens the file, so that space preallocated for an open file is freed.
    pub fn settle(self) -> io::Result<Self> {
        self.file.sync_all()?;
        let path = self.path.clone();
        let reopened = OpenOptions::new().read(true).write(true).open(&path)?;
        // This closes the old descriptor without removing the file.
        let mut settled = self;
        settled.file = reopened;
        Ok(settled)
    }

    pub fn open_direct(&self) -> io::Result<File> {
        let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
        OpenOptions::new().read(true).custom_flags(direct).open(&self.path)
    }

    /// Closes the file. Afterwards, `file` is /dev/null.
    pub fn close(mut self) -> io::Result<Self> {
        self.file = File::open("/dev/null")?;
        Ok(self)
    }

    pub fn for_reading_only(mut self) -> io::Result<Self> {
        self.file = File::open(&self.path)?;
        Ok(self)
    }

    /// Returns the allocated bytes according to `st_blocks`.
    pub fn taken(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * SECTOR)
    }

    /// Returns the start of the next data at or after an offset; `None` if there is none.
    pub fn data_after(&self, offset: u64) -> io::Result<Option<u64>> {
        self.seek(SeekFrom::Data(offset))
    }

    /// Returns the start of the next hole at or after an offset; the end of the file is treated as
    /// a hole.
    pub fn hole_after(&self, offset: u64) -> io::Result<Option<u64>> {
        self.seek(SeekFrom::Hole(offset))
    }

    fn seek(&self, to: SeekFrom) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&self.file, to) {
            Ok(offset) => Ok(Some(offset)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the extents of the file that FIEMAP reports.
    pub fn extents(&self) -> io::Result<Vec<FiemapExtent>> {
        Fiemap::with_flags(&self.file, FiemapFlags::SYNC).collect()
    }

    /// Reads the first `length` bytes, a multiple of [`PIECE`].
    pub fn read_all(&self, length: u64) -> io::Result<()> {
        let mut buffer = vec![0; PIECE as usize];
        for offset in (0..length).step_by(buffer.len()) {
            self.file.read_exact_at(&mut buffer, offset)?;
        }
        Ok(())
    }

    /// Syncs the file and requests that its pages be dropped.
    pub fn make_cold(&self) -> io::Result<()> {
        self.file.sync_all()?;
        Ok(fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Removing the file now keeps the prober within its budget. An error is only logged,
        // because the whole directory is removed at the end.
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "can't remove a temporary file");
        }
    }
}

/// Memory with an alignment that suffices for any device.
pub(super) struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    const ALIGNMENT: usize = 64 << 10;

    pub fn new(length: usize) -> Self {
        let memory = vec![0; length + Self::ALIGNMENT];
        let start = memory.as_ptr().align_offset(Self::ALIGNMENT);
        Self { memory, start, length }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}
