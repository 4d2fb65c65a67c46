//! What tests share.

use fslab_age::profile::{Generator, Profile, find};
use fslab_age::replay::Settings;
use fslab_age::workload::Operation;

/// A profile that is done in a moment.
pub fn small(name: &str) -> Profile {
    let mut profile = find(name).unwrap().on_volume(32 << 20);
    profile.days = 12;
    profile
}

/// The operations of a profile.
pub fn operations(profile: Profile, seed: u64) -> Vec<Operation> {
    let generator = Generator::new(profile, seed, (0, 0)).unwrap();
    generator.map(|operation| operation.unwrap()).collect()
}

/// A replay without checkpoints.
pub fn settings(threads: usize) -> Settings {
    Settings { threads, sync_every_ns: 3_600_000_000_000, ..Settings::default() }
}

/// The operations as a replay takes them.
pub fn stream(operations: &[Operation]) -> impl Iterator<Item = fslab_age::Result<Operation>> {
    operations.iter().cloned().map(Ok)
}
