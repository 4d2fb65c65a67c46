//! Checks that must succeed for any input, shared by fuzz targets and tests.

use std::path::Path;

use crate::manifest::Manifest;

/// Parses bytes as a manifest, and checks the result. The result must be an error of one line or a
/// valid manifest. The parts of a valid manifest must be inside the directory. Writing the manifest
/// and parsing it again must give the same manifest.
///
/// # Panics
/// Panics if a check fails.
pub fn check_manifest(bytes: &[u8]) {
    let path = Path::new("manifest.json");
    let manifest = match Manifest::parse(path, bytes) {
        Ok(manifest) => manifest,
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("manifest.json: "), "{message:?}");
            assert_eq!(message.lines().count(), 1, "{message:?}");
            return;
        }
    };
    for part in &manifest.parts {
        let folder = if manifest.format == 1 { "" } else { "parts/" };
        let name = part.file.strip_prefix(folder).unwrap_or_default();
        let is_plain = Path::new(name).file_name() == Some(name.as_ref());
        assert!(is_plain && part.rows <= manifest.rows, "{part:?}");
    }
    let text = serde_json::to_vec(&manifest).unwrap_or_default();
    match Manifest::parse(path, &text) {
        Ok(again) => assert_eq!(again, manifest),
        Err(error) => panic!("a written manifest can't be read: {error}"),
    }
}
