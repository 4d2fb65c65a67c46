//! A file server for many users, with the size distribution of SPECsfs for NFS servers.

use super::{Directories, Profile, Sizes};

/// File sizes in bytes and their weights.
const SPEC_SFS: &[(u64, f64)] = &[
    (1 << 10, 33.0),
    (2 << 10, 21.0),
    (4 << 10, 13.0),
    (8 << 10, 10.0),
    (16 << 10, 8.0),
    (32 << 10, 5.0),
    (64 << 10, 4.0),
    (128 << 10, 3.0),
    (256 << 10, 2.0),
    (1 << 20, 1.0),
];

/// The profile `server`.
pub const PROFILE: Profile = Profile {
    name: "server",
    help: "a file server for many users, with the file sizes of SPECsfs",
    volume_bytes: 8 << 30,
    days: 365,
    filled_at_first: 0.5,
    utilisation: 0.8,
    sizes: Sizes::Table(std::borrow::Cow::Borrowed(SPEC_SFS)),
    creates_per_file: 0.004,
    changes_per_file: 0.004,
    rewrites: 0.8,
    change_candidates: 1,
    operations_per_file: 0.05,
    writes_per_volume: 0.05,
    short_sigma: 1.8,
    day_sigma: 0.7,
    idle_days: 0.05,
    directories: Directories::Tree { files_each: 10.2, depth_max: 12 },
    directory_sigma: 1.0,
};
