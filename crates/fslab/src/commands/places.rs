//! Directories that the user chooses for reports and work. A work directory must exist, so that a
//! mistyped name is noticed. A report is never written into a directory with other files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A directory that mkfs creates in the root of a new file system.
const LOST_AND_FOUND: &str = "lost+found";

/// Makes the directory of a report. An existing directory is accepted if it contains only files for
/// which `is_own` returns `true`.
///
/// # Errors
/// Fails if the directory can't be made, or contains other files.
pub(super) fn make_out(out: &Path, is_own: impl Fn(&str) -> bool) -> Result<()> {
    let shown = || out.display().to_string();
    match fs::create_dir_all(out) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail_as!(BadInput, "--out {}: it is not a directory", shown());
        }
        made => made.with_context(shown)?,
    }
    for entry in fs::read_dir(out).with_context(shown)? {
        let name = entry.with_context(shown)?.file_name();
        if !name.to_str().is_some_and(|name| name == LOST_AND_FOUND || is_own(name)) {
            bail_as!(
                BadInput,
                "--out {}: it contains {}, which no report wrote; choose a new or empty directory",
                shown(),
                name.display()
            );
        }
    }
    Ok(())
}

/// Returns a default name for the directory of a report: `name`, followed by the current date and
/// time.
pub(super) fn dated(name: &str) -> PathBuf {
    let now = jiff::Zoned::now().strftime("%Y-%m-%d-%H%M%S");
    PathBuf::from(format!("{name}-{now}"))
}

/// Checks that the directory for images and mount points exists.
///
/// # Errors
/// Fails if the path does not exist or is not a directory.
pub(super) fn check_work_dir(path: &Path) -> Result<()> {
    let shown = path.display();
    match path.metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => bail_as!(BadInput, "--work-dir {shown}: it is not a directory"),
        Err(error) if error.kind() == ErrorKind::NotFound => bail_as!(
            BadInput,
            "--work-dir {shown}: there is no such directory; create it, or choose another"
        ),
        Err(error) => Err(error).with_context(|| format!("--work-dir {shown}")),
    }
}

/// Returns an absolute path without symbolic links. The path itself need not exist.
///
/// # Errors
/// Fails if the current directory is unknown.
pub(super) fn resolved(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().find_map(|ancestor| {
        let real = ancestor.canonicalize().ok()?;
        let rest = path.strip_prefix(ancestor).ok()?;
        // Joining an empty path would add a slash to the name of a file.
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    });
    Ok(there.unwrap_or(path))
}
