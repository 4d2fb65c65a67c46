//! Writes the files of a package.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// Compresses a file with gzip, without a time stamp, so that equal inputs give identical packages.
/// The name of `to` must end in `.gz`.
pub fn compress(from: &Path, to: &Path) -> Result<()> {
    compress_text(&fs::read_to_string(from).with_context(|| from.display().to_string())?, to)
}

/// Compresses a text like [`compress`].
pub fn compress_text(text: &str, to: &Path) -> Result<()> {
    let plain = to.with_extension("");
    write(&plain, text.as_bytes())?;
    process::capture(Command::new("gzip").args(["-9", "-n"]).arg(&plain)).map(drop)
}

/// Makes a symbolic link and its parent folder.
pub fn link(target: &str, path: &Path) -> Result<()> {
    fs::create_dir_all(path.parent().context("a link without a folder")?)?;
    symlink(target, path).with_context(|| path.display().to_string())
}

/// Copies a file and sets its mode. Returns its content.
pub fn install(from: &Path, to: &Path, mode: u32) -> Result<Vec<u8>> {
    let bytes = fs::read(from).with_context(|| from.display().to_string())?;
    write(to, &bytes)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(bytes)
}

/// Writes a file that everybody may read, and makes its parent folder.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file without a folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(path, bytes).with_context(|| path.display().to_string())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    Ok(())
}
