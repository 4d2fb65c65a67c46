//! How many requests the kernel sends to a file system in user space, whichever it is: the
//! kernel's own tracepoint counts them, by connection.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use fslab_sys::mounts::Mount;
use fslab_sys::tracepoint::{Counter, Tracepoint};

const TRACEPOINT: &str = "fuse/fuse_request_send";

/// Where tracefs usually is; it need not be mounted.
pub(super) const TRACEFS: &str = "/sys/kernel/tracing";

/// Counts the requests to what is mounted on a mount point, from now on. `None` where they can't be
/// counted: without the privilege, on a kernel without the tracepoint, or for what is no FUSE
/// mount. `work_directory` is where tracefs is mounted for a moment, if it isn't.
pub(super) fn counter(mountpoint: &Path, work_directory: &Path) -> Option<Counter> {
    let tracepoint = tracepoint(work_directory)?;
    let device = fs::metadata(mountpoint).ok()?.st_dev();
    // As the kernel writes a device number: 12 bits and 20 bits.
    let connection = (rustix::fs::major(device) << 20) | rustix::fs::minor(device);
    let counter = Counter::new(tracepoint, &format!("connection == {connection}"));
    counter.inspect_err(|error| tracing::debug!("counting requests: {error}")).ok()
}

fn tracepoint(work_directory: &Path) -> Option<Tracepoint> {
    Tracepoint::find(Path::new(TRACEFS), TRACEPOINT).ok().or_else(|| {
        let place = work_directory.join("tracefs");
        fs::create_dir_all(&place).ok()?;
        let mount = Mount::new(Path::new("nodev"), &place, "tracefs", "").ok()?;
        let found = Tracepoint::find(&place, TRACEPOINT).ok();
        if let Err(error) = mount.unmount() {
            tracing::warn!("{error}");
        }
        found
    })
}
