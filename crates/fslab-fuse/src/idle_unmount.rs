//! Idle unmount: a thread unmounts a file system that no program has used for a while.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::server::Server;
use crate::unmount::Unmounter;

/// Maximum interval between checks of an idle mount.
const IDLE_CHECK_MAX: Duration = Duration::from_secs(10);

/// Starts a thread that unmounts the file system after `timeout` without use. The thread exits when
/// the mount ends.
///
/// # Errors
/// Errors of starting the thread.
pub(crate) fn unmount_when_idle(
    unmounter: Unmounter,
    server: Arc<Server>,
    timeout: Duration,
) -> io::Result<()> {
    let check = (timeout / 4).clamp(Duration::from_millis(50), IDLE_CHECK_MAX);
    std::thread::Builder::new().name("fslab-idle".to_owned()).spawn(move || {
        let mut idle_since = Instant::now();
        loop {
            std::thread::sleep(check);
            if !unmounter.is_mounted() {
                return;
            }
            if server.take_activity() {
                idle_since = Instant::now();
            } else if idle_since.elapsed() >= timeout {
                match unmounter.unmount_if_unused() {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => tracing::warn!(%error, "can't unmount an idle mount"),
                }
            }
        }
    })?;
    Ok(())
}
