//! Notifies a service manager that the mount works. It sends one message to the socket named in
//! `NOTIFY_SOCKET`, as described in sd_notify(3). Without this variable, nothing is sent.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use anyhow::{Context, Result};

const VARIABLE: &str = "NOTIFY_SOCKET";

/// Sends `READY=1` if `NOTIFY_SOCKET` is set.
pub fn ready() -> Result<()> {
    match std::env::var_os(VARIABLE) {
        Some(socket) if !socket.is_empty() => send(&socket)
            .with_context(|| format!("can't notify {} that the mount works", socket.display())),
        _ => Ok(()),
    }
}

fn send(socket: &OsStr) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1\n", &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_sent_to_path_and_abstract_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("fslab-notify-{}", std::process::id());
        let hidden = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let sockets = [
            (path.clone().into_os_string(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{name}").into(), UnixDatagram::bind_addr(&hidden).unwrap()),
        ];
        for (socket, listener) in sockets {
            send(&socket).unwrap();
            let mut buffer = [0; 100];
            let length = listener.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1\n");
        }
        assert!(send(folder.path().join("nobody").as_os_str()).is_err());
    }
}
