//! Directories for reports and work that the user names. A mistyped name is refused, and nothing is
//! written into a directory with other files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The directory in the root of a new file system.
const LOST_AND_FOUND: &str = "lost+found";

/// Makes the directory of a report. An existing directory is used if every name in it is one that
/// such a report writes, or if it is empty.
///
/// # Errors
/// It can't be made, or holds something else.
pub(super) fn make_out(out: &Path, is_own: impl Fn(&str) -> bool) -> Result<()> {
    let shown = || out.display().to_string();
    match fs::create_dir_all(out) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail_as!(BadInput, "--out {}: it is no directory", shown());
        }
        made => made.with_context(shown)?,
    }
    for entry in fs::read_dir(out).with_context(shown)? {
        let name = entry.with_context(shown)?.file_name();
        if !name.to_str().is_some_and(|name| name == LOST_AND_FOUND || is_own(name)) {
            bail_as!(
                BadInput,
                "--out {}: it holds {}, which no report wrote; name a new directory or an \
                 empty one",
                shown(),
                name.display()
            );
        }
    }
    Ok(())
}

/// Returns a default name for the directory of a report, with the present date and time. It is in
/// the current directory.
pub(super) fn dated(name: &str) -> PathBuf {
    let now = jiff::Zoned::now().strftime("%Y-%m-%d-%H%M%S");
    PathBuf::from(format!("{name}-{now}"))
}

/// Checks that the directory for images and mount points exists.
///
/// # Errors
/// It does not exist.
pub(super) fn check_work_dir(path: &Path) -> Result<()> {
    let shown = path.display();
    match path.metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => bail_as!(BadInput, "--work-dir {shown}: it is no directory"),
        Err(error) if error.kind() == ErrorKind::NotFound => bail_as!(
            BadInput,
            "--work-dir {shown}: there is no such directory; make it, or name another"
        ),
        Err(error) => Err(error).with_context(|| format!("--work-dir {shown}")),
    }
}

/// Returns an absolute path without links. The path itself need not exist yet.
///
/// # Errors
/// The current directory is unknown.
pub(super) fn resolved(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().find_map(|ancestor| {
        let real = ancestor.canonicalize().ok()?;
        let rest = path.strip_prefix(ancestor).ok()?;
        // Joined with nothing, the name of a file would end with a slash.
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    });
    Ok(there.unwrap_or(path))
}
