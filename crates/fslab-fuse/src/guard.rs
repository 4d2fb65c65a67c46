//! Runs one operation so that neither an error nor a panic of a file system gets lost.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fslab_vfs::Error;

use crate::convert::to_errno;

/// Runs an operation; a panic becomes `EIO` for this request alone, and is logged with it.
pub(crate) fn run<T>(
    operation: &'static str,
    unique: u64,
    body: impl FnOnce() -> fslab_vfs::Result<T>,
) -> Result<T, fuser::Errno> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            if matches!(error, Error::Damaged { .. }) {
                tracing::error!(operation, %error, "damaged");
            }
            Err(to_errno(operation, &error))
        }
        Err(_) => {
            tracing::error!(
                operation,
                unique,
                "the file system panicked; this request fails with EIO"
            );
            Err(fuser::Errno::EIO)
        }
    }
}
