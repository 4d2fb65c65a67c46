//! Compares a copied tree of files with its source.

use std::fs;
use std::path::Path;

use super::content;
use crate::error::{Error, Result};
use crate::runner::Session;
use crate::tree::copy::files_below;

/// Compares the checksum of every regular file below `source` with that of its copy.
pub(super) fn verify_tree(session: &Session<'_>, source: &Path, copy: &Path) -> Result<()> {
    for (path, _) in files_below(source)?.iter().filter(|(_, metadata)| metadata.is_file()) {
        session.check()?;
        let copy = copy.join(path.strip_prefix(source).unwrap_or(path));
        let (expected, found) = (checksum(path)?, checksum(&copy)?);
        content::same(&copy.display().to_string(), expected, found)?;
    }
    Ok(())
}

fn checksum(path: &Path) -> Result<u32> {
    let bytes = fs::read(path).map_err(Error::file(path))?;
    Ok(crc32c::crc32c(&bytes))
}
