//! Directories that are named for reports and for work: a mistyped one is refused, and nothing is
//! written among what somebody else has there.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

use crate::exit::{Code, Coded};

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
            return refuse(format!("--out {}: it is no directory", shown()));
        }
        made => made.with_context(shown)?,
    }
    for entry in fs::read_dir(out).with_context(shown)? {
        let name = entry.with_context(shown)?.file_name();
        if !name.to_str().is_some_and(|name| name == LOST_AND_FOUND || is_own(name)) {
            return refuse(format!(
                "--out {}: it holds {}, which is of no report; name a new directory or an empty \
                 one",
                shown(),
                name.display()
            ));
        }
    }
    Ok(())
}

/// Checks that the directory for images and mount points is there.
///
/// # Errors
/// Where it is not.
pub(super) fn check_work_dir(path: &Path) -> Result<()> {
    match path.metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => refuse(format!("--work-dir {}: it is no directory", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => refuse(format!(
            "--work-dir {}: there is no such directory; make it, or name another",
            path.display()
        )),
        Err(error) => Err(error).with_context(|| format!("--work-dir {}", path.display())),
    }
}

fn refuse(message: String) -> Result<()> {
    Err(Coded { code: Code::BadInput, message }.into())
}
