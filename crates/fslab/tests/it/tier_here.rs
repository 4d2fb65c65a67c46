//! Runs the engine of a tier inside the test, over a real file system. So the test can archive and
//! release files between two operations of a program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use fslab_tier::home::Home;
use fslab_tier::stored::Marks;
use fslab_tier::{Calendar, Environment, Id, Identities, Tier, inode_by_number_and_birth};
use fslab_vfs::{HostFs, HostOptions, MonotonicClock, Timestamp};

use crate::tiering::Tiered;

/// Returns the engine of a tier that is not mounted.
#[track_caller]
pub fn opened(tiered: &Tiered) -> Arc<Tier> {
    let tree = HostFs::open(tiered.tree(), &HostOptions::default()).unwrap();
    let home = Home::read(&tiered.beside("home")).unwrap();
    let around = Environment {
        clock: Arc::new(MonotonicClock),
        calendar: Arc::new(Now),
        identities: Arc::new(Counted(AtomicU64::new(0))),
        inode_identity: inode_by_number_and_birth,
        marks: Marks::Trusted,
    };
    home.open(Arc::new(tree), home.settings(), around).unwrap()
}

struct Now;

impl Calendar for Now {
    fn now(&self) -> Timestamp {
        Timestamp::from(SystemTime::now())
    }
}

struct Counted(AtomicU64);

impl Identities for Counted {
    fn make(&self) -> Id {
        let mut id = [0x20; 16];
        id[8..].copy_from_slice(&self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        Id(id)
    }
}
