//! The lease of an archive: a writer holds it exclusively, readers share it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};

use super::confined_dir::{ConfinedDir, regular};
use super::settings::directory_of;
use super::writer_record;
use crate::archive::{ContainerKind, Writer};
use crate::error::{Error, Result};
use crate::private;

pub(super) const LEASE: &str = "lease";

/// The access of a tree to an archive.
pub(super) enum Right {
    /// The tree may write, as long as it holds this lease.
    Writes(File),
    /// The tree may only read, for this reason.
    Reads(String),
}

pub(super) fn lease_for(root: &Path, writer: Option<&Writer>) -> Result<Right> {
    let is_fresh = is_fresh(root);
    if let Some(refusal) = writer_record::refusal(root, writer, is_fresh)? {
        return Ok(Right::Reads(refusal));
    }
    let lease = match take_lease(root) {
        Err(error) if is_read_only(&error) => {
            let why = "is on a read-only file system: make it writable, then mount again";
            return Ok(Right::Reads(why.to_owned()));
        }
        lease => lease?,
    };
    // Another tree may have taken over the archive just before the lease was taken.
    if let Some(refusal) = writer_record::refusal(root, writer, is_fresh)? {
        return Ok(Right::Reads(refusal));
    }
    writer.map_or(Ok(()), |writer| writer_record::record_opening(root, writer))?;
    Ok(Right::Writes(lease))
}

fn is_read_only(error: &Error) -> bool {
    matches!(error, Error::File { source, .. } if source.kind() == ErrorKind::ReadOnlyFilesystem)
}

/// Returns whether an archive has no containers; `false` if its directories can't be read.
pub(super) fn is_fresh(root: &Path) -> bool {
    let is_empty = |kind| {
        let place =
            ConfinedDir::at(root).and_then(|place| place.directory(directory_of(kind))).ok()?;
        Some(place.names().ok()?.next().is_none())
    };
    [ContainerKind::Files, ContainerKind::Tree].map(is_empty) == [Some(true), Some(true)]
}

pub(super) fn take_lease(root: &Path) -> Result<File> {
    let path = root.join(LEASE);
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let mut options = private::options();
    let options = options.read(true).create(true).truncate(false).custom_flags(flags);
    let opened = options.open(&path).and_then(regular);
    let lease = opened.map_err(Error::file(&path))?;
    let lease = lock(root, lease, FlockOperation::NonBlockingLockExclusive)?;
    // The lease is valid even if the archive has no space for the signature.
    if let Err(error) = sign(&lease) {
        tracing::debug!(%error, "{}: can't record the holder of the lease", path.display());
    }
    Ok(lease)
}

/// Takes the lease for reading. Some tools do not copy empty files, so a copy of an archive may
/// lack the lease file. No process writes to such a copy.
pub(super) fn share_lease(root: &Path) -> Result<Option<File>> {
    let path = root.join(LEASE);
    match ConfinedDir::at(root).and_then(|place| place.file(Path::new(LEASE))) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => {
            let lease = opened.map_err(Error::file(&path))?;
            lock(root, lease, FlockOperation::NonBlockingLockShared).map(Some)
        }
    }
}

fn lock(root: &Path, lease: File, operation: FlockOperation) -> Result<File> {
    let path = root.join(LEASE);
    match flock(&lease, operation) {
        Ok(()) => Ok(lease),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let holder = signature(&lease);
            let what = format!(
                "is being written by another fslab{holder}, or read by a rebuild or by another \
                 mounted tree of the tier"
            );
            Err(Error::NoArchive { path: root.to_owned(), what })
        }
        Err(error) => Err(Error::File { path, source: error.into() }),
    }
}

/// Writes the process and host of the holder to the lease, for the error messages of other
/// processes. The file's modification time shows when the lease was taken.
fn sign(lease: &File) -> io::Result<()> {
    let system = rustix::system::uname();
    let (pid, host) = (std::process::id(), system.nodename().to_string_lossy());
    lease.set_len(0)?;
    lease.write_all_at(format!("process {pid} on {host}\n").as_bytes(), 0)
}

/// Returns the holder's signature in a lease; empty if there was no space for it.
fn signature(lease: &File) -> String {
    let mut bytes = [0; 128];
    let count = lease.read_at(&mut bytes, 0).unwrap_or(0);
    let line = String::from_utf8_lossy(&bytes[..count]);
    let line: String = line.chars().take_while(|letter| !letter.is_control()).collect();
    if line.is_empty() { line } else { format!(": {line}") }
}
