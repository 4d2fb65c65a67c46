//! Fills a file system to a share of its space, because full and empty ones perform differently
//! (Smith and Seltzer 1997).
//!
//! The filling consists of files of many sizes in many directories. This spreads the free space
//! over the file system. The pieces of free space are larger than after years of use; use aged
//! images if that matters. Space is allocated without writing it if the file system supports that.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// The directory that contains the filling, at the root of the file system.
pub(crate) const FILLING: &str = "fslab-fill";

const DIRECTORIES: u64 = 64;

/// Smallest and largest file size. Sizes are distributed evenly on a logarithmic scale.
const SMALLEST: f64 = 64.0 * 1024.0;
const LARGEST: f64 = 16.0 * 1024.0 * 1024.0;

/// Allowed deviation from the requested share, in per cent of the file system.
const TOLERANCE: f64 = 1.0;

/// Maximum number of passes. Each pass queries the free space, which is exact only after writeback,
/// and adds files.
const PASSES: u32 = 12;

/// A fixed seed, so that the filling is the same for every target and round.
const SEED: u64 = 80;

/// Fills the file system mounted on `root` to `percent` of the space available to users. Returns
/// the share that statfs reports at the end.
pub(super) fn fill(root: &Path, percent: u64) -> Result<f64> {
    let asked = percent as f64;
    let directory = root.join(FILLING);
    fs::create_dir(&directory).map_err(Error::file(&directory))?;
    let mut random = Pcg64::seed_from_u64(SEED);
    let mut files = 0;
    for _ in 0..PASSES {
        let space = Space::of(root)?;
        let missing = space.bytes_below(asked);
        if missing < SMALLEST {
            break;
        }
        let mut left = missing;
        while left >= SMALLEST {
            let size = (LARGEST * (SMALLEST / LARGEST).powf(random.random::<f64>())).min(left);
            let has_space = add_file(&directory, files, size as u64)?;
            // The file exists even if there was no space for its data.
            files += 1;
            if !has_space {
                break;
            }
            left -= size;
        }
        sync_file_system(root)?;
    }
    let reached = Space::of(root)?.percent();
    if (reached - asked).abs() > TOLERANCE {
        let message = format!("filled to {reached:.1} %, but {asked:.1} % was requested");
        return Err(Error::Failed(message));
    }
    Ok(reached)
}

/// Adds a file; returns `false` if there is no space for it.
fn add_file(directory: &Path, number: u64, size: u64) -> Result<bool> {
    let below = directory.join(format!("{:02}", number % DIRECTORIES));
    if number < DIRECTORIES {
        fs::create_dir(&below).map_err(Error::file(&below))?;
    }
    let path = below.join(number.to_string());
    let file = File::create_new(&path).map_err(Error::file(&path))?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
        Ok(()) => Ok(true),
        Err(Errno::NOSPC) => Ok(false),
        Err(Errno::OPNOTSUPP) => write_zeros(file, &path, size),
        Err(errno) => Err(Error::file(&path)(errno.into())),
    }
}

fn write_zeros(mut file: File, path: &Path, size: u64) -> Result<bool> {
    let zeros = vec![0; 1 << 20];
    let mut left = size;
    while left > 0 {
        let length = left.min(zeros.len() as u64);
        match file.write_all(&zeros[..length as usize]) {
            Ok(()) => left -= length,
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(false),
            Err(error) => return Err(Error::file(path)(error)),
        }
    }
    Ok(true)
}

/// Space of a file system as df(1) counts it, without blocks reserved for root.
struct Space {
    used: f64,
    available: f64,
}

impl Space {
    fn of(root: &Path) -> Result<Self> {
        let stat = rustix::fs::statvfs(root).map_err(|errno| Error::file(root)(errno.into()))?;
        let bytes = |blocks: u64| (blocks * stat.f_frsize) as f64;
        Ok(Self { used: bytes(stat.f_blocks - stat.f_bfree), available: bytes(stat.f_bavail) })
    }

    fn percent(&self) -> f64 {
        self.used * 100.0 / (self.used + self.available)
    }

    /// Returns the number of bytes to add until `percent` of the space is used.
    fn bytes_below(&self, percent: f64) -> f64 {
        (self.used + self.available) * percent / 100.0 - self.used
    }
}

/// Makes all data of the file system that contains a directory durable.
pub(super) fn sync_file_system(directory: &Path) -> Result<()> {
    let failed = |errno: rustix::io::Errno| Error::file(directory)(errno.into());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty()).map_err(failed)?;
    rustix::fs::syncfs(opened).map_err(failed)
}
