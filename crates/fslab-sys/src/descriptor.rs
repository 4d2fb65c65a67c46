//! Closes a descriptor and returns the result of close(2).

use std::os::fd::{IntoRawFd, OwnedFd};

use rustix::io::Result;

use crate::file_handle::check;

/// Closes a descriptor and returns errors of the file system, such as `EDQUOT` or `EIO` of delayed
/// writes. Dropping an `OwnedFd` would lose them.
///
/// # Errors
/// Errors of close(2). The descriptor is closed in any case.
pub fn close(descriptor: OwnedFd) -> Result<()> {
    // SAFETY: the descriptor was owned and its ownership ends here; it is closed exactly once.
    let answer = unsafe { libc::close(descriptor.into_raw_fd()) };
    check(libc::c_long::from(answer)).map(|_| ())
}
