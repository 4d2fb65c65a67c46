//! The activity of each day, and the times of events within a day.

use rand::RngExt;
use rand_pcg::Pcg64;

use super::Profile;
use super::sizes::{any_lognormal, log_uniform};

/// Nanoseconds per day.
pub const DAY_NS: u64 = 86_400_000_000_000;

/// Minimum lifetime of a short-lived file, in seconds.
const LIFE_MIN_S: f64 = 0.1;

/// Median lifetime of short-lived files, in seconds.
const LIFE_MEDIAN_S: f64 = 30.0;

/// Returns the relative activity of a random day: 1 on average over all days, 0 on idle days.
pub fn activity(profile: &Profile, random: &mut Pcg64) -> f64 {
    if random.random_bool(profile.idle_days) {
        return 0.0;
    }
    let (sigma, working) = (profile.day_sigma, 1.0 - profile.idle_days);
    any_lognormal(random, -sigma * sigma / 2.0, sigma) / working
}

/// Returns a time in nanoseconds since the start of the day. Three quarters of the times are drawn
/// from ten working hours, the others from the whole day.
pub fn time_of_day(random: &mut Pcg64) -> u64 {
    let hour = 3_600_000_000_000;
    match random.random_bool(0.75) {
        true => random.random_range(8 * hour..18 * hour),
        false => random.random_range(0..DAY_NS),
    }
}

/// Returns the lifetime of a file that lives less than a day. For half of the files it is
/// log-uniform from a tenth of a second to 30 seconds. For the others it is log-uniform from 30
/// seconds to 24 hours.
pub fn short_life_ns(random: &mut Pcg64) -> u64 {
    let seconds = match random.random_bool(0.5) {
        true => log_uniform(random, LIFE_MIN_S, LIFE_MEDIAN_S),
        false => log_uniform(random, LIFE_MEDIAN_S, 86_400.0),
    };
    (seconds * 1e9) as u64
}
