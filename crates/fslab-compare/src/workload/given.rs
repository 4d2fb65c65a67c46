//! Contents taken from existing files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};
use crate::tree::copy::files_below;

/// Contents of at least this many bytes are repeated if more are needed. No compressor of a file
/// system finds such a distant repetition: Btrfs looks back 128 KiB, and zstd at level 3 looks back
/// 2 MiB.
const REPEATED_LEAST: usize = 8 << 20;

/// Returns the first `length` bytes of a file, or of all regular files below a directory in the
/// order of their paths. Symbolic links are not followed.
///
/// # Errors
/// Returns [`Error::TooLittleData`] if there are fewer than `length` bytes, and too few to be
/// repeated.
pub(super) fn take(path: &Path, length: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    let below = if path.is_dir() { files_below(path)? } else { Vec::new() };
    let below = below.iter().filter(|(_, metadata)| metadata.is_file()).map(|(path, _)| &**path);
    for file in below.chain((!path.is_dir()).then_some(path)) {
        let left = (length - bytes.len()) as u64;
        if left == 0 {
            break;
        }
        let source = File::open(file).map_err(Error::file(file))?;
        source.take(left).read_to_end(&mut bytes).map_err(Error::file(file))?;
    }
    let found = bytes.len();
    if found < length && found < REPEATED_LEAST {
        let (found, needed) = (found as u64, length as u64);
        return Err(Error::TooLittleData { path: path.to_owned(), found, needed });
    }
    while bytes.len() < length {
        bytes.extend_from_within(..found.min(length - bytes.len()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{REPEATED_LEAST, take};
    use crate::error::Error;

    #[test]
    fn given_files_are_concatenated_and_must_be_long_enough() {
        let directory = tempfile::tempdir_in(".").unwrap();
        fs::create_dir(directory.path().join("b")).unwrap();
        fs::write(directory.path().join("b/inner"), "second").unwrap();
        fs::write(directory.path().join("a"), "first").unwrap();
        std::os::unix::fs::symlink("a", directory.path().join("aa")).unwrap();
        assert_eq!(take(directory.path(), 8).unwrap(), b"firstsec");
        assert_eq!(take(directory.path(), 11).unwrap(), b"firstsecond");
        let short = take(directory.path(), 12);
        assert!(matches!(short, Err(Error::TooLittleData { found: 11, needed: 12, .. })));
    }

    #[test]
    fn only_large_given_data_is_repeated() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("much");
        let content: Vec<u8> = (0..REPEATED_LEAST).map(|at| (at / 251) as u8).collect();
        fs::write(&path, &content).unwrap();
        let twice = take(&path, 2 * REPEATED_LEAST + 5).unwrap();
        assert_eq!(twice.len(), 2 * REPEATED_LEAST + 5);
        assert!(twice.chunks(REPEATED_LEAST).all(|part| *part == content[..part.len()]));
        fs::write(&path, &content[1..]).unwrap();
        assert!(take(&path, REPEATED_LEAST).is_err());
    }
}
