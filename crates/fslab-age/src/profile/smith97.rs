//! A model of the workload of "File System Aging" (Smith and Seltzer 1997). Its slides contain
//! these figures: 1 GB, 7 months, 1.3 million operations, 87.3 GB written. At the end, there are
//! 33,797 files with a total of 634 MB, and 9.5 % of the files were changed in the last 30 days.
//!
//! The other values are chosen for this profile. Sizes of long-lived files are lognormal; their
//! mean follows from these figures. The activity varies from day to day as in the home directories
//! that the FSL (Stony Brook) recorded. Directories (one per cylinder group) are used unevenly, so
//! that groups overflow.

use super::{Directories, Profile, Sizes};

/// The profile `smith97`.
pub const PROFILE: Profile = Profile {
    name: "smith97",
    help: "a file server of 1997: 1 GiB, 7 months, 1.3 million operations (Smith and Seltzer)",
    volume_bytes: 1 << 30,
    days: 213,
    filled_at_first: 0.5,
    utilisation: 0.643,
    sizes: Sizes::Lognormal { mu: 8.02, sigma: 1.9, largest: 16 << 20 },
    creates_per_file: 0.0013,
    changes_per_file: 0.0016,
    rewrites: 0.8,
    change_candidates: 2,
    operations_per_file: 0.19,
    writes_per_volume: 0.381,
    short_sigma: 1.6,
    day_sigma: 0.5,
    idle_days: 0.02,
    directories: Directories::Flat { bytes_each: 11 << 20 },
    directory_sigma: 0.8,
};
