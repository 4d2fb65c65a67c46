//! An in-memory store behind a proxy, and operations on archives for tests.

use std::io;
use std::sync::Arc;

use fslab_s3::testing::{Hashing, MemoryStore, Place, Proxy};
use fslab_tier::archive::{Archive, Container, ContainerKind};
use fslab_tier::{Id, Identities};

pub const TIER: Id = Id([0x77; 16]);
pub const ARCHIVE: Id = Id([0x11; 16]);

/// The options of tests, with short timeouts.
pub const SHORT: &str = "a/b;lease=2;stall=5";

/// The options with a longer lease, for tests in which the lease must not end on a busy machine.
pub const LONG: &str = "a/b;lease=20;stall=5";

/// A store with an archive, behind a proxy.
pub struct World {
    pub store: MemoryStore,
    pub proxy: Proxy,
}

impl World {
    pub fn new() -> Self {
        Self::of(Hashing::default())
    }

    /// Returns a store that does this with hashes.
    pub fn of(hashing: Hashing) -> Self {
        let store = MemoryStore::start().unwrap();
        store.set_hashing(hashing);
        let proxy = Proxy::before(store.port()).unwrap();
        Place::new(store.port(), SHORT).unwrap().make(ARCHIVE, TIER).unwrap();
        Self { store, proxy }
    }

    /// Returns the archive, through the proxy.
    pub fn place(&self) -> Place {
        Place::new(self.proxy.port(), SHORT).unwrap()
    }

    /// Returns the archive, without the proxy.
    pub fn direct(&self) -> Place {
        Place::new(self.store.port(), SHORT).unwrap()
    }

    pub fn open(&self) -> Arc<dyn Archive> {
        self.place().open(TIER, None).unwrap()
    }
}

/// A source of equal identities, for the salts of encrypted archives.
pub struct Same;

impl Identities for Same {
    fn make(&self) -> Id {
        Id([3; 16])
    }
}

pub fn files(number: u8) -> Container {
    (ContainerKind::Files, Id([number; 16]))
}

pub fn write(archive: &dyn Archive, container: Container, bytes: &[u8]) -> io::Result<()> {
    let mut upload = archive.begin(container)?;
    upload.write(bytes)?;
    upload.finish().map(drop)
}

pub fn contents(archive: &dyn Archive, container: Container) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; archive.length(container)? as usize];
    let count = archive.read(container, 0, &mut bytes)?;
    assert_eq!(count, bytes.len());
    Ok(bytes)
}

pub fn listed(archive: &dyn Archive) -> io::Result<Vec<(Id, u64)>> {
    let mut found = Vec::new();
    archive.list(ContainerKind::Files, &mut |id, length| found.push((id, length)))?;
    Ok(found)
}

/// Returns bytes without a pattern, so that a wrong range has different bytes.
pub fn noise(seed: u8, length: usize) -> Vec<u8> {
    let mut state = u32::from(seed).wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Deletes a container. Its store may retain the bytes.
pub fn delete(archive: &dyn Archive, container: Container) -> io::Result<()> {
    archive.delete(container).map(|_done_or_retained| ())
}
