//! The identity of the running build of fslab.

use std::path::Path;

use crate::error::Result;
use crate::format::Program;
use crate::hash;

/// Returns the version and hash of the running program. If its file was replaced on disk, the hash
/// is still that of the running program.
///
/// # Errors
/// Fails if the program's file can't be read.
pub fn this_program() -> Result<Program> {
    let (hash, _) = hash::of_file(Path::new("/proc/self/exe"))?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Program { version, blake3: hash.to_hex().to_string() })
}

impl std::fmt::Display for Program {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Enough digits to distinguish builds.
        let digits = self.blake3.get(..16).unwrap_or(&self.blake3);
        write!(formatter, "fslab {} (BLAKE3 {digits})", self.version)
    }
}
