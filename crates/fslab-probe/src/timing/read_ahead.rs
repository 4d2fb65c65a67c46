//! `read-ahead-max` by timing. In a sequential read, a page whose read starts read-ahead takes
//! longer than pages that are already cached. The distance between such pages is the read-ahead
//! window.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Duration;

use super::{Times, Timing, method};
use crate::finding::{Jump, Method, Value};
use crate::ground::{Ground, Scratch};
use crate::steps::{NoPeriod, Period, period};

/// Sizes of the files that are read until one shows enough windows, in bytes.
const LENGTHS: [u64; 2] = [4 << 20, 16 << 20];

const ROUNDS: usize = 7;

/// A page read that takes more than this many times as long as the fastest one may have started
/// read-ahead.
const MAY_BE_SLOW: u64 = 4;

/// Pause after a slow read, so that read-ahead can finish and the next reads do not wait for it.
const ARRIVAL: Duration = Duration::from_millis(2);

pub(super) fn find(ground: &Ground, timing: &Timing<'_>) -> io::Result<Method> {
    const NAME: &str = "nanoseconds to read each page of a file, in order";
    let lengths = LENGTHS.into_iter().chain([ground.options.budget / 2]);
    let mut last = Method::failed(NAME, "the space budget (--budget) is too small", Vec::new());
    for length in lengths.filter(|length| *length <= ground.options.budget / 2) {
        let scratch = ground.fresh()?;
        scratch.fill(0, length)?;
        let times = passes(&scratch, length, timing)?;
        let found = period(&times);
        let page = rustix::param::page_size() as u64;
        let outcome = match &found {
            Ok(period) => Ok(Value::Bytes(period.length as u64 * page)),
            Err(no_period) => Err(no_period.to_string()),
        };
        let places: Vec<u64> = (0..times.len() as u64).map(|number| number * page).collect();
        last = method(NAME, outcome, &places, &times, timing.clock);
        // The times of single reads are dropped, because there are tens of thousands of them.
        last.samples.clear();
        let jump =
            |period: &Period| Jump { at: period.first as u64 * page, ticks: period.difference };
        last.jump = found.as_ref().ok().map(jump);
        if matches!(found, Ok(_) | Err(NoPeriod::Even)) {
            break;
        }
    }
    Ok(last)
}

fn passes(scratch: &Scratch, length: u64, timing: &Timing<'_>) -> io::Result<Times> {
    let mut times = vec![Vec::new(); length as usize / rustix::param::page_size()];
    for _ in 0..ROUNDS {
        scratch.make_cold()?;
        // The files are reopened, because a descriptor keeps read-ahead state.
        let (file, other) = (File::open(scratch.path())?, File::open(scratch.path())?);
        pass(&file, &other, timing, &mut times)?;
    }
    Ok(times)
}

fn pass(file: &File, other: &File, timing: &Timing<'_>, times: &mut Times) -> io::Result<()> {
    let mut buffer = vec![0; rustix::param::page_size()];
    let mut fastest = u64::MAX;
    for (number, times) in times.iter_mut().enumerate() {
        let offset = (number * buffer.len()) as u64;
        let read = timing.clock.ticks(|| file.read_exact_at(&mut buffer, offset))?;
        // A disturbed measurement can't be repeated, because the page is cached now.
        let Some(ticks) = read else { continue };
        times.push(ticks as f64);
        fastest = fastest.min(ticks);
        if ticks > MAY_BE_SLOW * fastest {
            sleep(ARRIVAL);
            warm_up(other, timing, &mut buffer)?;
        }
    }
    Ok(())
}

/// Makes some unrecorded reads, because the first reads after a sleep are slow even if their pages
/// are cached.
fn warm_up(other: &File, timing: &Timing<'_>, buffer: &mut [u8]) -> io::Result<()> {
    for _ in 0..8 {
        timing.clock.ticks(|| other.read_exact_at(buffer, 0))?;
    }
    Ok(())
}
