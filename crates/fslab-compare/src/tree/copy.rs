//! Lists and copies directories of this machine. Copies keep the metadata that builds use: modes,
//! symbolic links and modification times.

use std::fs::{self, FileTimes, Metadata};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The amount of copied data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Number of regular files.
    pub files: u64,
    /// Size of all regular files together, in bytes.
    pub bytes: u64,
}

/// Copies everything below `from` into the directory `to`, which must exist.
///
/// # Errors
/// Returns errors of reading and writing. A file that is not a regular file, symbolic link or
/// directory is an error.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<Copied> {
    let mut copied = Copied::default();
    for entry in fs::read_dir(from).map_err(Error::file(from))? {
        let entry = entry.map_err(Error::file(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = entry.metadata().map_err(Error::file(&source))?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            fs::create_dir(&target).map_err(Error::file(&target))?;
            let below = copy_tree(&source, &target)?;
            fs::set_permissions(&target, metadata.permissions()).map_err(Error::file(&target))?;
            copied.files += below.files;
            copied.bytes += below.bytes;
        } else if kind.is_symlink() {
            let link = fs::read_link(&source).map_err(Error::file(&source))?;
            symlink(link, &target).map_err(Error::file(&target))?;
        } else if kind.is_file() {
            copied.files += 1;
            copied.bytes += copy_file(&source, &target, &metadata)?;
        } else {
            return Err(Error::file(&source)(io::ErrorKind::Unsupported.into()));
        }
    }
    Ok(copied)
}

/// Returns everything below a directory of this machine except directories, sorted by path.
pub(crate) fn files_below(directory: &Path) -> Result<Vec<(PathBuf, Metadata)>> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(Error::file(&directory))? {
            let entry = entry.map_err(Error::file(&directory))?;
            let (path, metadata) = (entry.path(), entry.metadata());
            let metadata = metadata.map_err(Error::file(&path))?;
            if metadata.is_dir() {
                directories.push(path);
            } else {
                found.push((path, metadata));
            }
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// Copies contents, mode and modification time. A buffer is used, because with `copy_file_range`, a
/// target on the same file system as its source could share blocks instead of writing them.
fn copy_file(source: &Path, target: &Path, metadata: &Metadata) -> Result<u64> {
    let mut from = fs::File::open(source).map_err(Error::file(source))?;
    let mut to = fs::File::create_new(target).map_err(Error::file(target))?;
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    while let length @ 1.. = io::Read::read(&mut from, &mut buffer).map_err(Error::file(source))? {
        io::Write::write_all(&mut to, &buffer[..length]).map_err(Error::file(target))?;
        bytes += length as u64;
    }
    let modified = metadata.modified().map_err(Error::file(source))?;
    to.set_permissions(metadata.permissions()).map_err(Error::file(target))?;
    to.set_times(FileTimes::new().set_modified(modified)).map_err(Error::file(target))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::{Copied, copy_tree};

    #[test]
    fn contents_modes_times_and_links_are_copied() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("sub/script"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(from.join("sub/script"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("sub/script", from.join("link")).unwrap();
        assert_eq!(copy_tree(&from, &to).unwrap(), Copied { files: 1, bytes: 10 });
        let (source, target) = (from.join("sub/script"), to.join("sub/script"));
        assert_eq!(fs::read(&target).unwrap(), b"#!/bin/sh\n");
        let (source, target) = (source.metadata().unwrap(), target.metadata().unwrap());
        assert_eq!((source.mode(), source.mtime_nsec()), (target.mode(), target.mtime_nsec()));
        assert_eq!(
            fs::read_link(to.join("link")).unwrap(),
            fs::read_link(from.join("link")).unwrap()
        );
    }
}
