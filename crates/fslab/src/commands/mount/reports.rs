//! Tells what the layers of a mount have counted, to whoever connects to its socket and may know.
//!
//! The answer is one JSON document; then the connection ends.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use fslab_layers::StackContext;
use serde_json::json;

use crate::runtime::{COUNTS, Socket};

/// Who asks and does not read is cut off after this.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Version of the document.
const VERSION: u32 = 1;

/// Answers from now on for the mount of a device number; `directory` is from
/// [`runtime::prepare`](crate::runtime::prepare).
///
/// # Errors
/// Where the socket can't be made.
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
