//! Waits until other processes have closed their copies of open files. A child process started by
//! another test inherits every open descriptor and holds it until it calls exec.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::time::{Duration, Instant};

use fslab_sys::lease::Lease;

/// Maximum time to wait. It is longer than any program takes to start.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until no process has a file below a directory open for writing.
///
/// # Errors
/// Errors of listing and opening; `ResourceBusy` if a file is still in use after one minute.
pub fn until_unused(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => until_unused(&entry.path())?,
            kind if kind.is_file() => until_leased(&entry.path())?,
            _ => {}
        }
    }
    Ok(())
}

fn until_leased(path: &Path) -> Result<()> {
    let start = Instant::now();
    while Lease::take(File::open(path)?).err() == Some(rustix::io::Errno::AGAIN) {
        if start.elapsed() > PATIENCE {
            let told = format!("{} is still in use", path.display());
            return Err(Error::new(ErrorKind::ResourceBusy, told));
        }
        std::thread::yield_now();
    }
    Ok(())
}
