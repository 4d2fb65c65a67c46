//! The file system for the files of tests: a fresh ext4, in memory if enough memory is available.
//!
//! Tests sync often, and create and remove many files. On the machine's own disk, their duration
//! would depend on the speed of the disk, and their success on its free space.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Result;
use tempfile::TempDir;

use crate::environment;
use crate::stage::{Mount, public_folder};

/// Size of the image. The image is sparse; running tests use a few gibibytes of it at a time.
const SIZE_BYTES: u64 = 64 << 30;

/// Memory that must be available for an image in memory, in bytes.
const MEMORY_MIN_BYTES: u64 = 8 << 30;

/// The kernel's file system in memory.
const MEMORY: &str = "/dev/shm";

/// A mounted file system for tests. It is removed on drop, in the order of the fields.
pub struct Scratch {
    _mount: Mount,
    point: TempDir,
    _folder: TempDir,
}

impl Scratch {
    /// Makes and mounts the file system. If file systems can't be mounted here, prints the reason
    /// and returns `None`; tests then use the machine's temporary folder.
    pub fn new() -> Result<Option<Self>> {
        if let Some(reason) = environment::why_no_mounts() {
            println!(
                "temporary files of tests are in {} ({reason})",
                std::env::temp_dir().display()
            );
            return Ok(None);
        }
        let folder = public_folder("fslab-scratch-", &parent())?;
        let point = public_folder("fs-", &std::env::temp_dir())?;
        let image = folder.path().join("image");
        // With `discard`, deleted files free their memory.
        let options = "loop,discard";
        let place = point.path().canonicalize()?;
        let mount = Mount::of_ext4(&image, SIZE_BYTES, options, place)?;
        fs::set_permissions(point.path(), Permissions::from_mode(0o1777))?;
        println!(
            "temporary files of tests are in a new ext4 file system on {}",
            folder.path().display()
        );
        Ok(Some(Self { _mount: mount, point, _folder: folder }))
    }

    /// Returns the variables that make tests use this file system.
    pub fn variables(&self) -> [(&'static str, PathBuf); 3] {
        let point = || self.point.path().to_owned();
        [("TMPDIR", point()), ("FSLAB_SCRATCH", point()), ("FSLAB_DISK", std::env::temp_dir())]
    }
}

/// Returns the folder for the image: in memory if enough is available, else the temporary folder.
fn parent() -> PathBuf {
    let has_memory = available_bytes().is_some_and(|bytes| bytes >= MEMORY_MIN_BYTES);
    let is_memory = || {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts.lines().any(|line| line.split(' ').skip(1).take(2).eq([MEMORY, "tmpfs"]))
    };
    let has_room = || {
        let room = rustix::fs::statvfs(MEMORY).map(|room| room.f_bavail * room.f_frsize);
        room.is_ok_and(|bytes| bytes >= MEMORY_MIN_BYTES)
    };
    match has_memory && is_memory() && has_room() {
        true => PathBuf::from(MEMORY),
        false => std::env::temp_dir(),
    }
}

fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
