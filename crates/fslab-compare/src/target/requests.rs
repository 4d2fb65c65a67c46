//! Counts the requests that the kernel sends to a file system in user space, by kind. A tracepoint
//! of the kernel counts them separately for each FUSE connection.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use fslab_sys::tracepoint::{Counter, Tracepoint};

use crate::tracefs::Tracefs;

pub(super) const TRACEPOINT: &str = "fuse/fuse_request_send";

/// Starts to count the requests to the file system on a mount point. Returns `None` if they can't
/// be counted: the privilege, bpf(2) or the tracepoint is missing, or it is not a FUSE mount. If
/// tracefs is not mounted, it is mounted temporarily in `work_directory`.
pub(super) fn counter(mountpoint: &Path, work_directory: &Path) -> Option<Counter> {
    let tracefs = Tracefs::open(work_directory, "tracefs-requests").ok()?;
    let tracepoint = Tracepoint::find(tracefs.root(), TRACEPOINT).ok()?;
    let device = fs::metadata(mountpoint).ok()?.st_dev();
    // The kernel's encoding of a device number: 12 bits for the major number, 20 bits for the
    // minor.
    let connection = (rustix::fs::major(device) << 20) | rustix::fs::minor(device);
    let counter = Counter::new(&tracepoint, ("connection", connection), "opcode");
    counter.inspect_err(|error| tracing::debug!("can't count requests: {error}")).ok()
}
