//! Sends the counters of a mount's layers to authorised clients of its socket.
//!
//! The answer is one JSON document, after which the connection ends.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use fslab_layers::StackContext;
use serde_json::json;

use crate::runtime::{COUNTS, Socket};

/// Time limit for sending the document to a client.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

const VERSION: u32 = 1;

/// Starts to answer requests for the counters of the mount with this device number. `directory` is
/// a result of [`runtime::prepare`](crate::runtime::prepare).
///
/// # Errors
/// Fails if the socket can't be created.
pub fn serve(
    context: StackContext,
    mount_point: &Path,
    device: (u32, u32),
    directory: &Path,
) -> Result<Socket> {
    let mount_point = mount_point.to_owned();
    Socket::answer(directory, device, COUNTS, move |mut stream| {
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let document = json!({
            "version": VERSION,
            "mount_point": mount_point.to_string_lossy(),
            "layers": context.reports(),
        });
        stream.write_all(document.to_string().as_bytes())
    })
}
