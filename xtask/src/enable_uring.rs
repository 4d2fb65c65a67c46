//! The kernel parameter that allows FUSE over io_uring. It applies to the whole machine, so it is
//! set only while a stage mounts.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::FlockOperation;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// The lock of all tests that set the parameter; `fslab_vfs_testing::uring_switch` uses it, too.
const LOCK: &str = "/run/lock/fslab-test-enable-uring";

/// Whether the kernel has the parameter.
pub fn is_supported() -> bool {
    Path::new(PARAMETER).exists()
}

/// Keeps the parameter on, and restores its value when dropped.
pub struct EnableUring {
    before: String,
    _lock: File,
}

impl EnableUring {
    /// Waits until no other test uses the parameter, and sets it.
    pub fn hold() -> Result<Self> {
        let lock = File::create(LOCK).with_context(|| format!("cannot create {LOCK}"))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        let before = fs::read_to_string(PARAMETER).context(PARAMETER)?;
        fs::write(PARAMETER, "Y").context(PARAMETER)?;
        Ok(Self { before, _lock: lock })
    }
}

impl Drop for EnableUring {
    fn drop(&mut self) {
        if let Err(error) = fs::write(PARAMETER, &self.before) {
            eprintln!("xtask: {PARAMETER}: {error}; set it to {}", self.before.trim());
        }
    }
}
