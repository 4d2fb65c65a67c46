//! Waits for another fslab that uses the lower file system.
//!
//! A daemon holds the lock of its lower directory or image until it has written back all data. Its
//! mount ends earlier, so a new mount waits for the lock. The lock does not show whether the other
//! mount still exists. So a new mount waits in both cases, up to a time limit.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fslab_layers::Leaf;

use crate::exit;

/// Time after which a message about the wait is printed.
const SILENT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// Repeats an attempt while another fslab uses the lower file system, for at most `patience`.
///
/// # Errors
/// Returns the error of the last attempt.
pub fn while_in_use<T>(
    lower: &Leaf,
    patience: Duration,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let (start, mut is_said) = (Instant::now(), false);
    loop {
        match attempt() {
            Err(error) if exit::is_in_use(&error) && start.elapsed() < patience => {}
            done => return done,
        }
        if start.elapsed() > SILENT && !is_said {
            let patience = patience.as_secs_f64();
            eprintln!("fslab: waiting up to {patience} s for another fslab that uses {lower}");
            is_said = true;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_use() -> anyhow::Error {
        fslab_layers::Error::InUse { layer: "zstd" }.into()
    }

    #[test]
    fn mount_is_retried_only_while_its_leaf_is_in_use() {
        let mut left = 3;
        let mut attempt = || {
            left -= 1;
            if left > 0 { Err(in_use()) } else { Ok(left) }
        };
        let patience = Duration::from_secs(60);
        assert_eq!(while_in_use(&Leaf::Memory, patience, &mut attempt).unwrap(), 0);
        let mut tries = 0;
        let mut count = |error: fn() -> anyhow::Error| {
            tries += 1;
            Err::<(), _>(error())
        };
        while_in_use(&Leaf::Memory, patience, || count(|| anyhow::anyhow!("other"))).unwrap_err();
        while_in_use(&Leaf::Memory, Duration::ZERO, || count(in_use)).unwrap_err();
        assert_eq!(tries, 2);
    }
}
