//! The file system that tests put their files on: a fresh ext4, in memory where there is enough.
//!
//! Tests sync a great deal and make and remove many files, so that the disk of the machine would
//! decide how long they take, and how full it is whether they pass.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Result;
use tempfile::TempDir;

use crate::environment;
use crate::stage::{Mount, public_folder};

/// The image is sparse; tests at work fill a few gibibytes of it at a time.
const SIZE_BYTES: u64 = 64 << 30;

/// Memory that must be available for an image in memory.
const MEMORY_MIN_BYTES: u64 = 8 << 30;

/// A file system in memory, as the kernel provides it.
const MEMORY: &str = "/dev/shm";

/// A mounted file system for tests, gone when this is dropped; its fields go in this order.
pub struct Scratch {
    _mount: Mount,
    point: TempDir,
    _folder: TempDir,
}

impl Scratch {
    /// Makes one; `None`, after saying why, where tests have to use the machine's temporary folder.
    pub fn new() -> Result<Option<Self>> {
        if let Some(reason) = environment::why_no_mounts() {
            println!("tests use {}: {reason}", std::env::temp_dir().display());
            return Ok(None);
        }
        let folder = public_folder("fslab-scratch-", &parent())?;
        let point = public_folder("fs-", &std::env::temp_dir())?;
        let image = folder.path().join("image");
        // What is deleted gives its memory back.
        let options = "loop,discard";
        let place = point.path().canonicalize()?;
        let mount = Mount::of_ext4(&image, SIZE_BYTES, options, place)?;
        fs::set_permissions(point.path(), Permissions::from_mode(0o1777))?;
        println!("tests use a fresh ext4 on {}", folder.path().display());
        Ok(Some(Self { _mount: mount, point, _folder: folder }))
    }

    /// The variables that bring tests here.
    pub fn variables(&self) -> [(&'static str, PathBuf); 3] {
        let point = || self.point.path().to_owned();
        [("TMPDIR", point()), ("FSLAB_SCRATCH", point()), ("FSLAB_DISK", std::env::temp_dir())]
    }
}

/// Memory if there is enough, else the machine's temporary folder.
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
