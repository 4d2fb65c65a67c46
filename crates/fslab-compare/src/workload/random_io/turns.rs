//! The sequence of requests and their due times. Several workers take requests from one sequence.
//!
//! In a closed loop, a request begins when the worker's previous one has completed. A target that
//! stalls receives fewer requests, so the stall shows in few latencies. In an open loop, each
//! request is due at a planned time, as if it came from an independent user. The time that it waits
//! for earlier requests is part of its latency.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::distr::Distribution;
use rand_distr::Exp1;
use rand_pcg::Pcg64;

use crate::workload::random_access::{Accesses, Draws, Visit};
use fslab_sys::usage::Instant;

/// The limit at which a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    /// After this number of requests.
    Count(u64),
    /// After this time.
    Time(Duration),
}

/// The times at which requests are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrivals {
    /// The mean rate, in requests per second.
    pub rate: f64,
    /// Whether arrivals are independent (a Poisson process) rather than at even intervals.
    pub are_random: bool,
}

/// A request, and its due time since the start. In a closed loop there is no due time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub visit: Visit,
    pub due: Option<Duration>,
}

/// The sequence of requests of one kind of workers.
pub(super) struct Turns {
    started: Instant,
    limit: Limit,
    arrivals: Option<Arrivals>,
    next: Mutex<Next>,
}

struct Next {
    draws: Draws,
    intervals: Pcg64,
    due: f64,
    taken: u64,
}

impl Turns {
    /// Makes a sequence; its time starts now.
    pub fn new(accesses: &Accesses, limit: Limit, arrivals: Option<Arrivals>) -> Self {
        let next = Next {
            draws: Draws::new(accesses),
            intervals: Pcg64::seed_from_u64(!accesses.seed),
            due: 0.0,
            taken: 0,
        };
        Self { started: Instant::now(), limit, arrivals, next: Mutex::new(next) }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the number of requests taken.
    pub fn taken(&self) -> u64 {
        self.next.lock().taken
    }

    /// Returns the next request, or `None` after the last.
    pub fn take(&self) -> Option<Turn> {
        let mut next = self.next.lock();
        let due = self.arrivals.map(|arrivals| next.due(arrivals));
        let is_over = match self.limit {
            Limit::Count(count) => next.taken >= count,
            Limit::Time(time) => due.unwrap_or_else(|| self.elapsed()) >= time,
        };
        if is_over {
            return None;
        }
        next.taken += 1;
        if let Some(arrivals) = self.arrivals {
            next.pass(arrivals);
        }
        Some(Turn { visit: next.draws.next()?, due })
    }

    /// Returns the blocks written by the requests taken so far.
    pub fn written(&self, accesses: &Accesses) -> HashSet<u64> {
        let taken = Draws::new(accesses).take(self.taken() as usize);
        taken.filter(|visit| visit.writes).map(|visit| visit.block).collect()
    }
}

impl Next {
    /// Returns the due time of the next request. With even intervals, it is computed from the
    /// start, so that rounding errors do not accumulate.
    fn due(&self, arrivals: Arrivals) -> Duration {
        let seconds =
            if arrivals.are_random { self.due } else { self.taken as f64 / arrivals.rate };
        Duration::from_secs_f64(seconds)
    }

    fn pass(&mut self, arrivals: Arrivals) {
        let interval: f64 = Exp1.sample(&mut self.intervals);
        self.due += interval / arrivals.rate;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accesses() -> Accesses {
        Accesses {
            path: "file".to_owned(),
            block_bytes: 512,
            blocks: 64,
            visits: 0,
            write_percent: 30,
            read_first: false,
            zipf: 0.0,
            seed: 3,
            content_seed: 1,
        }
    }

    fn dues(arrivals: Arrivals, limit: Limit) -> Vec<f64> {
        let turns = Turns::new(&accesses(), limit, Some(arrivals));
        std::iter::from_fn(|| turns.take()).map(|turn| turn.due.unwrap().as_secs_f64()).collect()
    }

    #[test]
    fn even_arrivals_are_at_even_intervals_and_end_by_time() {
        let even = Arrivals { rate: 100.0, are_random: false };
        let dues = dues(even, Limit::Time(Duration::from_secs(2)));
        assert_eq!(dues.len(), 200);
        assert!((dues[199] - 1.99).abs() < 1e-6 && dues[0] == 0.0);
    }

    /// The intervals of a Poisson process have a mean of 1/rate, and a standard deviation equal to
    /// it.
    #[test]
    fn random_arrivals_form_a_poisson_process() {
        let random = Arrivals { rate: 1000.0, are_random: true };
        let dues = dues(random, Limit::Count(20_000));
        let intervals: Vec<f64> = dues.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = intervals.iter().sum::<f64>() / intervals.len() as f64;
        let square = |one: &f64| (one - mean).powi(2);
        let deviation = (intervals.iter().map(square).sum::<f64>() / intervals.len() as f64).sqrt();
        assert!((mean - 1e-3).abs() < 3e-5, "{mean}");
        assert!((deviation - 1e-3).abs() < 5e-5, "{deviation}");
    }

    #[test]
    fn written_blocks_are_those_of_the_taken_write_requests() {
        let turns = Turns::new(&accesses(), Limit::Count(40), None);
        let taken: Vec<Turn> = std::iter::from_fn(|| turns.take()).collect();
        assert_eq!((taken.len() as u64, turns.taken()), (40, 40));
        let writes = taken.iter().filter(|turn| turn.visit.writes);
        assert_eq!(
            writes.map(|turn| turn.visit.block).collect::<HashSet<_>>(),
            turns.written(&accesses())
        );
    }
}
