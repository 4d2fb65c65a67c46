//! Runs the conformance checks over each kind of archive in this crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fslab_tier::Id;
use fslab_tier::archive::conformance::broken_promises;
use fslab_tier::archive::testing::MemoryArchive;
use fslab_tier::archive::{Archive, DirectoryArchive, EncryptedArchive, Key};

use crate::support::{Counted, TIER};

#[test]
fn directory_and_encrypted_archives_conform() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("archive");
    DirectoryArchive::init(&root, Id([1; 16]), TIER, None).unwrap();
    let directory: Arc<dyn Archive> = Arc::new(DirectoryArchive::open(&root, TIER).unwrap());
    assert_eq!(broken_promises(&*directory), Vec::<String>::new());
    let identities = Arc::new(Counted(AtomicU64::new(0)));
    let encrypted = EncryptedArchive::new(directory, Key::new([5; 32]), identities);
    assert_eq!(broken_promises(&encrypted), Vec::<String>::new());
}

#[test]
fn conformance_checks_detect_planted_faults() {
    for number in 0..6 {
        let memory = MemoryArchive::new(Id([1; 16]), "memory");
        let faults = memory.faults();
        let planted =
            [&faults.keeps, &faults.short, &faults.flips, &faults.full, &faults.reads_fail];
        planted.get(number).into_iter().for_each(|fault| fault.store(true, Ordering::SeqCst));
        let broken = broken_promises(&memory);
        assert_eq!(broken.is_empty(), number == planted.len(), "{number}: {broken:?}");
    }
}
