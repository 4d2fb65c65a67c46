//! Aborts FUSE connections of any process through the kernel's control file system.

use std::fs;
use std::io;
use std::path::Path;

use crate::mounts::{self, Mount};

/// Usual mount point of the control file system, which need not be mounted.
const USUAL_PLACE: &str = "/sys/fs/fuse/connections";

/// Aborts the connections of all FUSE mounts below a directory. Processes that wait for replies of
/// these mounts get an error, and the daemons of the mounts see the end of the connection. Returns
/// the number of connections.
///
/// If the control file system is not mounted, it is mounted temporarily on the directory `place`.
///
/// # Errors
/// Mounts can't be listed, or the control file system can be neither found nor mounted.
pub fn abort_below(directory: &Path, place: &Path) -> io::Result<usize> {
    let connections: Vec<u32> = mounts::list()?
        .into_iter()
        .filter(|mount| mount.target.starts_with(directory))
        .filter(|mount| mount.file_system.split('.').next() == Some("fuse"))
        .map(|mount| mount.device.1)
        .collect();
    if connections.is_empty() {
        return Ok(0);
    }
    let usual = Path::new(USUAL_PLACE);
    if mounts::mounted_on(usual)?.is_some() {
        abort(usual, &connections)?;
    } else {
        let control =
            Mount::new("none".as_ref(), place, "fusectl", "").map_err(io::Error::other)?;
        abort(place, &connections)?;
        control.unmount().map_err(io::Error::other)?;
    }
    Ok(connections.len())
}

fn abort(control: &Path, connections: &[u32]) -> io::Result<()> {
    for connection in connections {
        match fs::write(control.join(connection.to_string()).join("abort"), "1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _aborted_or_gone => {}
        }
    }
    Ok(())
}
