//! Which build of fslab runs.

use std::path::Path;

use crate::error::Result;
use crate::format::Program;
use crate::hash;

/// The program of this process, as it is on disk or, where it was replaced there, as it runs.
///
/// # Errors
/// Where its file can't be read.
pub fn this_program() -> Result<Program> {
    let (hash, _) = hash::of_file(Path::new("/proc/self/exe"))?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Program { version, blake3: hash.to_hex().to_string() })
}

impl std::fmt::Display for Program {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Enough digits to tell builds apart.
        let digits = self.blake3.get(..16).unwrap_or(&self.blake3);
        write!(formatter, "fslab {} (BLAKE3 {digits})", self.version)
    }
}
