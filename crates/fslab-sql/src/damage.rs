//! Finds the damaged file after the engine failed, because the engine's errors do not name files.

use std::path::Path;

use fslab_dataset::Manifest;

use crate::error::Error;

/// Returns the error of the first part whose content differs from the manifest.
pub fn find<'a>(sets: impl Iterator<Item = (&'a Path, &'a Manifest)>) -> Option<Error> {
    let mut parts = sets.flat_map(|(directory, manifest)| {
        manifest.parts.iter().map(move |part| part.check_hash(directory))
    });
    parts.find_map(Result::err).map(Error::DataSet)
}
