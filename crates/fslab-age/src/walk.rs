//! Walks through a directory tree of the host with several threads. Each thread takes a waiting
//! directory and adds its subdirectories.

use std::path::{Path, PathBuf};

use parking_lot::{Condvar, Mutex};

use crate::error::Result;

/// The waiting directories, and the number of threads that may add more.
struct Line {
    waiting: Vec<PathBuf>,
    busy: usize,
    failed: bool,
}

/// Calls `visit` for the root and for every directory that a call returns. Returns the data that
/// each thread collected.
///
/// # Errors
/// Returns the first error of `visit`; the other threads then stop.
pub(crate) fn walk<T: Send>(
    root: &Path,
    threads: usize,
    empty: impl Fn() -> T + Sync,
    visit: impl Fn(&Path, &mut T) -> Result<Vec<PathBuf>> + Sync,
) -> Result<Vec<T>> {
    let line = Line { waiting: vec![root.to_owned()], busy: 0, failed: false };
    let (line, came) = (Mutex::new(line), Condvar::new());
    let work = || -> Result<T> {
        let mut gathered = empty();
        while let Some(path) = next(&line, &came) {
            let found = visit(&path, &mut gathered);
            let mut line = line.lock();
            line.busy -= 1;
            line.failed |= found.is_err();
            line.waiting.extend(found.as_ref().map_or(&[][..], Vec::as_slice).iter().cloned());
            came.notify_all();
            drop(line);
            found?;
        }
        Ok(gathered)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.clamp(1, 256)).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Waits for the next directory; returns `None` if the walk is finished or has failed.
fn next(line: &Mutex<Line>, came: &Condvar) -> Option<PathBuf> {
    let mut line = line.lock();
    came.wait_while(&mut line, |line| line.waiting.is_empty() && line.busy > 0 && !line.failed);
    let path = line.waiting.pop().filter(|_| !line.failed)?;
    line.busy += 1;
    Some(path)
}

/// Turns the error for a missing file into `None`, because files may be removed during a walk.
pub(crate) fn present<T>(answer: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
