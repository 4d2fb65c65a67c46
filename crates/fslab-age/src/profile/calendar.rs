//! How busy days are, and when in a day something happens.

use rand::RngExt;
use rand_pcg::Pcg64;

use super::Profile;
use super::sizes::{any_lognormal, log_uniform};

/// Nanoseconds of a day.
pub const DAY_NS: u64 = 86_400_000_000_000;

/// Files of less than a day live so long at least, in seconds.
const LIFE_MIN_S: f64 = 0.1;

/// Half of them live no longer.
const LIFE_MEDIAN_S: f64 = 30.0;

/// How busy a day is: 1 on average over all days, 0 on idle ones.
pub fn activity(profile: &Profile, random: &mut Pcg64) -> f64 {
    if random.random_bool(profile.idle_days) {
        return 0.0;
    }
    let (sigma, working) = (profile.day_sigma, 1.0 - profile.idle_days);
    any_lognormal(random, -sigma * sigma / 2.0, sigma) / working
}

/// A time of a day, in nanoseconds since it began: three of four are in ten hours of work.
pub fn time_of_day(random: &mut Pcg64) -> u64 {
    let hour = 3_600_000_000_000;
    match random.random_bool(0.75) {
        true => random.random_range(8 * hour..18 * hour),
        false => random.random_range(0..DAY_NS),
    }
}

/// How long a file lives that lives less than a day: log-uniform from a tenth of a second to 30
/// for half of them, and from there to 24 hours for the others.
pub fn short_life_ns(random: &mut Pcg64) -> u64 {
    let seconds = match random.random_bool(0.5) {
        true => log_uniform(random, LIFE_MIN_S, LIFE_MEDIAN_S),
        false => log_uniform(random, LIFE_MEDIAN_S, 86_400.0),
    };
    (seconds * 1e9) as u64
}
