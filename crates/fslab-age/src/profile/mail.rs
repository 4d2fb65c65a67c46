//! A mail server with one file per message in few directories. Nearly all files are small and never
//! change.

use super::{Directories, Profile, Sizes};

/// The profile `mail`.
pub const PROFILE: Profile = Profile {
    name: "mail",
    help: "a mail server with one file per message: nearly all files are small, and some grow",
    volume_bytes: 4 << 30,
    days: 180,
    filled_at_first: 0.5,
    utilisation: 0.8,
    sizes: Sizes::Lognormal { mu: 8.9, sigma: 1.4, largest: 25 << 20 },
    creates_per_file: 0.02,
    changes_per_file: 0.002,
    rewrites: 0.1,
    change_candidates: 1,
    operations_per_file: 0.15,
    writes_per_volume: 0.05,
    short_sigma: 1.4,
    day_sigma: 0.4,
    idle_days: 0.0,
    directories: Directories::Flat { bytes_each: 32 << 20 },
    directory_sigma: 1.2,
};
