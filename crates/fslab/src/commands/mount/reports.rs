//! Tells what the layers of a mount have counted, to whoever connects to its socket and may know.
//!
//! The answer is one JSON document; then the connection ends. Only the mounting user and root are
//! answered.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use fslab_layers::StackContext;
use serde_json::json;

use crate::runtime::{self, Socket};

/// Who asks and does not read is cut off after this.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Version of the document.
const VERSION: u32 = 1;

/// Answers from now on for the mount of a device number; `directory` is from
/// [`runtime::prepare`].
///
/// # Errors
/// Where the socket can't be made.
pub fn serve(
    context: StackContext,
    mount_point: &Path,
    device: (u32, u32),
    directory: &Path,
) -> Result<Socket> {
    let path = directory.join(runtime::socket_name(device));
    let listening = Socket::listen(directory, &path);
    let (socket, listener) = listening.with_context(|| path.display().to_string())?;
    let mount_point = mount_point.to_owned();
    let answer = move || {
        for stream in listener.incoming() {
            let told = stream.and_then(|stream| tell(stream, &context, &mount_point));
            if let Err(error) = told {
                tracing::debug!(%error, "answering `fslab stats`");
            }
        }
    };
    std::thread::Builder::new().name("fslab-reports".to_owned()).spawn(answer)?;
    Ok(socket)
}

/// Whether whoever connected is the mounting user or root.
pub(super) fn may_ask(stream: &UnixStream) -> std::io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    Ok(peer.is_root() || peer == rustix::process::geteuid())
}

fn tell(mut stream: UnixStream, context: &StackContext, mount_point: &Path) -> std::io::Result<()> {
    if !may_ask(&stream)? {
        return Ok(());
    }
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let document = json!({
        "version": VERSION,
        "mount_point": mount_point.to_string_lossy(),
        "layers": context.reports(),
    });
    stream.write_all(document.to_string().as_bytes())
}
