//! Waiting for another fslab that uses the lower directory.
//!
//! A daemon holds its lower directory until it has written everything back, and the mount is gone
//! before that: a new mount of the same directory has to wait for it. The lock shows only that
//! somebody holds the directory, so that a living mount is waited for as well.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// How long to wait without a word.
const SILENT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until nobody holds a directory, or `patience` is over; returns whether it is free now.
///
/// A lock is taken for a moment, and lies on `directory` until that is closed.
pub fn until_free(directory: impl AsFd, patience: Duration) -> bool {
    let (start, mut is_said) = (Instant::now(), false);
    loop {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return true,
            Err(Errno::AGAIN) if start.elapsed() < patience => {}
            Err(Errno::AGAIN) => return false,
            // Where there are no locks, nobody holds one.
            Err(_) => return true,
        }
        if start.elapsed() > SILENT && !is_said {
            eprintln!("fslab: waiting for another fslab that uses the lower directory");
            is_said = true;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_directory_is_free_when_its_holder_has_ended() {
        let lower = tempfile::tempdir().unwrap();
        let holder = File::open(lower.path()).unwrap();
        holder.lock().unwrap();
        let opened = || File::open(lower.path()).unwrap();
        assert!(!until_free(opened(), Duration::ZERO));
        let ending = thread::spawn(move || {
            thread::sleep(Duration::from_millis(60));
            holder.unlock().unwrap();
        });
        assert!(until_free(opened(), Duration::from_secs(60)));
        ending.join().unwrap();
    }
}
