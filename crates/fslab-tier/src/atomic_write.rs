//! Atomic, durable writes of small files.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use crate::private;

/// Writes a small file so that it is there with its contents, or not at all.
pub(crate) fn write_durably(path: &Path, contents: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let written = write_synced(&beside, contents).and_then(|()| fs::rename(&beside, path));
    if let Err(error) = written {
        // What could not be made needs not be removed.
        fs::remove_file(&beside).unwrap_or_default();
        return Err(error);
    }
    sync_directory_of(path)
}

fn write_synced(path: &Path, contents: &[u8]) -> io::Result<()> {
    // What an earlier try has left makes room, and so does a link, which leads elsewhere.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private::options().create_new(true).open(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// Makes the name of something durable: it is when its directory is.
pub(crate) fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
