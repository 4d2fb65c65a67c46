//! Reports whether a daemon has ended successfully. `fslab umount` connects to a socket before it
//! unmounts, and waits for one line. The daemon sends this line before it exits. If the connection
//! ends without a line, the daemon was killed.

use std::io::{ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::exit::one_line;
use crate::runtime::{ENDING, Socket};

/// The line for success: all data was written to the lower file system.
pub const DONE: &str = "done";

/// Time limit for sending the result to a client.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// The clients that wait for the result of one mount's daemon.
pub struct Ending {
    waiting: Arc<Mutex<Waiting>>,
}

struct Waiting {
    listener: UnixListener,
    readers: Vec<UnixStream>,
}

impl Ending {
    /// Makes the socket, and starts a thread that accepts clients. `directory` is a result of
    /// [`runtime::prepare`](crate::runtime::prepare).
    ///
    /// # Errors
    /// Fails if the socket or the thread can't be created.
    pub fn offer(device: (u32, u32), directory: &Path) -> Result<(Self, Socket)> {
        let (socket, listener) = Socket::listen(directory, device, ENDING)?;
        listener.set_nonblocking(true)?;
        let asked = listener.try_clone()?;
        let waiting = Arc::new(Mutex::new(Waiting { listener, readers: Vec::new() }));
        let accepting = Arc::clone(&waiting);
        // This clone of the listener is polled without the lock, which is only held to accept
        // clients.
        let accept = move || {
            while wait_for_reader(&asked) {
                accepting.lock().accept();
            }
        };
        std::thread::Builder::new().name("fslab-ending".to_owned()).spawn(accept)?;
        Ok((Self { waiting }, socket))
    }

    /// Sends the result to all waiting clients. Call this just before the daemon exits.
    pub fn tell(&self, outcome: &Result<()>) {
        let line = outcome.as_ref().map_or_else(one_line, |()| DONE.to_owned());
        let mut waiting = self.waiting.lock();
        waiting.accept();
        for mut reader in waiting.readers.drain(..) {
            if let Err(error) = writeln!(reader, "{line}") {
                tracing::debug!(%error, "can't send the result of the daemon to a client");
            }
        }
    }
}

/// Waits until a client connects. Returns `false` if poll(2) fails.
fn wait_for_reader(listener: &UnixListener) -> bool {
    loop {
        match poll(&mut [PollFd::new(listener, PollFlags::IN)], None::<&Timespec>) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return polled.is_ok(),
        }
    }
}

impl Waiting {
    /// Accepts new clients, and drops clients that have closed their connection.
    fn accept(&mut self) {
        self.readers.retain(|reader| !has_left(reader));
        loop {
            match self.listener.accept() {
                Ok((reader, _)) => match reader.set_write_timeout(Some(WRITE_TIMEOUT)) {
                    Ok(()) => self.readers.push(reader),
                    Err(error) => tracing::debug!(%error, "can't set a time limit for a client"),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::debug!(%error, "can't accept a client");
                    // If the process has no free descriptor, an immediate retry would fail again.
                    return std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
}

fn has_left(reader: &UnixStream) -> bool {
    let mut polled = [PollFd::new(reader, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|_| polled[0].revents().contains(PollFlags::HUP))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn every_connected_reader_receives_the_outcome() {
        for (outcome, told) in
            [(Ok(()), "done\n"), (Err(anyhow::anyhow!("no space\nleft")), "no space left\n")]
        {
            let directory = tempfile::tempdir().unwrap();
            let (ending, _socket) = Ending::offer((0, 7), directory.path()).unwrap();
            let path = directory.path().join("0-7.ending.sock");
            let connect = || UnixStream::connect(&path).unwrap();
            (0..300).for_each(|_| drop(connect()));
            let mut readers = [connect(), connect()];
            ending.tell(&outcome);
            assert!(ending.waiting.lock().readers.is_empty());
            for reader in &mut readers {
                let mut line = String::new();
                reader.read_to_string(&mut line).unwrap();
                assert_eq!(line, told);
            }
        }
    }
}
