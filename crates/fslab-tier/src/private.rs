//! Files and directories that only their owner may read. Archives and homes contain the bytes and
//! names of every user's files.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

pub(crate) const DIRECTORY_MODE: u32 = 0o700;
pub(crate) const FILE_MODE: u32 = 0o600;

/// Mode bits that let other users read, write or enter.
const OTHERS_LOOK: u32 = 0o077;
/// Mode bits of a directory that let other users replace its files.
const OTHERS_CHANGE: u32 = 0o022;
/// The sticky bit. In a directory with this bit, others may add files but not replace existing
/// ones.
const STICKY: u32 = 0o1000;

/// Makes a private directory.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).create(path)
}

/// Makes a private directory, unless it exists. Missing parents are made with the usual mode.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Returns options that open a file for writing, and create it as a private file.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(FILE_MODE);
    options
}

/// Warns if others can access a directory and one of the given names in it. Somebody must have
/// changed the mode, because both were created as private.
pub(crate) fn warn_if_open(directory: &Path, names: &[&str]) {
    if is_open(directory, names) {
        let shown = directory.display();
        tracing::warn!(
            "users other than its owner can access {shown}, and so can read the content of the \
             tier's files. To prevent this, run: chmod go= {shown}"
        );
    }
}

fn is_open(directory: &Path, names: &[&str]) -> bool {
    // If the mode can't be read, opening the file reports the error.
    let mode = |path: &Path| path.metadata().map_or(0, |found| found.mode());
    let outer = mode(directory);
    let may_change = outer & OTHERS_CHANGE != 0 && outer & STICKY == 0;
    let is_seen = |name: &&str| mode(&directory.join(name)) & OTHERS_LOOK != 0;
    may_change || outer & OTHERS_LOOK != 0 && names.iter().any(is_seen)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn directory_is_open_if_others_can_access_its_contents() {
        let scratch = tempfile::tempdir().unwrap();
        let outer = scratch.path().join("outer");
        create_dir(&outer).unwrap();
        options().create_new(true).open(outer.join("inner")).unwrap();
        let cases = [
            (0o700, 0o600, false),
            (0o755, 0o600, false),
            (0o700, 0o644, false),
            (0o755, 0o644, true),
            (0o710, 0o640, true),
            (0o777, 0o600, true),
            (0o1777, 0o600, false),
        ];
        for (outer_mode, inner_mode, expected) in cases {
            let set = |path: &Path, mode| {
                fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
            };
            set(&outer.join("inner"), inner_mode);
            set(&outer, outer_mode);
            assert_eq!(is_open(&outer, &["inner"]), expected, "{outer_mode:o} {inner_mode:o}");
        }
    }
}
