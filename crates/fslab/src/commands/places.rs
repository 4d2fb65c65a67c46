//! Directories that are named for reports and for work: a mistyped one is refused, and nothing is
//! written among what somebody else has there.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What a new file system has in its root.
const LOST_AND_FOUND: &str = "lost+found";

/// Makes the directory of a report. One that is there is taken where it is empty, or where all
/// that is in it has a name that such a report gives.
///
/// # Errors
/// Where it can't be made, or holds something else.
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

/// The directory of a report that nobody named, in the current one: with the present date and time.
pub(super) fn dated(name: &str) -> PathBuf {
    let now = jiff::Zoned::now().strftime("%Y-%m-%d-%H%M%S");
    PathBuf::from(format!("{name}-{now}"))
}

/// Checks that the directory for images and mount points is there.
///
/// # Errors
/// Where it is not.
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

/// An absolute path without links, of something that need not be there yet.
///
/// # Errors
/// Where the current directory is not known.
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
