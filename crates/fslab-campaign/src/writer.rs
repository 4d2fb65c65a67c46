//! Writes campaigns, and files that become visible only when they are complete.
//!
//! Hosts may share a directory over a network. So a file is written under a temporary name that no
//! other process uses, made durable, and then renamed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{ATTEMPTS, Frozen, PLAN, RECORD};

/// Creates the directory of a campaign. After an error, the campaign does not exist.
pub(crate) fn create(directory: &Path, frozen: &Frozen, plan: &str) -> Result<()> {
    let is_free = match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => return Err(Error::file(directory)(error)),
    };
    if !is_free {
        return Err(Error::NotEmpty { path: directory.to_owned() });
    }
    let hidden = hidden(directory);
    let made = fill(&hidden, frozen, plan)
        .and_then(|()| fs::rename(&hidden, directory).map_err(Error::file(directory)));
    let (made, rest) = match made {
        Ok(()) => (sync_directory(parent(directory)), directory),
        Err(error) => (Err(error), hidden.as_path()),
    };
    if made.is_err() {
        // Only the first error is reported.
        fs::remove_dir_all(rest).ok();
    }
    made
}

fn fill(directory: &Path, frozen: &Frozen, plan: &str) -> Result<()> {
    DirBuilder::new().create(directory).map_err(Error::file(directory))?;
    let attempts = directory.join(ATTEMPTS);
    DirBuilder::new().create(&attempts).map_err(Error::file(&attempts))?;
    let mut record = serde_json::to_vec_pretty(frozen).map_err(Error::Encode)?;
    record.push(b'\n');
    write(&directory.join(PLAN), plan.as_bytes())?;
    write(&directory.join(RECORD), &record)?;
    sync_directory(directory)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(path).map_err(Error::file(path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::file(path))
}

/// Writes a file of a campaign, replacing an existing one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let hidden = hidden(path);
    let written = write(&hidden, bytes)
        .and_then(|()| fs::rename(&hidden, path).map_err(Error::file(path)))
        .and_then(|()| sync_directory(parent(path)));
    if written.is_err() {
        fs::remove_file(&hidden).ok();
    }
    written
}

/// Makes a complete file durable and gives it its final name.
pub(crate) fn publish(from: &Path, to: &Path) -> Result<()> {
    sync_file(from).map_err(Error::file(from))?;
    fs::rename(from, to).map_err(Error::file(to))?;
    sync_directory(parent(to))
}

/// Makes the contents of a file durable, even if they were written through another descriptor.
pub(crate) fn sync_file(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    sync_file(path).map_err(Error::file(path))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// Returns a temporary path in the same directory; no other process uses this path.
fn hidden(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    parent(path).join(format!(".{name}.{host}.{}", std::process::id()))
}
