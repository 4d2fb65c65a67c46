//! Synthetic workloads from parameters and a seed. They model years of use, based on published
//! facts about real file systems.
//!
//! A profile consists of one file with a [`Profile`] and one line in [`PROFILES`]. [`Generator`]
//! turns its numbers into operations and reads neither a clock nor files.

mod calendar;
mod definition;
mod developer;
mod events;
mod generator;
pub mod geriatrix;
mod long_lived;
mod mail;
mod parameters;
mod server;
mod sizes;
mod smith97;
mod stress;

pub use calendar::DAY_NS;
pub(crate) use calendar::{short_life_ns, time_of_day};
pub use definition::{Directories, Profile};
pub use generator::Generator;
pub use parameters::{PARAMETERS, Parameter};
pub use sizes::Sizes;
pub(crate) use sizes::lognormal;

use crate::error::{Error, Result};

/// All profiles, in the order in which they are listed.
pub const PROFILES: &[&Profile] =
    &[&smith97::PROFILE, &developer::PROFILE, &mail::PROFILE, &server::PROFILE, &stress::PROFILE];

/// Returns the profile with a name.
///
/// # Errors
/// Fails if the profile does not exist; the message lists all profiles.
pub fn find(name: &str) -> Result<&'static Profile> {
    PROFILES.iter().copied().find(|profile| profile.name == name).ok_or_else(|| {
        let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
        Error::parameter(format!("there is no profile '{name}'; use one of {}", names.join(", ")))
    })
}
