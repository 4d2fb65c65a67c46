//! Finds the damaged file after the engine failed, because its errors don't name files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use fslab_dataset::{Manifest, Part};

use crate::error::Error;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Returns the error of the first part whose content differs from the manifest.
pub fn find<'a>(sets: impl Iterator<Item = (&'a Path, &'a Manifest)>) -> Option<Error> {
    for (directory, manifest) in sets {
        for part in &manifest.parts {
            let path = directory.join(&part.file);
            if let Some(what) = flaw(&path, part) {
                return Some(Error::Part { path, what });
            }
        }
    }
    None
}

fn flaw(path: &Path, part: &Part) -> Option<String> {
    match hash(path) {
        Ok(hash) if hash == part.blake3 => None,
        Ok(_) => Some(
            "it is damaged, because its hash differs from that in the manifest; \
                       create the data set again"
                .to_owned(),
        ),
        Err(error) => Some(error.to_string()),
    }
}

fn hash(path: &Path) -> std::io::Result<String> {
    let (mut file, mut hasher) = (File::open(path)?, blake3::Hasher::new());
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = file.read(&mut chunk)?;
        if length == 0 {
            return Ok(hasher.finalize().to_hex().to_string());
        }
        hasher.update(&chunk[..length]);
    }
}
