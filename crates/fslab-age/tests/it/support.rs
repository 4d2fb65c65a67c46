//! What tests share.

use fslab_age::profile::{Generator, Profile, find};
use fslab_age::replay::{Data, Observer, Replayed, Settings, WhenFull};
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
    Settings {
        data: Data::Real,
        when_full: WhenFull::Stop,
        owner: None,
        threads,
        sync_every_ns: 3_600_000_000_000,
        checkpoint: None,
        checkpoint_every: u64::MAX / 4,
        workload_hash: "test".to_owned(),
        observe_every_days: 0,
    }
}

/// Goes on for ever.
pub struct Patience;

impl Observer for Patience {
    fn progress(&mut self, _replayed: &Replayed, _time_ns: u64) -> fslab_age::Result<bool> {
        Ok(true)
    }

    fn day(&mut self, _day: u64) -> fslab_age::Result<()> {
        Ok(())
    }
}

/// The operations as a replay takes them.
pub fn stream(operations: &[Operation]) -> impl Iterator<Item = fslab_age::Result<Operation>> {
    operations.iter().cloned().map(Ok)
}
