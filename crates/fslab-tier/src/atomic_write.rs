//! Atomic, durable writes of small files.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use crate::private;

/// Writes a small file atomically: after a crash it has its old or its new contents.
pub(crate) fn write_durably(path: &Path, contents: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let written = write_synced(&beside, contents).and_then(|()| fs::rename(&beside, path));
    if let Err(error) = written {
        // The removal may fail because the file was never created, so its error is ignored.
        fs::remove_file(&beside).unwrap_or_default();
        return Err(error);
    }
    sync_directory_of(path)
}

fn write_synced(path: &Path, contents: &[u8]) -> io::Result<()> {
    // Removes the leftover of an earlier attempt. It may be a symbolic link to another file.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private::options().create_new(true).open(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// Makes the name of a file durable, by syncing its directory.
pub(crate) fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
