//! Stress: a volume that is nearly full from the first day, with equally busy days and constant
//! replacement of files. It shows the worst case for an allocation policy.

use super::{Directories, Profile, Sizes};

/// The profile `stress`.
pub const PROFILE: Profile = Profile {
    name: "stress",
    help: "a volume that is always 90 % full, and whose files are all replaced repeatedly",
    volume_bytes: 1 << 30,
    days: 60,
    filled_at_first: 0.9,
    utilisation: 0.9,
    sizes: Sizes::Lognormal { mu: 9.5, sigma: 1.8, largest: 16 << 20 },
    creates_per_file: 0.05,
    changes_per_file: 0.05,
    rewrites: 0.5,
    change_candidates: 1,
    operations_per_file: 0.2,
    writes_per_volume: 0.2,
    short_sigma: 1.5,
    day_sigma: 0.1,
    idle_days: 0.0,
    directories: Directories::Flat { bytes_each: 16 << 20 },
    directory_sigma: 0.8,
};
