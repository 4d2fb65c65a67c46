//! Code shared by the tests.

use fslab_age::profile::{Generator, Profile, find};
use fslab_age::replay::Settings;
use fslab_age::workload::Operation;

/// Returns a profile that runs quickly.
pub fn small(name: &str) -> Profile {
    let mut profile = find(name).unwrap().on_volume(32 << 20);
    profile.days = 12;
    profile
}

pub fn operations(profile: Profile, seed: u64) -> Vec<Operation> {
    let generator = Generator::new(profile, seed, (0, 0)).unwrap();
    generator.map(|operation| operation.unwrap()).collect()
}

/// Returns replay settings without checkpoints.
pub fn settings(threads: usize) -> Settings {
    Settings { threads, sync_every_ns: 3_600_000_000_000, ..Settings::default() }
}

/// Returns the operations as an iterator for a replay.
pub fn stream(operations: &[Operation]) -> impl Iterator<Item = fslab_age::Result<Operation>> {
    operations.iter().cloned().map(Ok)
}
