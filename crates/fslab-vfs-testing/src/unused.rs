//! Waiting for who holds files without knowing: a program that a test beside this one is just
//! starting inherits every descriptor, until it runs.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::time::{Duration, Instant};

use fslab_sys::lease::Lease;

/// Longer than any program takes to be started.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until nobody has a file below a directory open for writing.
///
/// # Errors
/// What listing and opening answer; that a file stays in use.
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
            let told = format!("{} stays in use", path.display());
            return Err(Error::new(ErrorKind::ResourceBusy, told));
        }
        std::thread::yield_now();
    }
    Ok(())
}
