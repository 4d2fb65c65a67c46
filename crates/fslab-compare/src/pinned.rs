//! Keeping a comparison on given processors: what moves between them measures the scheduler.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Error, Result};

/// This thread, and all threads and processes it starts, run on given processors until this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    before: Option<CpuSet>,
}

impl Pinned {
    /// Keeps to these processors; to no particular ones where there are none.
    ///
    /// # Errors
    /// Where there is no such processor, or this process may not use it.
    pub fn to(processors: &[usize]) -> Result<Self> {
        if processors.is_empty() {
            return Ok(Self { before: None });
        }
        let before = sched_getaffinity(None).map_err(|errno| refused(processors, &[], errno))?;
        let allowed = members(&before);
        let mut wanted = CpuSet::new();
        for processor in processors {
            if !allowed.contains(processor) {
                return Err(refused(processors, &allowed, rustix::io::Errno::INVAL));
            }
            wanted.set(*processor);
        }
        sched_setaffinity(None, &wanted).map_err(|errno| refused(processors, &allowed, errno))?;
        Ok(Self { before: Some(before) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = sched_setaffinity(None, before)
        {
            tracing::warn!(%error, "staying on the plan's processors");
        }
    }
}

fn members(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
}

fn refused(wanted: &[usize], allowed: &[usize], errno: rustix::io::Errno) -> Error {
    let why = std::io::Error::from(errno);
    Error::Failed(format!(
        "`processors` {wanted:?} of the plan: {why}; this process may use {allowed:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<usize> {
        members(&sched_getaffinity(None).unwrap())
    }

    #[test]
    fn a_thread_and_what_it_starts_keep_to_processors_for_a_while() {
        let before = own();
        let last = *before.last().unwrap();
        let pinned = Pinned::to(&[last]).unwrap();
        assert_eq!(own(), [last]);
        assert_eq!(std::thread::spawn(own).join().unwrap(), [last]);
        drop(pinned);
        assert_eq!(own(), before);
    }

    #[test]
    fn processors_that_are_not_there_are_named() {
        let error = Pinned::to(&[0, 1023]).unwrap_err().to_string();
        assert!(error.contains("[0, 1023]") && error.contains("may use [0"), "{error}");
    }
}
