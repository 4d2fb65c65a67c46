//! Closing a descriptor and hearing what close(2) answers.

use std::os::fd::{IntoRawFd, OwnedFd};

use rustix::io::Result;

use crate::file_handle::check;

/// Closes a descriptor and answers what the file system has to report, such as `EDQUOT` or `EIO`
/// of delayed writes; dropping an `OwnedFd` loses that.
///
/// # Errors
/// What close(2) answers. The descriptor is closed in any case.
pub fn close(descriptor: OwnedFd) -> Result<()> {
    // SAFETY: the descriptor was owned and its ownership ends here; it is closed exactly once.
    let answer = unsafe { libc::close(descriptor.into_raw_fd()) };
    check(libc::c_long::from(answer)).map(|_| ())
}
