//! BLAKE3 hashes of the inputs of runs.
//!
//! The hash of a file covers its contents, as in `b3sum`. The hash of a directory covers a list of
//! all its entries, sorted by the bytes of their paths. Each entry of the list has these parts:
//!
//! - the kind (`f`, `d`, `l`)
//! - the length of the relative path, and the path
//! - the permission bits
//! - for a file, the length and hash of its contents; for a symbolic link, those of its target path
//!
//! Numbers have 64 bits and are little-endian. Owners and times are not covered.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{Input, InputKind};

const BUFFER: usize = 1 << 20;

const PERMISSIONS: u32 = 0o7777;

/// Returns the hash of bytes in hexadecimal digits.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Returns the hash and length of a file's contents.
pub(crate) fn of_file(path: &Path) -> Result<(blake3::Hash, u64)> {
    let mut file = File::open(path).map_err(Error::file(path))?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((hasher.finalize(), hasher.count())),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::file(path)(error)),
        };
    }
}

/// Describes the input at a path; `named` is its name in the plan.
pub(crate) fn input(named: &Path, path: PathBuf) -> Result<Input> {
    let found = fs::metadata(&path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => Error::NoInput { path: path.clone() },
        _ => Error::File { path: path.clone(), source },
    })?;
    let (kind, (hash, bytes)) = if found.is_dir() {
        (InputKind::Directory, of_directory(&path)?)
    } else if found.is_file() {
        (InputKind::File, of_file(&path)?)
    } else {
        return Err(Error::OddInput { path });
    };
    let blake3 = hash.to_hex().to_string();
    Ok(Input { named: named.to_owned(), path, kind, bytes, blake3 })
}

fn of_directory(root: &Path) -> Result<(blake3::Hash, u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut total = 0;
    for path in entries(root)? {
        let relative = path.strip_prefix(root).unwrap_or(&path).as_os_str().as_bytes();
        let found = fs::symlink_metadata(&path).map_err(Error::file(&path))?;
        let kind = found.file_type();
        let (letter, content) = if kind.is_dir() {
            (b'd', None)
        } else if kind.is_file() {
            let (hash, length) = of_file(&path)?;
            total += length;
            (b'f', Some((hash, length)))
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(Error::file(&path))?;
            let target = target.as_os_str().as_bytes();
            (b'l', Some((blake3::hash(target), target.len() as u64)))
        } else {
            return Err(Error::OddInput { path });
        };
        hasher.update(&[letter]);
        hasher.update(&(relative.len() as u64).to_le_bytes());
        hasher.update(relative);
        // The permission bits of a symbolic link have no meaning.
        let mode = if kind.is_symlink() { 0 } else { found.mode() & PERMISSIONS };
        hasher.update(&u64::from(mode).to_le_bytes());
        if let Some((hash, length)) = content {
            hasher.update(&length.to_le_bytes());
            hasher.update(hash.as_bytes());
        }
    }
    Ok((hasher.finalize(), total))
}

/// Returns all entries below a directory, sorted by the bytes of their paths.
fn entries(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).map_err(Error::file(&directory))? {
            let entry = entry.map_err(Error::file(&directory))?;
            let path = entry.path();
            if entry.file_type().map_err(Error::file(&path))?.is_dir() {
                left.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort_by(|one, other| one.as_os_str().as_bytes().cmp(other.as_os_str().as_bytes()));
    Ok(found)
}

/// Refuses an input whose contents have changed.
pub(crate) fn check(input: &Input) -> Result<()> {
    let found = self::input(&input.named, input.path.clone())?;
    if (found.kind, &found.blake3) == (input.kind, &input.blake3) {
        return Ok(());
    }
    let (path, found, frozen) = (found.path, found.blake3, input.blake3.clone());
    Err(Error::Changed { path, found, frozen })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn hash(path: &Path) -> String {
        input(path, path.to_owned()).unwrap().blake3
    }

    /// The test vector for one zero byte, from BLAKE3's own repository.
    #[test]
    fn file_hash_matches_the_blake3_test_vector() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        fs::write(&path, [0]).unwrap();
        let vector = "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213";
        assert_eq!(hash(&path), vector);
    }

    #[test]
    fn every_change_below_a_directory_changes_its_hash() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("root");
        fs::create_dir_all(root.join("b/c")).unwrap();
        fs::write(root.join("b/file"), "12").unwrap();
        fs::write(root.join("a"), "").unwrap();
        symlink("a", root.join("link")).unwrap();
        let first = hash(&root);
        assert_eq!(hash(&root), first, "the same twice");
        let mut seen = vec![first];
        let mut expect_change = |what: &str| {
            let now = hash(&root);
            assert!(!seen.contains(&now), "{what} is not seen");
            seen.push(now);
        };
        fs::write(root.join("b/file"), "13").unwrap();
        expect_change("a byte");
        fs::rename(root.join("b/file"), root.join("b/f")).unwrap();
        expect_change("a name");
        fs::rename(root.join("b/f"), root.join("b/c/f")).unwrap();
        expect_change("a place");
        fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
        expect_change("a mode");
        fs::remove_file(root.join("link")).unwrap();
        symlink("b", root.join("link")).unwrap();
        expect_change("where a link leads");
        fs::create_dir(root.join("empty")).unwrap();
        expect_change("an empty directory");
    }

    #[test]
    fn missing_and_special_files_are_refused_as_inputs() {
        let scratch = tempfile::tempdir().unwrap();
        let missing = scratch.path().join("missing");
        assert!(matches!(input(&missing, missing.clone()), Err(Error::NoInput { .. })));
        let socket = scratch.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(matches!(input(&socket, socket.clone()), Err(Error::OddInput { .. })));
        assert!(matches!(of_directory(scratch.path()), Err(Error::OddInput { .. })));
    }
}
