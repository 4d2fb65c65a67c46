//! The kernel's tracing files, which are often not mounted.

use std::fs;
use std::path::{Path, PathBuf};

use fslab_sys::mounts::Mount;

use crate::error::{Error, Result};

/// The usual mount point of tracefs.
const USUAL: &str = "/sys/kernel/tracing";

/// A mounted tracefs. It is unmounted when dropped, unless it was mounted before.
#[derive(Debug)]
pub(crate) struct Tracefs {
    root: PathBuf,
    _mount: Option<Mount>,
}

impl Tracefs {
    /// Uses the usual mount point, or mounts tracefs on a directory `name` in the work directory.
    /// The kernel refuses to mount it twice on the same directory.
    ///
    /// # Errors
    /// Fails if the kernel has no tracefs, or if this process may not mount it.
    pub fn open(work_directory: &Path, name: &str) -> Result<Self> {
        if Path::new(USUAL).join("events").is_dir() {
            return Ok(Self { root: PathBuf::from(USUAL), _mount: None });
        }
        let root = work_directory.join(name);
        fs::create_dir_all(&root).map_err(Error::file(&root))?;
        let mount = Mount::new(Path::new("nodev"), &root, "tracefs", "")?;
        Ok(Self { root, _mount: Some(mount) })
    }

    /// The directory with the files.
    pub fn root(&self) -> &Path {
        &self.root
    }
}
