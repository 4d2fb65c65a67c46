//! How many requests the kernel sends to a file system in user space, whichever it is: the
//! kernel's own tracepoint counts them, by connection.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use fslab_sys::mounts::Mount;
use fslab_sys::tracepoint::{Counter, Tracepoint};

use crate::error::{Error, Result};

const TRACEPOINT: &str = "fuse/fuse_request_send";

/// Where tracefs usually is; it need not be mounted.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Counts the requests of one mount.
#[derive(Debug)]
pub(super) struct Requests {
    counter: Counter,
}

impl Requests {
    /// Begins to count those of what is mounted on a mount point. `None` where they can't be
    /// counted: without the privilege, on a kernel without the tracepoint, or for what is no
    /// FUSE mount. `work_directory` is where tracefs is mounted for a moment, if it isn't.
    pub fn of(mountpoint: &Path, work_directory: &Path) -> Option<Self> {
        let tracepoint = tracepoint(work_directory)?;
        let device = fs::metadata(mountpoint).ok()?.st_dev();
        // As the kernel writes a device number: 12 bits and 20 bits.
        let connection = (rustix::fs::major(device) << 20) | rustix::fs::minor(device);
        match Counter::new(tracepoint, &format!("connection == {connection}")) {
            Ok(counter) => Some(Self { counter }),
            Err(error) => {
                tracing::debug!("counting requests: {error}");
                None
            }
        }
    }

    /// How many so far.
    pub fn count(&self) -> Result<u64> {
        self.counter.count().map_err(Error::file(Path::new(TRACEFS)))
    }
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
