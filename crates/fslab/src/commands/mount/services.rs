//! Asks layers to do something, for whoever connects to the socket of one and may ask.
//!
//! A question is one line; the answer is lines until the connection ends. Who closes it is done
//! with it, and what was asked for ends. Each question has a thread of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use fslab_layers::{Service, StackContext};

use super::reports::may_ask;
use crate::runtime::{self, Socket};

/// No question of ours is longer.
const QUESTION_BYTES_MAX: u64 = 64 << 20;

/// Who asks and does not read is cut off after this.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers from now on for the layers of a mount that can be asked; `directory` is from
/// [`runtime::prepare`].
///
/// # Errors
/// Where a socket can't be made.
pub fn serve(context: &StackContext, device: (u32, u32), directory: &Path) -> Result<Vec<Socket>> {
    let services = context.services();
    services.into_iter().map(|service| serve_one(service, device, directory)).collect()
}

fn serve_one(service: Arc<dyn Service>, device: (u32, u32), directory: &Path) -> Result<Socket> {
    let path = directory.join(runtime::service_socket_name(device, service.name()));
    let listening = Socket::listen(directory, &path);
    let (socket, listener) = listening.with_context(|| path.display().to_string())?;
    let answer = move || {
        for stream in listener.incoming() {
            let service = Arc::clone(&service);
            let asked = stream.and_then(|stream| {
                let thread = std::thread::Builder::new().name("fslab-service".to_owned());
                thread.spawn(move || answer_or_say(&stream, &*service))
            });
            if let Err(error) = asked {
                tracing::warn!(%error, "a layer could not be asked");
            }
        }
    };
    std::thread::Builder::new().name("fslab-services".to_owned()).spawn(answer)?;
    Ok(socket)
}

fn answer_or_say(stream: &UnixStream, service: &dyn Service) {
    if let Err(error) = answer(stream, service) {
        tracing::debug!(%error, "answering for layer {}", service.name());
    }
}

fn answer(stream: &UnixStream, service: &dyn Service) -> std::io::Result<()> {
    if !may_ask(stream)? {
        return Ok(());
    }
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut question = String::new();
    BufReader::new(stream).take(QUESTION_BYTES_MAX).read_line(&mut question)?;
    let is_gone = Arc::new(AtomicBool::new(false));
    let (listener, gone) = (stream.try_clone()?, Arc::clone(&is_gone));
    let listen = move || {
        // Nothing more is said; the end of it means that nobody listens.
        let ended = (&listener).read(&mut [0]);
        tracing::debug!(?ended, "a question was given up or answered");
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
