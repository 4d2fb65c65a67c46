//! Pins a comparison to given processors. Otherwise the scheduler could move it to other processors
//! during a measurement.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Error, Result};

/// Pins this thread, and all threads and processes that it starts, to given processors until
/// dropped.
#[derive(Debug)]
pub struct Pinned {
    before: Option<CpuSet>,
}

impl Pinned {
    /// Pins this thread to a plan's processors. An empty list changes nothing.
    ///
    /// # Errors
    /// Fails if a processor does not exist, or this process may not use it.
    pub(crate) fn to(processors: &[usize]) -> Result<Self> {
        if processors.is_empty() {
            return Ok(Self { before: None });
        }
        Self::on(processors).map_err(|why| {
            let allowed = allowed_processors().unwrap_or_default();
            Error::Failed(format!(
                "can't use the plan's `processors` {processors:?}: {why}; this process may use \
                 {allowed:?}"
            ))
        })
    }

    /// Pins this thread to these processors.
    ///
    /// # Errors
    /// Fails if a processor does not exist, or this process may not use it.
    pub fn on(processors: &[usize]) -> io::Result<Self> {
        let (before, allowed) = (sched_getaffinity(None)?, allowed_processors()?);
        let mut wanted = CpuSet::new();
        for processor in processors {
            if !allowed.contains(processor) {
                return Err(rustix::io::Errno::INVAL.into());
            }
            wanted.set(*processor);
        }
        sched_setaffinity(None, &wanted)?;
        Ok(Self { before: Some(before) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = sched_setaffinity(None, before)
        {
            tracing::warn!(%error, "can't restore the processor affinity from before the run");
        }
    }
}

/// Returns the processors that this thread may run on.
///
/// # Errors
/// Returns the system's error.
pub fn allowed_processors() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<usize> {
        allowed_processors().unwrap()
    }

    #[test]
    fn pinning_covers_child_threads_and_ends_on_drop() {
        let before = own();
        let last = *before.last().unwrap();
        let pinned = Pinned::to(&[last]).unwrap();
        assert_eq!(own(), [last]);
        assert_eq!(std::thread::spawn(own).join().unwrap(), [last]);
        drop(pinned);
        assert_eq!(own(), before);
    }

    #[test]
    fn error_names_the_missing_processors() {
        let error = Pinned::to(&[0, 1023]).unwrap_err().to_string();
        assert!(error.contains("[0, 1023]") && error.contains("may use [0"), "{error}");
    }
}
