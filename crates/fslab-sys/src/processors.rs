//! The machine's processors, and those that a thread may use.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Number of processors that the machine may have, including those currently offline.
///
/// # Errors
/// `/sys` can't be read.
pub fn possible_count() -> io::Result<usize> {
    Ok(parse(&std::fs::read_to_string("/sys/devices/system/cpu/possible")?).count())
}

/// The numbers of the processors that are online.
///
/// # Errors
/// `/sys` can't be read.
pub fn online() -> io::Result<Vec<usize>> {
    Ok(parse(&std::fs::read_to_string("/sys/devices/system/cpu/online")?).collect())
}

/// Whether this thread may run on every online processor.
///
/// # Errors
/// `/sys` can't be read.
pub fn may_run_on_all() -> io::Result<bool> {
    let allowed = sched_getaffinity(None)?;
    Ok(online()?.iter().all(|number| *number < CpuSet::MAX_CPU && allowed.is_set(*number)))
}

/// Binds this thread to a processor.
///
/// # Errors
/// `EINVAL` for a processor that is offline or not allowed for the thread.
pub fn run_on(number: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    if number >= CpuSet::MAX_CPU {
        return Err(rustix::io::Errno::INVAL.into());
    }
    only.set(number);
    Ok(sched_setaffinity(None, &only)?)
}

/// Parses a list of numbers such as `0-3,8`.
fn parse(list: &str) -> impl Iterator<Item = usize> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert!(parse("0\n").eq([0]));
        assert!(parse("0-2,5,7-8\n").eq([0, 1, 2, 5, 7, 8]));
        assert!(parse("7\n").eq([7]));
        assert!(parse("\n").eq([]));
    }

    #[test]
    fn thread_is_bound_only_to_an_existing_processor() {
        let last = *online().unwrap().last().unwrap();
        assert!(last < possible_count().unwrap());
        std::thread::spawn(move || {
            if !may_run_on_all().unwrap() {
                return;
            }
            run_on(last).unwrap();
            assert_eq!(rustix::thread::sched_getcpu(), last);
            assert!(run_on(CpuSet::MAX_CPU).is_err());
        })
        .join()
        .unwrap();
    }
}
