//! A developer's home directory: many small files in a deep tree, with builds that create and
//! remove many of them. Sizes and directories were measured on a development machine (411,284
//! files). A tail of large files is added to the lognormal distribution of sizes. Without it, the
//! mean size would be half of the measured mean.

use super::{Directories, Profile, Sizes};

/// The profile `developer`.
pub const PROFILE: Profile = Profile {
    name: "developer",
    help: "a developer's home directory: small files in a deep tree, and builds that create and \
           remove many files",
    volume_bytes: 4 << 30,
    days: 180,
    filled_at_first: 0.4,
    utilisation: 0.7,
    sizes: Sizes::LognormalTail { mu: 7.96, sigma: 1.75, tail: 0.003, largest: 64 << 20 },
    creates_per_file: 0.004,
    changes_per_file: 0.004,
    rewrites: 0.9,
    change_candidates: 1,
    operations_per_file: 0.1,
    writes_per_volume: 0.15,
    short_sigma: 1.8,
    day_sigma: 0.9,
    idle_days: 0.2,
    directories: Directories::Tree { files_each: 10.2, depth_max: 16 },
    directory_sigma: 1.0,
};
