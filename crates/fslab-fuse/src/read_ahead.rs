//! Sets the read-ahead of a mount. The protocol offers 128 KiB, and a server can only lower this
//! value. The mount's entry in sysfs accepts more.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};

/// Read-ahead in KiB: one request of the largest size.
const READ_AHEAD_KIB: u32 = 1024;

/// Raises the read-ahead of the file system mounted at a path, if the privileges allow it.
pub(crate) fn raise(mount_point: &Path) {
    let wanted = READ_AHEAD_KIB.to_string();
    let written =
        device_at(mount_point).map_err(std::io::Error::from).and_then(|(major, minor)| {
            std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), wanted)
        });
    match written {
        Ok(()) => tracing::debug!(kib = READ_AHEAD_KIB, "read-ahead raised"),
        Err(error) => tracing::info!(%error, "the read-ahead remains at the kernel's 128 KiB"),
    }
}

/// The device number of the mount at a path, found without a request to the file system.
pub(crate) fn device_at(mount_point: &Path) -> rustix::io::Result<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let stat = rustix::fs::statx(CWD, mount_point, flags, StatxFlags::empty())?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}
