//! Passes requests from authorised clients of a socket to a service, such as that of a layer.
//!
//! A request is one line. The answer consists of lines until the connection ends. If the client
//! closes the connection, the requested work is cancelled. Each request has its own thread.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use fslab_layers::{Service, StackContext};

use crate::runtime::Socket;

/// Maximum length of a request in bytes. Requests from fslab itself are shorter.
const QUESTION_BYTES_MAX: u64 = 64 << 20;

/// Time limit for each write to a client.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts to answer requests to the layers of a mount that have a service. `directory` is a result
/// of [`runtime::prepare`](crate::runtime::prepare).
///
/// # Errors
/// Fails if a socket can't be created.
pub fn serve_layers(
    context: &StackContext,
    device: (u32, u32),
    directory: &Path,
) -> Result<Vec<Socket>> {
    context.services().into_iter().map(|service| serve(service, device, directory)).collect()
}

/// Starts to answer requests to one service.
///
/// # Errors
/// Fails in the same cases as [`serve_layers`].
pub fn serve(service: Arc<dyn Service>, device: (u32, u32), directory: &Path) -> Result<Socket> {
    Socket::answer(directory, device, service.name(), move |stream| {
        let service = Arc::clone(&service);
        let work = move || {
            if let Err(error) = answer(&stream, &*service) {
                tracing::debug!(%error, "can't answer a request to {}", service.name());
            }
        };
        let thread = std::thread::Builder::new().name("fslab-service".to_owned()).spawn(work);
        let say = |error: &_| tracing::warn!(%error, "can't start a thread for a request");
        thread.inspect_err(say).map(drop)
    })
}

fn answer(stream: &UnixStream, service: &dyn Service) -> std::io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut question = String::new();
    BufReader::new(stream).take(QUESTION_BYTES_MAX).read_line(&mut question)?;
    let is_gone = Arc::new(AtomicBool::new(false));
    let (listener, gone) = (stream.try_clone()?, Arc::clone(&is_gone));
    let listen = move || {
        // The client sends nothing more, so the end of its stream means that it disconnected.
        let ended = (&listener).read(&mut [0]);
        tracing::debug!(?ended, "the client of a request has disconnected");
        gone.store(true, Ordering::SeqCst);
    };
    std::thread::Builder::new().name("fslab-listener".to_owned()).spawn(listen)?;
    service.serve(&question, &is_gone, &mut |line| {
        let mut out = stream;
        let told = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n"));
        told.is_ok() && !is_gone.load(Ordering::SeqCst)
    });
    stream.shutdown(std::net::Shutdown::Both)
}
