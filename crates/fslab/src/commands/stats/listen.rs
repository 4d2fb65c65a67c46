//! `fslab stats --listen`: serves an endpoint for Prometheus.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use fslab_sys::signals::Interrupt;
use tiny_http::{Header, Method, Request, Response, Server};

use crate::exit::{Code, one_line};

/// Interval at which the server checks for signals.
const POLL: Duration = Duration::from_millis(200);

const CONTENT_TYPE: &str = "Content-Type: text/plain; version=0.0.4; charset=utf-8";

/// The address to listen on. Only programs on this machine can reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A loopback address with its port.
    Loopback(SocketAddr),
    /// The path of a Unix socket, which only its owner can use.
    Socket(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Socket(path.into()));
        }
        let address = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        match address.as_deref().unwrap_or(text).parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Loopback(address)),
            Ok(_) => Err("only loopback addresses are possible, such as 127.0.0.1:9730".to_owned()),
            Err(_) => Err("write 127.0.0.1:PORT, [::1]:PORT or unix:PATH".to_owned()),
        }
    }
}

/// Answers each request for `/metrics` with the result of `metrics`, until a signal arrives.
///
/// # Errors
/// Fails if the address can't be used.
pub fn serve(place: &Place, metrics: impl Fn() -> Result<String>) -> Result<()> {
    let interrupt =
        Interrupt::on_signals().context("can't install handlers for SIGINT and SIGTERM")?;
    let (server, _socket) = listen(place)?;
    match place {
        Place::Loopback(_) => {
            eprintln!("fslab: metrics at http://{}/metrics", server.server_addr())
        }
        Place::Socket(path) => eprintln!("fslab: metrics at {}", path.display()),
    }
    while !interrupt.is_raised() {
        match server.recv_timeout(POLL) {
            Ok(Some(request)) => answer(request, &metrics),
            Ok(None) => {}
            Err(error) => return Err(error).context("can't wait for a request"),
        }
    }
    Ok(())
}

/// A socket in the file system. It is removed when dropped.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            eprintln!("fslab: can't remove {}: {error}", self.0.display());
        }
    }
}

fn listen(place: &Place) -> Result<(Server, Option<Socket>)> {
    let refused = |shown: String| {
        move |error: std::io::Error| {
            Code::BadInput.error(format!("can't listen on {shown}: {error}"))
        }
    };
    let unusable = |error| anyhow!("can't serve metrics: {error}");
    match place {
        Place::Loopback(address) => {
            let listener = TcpListener::bind(address).map_err(refused(address.to_string()))?;
            Ok((Server::from_listener(listener, None).map_err(unusable)?, None))
        }
        Place::Socket(path) => {
            let (listener, socket) = bind(path).map_err(refused(path.display().to_string()))?;
            Ok((Server::from_listener(listener, None).map_err(unusable)?, Some(socket)))
        }
    }
}

fn bind(path: &Path) -> std::io::Result<(UnixListener, Socket)> {
    let listener = match UnixListener::bind(path) {
        // A killed server left this socket behind.
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_left_over(path) => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    let socket = Socket(path.to_owned());
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok((listener, socket))
}

/// Returns whether a path is a socket on which no process listens.
fn is_left_over(path: &Path) -> bool {
    matches!(UnixStream::connect(path), Err(error) if error.kind() == ErrorKind::ConnectionRefused)
        && path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
}

fn answer(request: Request, metrics: &impl Fn() -> Result<String>) {
    let is_known = *request.method() == Method::Get && request.url() == "/metrics";
    let (text, status) = match is_known.then(metrics) {
        None => ("metrics are at /metrics\n".to_owned(), 404),
        Some(Ok(text)) => (text, 200),
        Some(Err(error)) => (format!("{}\n", one_line(&error)), 503),
    };
    let mut response = Response::from_string(text).with_status_code(status);
    if let Ok(header) = Header::from_str(CONTENT_TYPE) {
        response = response.with_header(header);
    }
    // The client may have disconnected.
    if let Err(error) = request.respond(response) {
        tracing::debug!(%error, "a request was not answered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unix_sockets_and_loopback_addresses_are_accepted() {
        let parsed = |text: &str| text.parse::<Place>();
        assert_eq!(parsed("unix:/run/a"), Ok(Place::Socket("/run/a".into())));
        assert_eq!(parsed("localhost:9730"), parsed("127.0.0.1:9730"));
        assert!(parsed("[::1]:9730").is_ok());
        for text in ["0.0.0.0:9730", "192.0.2.1:80", "unix:", "9730", "[::]:1"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
