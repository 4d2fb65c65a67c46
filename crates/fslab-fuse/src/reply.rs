//! Sends replies to requests.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fslab_vfs::{Errno, Error};
use zerocopy::{Immutable, IntoBytes};

use crate::convert::to_errno;
use crate::protocol::opcode::Opcode;
use crate::protocol::request::InHeader;
use crate::transport::Transport;

/// Sends a reply; returns whether it arrived.
pub(crate) fn send(transport: &dyn Transport, unique: u64, answer: Result<&[u8], Errno>) -> bool {
    let sent = transport.reply(unique, answer);
    match sent {
        // The request was aborted before this reply, so no caller waits for it.
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => tracing::error!(%error, unique, "the kernel refused a reply"),
    }
    sent.is_ok()
}

/// Completes a request on a separate thread and sends the reply, while the thread that read the
/// request serves others.
pub(crate) fn send_later<T: IntoBytes + Immutable>(
    transport: &dyn Transport,
    opcode: Opcode,
    header: InHeader,
    body: impl FnOnce() -> fslab_vfs::Result<T>,
) {
    let done = guarded(opcode, header, body);
    send(transport, header.unique, done.as_ref().map(IntoBytes::as_bytes).map_err(|error| *error));
}

/// Runs an operation. A panic becomes `EIO` for this request only, and is logged.
pub(crate) fn guarded<T>(
    opcode: Opcode,
    header: InHeader,
    body: impl FnOnce() -> fslab_vfs::Result<T>,
) -> Result<T, Errno> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            if matches!(error, Error::Damaged { .. }) {
                tracing::error!(operation = opcode.name(), %error, "found damaged data");
            }
            Err(to_errno(opcode.name(), &error))
        }
        Err(_) => {
            tracing::error!(
                operation = opcode.name(),
                ?header,
                "the file system panicked; this request fails with EIO"
            );
            Err(Errno::IO)
        }
    }
}
